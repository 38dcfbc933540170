"""What a node does with the checks that the lot gives it: fetched, recomputed, told."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import pytest
import trio

from daa_consensus.bft.messages import Block, OfferBody, SetPayload
from daa_dag.chunking import Manifest, manifest_of
from daa_dag.ids import BlobRoot, BlockId, ChainId, Digest, NodeId, VertexId
from daa_node.errors import NodeError, PeerFault, StorageFailed, TrainerFailed, Unavailable
from daa_node.observability.events import EventLog
from daa_node.seams import CanaryStep, SealedClaim, SegmentCheck, SegmentOrder, StateRef, Trainer
from daa_node.spot_checks.calibration import CANARY_STEPS, FLOOR, Calibration, DeviceReport
from daa_node.spot_checks.checks import (
    SHARES_OF_TRAINING,
    SHOWN_LATER_S,
    SHOWN_WITHIN_ROUNDS,
    WAITING_MAX,
    Basis,
    CheckRules,
    SpotChecks,
)
from daa_node.spot_checks.findings import Part
from daa_node.spot_checks.health import Record
from daa_node.spot_checks.lot import Lot, draw
from tests.daa_node.spot_checks.test_lot import AUTHORS, offer_of

ME, OTHER = AUTHORS[0], AUTHORS[1]
STATE = StateRef(BlobRoot(b"m" * 32), BlobRoot(b"o" * 32))
MERGED = VertexId(b"x" * 32)
LAST = BlobRoot(b"last" * 8)
SIZES = (4, 4, 4, 4, 8)  # weights, moments, the residual, steps
RULES = CheckRules(Lot(share=(1, 1), checkers=1), 6, tolerance=(1, 1000), boundary_chunks=SIZES)
SOUND = SegmentCheck(3e-5, 1e-5, 2e-5, 0.0, 1e-6, steps_agree=True)


def boundary(weights: bytes, memory: bytes) -> Manifest:
    return manifest_of(weights * 4 + memory * 20, SIZES)


def owing(residual: bytes) -> Manifest:
    """A boundary on the way."""
    return manifest_of(b"x" * 12 + residual * 4 + b"y" * 8, SIZES)


def set_of(*authors: NodeId, round_: int = 3) -> Block:
    """With twenty steps of each: segments of six, six, six and two."""
    offers = tuple(replace(offer_of(author), round=round_) for author in authors)
    payload = SetPayload(round_, offers, (1,) * len(offers), "mean", 0, (), (), ())
    return Block(ChainId(b"c" * 32), 0, round_, round_, BlockId(b"p" * 32), 0, payload)


@dataclass
class Bench:
    """What the trainer finds, how long it takes, and what the author brings."""

    found: SegmentCheck | TrainerFailed = SOUND
    takes_s: float = 0.0
    failure: NodeError | None = None  # instead of a boundary
    fetch_s: float = 1.0  # until one comes, or fails
    there_after: int = 0  # boundaries that were asked for in vain
    start: Manifest = boundary(b"w", b"m")
    before: Manifest = boundary(b"e", b"m")
    merged: VertexId | None = MERGED
    owed: dict[BlobRoot, bytes] = field(default_factory=dict)  # of some boundaries the residual
    lost: set[BlobRoot] = field(default_factory=set)  # by their author
    shapeless: set[BlobRoot] = field(default_factory=set)  # roots of what is no boundary
    orders: list[SegmentOrder] = field(default_factory=list)
    held: set[BlobRoot] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.log = EventLog(lambda: 0)
        self.calibration = Calibration(ME, RULES.tolerance, lambda: {ME, OTHER}, lambda: 0)
        self.checks = SpotChecks(ME, RULES, cast(Trainer, self), self, self.calibration, self.log)
        self.basis = Basis(Digest(b"s" * 32), STATE, 40, lambda author: self.merged)

    async def check_segment(self, order: SegmentOrder) -> SegmentCheck:
        self.orders.append(order)
        assert order.sealed is not None
        assert {order.start_root, order.end_root, order.sealed.last_root} <= self.held
        assert self.checks.states() == {STATE.model_root}
        assert self.checks.updates() >= {BlobRoot(OTHER)}
        await trio.sleep(self.takes_s)
        assert {order.start_root, order.end_root} <= self.held
        if isinstance(self.found, TrainerFailed):
            raise self.found
        return self.found

    async def fetch(self, author: NodeId, root: BlobRoot) -> None:
        await trio.sleep(self.fetch_s)
        if self.failure is not None:
            raise self.failure
        if self.there_after > 0:
            self.there_after -= 1
            raise Unavailable("unknown")
        assert author == OTHER
        self.held.add(root)

    async def manifest(self, author: NodeId, root: BlobRoot) -> Manifest:
        if root in self.lost:
            raise Unavailable("unknown")
        if root in self.shapeless:
            raise PeerFault("malformed-manifest", "cut otherwise")
        if root == LAST:
            return self.before
        return owing(self.owed[root]) if root in self.owed else self.start

    async def last_boundary(self, merged: VertexId, author: NodeId) -> BlobRoot | None:
        assert (merged, author) == (MERGED, OTHER)
        return LAST

    async def base_manifest(self, base: StateRef) -> Manifest:
        return manifest_of(b"w" * 4, [4])

    async def drop(self, roots: Sequence[BlobRoot]) -> None:
        self.held -= set(roots)

    async def drop_all(self) -> None:
        self.held.clear()

    def told(self) -> list[tuple[Any, ...]]:
        return [(e["round"], e["finding"], e["distance"], e["why"]) for e in self.log.tail()]


@asynccontextmanager
async def fetching(bench: Bench) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.checks.run)
        await trio.sleep(0)
        yield
        nursery.cancel_scope.cancel()


async def checked(bench: Bench, *blocks: Block) -> None:
    """All of these sets are decided at once, then fetched; then we train, once for each."""
    async with fetching(bench):
        for block in blocks:
            bench.checks.decided(bench.basis, block)
        for _ in blocks:
            await trio.sleep(60)
            await bench.checks.recompute(training_s=10)
        await trio.sleep(1)
    # whatever came of it
    assert bench.held == bench.checks.states() == bench.checks.updates() == set()


async def test_what_comes_out_as_claimed_is_sound(autojump_clock: object) -> None:
    bench = Bench()
    await checked(bench, set_of(ME, OTHER))
    assert bench.told() == [(3, "sound", 3e-5, "")]
    assert bench.checks.health.of(OTHER) == Record(sound=1, distance=3e-5)
    assert bench.checks.health.of(ME) == Record()


@pytest.mark.parametrize("name", ["weights", "first", "second", "residual", "sealed"])
@pytest.mark.parametrize("distance", [1.1e-3, float("inf")])
async def test_what_is_beyond_the_tolerance_differs(
    name: str, distance: float, autojump_clock: object
) -> None:
    bench = Bench(replace(SOUND, **cast(Any, {name: distance})))
    await checked(bench, set_of(ME, OTHER))
    ((_, finding, _, why),) = bench.told()
    assert finding == "differs"
    (part,) = bench.log.tail()[-1]["parts"]
    assert part == {"first": Part.FIRST, "second": Part.SECOND, "sealed": Part.UPDATE}.get(
        name, name
    )
    assert why.startswith(f"{part}: {distance:.1e} off")
    assert bench.checks.health.of(OTHER) == Record(differs=1, distance=distance)


def _note(doubts: list[OfferBody], offer: OfferBody, _parts: Sequence[Part]) -> bool:
    doubts.append(offer)
    return False


def calibrate(bench: Bench) -> None:
    for _ in range(CANARY_STEPS):
        bench.calibration.note_own(CanaryStep("cpu", 1e-6, repeats=True))
    bench.calibration.note_report(OTHER, DeviceReport("cpu", CANARY_STEPS, 1e-6, 1e-6))


@pytest.mark.parametrize("name", ["weights", "first", "second"])
async def test_steps_further_off_than_two_devices_round_are_doubted_once_that_is_known(
    name: str, autojump_clock: object
) -> None:
    found = replace(SOUND, **cast(Any, {name: 1.1 * FLOOR}))
    for is_calibrated in (False, True):
        bench, doubts = Bench(found), list[OfferBody]()
        if is_calibrated:
            calibrate(bench)
        bench.checks.on_doubt = partial(_note, doubts)
        await checked(bench, set_of(ME, OTHER))
        ((_, finding, _, why),) = bench.told()
        assert finding == ("doubted" if is_calibrated else "sound")
        assert len(doubts) == is_calibrated
        assert ("at most 5.0e-04" in why) == is_calibrated
        record = bench.checks.health.of(OTHER)
        assert (record.sound, record.differs) == (0 if is_calibrated else 1, 0)


async def test_a_seal_is_never_doubted_by_canaries(autojump_clock: object) -> None:
    bench = Bench(replace(SOUND, sealed=9e-4, residual=9e-4))
    calibrate(bench)
    await checked(bench, set_of(ME, OTHER))
    assert bench.checks.health.of(OTHER) == Record(sound=1, distance=9e-4)


async def test_what_checks_find_of_steps_is_kept_for_calibration(autojump_clock: object) -> None:
    bench = Bench(replace(SOUND, sealed=9e-4))
    calibrate(bench)
    await checked(bench, set_of(ME, OTHER))
    ((pair),) = bench.calibration.pairs()
    assert (pair["checks"], pair["found_high"]) == (1, 3e-5)


async def test_a_wrong_count_of_steps_differs(autojump_clock: object) -> None:
    bench = Bench(replace(SOUND, steps_agree=False))
    await checked(bench, set_of(ME, OTHER))
    assert bench.checks.health.of(OTHER).differs == 1


@pytest.mark.parametrize(
    ("start", "merged", "why"),
    [
        (boundary(b"v", b"m"), MERGED, "its weights are not the base's"),
        (boundary(b"w", b"n"), MERGED, "what it remembers is not what"),
        (boundary(b"w", b"m"), None, "what it remembers is not what"),
        (manifest_of(b"w" * 4 + b"m" * 8, (4, 4, 4)), MERGED, "it is no boundary of this job"),
        (boundary(b"w", b"\x00"), MERGED, None),  # whoever has lost its memory begins anew
        (boundary(b"w", b"\x00"), None, None),
    ],
)
async def test_a_round_begins_at_its_base_with_what_the_last_one_left(
    start: Manifest, merged: VertexId | None, why: str | None, autojump_clock: object
) -> None:
    bench = Bench(start=start, merged=merged)
    await checked(bench, set_of(ME, OTHER))
    ((_, finding, _, told),) = bench.told()
    assert finding == ("sound" if why is None else "differs")
    assert told.startswith(why or "")
    assert len(bench.orders) == (1 if why is None else 0)


async def test_who_begins_with_nothing_need_not_show_what_it_has_lost(
    autojump_clock: object,
) -> None:
    for memory, finding in ((b"\x00", "sound"), (b"m", "unshown")):
        bench = Bench(start=boundary(b"w", memory), lost={LAST})
        await checked(bench, set_of(ME, OTHER))
        assert [told[1] for told in bench.told()] == [finding]


async def test_what_is_furthest_off_is_named_first(autojump_clock: object) -> None:
    bench = Bench(replace(SOUND, weights=0.2, sealed=0.7))
    await checked(bench, set_of(ME, OTHER))
    assert bench.log.tail()[-1]["parts"] == ["update", "weights"]


async def test_what_is_owed_stays_until_the_seal_and_changes_there(autojump_clock: object) -> None:
    """A last segment ends after the seal: what that leaves is another residual, and rightly so."""
    for number in range(12):
        block = set_of(ME, OTHER, round_=number)
        assert isinstance(block.payload, SetPayload)
        all_drawn = draw(RULES.lot, Digest(b"s" * 32), block.id, block.payload.offers)
        (drawn,) = (each for each in all_drawn if each.offer.author == OTHER)
        roots = [BlobRoot(root) for root in drawn.offer.snapshot_roots]
        start, end, last = roots[drawn.segment], roots[drawn.segment + 1], roots[-1]
        for moved, differs in ((start, True), (end, end != last), (last, False)):
            bench = Bench(owed={moved: b"n"})
            await checked(bench, block)
            part = "start" if moved == roots[0] else "owed"
            assert bench.log.tail()[-1]["parts"] == ([part] if differs else [])
            assert len(bench.orders) == (0 if differs else 1)


@pytest.mark.parametrize("place", [0, -1])
async def test_who_commits_to_what_is_no_boundary_differs_and_is_doubted(
    place: int, autojump_clock: object
) -> None:
    block = set_of(ME, OTHER)
    assert isinstance(block.payload, SetPayload)
    (offer,) = (each for each in block.payload.offers if each.author == OTHER)
    bench = Bench(shapeless={BlobRoot(offer.snapshot_roots[place])})
    doubts: list[tuple[OfferBody, tuple[Part, ...]]] = []

    def doubt(about: OfferBody, parts: Sequence[Part]) -> bool:
        doubts.append((about, tuple(parts)))
        return False

    bench.checks.on_doubt = doubt
    await checked(bench, block)
    assert bench.told() == [(3, "differs", None, "it is no boundary of this job")]
    assert doubts == [(offer, (Part.START,))]


async def test_who_does_not_bring_what_it_committed_to_is_noted(autojump_clock: object) -> None:
    bench = Bench(failure=Unavailable("nobody has it"))
    await checked(bench, set_of(ME, OTHER))
    assert bench.told() == [(3, "unshown", None, "nobody has it")]
    assert bench.checks.health.of(OTHER) == Record(unshown=1)
    assert bench.orders == []


async def test_who_brings_it_a_little_later_is_not_blamed(autojump_clock: object) -> None:
    """Its worker may have more urgent things to do than its shelf."""
    bench = Bench(there_after=len(SHOWN_LATER_S))
    await checked(bench, set_of(ME, OTHER))
    assert bench.told() == [(3, "sound", 3e-5, "")]


async def test_who_lets_its_checker_wait_for_it_is_blamed_while_others_can_still_look(
    autojump_clock: object,
) -> None:
    """Minutes are many short rounds, in which its checker would look at nobody's work."""
    bench, round_s = Bench(failure=Unavailable("not whole after 60 s"), fetch_s=60), 5
    blamed: list[OfferBody] = []
    bench.checks.on_unshown = blamed.append
    async with fetching(bench):
        for round_ in range(1, SHOWN_WITHIN_ROUNDS + 2):
            assert not blamed
            authors = (ME, OTHER) if round_ == 1 else (ME,)
            bench.checks.decided(bench.basis, set_of(*authors, round_=round_))
            await trio.sleep(round_s)
        assert [offer.round for offer in blamed] == [1]
        bench.failure, bench.fetch_s = None, 1
        bench.checks.decided(bench.basis, set_of(ME, OTHER, round_=99))
        await trio.sleep(2 * round_s)
        await bench.checks.recompute(training_s=10)
    assert [finding for _, finding, _, _ in bench.told()] == ["unshown", "sound"]


