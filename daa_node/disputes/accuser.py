"""Pursue a doubt of ours: open the segment, halve it down to one step, replay that, and accuse.

    doubt --the author opens its steps--> halved --one step left--> replayed exactly
      |-- it does not, or not all --> the whole segment ---------------^  |--> it follows: no doubt
      `--> ended: too late, or its author stands convicted                `--> accused, before the
                                                                               court

A segment's steps are halved with our own device's arithmetic, one half a round of ours. A seal is
replayed exactly at once, and what names tell needs no replay. Only what the exact replay shows is
brought before the others: who accuses falsely is convicted in its turn. Both ends of a segment are
here since the check, and stay: an author that shows no more gains nothing by that.

Where no canonical kernels take the model's steps, a doubt of steps convicts nobody: the others are
asked to look for themselves.

What cannot be had now, an opening, a state, or a turn of our worker, is tried again until it is too
late: else an author would get rid of a doubt by one bad answer.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial

import trio

from daa_consensus.bft.messages import OfferBody
from daa_consensus.committee import VALIDATORS_MAX
from daa_consensus.votes import Signed
from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.disputes.charge import (
    SAID_BYTES_MAX,
    Charge,
    Part,
    accusation_statement,
    check_opening,
    decode_opening,
    opened_states,
)
from daa_node.disputes.court import Court
from daa_node.disputes.decided_sets import (
    DISPUTE_ROUNDS,
    HALVED_WITHIN_ROUNDS,
    DecidedSets,
    Drawn,
)
from daa_node.disputes.exhibits import Exhibits
from daa_node.disputes.openings import REQUEST, encode_question
from daa_node.disputes.parts import DisputeParts
from daa_node.disputes.replayer import Replayer, follows
from daa_node.errors import NodeError, PeerFault, Unavailable
from daa_node.observability.events import DOUBT_ENDED
from daa_node.seams import SegmentOrder
from daa_node.spot_checks.findings import Part as Differing

# That wait, two of an author: of its steps, which it must open, and of the rest. More of it are
# dropped: the lot will draw again, and who opens nothing must not hold up doubts of others.
DOUBTS_MAX = 2 * VALIDATORS_MAX
PURSUED_MAX = 4  # at a time, but for those that wait: two states of each are on our disk
KEPT_MAX = 4  # of which we keep what a check has brought: three states of each
ASK_S = 2.0  # between two tries to have a segment opened
OPENED_WITHIN_ROUNDS = 4  # that its author contributed to; to train a segment again takes one
_PARTS = {
    Differing.START: Part.NAMES,
    Differing.OWED: Part.NAMES,
    Differing.STEPS: Part.STEP,
    Differing.WEIGHTS: Part.STEP,
    Differing.FIRST: Part.STEP,
    Differing.SECOND: Part.STEP,
    Differing.RESIDUAL: Part.SEAL,
    Differing.UPDATE: Part.SEAL,
}
_Doubt = tuple[Drawn, Sequence[Part]]
_Key = tuple[NodeId, bool]  # whose, and whether of steps


class Accuser:
    """One node's doubts, one after another. `run` must be running while rounds walk."""

    def __init__(
        self,
        parts: DisputeParts,
        sets: DecidedSets,
        replayer: Replayer,
        exhibits: Exhibits,
        court: Court,
        complain: Callable[[Drawn], None],
    ) -> None:
        self._sets = sets
        self._tolerance = Fraction(*parts.rules.tolerance)
        self._tolerance_of = parts.tolerance_of
        self._replayer = replayer
        self._exhibits = exhibits
        self._court = court
        self._complain = complain  # of who opens nothing: let others look
        self._reach = parts.reach
        self._voice = parts.voice
        self._events = parts.events
        self._updates: list[BlobRoot] = []
        self._kept: list[Drawn] = []
        self._places = trio.Semaphore(PURSUED_MAX)
        self._replays: dict[trio.CancelScope, Callable[[], bool]] = {}  # and whether it is too late
        self._pursued = set[_Key]()  # from the doubt to its end
        self._waiting, self._doubts = trio.open_memory_channel[_Doubt](DOUBTS_MAX)

    def doubt(self, offer: OfferBody, differing: Sequence[Differing]) -> bool:
        """A check of ours has come out otherwise than the author says.

        Whether what it has brought here is ours now, to be dropped in the end.
        """
        drawn = self._sets.find(offer.round, offer.root)
        if drawn is None or self._voice.is_convicted(drawn.author):
            return False
        parts = _parts_of(differing)
        if Part.STEP in parts and not self._sets.steps_convict:
            self._complain(drawn)
            self._tell(drawn, "complained", "no replay of its steps comes everywhere to the same")
            parts.remove(Part.STEP)
            if not parts:
                return False
        key = (drawn.author, Part.STEP in parts)
        if key in self._pursued:
            self._tell(drawn, "dropped", "another one of its author is pursued")
            return False
        try:
            self._waiting.send_nowait((drawn, parts))
        except trio.WouldBlock:
            self._tell(drawn, "dropped", "others wait already")
            return False
        self._pursued.add(key)
        self._updates.append(drawn.draw.offer.blob_root)
        if len(self._kept) >= KEPT_MAX:
            return False
        self._kept.append(drawn)
        return True

    def updates(self) -> Sequence[BlobRoot]:
        """Contributions that doubts are about: not to be deleted."""
        return self._updates

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cut_off)
            async for doubt in self._doubts:
                nursery.start_soon(self._end, *doubt)

    async def _end(self, drawn: Drawn, parts: Sequence[Part]) -> None:
        try:
            for part in parts:
                if await self._pursue(drawn, part):
                    return
            self._tell(drawn, "cleared", "it follows exactly")
        except NodeError as failure:
            self._tell(drawn, "ended", str(failure))
        finally:
            self._pursued.discard((drawn.author, Part.STEP in parts))
            self._updates.remove(drawn.draw.offer.blob_root)
            if drawn in self._kept:
                self._kept.remove(drawn)
                with trio.CancelScope(shield=True):
                    await self._exhibits.drop_claimed(drawn)

    async def _pursue(self, drawn: Drawn, part: Part) -> bool:
        """Whether it came to an accusation. Raises NodeError once it is too late."""
        if part is Part.STEP:
            with suppress(NodeError):  # whoever opens nothing, or not all of it, is not let go
                opening = await self._opening(drawn)
                step = await self._first_wrong_step(drawn, opened_states(opening))
                accuse = partial(self._accuse, await self._charge(drawn, part, opening, step))
                return await self._in_time(drawn, accuse, HALVED_WITHIN_ROUNDS)
            part = Part.SEGMENT
        accuse = partial(self._accuse, await self._charge(drawn, part))
        return await self._in_time(drawn, accuse)

    async def _charge(
        self, drawn: Drawn, part: Part, opening: Signed | None = None, step: int = 0
    ) -> Charge:
        domain = self._voice.domain(drawn.round)
        statement = accusation_statement(domain, drawn, part, opening, step)
        return Charge(await self._voice.sign(statement), part, opening, drawn, step)

    async def _accuse(self, charge: Charge) -> bool:
        """Whether it is true, and was brought before the others. Raises NodeError."""
        drawn, held = charge.drawn, list[Digest]()
        try:
            if charge.order is not None:
                within = HALVED_WITHIN_ROUNDS if charge.part is Part.STEP else DISPUTE_ROUNDS
                replay = partial(self._holds_as_charged, charge.order, drawn.author, held)
                if await self._unless_late(drawn, replay, within):
                    return False
                if self._is_late(drawn):  # a segment takes rounds
                    raise Unavailable("the dispute is over its time")
            what = f"step {drawn.begun + charge.step}" if charge.opening else str(charge.part)
            self._tell(drawn, "accused", what)
            await self._court.accuse(charge)
            while not self._court.is_decided(charge.id):
                await trio.sleep(ASK_S)
        finally:
            with trio.CancelScope(shield=True):
                await self._exhibits.let_go(held)
        return True

    async def _first_wrong_step(self, drawn: Drawn, states: Sequence[Digest]) -> int:
        """Or the last, if our device finds none. Raises NodeError."""
        first, last = 0, drawn.steps
        while last - first > 1:
            middle = (first + last) // 2
            order = drawn.order(first, middle - first, states[first], states[middle])
            half = partial(self._holds, order, drawn.author)
            replay = partial(self._unless_late, drawn, half, HALVED_WITHIN_ROUNDS)
            holds = await self._in_time(drawn, replay, HALVED_WITHIN_ROUNDS)
            first, last = (middle, last) if holds else (first, middle)
        return first

    async def _in_time(
        self,
        drawn: Drawn,
        work: Callable[[], Awaitable[bool]],
        within: int = DISPUTE_ROUNDS,
    ) -> bool:
        """What comes of the work, in one of our places. Raises NodeError once it is too late."""
        failure: NodeError = Unavailable("the dispute is over its time")
        while not self._is_late(drawn, within):
            try:
                async with self._places:
                    return await work()
            except NodeError as why:
                failure = why
            await trio.sleep(ASK_S)
        raise failure

    async def _unless_late(
        self, drawn: Drawn, replay: Callable[[], Awaitable[bool]], within: int
    ) -> bool:
        """Raises NodeError, also once it is too late: who shows late may take minutes to."""
        with trio.CancelScope() as scope:
            self._replays[scope] = partial(self._is_late, drawn, within)
            try:
                return await replay()
            finally:
                del self._replays[scope]
        raise Unavailable("the dispute is over its time")

    async def _cut_off(self) -> None:
        while True:
            await trio.sleep(ASK_S)
            for scope, is_late in self._replays.items():
                if is_late():
                    scope.cancel()

    async def _holds_as_charged(
        self, order: SegmentOrder, author: NodeId, held: list[Digest]
    ) -> bool:
        """As `_holds`; what it takes is `held`: the others ask us for what its author hides."""
        with suppress(PeerFault):  # there is nothing to show: its root alone convicts
            held += await self._exhibits.bring(order, author)
        return await self._holds(order, author)

    async def _holds(self, order: SegmentOrder, author: NodeId) -> bool:
        """Whether the replay leads where the author says. Raises NodeError."""
        # To find the step, as to doubt; what is brought before judges, as they will judge it.
        tolerance = self._tolerance if order.exact else Fraction(self._tolerance_of(author))
        try:
            return follows(await self._replayer.replayed(order, author), tolerance)
        except PeerFault:  # it has committed to what is no state of this job
            return False

    async def _opening(self, drawn: Drawn) -> Signed:
        """What its author opens of the segment. Raises NodeError once it has had its time."""
        failure: NodeError = Unavailable("the author did not open it")
        asked_round = self._sets.newest_round
        while not self._is_late(drawn, HALVED_WITHIN_ROUNDS):
            if self._sets.contributed_since(drawn.author, asked_round) >= OPENED_WITHIN_ROUNDS:
                self._complain(drawn)
                break
            try:
                payload = await self._reach.ask(
                    drawn.author, REQUEST, encode_question(drawn), SAID_BYTES_MAX
                )
                if payload:
                    opening = decode_opening(payload)
                    self._voice.verify_about(opening, drawn.round)
                    check_opening(opening, drawn)
                    return opening
            except NodeError as why:  # what opens something else opens nothing
                failure = why
            await trio.sleep(ASK_S)
        raise failure

    def _is_late(self, drawn: Drawn, within: int = DISPUTE_ROUNDS) -> bool:
        """Whether nobody is convicted by it any more, or it has so many rounds."""
        is_open = self._sets.is_open(drawn.round, within)
        return not is_open or self._voice.is_convicted(drawn.author)

    def _tell(self, drawn: Drawn, outcome: str, why: str) -> None:
        self._events.emit(
            DOUBT_ENDED, round=drawn.round, author=drawn.author, outcome=outcome, why=why
        )


def _parts_of(differing: Sequence[Differing]) -> list[Part]:
    """What to pursue, the cheapest first."""
    found = {_PARTS[part] for part in differing}
    return [part for part in (Part.NAMES, Part.SEAL, Part.STEP) if part in found]
