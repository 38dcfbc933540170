"""Look for ourselves at what a checker was not shown, or was not opened; and whom we shun for it.

    complaint of who was drawn --shown to us: it follows----------> nothing
                                |--shown to us: it differs--------> shunned
                                `--not shown while its author has
                                   contributed to some rounds more-> shunned

Only exact replay excludes, and who shows nothing cannot be replayed. So whoever is complained of
shows it to every member instead, or its work is worth nothing for a while: we do not acknowledge
what a shunned author contributes, and without Acks of a quorum no set holds it. It lasts some
rounds, and twice as many each time that it comes to that again, with work done since. Who has lost
its disk is shunned once; who was cut off has contributed nothing meanwhile, and is not. Where too
few would be left to merge, all are acknowledged (see rounds.gather).

Each member goes by what it finds itself, so no honest author is shunned for what liars say. A look
costs us a check: so they have few places, of which checkers that complained in vain share one, and
who did so of more authors than may lie is not heard for as long as disputes may last. One author
can have a checker complain in vain: it need only show its work to all others. What is here others
get from us, so an author cannot leave out its checker alone.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import trio

from daa_consensus.bft.messages import OfferBody
from daa_consensus.roll import lying_max
from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.disputes.bench import Bench
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS, DecidedSets, Drawn
from daa_node.disputes.exhibits import Exhibits
from daa_node.disputes.openings import decode_question, encode_question
from daa_node.disputes.parts import DisputeParts
from daa_node.disputes.replayer import follows
from daa_node.disputes.shunning import KeptShunning, Shunning
from daa_node.errors import NodeError, PeerFault, StorageFailed, TrainerFailed, Unavailable
from daa_node.observability.events import AUTHOR_SHUNNED
from daa_node.seams import PeerId, SegmentOrder
from daa_node.spot_checks.findings import Part
from daa_node.training.boundaries import BOUNDARIES, DISPUTED

REQUEST = "look"  # the request's name
ANSWER_BYTES_MAX = 16
LOOKS_MAX = 2  # at a time: four states of each are on our disk
VAIN_MAX = 1  # of these, of checkers that have complained in vain lately
# That its author contributed to: all members fetch four states, while a window has room for an
# update to each, which is a sixteenth of a state; and they get them from each other as well.
SHOWN_WITHIN_ROUNDS = 12
HELD_ROUNDS = 4  # for others that have not got it
TELL_S = 2.0  # between two tries to tell who has not heard, or to have it shown


@dataclass(slots=True)
class _Look:
    drawn: Drawn
    checker: NodeId  # who has complained
    begun_round: int
    unshown: str | None = None  # why not, once its author has had time
    heard: set[NodeId] = field(default_factory=set)  # who knows of our own complaint
    telling: set[NodeId] = field(default_factory=set)  # who may take its time to answer


class SecondLooks:
    """One member's. `run` must be running while rounds walk."""

    def __init__(
        self, parts: DisputeParts, sets: DecidedSets, bench: Bench, exhibits: Exhibits
    ) -> None:
        self._me = parts.me
        self._sets = sets
        self._bench = bench
        self._exhibits = exhibits
        self._trainer = parts.trainer
        self._tolerance = Fraction(*parts.rules.tolerance)
        self._reach = parts.reach
        self._voice = parts.voice
        self._events = parts.events
        self._looks: dict[Digest, _Look] = {}  # by contribution
        self._done: dict[Digest, int] = {}  # contributions that were looked at, with their round
        self._shunning = Shunning()
        self._kept = KeptShunning(self._shunning, parts.store, parts.events)
        # By checker: of whom it has complained in vain, and in which round that was found.
        self._vain: dict[NodeId, dict[NodeId, int]] = {}
        self._named_fault = parts.named_fault
        # told of what we were not shown at first, by us who were drawn
        self.on_doubt: Callable[[OfferBody, Sequence[Part]], object] = lambda _offer, _parts: None
        self._wanted, self._begun = trio.open_memory_channel[_Look](LOOKS_MAX)

    def shunned(self) -> frozenset[NodeId]:
        """Whose contributions to the next round we do not acknowledge."""
        return self._shunning.authors(self._sets.newest_round)

    def shunned_until(self, author: NodeId) -> int | None:
        """Until which round we do not acknowledge it; None if we do."""
        return self._shunning.until_of(author, self._sets.newest_round)

    def updates(self) -> set[BlobRoot]:
        """Contributions that we have complained of: not to be deleted."""
        own = [look.drawn for look in self._looks.values() if look.checker == self._me]
        return {drawn.draw.offer.blob_root for drawn in own}

    def complain(self, drawn: Drawn) -> None:
        """We were drawn, and were not shown it."""
        try:
            self._begin(drawn, self._me)
        except Unavailable:
            return  # others are looked at: the lot will draw again

    async def hear(self, peer_id: PeerId, body: bytes) -> bytes:
        """A checker was not shown it. Raises Unavailable if we cannot look now, PeerFault."""
        checker = self._reach.node_of(peer_id)
        round_number, contribution = decode_question(body)
        drawn = self._sets.find(round_number, contribution)
        if checker is None or drawn is None or not self._sets.is_open(round_number):
            raise Unavailable("nothing of that is drawn, as far as is known here")
        if checker not in drawn.draw.checkers:
            raise PeerFault("bad_question", "the lot has drawn no such check")
        if len(self._vain_of(checker)) > self._liars_max:
            return b""  # of somebody honest among them
        self._begin(drawn, checker)
        return b""

    async def run(self) -> None:
        """Until cancelled."""
        await self._kept.load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_forever, nursery)
            async for look in self._begun:
                nursery.start_soon(self._look, look)

    def _begin(self, drawn: Drawn, checker: NodeId) -> None:
        """Once of each contribution, where it may change something. Raises Unavailable."""
        name, author = Digest(drawn.draw.offer.root), drawn.author
        if author == self._me or self._voice.is_convicted(author) or self._is_counted(drawn):
            return
        if name in self._looks or name in self._done:
            return
        if any(look.checker == checker for look in self._looks.values()):
            raise Unavailable("something else of that checker is looked at")
        vain = [look for look in self._looks.values() if self._vain_of(look.checker)]
        if len(self._looks) >= LOOKS_MAX or (self._vain_of(checker) and len(vain) >= VAIN_MAX):
            raise Unavailable("others are looked at")
        look = self._looks[name] = _Look(drawn, checker, self._sets.newest_round)
        self._wanted.send_nowait(look)  # as many as there may be find room

    async def _look(self, look: _Look) -> None:
        drawn, held = look.drawn, list[Digest]()
        try:
            wrong, held = await self._found(look)
            if (wrong or held) and look.checker == self._me:
                # the seal is part of every check, and exact at once
                self.on_doubt(drawn.draw.offer, [*wrong, Part.UPDATE])
            if wrong:
                self._shun(drawn, "it differs")
            elif held and look.checker != self._me:
                vain = {**self._vain_of(look.checker), drawn.author: self._sets.newest_round}
                self._vain[look.checker] = vain
            elif look.unshown is not None:
                self._shun(drawn, f"it is not shown: {look.unshown}")
            await self._kept.save()
            # whoever has not been shown it gets it from us
            until_round = self._sets.newest_round + HELD_ROUNDS
            while held and self._sets.newest_round < until_round:
                await trio.sleep(TELL_S)
        finally:
            with trio.CancelScope(shield=True):
                await self._exhibits.let_go(held)
            name = Digest(drawn.draw.offer.root)
            del self._looks[name]
            done = {**self._done, name: drawn.round}
            self._done = {each: of for each, of in done.items() if self._sets.is_open(of)}

    async def _found(self, look: _Look) -> tuple[Sequence[Part], list[Digest]]:
        """What is wrong with it, and what is held here of it.

        Nothing is wrong and nothing held if it is not shown, or if we could not look ourselves.
        """
        drawn, is_first, begins_well = look.drawn, True, False
        first, last = drawn.ends
        order, ends = drawn.order(0, drawn.steps, first, last), drawn.draw.offer.snapshot_roots
        roots = [BlobRoot(root) for root in dict.fromkeys([ends[0], first, last, ends[-1]])]
        held = list[Digest]()
        while self._sets.is_open(drawn.round) and not self._voice.is_convicted(drawn.author):
            try:
                if not held:
                    sources = self._sources(drawn.author, is_first)
                    held = await self._exhibits.bring_states(roots, sources)
                if not begins_well and await _begins_wrongly(self._named_fault, drawn):
                    return [Part.START], held
                begins_well = True
                return await self._wrong(order), held
            except PeerFault:  # what it has committed to is no state of this job
                return [Part.START], held
            except Unavailable as why:  # of its states, or only of what it continues
                if self._has_had_time(look):
                    look.unshown = str(why)
                    break
            except NodeError:  # our disk, or our worker
                pass
            # What is shown stays meanwhile: four states are dear to whoever brings them.
            is_first = False
            await trio.sleep(TELL_S)
        await self._exhibits.let_go(held)
        return [], []

    async def _wrong(self, order: SegmentOrder) -> Sequence[Part]:
        """What does not follow of what is shown. Raises NodeError, but nothing that is others'."""
        try:
            found = await self._bench.do(lambda: self._trainer.check_segment(order))
        except Unavailable as cut:
            raise TrainerFailed(str(cut)) from None
        return [] if follows(found, self._tolerance) else [Part.WEIGHTS]

    def _vain_of(self, checker: NodeId) -> dict[NodeId, int]:
        """Of whom it has complained in vain lately."""
        over = self._sets.newest_round - DISPUTE_ROUNDS
        return {of: at for of, at in self._vain.get(checker, {}).items() if at > over}

    @property
    def _liars_max(self) -> int:
        now = self._voice.validators.now
        members = now.committee.liars_max
        vouchers = [e.voucher for e in now.roll.entries if e.name in now.roll.here]
        return members + lying_max(vouchers, members, vouchers.count(None))

    def _sources(self, author: NodeId, is_first: bool) -> list[tuple[NodeId, str]]:
        """Its author; later on first whoever has got it, for one link may not carry all at once."""
        others = [(node, DISPUTED) for node in sorted(self._reach.members() - {author})]
        return [(author, BOUNDARIES), *others] if is_first else [*others, (author, BOUNDARIES)]

    def _has_had_time(self, look: _Look) -> bool:
        rounds = self._sets.contributed_since(look.drawn.author, look.begun_round)
        return rounds >= SHOWN_WITHIN_ROUNDS

    def _shun(self, drawn: Drawn, why: str) -> None:
        if self._is_counted(drawn):
            return
        shunned = self._shunning.shun(drawn.author, self._sets.newest_round)
        self._events.emit(
            AUTHOR_SHUNNED, round=drawn.round, author=drawn.author, rounds=shunned.rounds, why=why
        )

    def _is_counted(self, drawn: Drawn) -> bool:
        return self._shunning.is_counted(drawn.author, drawn.round)

    async def _tell_forever(self, nursery: trio.Nursery) -> None:
        while True:
            await trio.sleep(TELL_S)
            for look in [look for look in self._looks.values() if look.checker == self._me]:
                for node in self._who_lacks(look):
                    look.telling.add(node)
                    nursery.start_soon(self._tell, node, look)

    def _who_lacks(self, look: _Look) -> Collection[NodeId]:
        return self._reach.members() - look.heard - look.telling - {look.drawn.author}

    async def _tell(self, node: NodeId, look: _Look) -> None:
        try:
            await self._reach.ask(node, REQUEST, encode_question(look.drawn), ANSWER_BYTES_MAX)
        except NodeError:
            return  # it is told again
        finally:
            look.telling.discard(node)
        look.heard.add(node)


async def _begins_wrongly(
    named_fault: Callable[[Drawn], Awaitable[str | None]], drawn: Drawn
) -> bool:
    """Raises Unavailable if its author does not show what it continues."""
    try:
        return await named_fault(drawn) is not None
    except StorageFailed:  # the base is not here any more, and we had not seen it
        return False
