"""Mistakes in how training is checked and disputed: each lets a cheat go, or convicts the honest.

Planted as those of tests.simnet.results.mutants.daemons. Each scene has one liar among four, the
last of them, and lasts as long as the lot needs to be sure of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy as np
import pytest

from daa_consensus.bft.evidence import conviction
from daa_consensus.bft.messages import OfferBody
from daa_consensus.votes import Certificate, Signed
from daa_dag.ids import BlockId, Digest, NodeId, tagged_digest
from daa_node.disputes import court
from daa_node.disputes.charge import Charge
from daa_node.disputes.court import Court
from daa_node.disputes.decided_sets import DecidedSets
from daa_node.disputes.replayer import follows
from daa_node.errors import Unavailable
from daa_node.seams import CanaryStep, SegmentCheck, SegmentOrder, TrainOrder
from daa_node.spot_checks import checks, lot
from daa_node.spot_checks.calibration import CANARY_STEPS, FLOOR, Calibration
from daa_node.spot_checks.canaries import KIND, NAME
from daa_node.spot_checks.findings import Difference, difference
from daa_node.tensors import Float32Array, Int32Array
from daa_node.training.boundaries import Boundary
from daa_node.training.canary import NOBODY
from daa_node.training.core import Core, SealedTraining
from simnet.checks.invariants import (
    FRAMERS_FALL,
    IN_TIME,
    NO_SLANDER,
    QUORUMS,
    SEEN_THROUGH,
)
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.inline_trainer import Workbench
from simnet.nodes.virtual.machine import Machine
from simnet.world.adversaries.cheating_core import Meddle, by_step
from tests.simnet.results.mutants.daemons import Plant
from tests.simnet.results.mutants.scenes import Scene

WITHIN_S = 300.0
ROUGHNESS = 1e-5  # relative L2 of a step: kinds of devices were measured 1e-6 to 6e-5 apart
ROUGHER = 1e-3  # devices of another kind, as by products of fewer bits
ANYTHING = Fraction(10**9)
HALF = (1, 2)  # is drawn where it matters who accuses and not how often somebody looks

# The lot


def lot_known_beforehand(patch: pytest.MonkeyPatch) -> None:
    """It is drawn from the parent's seed, the author and the round, which all know who train."""

    def digest(
        seed: Digest,
        _set_block: BlockId,
        offer: OfferBody,
        purpose: str,
        author: NodeId | None = None,
    ) -> bytes:
        return tagged_digest("spot-check", [seed, offer.author, offer.round, purpose, author])

    patch.setattr(lot, "_digest", digest)


def nobody_drawn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lot, "_happens", lambda *_: False)


# Tolerance


def anything_is_sound(patch: pytest.MonkeyPatch) -> None:
    """A check tolerates any distance."""

    def difference_of(found: SegmentCheck, _tolerance: float) -> Difference | None:
        return difference(found, float(ANYTHING))

    patch.setattr(checks, "difference", difference_of)
    patch.setattr(checks, "doubt", difference_of)


def anything_follows(patch: pytest.MonkeyPatch) -> None:
    """A replay tolerates any distance: so whoever accuses is wrong."""
    patch.setattr(court, "follows", lambda found, _tolerance: follows(found, ANYTHING))


def rounding_differs(patch: pytest.MonkeyPatch) -> None:
    """A check tolerates nothing."""

    def difference_of(found: SegmentCheck, _tolerance: float) -> Difference | None:
        return difference(found, 0.0)

    patch.setattr(checks, "difference", difference_of)


def rounding_convicts(patch: pytest.MonkeyPatch) -> None:
    """A replay tolerates nothing: so whoever is accused has rounded otherwise."""
    patch.setattr(court, "follows", lambda found, _tolerance: follows(found, Fraction(0)))


def nothing_calibrated(patch: pytest.MonkeyPatch) -> None:
    """A check tolerates of every device what the genesis does."""
    patch.setattr(Calibration, "tolerance", lambda self, _author: self._ceiling)


