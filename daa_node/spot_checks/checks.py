"""Check what the lot gives this node: fetch what an author committed to, and train it again.

    decided --fetch--> ready --recompute--> sound, doubted, or differs
        |                 |-- cut off: tried again at our next training, for longer
        |                 `-- unchecked: no time after all, or our own worker failed
        `-- unshown: the author did not bring it; or differs: it does not begin where it must

Fetching goes on beside rounds. Recomputing takes the place of steps of our own, at the start of our
next training: everybody stops at the plan's time as ever, so no round waits for a check. The seal
is part of every check: else an update could be anything until a last segment is drawn.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import trio

from daa_consensus.bft.messages import Block, OfferBody, SetPayload
from daa_dag.ids import BlobRoot, Digest, NodeId, VertexId
from daa_node.errors import NodeError, StorageFailed, TrainerFailed, Unavailable
from daa_node.observability.events import SEGMENT_CHECKED, STORAGE_FAILED, EventLog
from daa_node.seams import SealedClaim, SegmentCheck, SegmentOrder, StateRef, Trainer
from daa_node.spot_checks.calibration import Calibration
from daa_node.spot_checks.continuity import Manifests, named_fault
from daa_node.spot_checks.findings import Finding, Part, difference, distance_of, doubt
from daa_node.spot_checks.health import Health
from daa_node.spot_checks.lot import Draw, Lot, draw
from daa_node.spot_checks.usefulness import UsefulnessLog

WAITING_MAX = 2  # checks that wait to be fetched; what is fetched is one, three boundaries of it
# A check may take as much of our training as its turn says, and is cut off then: our own steps come
# first. Who is slow may need longer for a quick author's segment than it trains itself.
SHARES_OF_TRAINING = (0.5, 1.0, 2.0)
# What an author has just committed to it brings to its shelf once its worker has a moment for that,
# and the set may be decided before.
SHOWN_LATER_S = (1.0, 2.0, 4.0, 8.0)
# Then we complain of it, whatever its author says meanwhile: who answers late may do so for
# minutes, and where rounds are short others could not look any more. Three such authors in a row
# leave others the twelve rounds that they take (see disputes.second_looks).
SHOWN_WITHIN_ROUNDS = 6

# (offer, parts that differ, the furthest off first) -> whether what was fetched is to be kept
OnDoubt = Callable[[OfferBody, Sequence[Part]], bool]
OnFinding = Callable[[NodeId, Finding], None]


class Claims(Manifests, Protocol):
    """What an author committed to. Each raises NodeError when it cannot be had."""

    async def fetch(self, author: NodeId, root: BlobRoot) -> None:
        """A boundary, where the trainer finds it."""

    async def drop(self, roots: Sequence[BlobRoot]) -> None:
        """Of what was fetched."""

    async def drop_all(self) -> None: ...


@dataclass(frozen=True, slots=True)
class CheckRules:
    """What the genesis says of checks."""

    lot: Lot
    segment_steps: int
    # Of each of a SegmentCheck's distances, as a rational; to doubt steps, calibrated below that.
    tolerance: tuple[int, int]
    boundary_chunks: tuple[int, ...]  # bytes
    # Whether canonical kernels take the model's steps: else no step can convict anybody.
    steps_convict: bool = True
    shown_chunks: int = 0  # of a boundary's, the last: batches of data that nobody else has


@dataclass(frozen=True, slots=True)
class Basis:
    """What the steps of one round's contributions follow from, beside their authors' own."""

    seed: Digest  # of the parent vertex
    state: StateRef
    first_step: int
    merged_vertex: Callable[[NodeId], VertexId | None]  # the newest that merged an author's work


@dataclass(eq=False, slots=True)
class _Check:
    drawn: Draw
    order: SegmentOrder
    base: StateRef
    merged: VertexId | None
    over: trio.Event = field(default_factory=trio.Event)  # our worker is done with it
    tries: int = 0  # to train it again
    is_kept: bool = False  # what was fetched, for a dispute

    @property
    def author(self) -> NodeId:
        return self.drawn.offer.author

    @property
    def roots(self) -> Sequence[BlobRoot]:
        """Of the boundaries that it takes; of the last segment they are two."""
        order = self.order
        assert order.sealed is not None
        return tuple(dict.fromkeys((order.start_root, order.end_root, order.sealed.last_root)))


class SpotChecks:
    """The checks that fall to one node. `run` must be running while rounds walk."""

    def __init__(
        self,
        me: NodeId,
        rules: CheckRules,
        trainer: Trainer,
        claims: Claims,
        calibration: Calibration,
        events: EventLog,
    ) -> None:
        self._me = me
        self._rules = rules
        self._trainer = trainer
        self._claims = claims
        self._calibration = calibration
        self._events = events
        self._drawn, self._to_fetch = trio.open_memory_channel[_Check](WAITING_MAX)
        self._hand_over, self._ready = trio.open_memory_channel[_Check](0)
        # That we saw decided, and before what is fetched was begun: whoever was away sees few.
        self._sets_seen = self._seen_before = 0
        self._patience = trio.CancelScope()  # of what is fetched
        self._again: _Check | None = None  # was cut off, and is tried before what is ready
        self._pending: list[_Check] = []  # of which nothing has been told
        self.health = Health()
        self.usefulness = UsefulnessLog()
        self.on_doubt: OnDoubt = lambda _offer, _parts: False
        self.on_finding: OnFinding = lambda _author, _finding: None
        self.on_unshown: Callable[[OfferBody], None] = lambda _offer: None
        # told of each segment to check, once its boundaries are here
        self.on_shown: Callable[[SegmentOrder], Awaitable[None]] = _nobody_looks

    def states(self) -> set[BlobRoot]:
        """Models that checks under way begin at: not to be deleted."""
        return {check.base.model_root for check in self._pending}

    def updates(self) -> set[BlobRoot]:
        """Updates that checks under way look at: not to be deleted."""
        return {check.drawn.offer.blob_root for check in self._pending}

    def decided(self, basis: Basis, set_block: Block) -> None:
        """A set is final: take what the lot gives us of it."""
        payload = set_block.payload
        assert isinstance(payload, SetPayload)
        self._sets_seen += 1
        if self._sets_seen - self._seen_before >= SHOWN_WITHIN_ROUNDS:
            self._patience.cancel()
        for drawn in draw(self._rules.lot, basis.seed, set_block.id, payload.offers):
            if self._me not in drawn.checkers:
                continue
            order, author = self._order(basis, drawn), drawn.offer.author
            check = _Check(drawn, order, basis.state, basis.merged_vertex(author))
            self._pending.append(check)
            try:
                self._drawn.send_nowait(check)
            except trio.WouldBlock:
                self._tell(check, Finding.UNCHECKED, why="others wait already")

    async def run(self) -> None:
        """Fetch, and wait until it is recomputed, one after another. Until cancelled."""
        with suppress(StorageFailed):
            await self._claims.drop_all()
        async for check in self._to_fetch:
            try:
                wrong = await self._fetched_in_the_end(check)
            except StorageFailed as failure:
                self._tell(check, Finding.UNCHECKED, why=str(failure))
            except NodeError as failure:
                self._tell(check, Finding.UNSHOWN, why=str(failure))
                self.on_unshown(check.drawn.offer)
            else:
                if wrong is None:
                    await self.on_shown(check.order)
                    await self._hand_over.send(check)
                    await check.over.wait()
                else:
                    part, why = wrong
                    self._tell(check, Finding.DIFFERS, (part,), why=why)
                    check.is_kept = self.on_doubt(check.drawn.offer, (part,))
            if not check.is_kept:
                await self._drop(check)

    async def recompute(self, training_s: float) -> None:
        """One check that is ready, if there is one, before we train for so many seconds."""
        check = self._again
        if check is None:
            try:
                check = self._ready.receive_nowait()
            except trio.WouldBlock:
                return
        share = SHARES_OF_TRAINING[check.tries]
        check.tries += 1
        self._again = check if check.tries < len(SHARES_OF_TRAINING) else None
        why = "it took longer than we had"
        try:
            with trio.move_on_after(share * training_s):
                found = await self._trainer.check_segment(check.order)
                self._again = None
                self._judge(check, found)
        except TrainerFailed as failure:
            self._again, why = None, str(failure)
        finally:  # or the round ended before
            if self._again is None:
                check.over.set()
                if check in self._pending:
                    self._tell(check, Finding.UNCHECKED, why=why)

    async def _fetched_in_the_end(self, check: _Check) -> tuple[Part, str] | None:
        """As `_fetched`, asked for again where it cannot be had at once."""
        self._seen_before = self._sets_seen
        with trio.CancelScope() as self._patience:
            for pause_s in SHOWN_LATER_S:
                try:
                    return await self._fetched(check)
                except Unavailable:
                    await trio.sleep(pause_s)
            return await self._fetched(check)
        raise Unavailable(f"it was not shown within {SHOWN_WITHIN_ROUNDS} rounds")

    async def _fetched(self, check: _Check) -> tuple[Part, str] | None:
        """All that is needed is here; or what is not as it must be, and why. Raises NodeError."""
        claims, drawn = self._claims, check.drawn
        wrong = await named_fault(
            *(claims, drawn, check.base, check.merged),
            *(self._rules.boundary_chunks, self._rules.shown_chunks),
        )
        if wrong is None:
            for root in check.roots:
                await claims.fetch(check.author, root)
        return wrong

    async def _drop(self, check: _Check) -> None:
        try:
            await self._claims.drop(check.roots)
        except StorageFailed as failure:
            self._events.emit(STORAGE_FAILED, detail=str(failure))

    def _judge(self, check: _Check, found: SegmentCheck) -> None:
        tolerance = float(Fraction(*self._rules.tolerance))
        finding, wrong = Finding.DIFFERS, difference(found, tolerance)
        if wrong is None:
            tolerance = self._calibration.tolerance(check.author)
            finding, wrong = Finding.DOUBTED, doubt(found, tolerance)
        self._calibration.note_found(check.author, max(found.weights, found.first, found.second))
        if wrong is None:
            self._tell(check, Finding.SOUND, distance=distance_of(found))
        else:
            why = f"{', '.join(wrong.parts)}: {wrong.distance:.1e} off, at most {tolerance:.1e}"
            self._tell(check, finding, wrong.parts, wrong.distance, why)
            check.is_kept = self.on_doubt(check.drawn.offer, wrong.parts)

    def _tell(
        self,
        check: _Check,
        finding: Finding,
        parts: Sequence[Part] = (),
        distance: float | None = None,
        why: str = "",
    ) -> None:
        self._pending.remove(check)
        self.health.note(check.author, finding, distance)
        self.on_finding(check.author, finding)
        self._events.emit(
            SEGMENT_CHECKED,
            round=check.order.round,
            author=check.author,
            segment=check.drawn.segment,
            finding=str(finding),
            parts=[str(part) for part in parts],
            distance=distance,
            why=why,
        )

    def _order(self, basis: Basis, drawn: Draw) -> SegmentOrder:
        offer, segment = drawn.offer, drawn.segment
        begun, roots = segment * self._rules.segment_steps, offer.snapshot_roots
        claim = SealedClaim(basis.state, BlobRoot(roots[-1]), offer.blob_root, offer.codec)
        return SegmentOrder(
            seed=basis.seed,
            round=offer.round,
            author=offer.author,
            first_step=basis.first_step,
            step=begun,
            steps=min(offer.steps - begun, self._rules.segment_steps),
            start_root=BlobRoot(roots[segment]),
            end_root=BlobRoot(roots[segment + 1]),
            sealed=claim,
        )


async def _nobody_looks(_order: SegmentOrder) -> None:
    """Unless a gateway has volunteers look at it as well."""
