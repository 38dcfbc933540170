"""A quorum goes on by itself, whatever else stays broken for good, and rounds are certified."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from daa_consensus.bft.messages import OfferBody
from daa_dag.ids import NodeId
from daa_node.network.discovery import Discovery
from daa_node.rounds.holding import Holding
from simnet.checks.invariants import PROGRESS
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.world import run_virtual
from simnet.world.determinism import Trace
from simnet.world.random_clusters import random_daemons
from simnet.world.scenario import FOREVER_S, Scenario
from simnet.world.tolerance import beyond_f

BASE: dict[str, Any] = {
    "name": "core",
    "fidelity": "light",
    "duration_s": 12,
    "nodes": [{"count": 4}],
    "work": {"kind": "training", "rounds": 60, "inner_steps_max": 2, "window_s": 4},
    "checks": {
        "finalizations_after_heal": 6,
        "vertices_after_heal": 3,
        "heal_s": 30,
        "core": [0, 1, 2],
    },
}
DEAD = {"kind": "kill", "at_s": 2.85, "nodes": [3]}  # once a set with its update is decided
BACK = {"kind": "kill", "at_s": 1.5, "for_s": 1.6, "nodes": [2]}  # in time for the core


def run(**changes: Any) -> Outcome:
    return run_virtual(Scenario.model_validate({**BASE, **changes}), Trace())


def broken(outcome: Outcome) -> list[str]:
    return [each.name for each in outcome.invariants if not each.ok]


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "pause", "at_s": 2.0, "nodes": [3]},
        {"kind": "partition", "shape": "one_way", "at_s": 2.0, "nodes": [3]},
        {"kind": "disk", "disk": "full", "at_s": 2.0, "nodes": [3]},
    ],
)
def test_a_core_certifies_rounds_while_all_else_stays_broken(fault: dict[str, Any]) -> None:
    outcome = run(faults=[fault])
    assert broken(outcome) == []
    assert "core went on alone" in {mark.name for mark in outcome.sometimes}
    everybody = {**BASE["checks"], "core": [], "heal_s": 20}
    assert broken(run(faults=[fault], checks=everybody)) == [PROGRESS]


def test_a_run_ends_though_a_stopped_node_is_at_what_its_operator_asked() -> None:
    faults = [
        {"kind": "disk", "disk": "slow", "factor": 200, "at_s": 1.0, "for_s": 4.0, "nodes": [3]},
        {"kind": "pause", "at_s": 2.6, "nodes": [3]},
    ]
    outcome = run(
        faults=faults,
        changes=[{"kind": "stake", "at_s": 2.0, "node": 0, "stake": 2}],
        work={**BASE["work"], "epoch_rounds": 1},
    )
    assert broken(outcome) == []
    assert "core went on alone" in {mark.name for mark in outcome.sometimes}


def _one_at_a_time(self: Discovery, nursery: trio.Nursery) -> None:
    """A dialer that stays with whoever it dials until that one answers."""
    if self._kept:
        return
    self._kept.update(self._directory.members())
    turn = trio.Lock()

    async def keep(node_id: NodeId) -> None:
        while True:
            peer_id = self._directory.peer_of(node_id)
            async with turn:
                while peer_id not in {*self._transport.connected(), self._transport.peer_id}:
                    assert peer_id is not None
                    await self._dial(peer_id)
                    await trio.sleep(0.5)
            await trio.sleep(0.5)

    for node_id in sorted(self._kept):
        nursery.start_soon(keep, node_id)


@pytest.mark.long
def test_a_dialer_that_waits_for_the_dead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    back, dead = {**BACK, "at_s": 4.0, "for_s": 3.0}, {**DEAD, "at_s": 2.0}
    monkeypatch.setattr(Discovery, "_keep_members", _one_at_a_time)
    # Whom it dials first is the seed's.
    seeds = (s for s in range(12) if broken(run(seed=s, faults=[dead, back])) == [PROGRESS])
    seed = next(seeds, None)
    assert seed is not None, "it was never found waiting for the dead"
    assert broken(run(seed=seed, faults=[back])) == []  # without a permanent fault it passes


@pytest.mark.long
def test_a_fetch_that_asks_only_a_dead_author_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whose update a fetch is at when its author dies is the seed's.
    seeds = [seed for seed in range(8) if broken(run(seed=seed, faults=[BACK, DEAD])) == []]
    assert len(seeds) > 6
    store = Holding._store_durably

    async def from_author(
        self: Holding, offer: OfferBody, sources: Callable[[], list[NodeId]]
    ) -> None:
        await store(self, offer, lambda: [node for node in sources() if node == offer.author])

    monkeypatch.setattr(Holding, "_store_durably", from_author)
    found = (broken(run(seed=seed, faults=[BACK, DEAD])) for seed in seeds)
    assert [PROGRESS] in found


def test_rounds_are_certified_over_links_as_slow_as_delta_within_a_short_window() -> None:
    # A first fetch takes five round trips: it must outlast a window of six delta.
    far = {
        "topology": {"latency_ms": [470, 490]},
        "work": {**BASE["work"], "delta_ms": 500, "window_s": 3.0, "rounds": 3},
        "checks": {"finalizations_after_heal": 0, "vertices_after_heal": 3},
        "duration_s": 60,
    }
    outcome = run(**far)
    assert broken(outcome) == []
    assert outcome.facts["rounds"] == 3


def test_seeds_draw_cores_that_are_quorums_and_faults_of_others_that_never_heal() -> None:
    drawn = [random_daemons(seed) for seed in range(300)]
    cores = [scenario for scenario in drawn if scenario.checks.core]
    assert 60 < len(cores) < 150
    kinds = set[str]()
    for scenario in cores:
        assert beyond_f(scenario) is None
        liars = {node for adversary in scenario.adversaries for node in adversary.nodes}
        assert not liars & set(scenario.checks.core)
        kinds |= {fault.kind for fault in scenario.faults if fault.for_s == FOREVER_S}
    assert kinds == {"kill", "pause", "partition", "loss", "slow", "hold", "disk", "clock"}


def test_a_core_that_is_no_quorum_is_told() -> None:
    said = beyond_f(Scenario.model_validate({**BASE, "checks": {"core": [0, 1]}}))
    assert said is not None
    assert said.startswith("checks.core: its honest nodes [0, 1] weigh 2")


def test_a_core_is_refused_where_nobody_would_ask_for_it() -> None:
    with pytest.raises(ValueError, match="`core` takes"):
        Scenario.model_validate({**BASE, "fidelity": "process"})