def one_tolerance_for_all(patch: pytest.MonkeyPatch) -> None:
    """A check tolerates of every device what one knows of the best."""
    patch.setattr(Calibration, "tolerance", lambda _self, _author: FLOOR)


# Verdicts


def one_verdict_convicts(patch: pytest.MonkeyPatch) -> None:
    note = Court._note

    def believed(self: Court, case: Any, verdict: Signed) -> None:
        note(self, case, verdict)
        if not case.is_over:
            case.is_over = True
            pairs = ((verdict.signer, verdict.signature),)
            evidence = conviction(Certificate(verdict.statement, pairs))
            assert evidence is not None
            self._voice.convict(evidence)

    patch.setattr(Court, "_note", believed)


def accusers_believed(patch: pytest.MonkeyPatch) -> None:
    """Nobody replays what it is about."""

    async def guilty(_self: Court, charge: Charge) -> NodeId:
        return charge.drawn.author

    patch.setattr(Court, "_guilty", guilty)


def framers_go_free(patch: pytest.MonkeyPatch) -> None:
    """There is no verdict over who accuses falsely."""
    guilty = Court._guilty

    async def author_or_nobody(self: Court, charge: Charge) -> NodeId:
        found = await guilty(self, charge)
        if found == charge.accuser:
            raise Unavailable("it follows")
        return found

    patch.setattr(Court, "_guilty", author_or_nobody)


# Deadlines


def disputes_open_for_ever(patch: pytest.MonkeyPatch) -> None:
    """All that was ever drawn may be accused, and is kept for that."""

    class Endless(dict[int, Any]):
        def __len__(self) -> int:
            return 0

    make = DecidedSets.__init__

    def made(self: DecidedSets, *parts: Any) -> None:
        make(self, *parts)
        vars(self)["_drawn"] = Endless()

    patch.setattr(DecidedSets, "__init__", made)
    patch.setattr(DecidedSets, "is_open", lambda self, round_, *_: round_ <= self.newest_round)


def cases_never_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Court, "_forget", lambda self: None)


# Scenes