async def test_rounds_that_we_were_away_for_are_no_time_that_an_author_has_had(
    autojump_clock: object,
) -> None:
    bench = Bench(fetch_s=3)
    async with fetching(bench):
        bench.checks.decided(bench.basis, set_of(ME, OTHER))
        await trio.sleep(1)
        bench.checks.decided(bench.basis, set_of(ME, round_=99))  # the next that we see
        await trio.sleep(60)
        await bench.checks.recompute(training_s=10)
    assert bench.told() == [(3, "sound", 3e-5, "")]


async def test_a_failure_of_our_own_says_nothing_of_anybody(autojump_clock: object) -> None:
    for bench, why in (
        (Bench(TrainerFailed("the worker died")), "the worker died"),
        (Bench(failure=StorageFailed("disk full")), "disk full"),
    ):
        began_s = trio.current_time()
        await checked(bench, set_of(ME, OTHER))
        assert bench.told() == [(3, "unchecked", None, why)]
        assert bench.checks.health.of(OTHER) == Record()
        assert trio.current_time() - began_s <= 61 + 5


@pytest.mark.parametrize(
    ("takes_s", "tries"), [(4.9, 1), (5.1, 2), (10.1, 3), (19.9, 3), (20.1, None)]
)
async def test_what_was_cut_off_is_tried_again_for_longer(
    takes_s: float, tries: int | None, autojump_clock: object
) -> None:
    """For half of a training of ours, for all of it, and for twice as long; then no more."""
    bench = Bench(takes_s=takes_s)
    async with fetching(bench):
        bench.checks.decided(bench.basis, set_of(ME, OTHER))
        await trio.sleep(60)
        for _ in range(5):
            await bench.checks.recompute(training_s=10)
        assert len(bench.orders) == (tries or len(SHARES_OF_TRAINING))
        if tries is None:
            assert bench.told() == [(3, "unchecked", None, "it took longer than we had")]
        else:
            assert bench.told() == [(3, "sound", 3e-5, "")]
        bench.checks.decided(bench.basis, set_of(ME, OTHER, round_=4))  # the next comes to its turn
        await trio.sleep(60)
        bench.takes_s = 0
        await bench.checks.recompute(training_s=10)
    assert [finding for _, finding, _, _ in bench.told()][1:] == ["sound"]