class RoughCore:
    """A Core whose steps come out a little elsewhere than on other devices, as honest ones may."""

    def __init__(self, inner: Core, device: int, roughness: float) -> None:
        self._inner = inner
        self._roughness = roughness
        self._chance = np.random.default_rng(device)
        self.device = inner.device
        self.check_segment, self.evaluate = inner.check_segment, inner.evaluate
        self.inner_state, self.set_inner_state = inner.inner_state, inner.set_inner_state
        self.train_on, self.take_ahead, self.set_ahead = (
            inner.train_on,
            inner.take_ahead,
            inner.set_ahead,
        )

    def canary(self, step: int, is_cancelled: Callable[[], bool] = lambda: False) -> CanaryStep:
        return replace(self._inner.canary(step, is_cancelled), distance=self._roughness)

    def train_and_seal(
        self,
        order: TrainOrder,
        base_D: Int32Array,
        is_cancelled: Callable[[], bool] = lambda: False,
        on_boundary: Callable[[Boundary], None] = lambda _boundary: None,
    ) -> SealedTraining:
        shown = by_step(order.segment_steps, on_boundary, self._meddle([]))
        each = replace(order, segment_steps=1)
        return self._inner.train_and_seal(each, base_D, is_cancelled, shown)

    def open_segment(
        self,
        order: SegmentOrder,
        start: Boundary,
        on_boundary: Callable[[Boundary], None],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        meddled = by_step(1, on_boundary, self._meddle([start.weights_D.copy()]))
        shown = on_boundary if order.exact else meddled
        self._inner.open_segment(order, start, shown, is_cancelled)

    def _meddle(self, before: list[Float32Array]) -> Meddle:
        def rough(_steps: int, boundary: Boundary) -> None:
            weights_D = boundary.weights_D
            if before:
                noise_D = self._chance.normal(size=weights_D.size)
                moved = np.linalg.norm(weights_D - before[0])
                scale = self._roughness * moved / np.linalg.norm(noise_D)
                weights_D += (scale * noise_D).astype(np.float32)
            before[:] = [weights_D.copy()]

        return rough


def calibrate(machine: Machine) -> None:
    """It has taken its canary steps before: a scene is over before it has, so seldom they are."""
    step, calibration = (
        machine.workbench.core.canary(0),
        Calibration(NOBODY, (1, 1), lambda: (), lambda: 0),
    )
    for _ in range(CANARY_STEPS):
        calibration.note_own(step)
    machine.disk.put(f"work/{KIND}/{NAME}", calibration.encode(), sync=True)


async def rounds(cluster: Cluster, count: int, roughness: float = ROUGHNESS) -> None:
    """Each of the honest has a device of its own."""
    for node in cluster.honest:
        machine = cluster.machines[node]
        own = Workbench(machine.workbench.job, machine.workbench.examples)
        own.core = cast(Core, RoughCore(cast(Core, own.core), node, roughness))
        machine.workbench = own
    for machine in cluster.machines:
        calibrate(machine)
    cluster.start()
    await cluster.until_height(count, WITHIN_S)


def scene(
    count: int,
    liar: Mapping[str, Any],
    segments: int = 4,
    roughness: float = ROUGHNESS,
    share: tuple[int, int] = (1, 1),
) -> Scene:
    """So many rounds with that liar, who is quick; as many contributions are drawn as may be."""
    return Scene(
        partial(rounds, count=count, roughness=roughness),
        work={"inner_steps_max": 8, "spot_checks": {"share": share, "segments": segments}},
        others={
            "nodes": [{"count": 3}, {"name": "quick", "count": 1, "speed": 4}],
            "adversaries": [{"nodes": [3], **liar}],
            "topology": {"preset": "local"},
        },
    )


JUDGED: dict[str, Scene] = {
    "skips steps": scene(27, {"kind": "cheat", "cheat": "skips_steps"}),
    # a step a segment: what one is off by, the next makes more of
    "doubles its update among rough devices": scene(
        20, {"kind": "cheat", "cheat": "doubles_update"}, segments=8, roughness=ROUGHER
    ),
    "stretches one step": scene(40, {"kind": "cheat", "cheat": "stretches_one_step"}, segments=1),
    "knows the lot": scene(27, {"kind": "cheat", "cheat": "knows_the_lot"}),
    "wrong labels": scene(12, {"kind": "poisoner", "poison": "label_flip"}),
    "frames": scene(40, {"kind": "framer"}, share=HALF),
    "frames late": scene(64, {"kind": "late_accuser"}, share=HALF),
}
MISJUDGED: dict[str, tuple[Plant, str, set[str]]] = {
    "the lot is known beforehand": (lot_known_beforehand, "knows the lot", {SEEN_THROUGH}),
    "nobody is drawn": (nobody_drawn, "skips steps", {SEEN_THROUGH}),
    "a check tolerates anything": (anything_is_sound, "skips steps", {SEEN_THROUGH}),
    "tolerance without calibration": (nothing_calibrated, "stretches one step", {SEEN_THROUGH}),
    "one tolerance for all devices": (
        *(one_tolerance_for_all, "doubles its update among rough devices", {NO_SLANDER}),
    ),
    "a replay tolerates anything": (anything_follows, "wrong labels", {NO_SLANDER}),
    "a check tolerates nothing": (rounding_differs, "frames", {NO_SLANDER}),
    "a replay tolerates no rounding": (rounding_convicts, "frames", {NO_SLANDER}),
    "the verdict of one convicts": (one_verdict_convicts, "frames", {NO_SLANDER, QUORUMS}),
    "an accuser is believed": (accusers_believed, "frames", {NO_SLANDER}),
    "who frames goes free": (framers_go_free, "frames", {FRAMERS_FALL}),
    "disputes stay open": (disputes_open_for_ever, "frames late", {IN_TIME}),
    "cases are never dropped": (cases_never_dropped, "frames late", {IN_TIME}),
}