async def test_a_round_that_ends_in_the_middle_of_a_check_does_not_end_the_check(
    autojump_clock: object,
) -> None:
    bench = Bench(takes_s=4)
    async with fetching(bench):
        bench.checks.decided(bench.basis, set_of(ME, OTHER))
        await trio.sleep(60)
        for ends_after_s in (1, 5):
            with trio.move_on_after(ends_after_s):
                await bench.checks.recompute(training_s=10)
        await trio.sleep(1)
    assert bench.told() == [(3, "sound", 3e-5, "")]
    assert bench.held == bench.checks.states() == set()


async def test_rounds_that_always_end_in_the_middle_of_a_check_leave_it_undone(
    autojump_clock: object,
) -> None:
    bench = Bench(takes_s=4)
    async with fetching(bench):
        bench.checks.decided(bench.basis, set_of(ME, OTHER))
        await trio.sleep(60)
        for _ in SHARES_OF_TRAINING:
            with trio.move_on_after(1):
                await bench.checks.recompute(training_s=10)
        await trio.sleep(1)
    assert bench.told() == [(3, "unchecked", None, "it took longer than we had")]
    assert bench.held == bench.checks.states() == set()


async def test_nothing_is_recomputed_that_was_not_fetched(autojump_clock: object) -> None:
    bench = Bench()
    async with fetching(bench):
        bench.checks.decided(bench.basis, set_of(ME, OTHER))
        await bench.checks.recompute(training_s=10)
        assert bench.orders == []
        await trio.sleep(60)
        await bench.checks.recompute(training_s=10)
    assert len(bench.orders) == 1


async def test_of_a_burst_of_checks_no_more_wait_than_may(autojump_clock: object) -> None:
    bench, count = Bench(), 3 * WAITING_MAX
    await checked(bench, *(set_of(ME, OTHER, round_=number) for number in range(count)))
    told = [finding for _, finding, _, _ in bench.told()]
    assert WAITING_MAX <= told.count("sound") <= WAITING_MAX + 1
    assert told.count("sound") + told.count("unchecked") == count


async def test_an_order_names_the_two_ends_of_its_segment(autojump_clock: object) -> None:
    seen = set()
    for number in range(40):
        bench, block = Bench(), set_of(ME, OTHER, round_=number)
        await checked(bench, block)
        (order,) = bench.orders
        assert isinstance(block.payload, SetPayload)
        offers = block.payload.offers
        drawn = draw(RULES.lot, bench.basis.seed, block.id, offers)
        (segment,) = (each.segment for each in drawn if each.offer.author == OTHER)
        seen.add(segment)
        assert (order.step, order.steps) == [(0, 6), (6, 6), (12, 6), (18, 2)][segment]
        roots = offers[1].snapshot_roots[segment : segment + 2]
        assert tuple(map(bytes, roots)) == (order.start_root, order.end_root)
        last = BlobRoot(offers[1].snapshot_roots[-1])
        assert order.sealed == SealedClaim(STATE, last, BlobRoot(OTHER), "int8")
        assert (order.seed, order.first_step, order.author) == (bench.basis.seed, 40, OTHER)
    assert seen == {0, 1, 2, 3}
