"""Open our own segments to their checkers: the state after each step, signed.

An author keeps what the lot has drawn of it for as long as a dispute may take. Asked by a checker
that was drawn, it trains the segment once more and commits to the states between its steps; that
the segment's ends are those of the contribution it has signed before.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction

import trio

from daa_consensus.bft.messages import encode_signed
from daa_consensus.votes import Signed
from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import BlobRoot, Digest
from daa_node.disputes.bench import Bench
from daa_node.disputes.charge import opened_states, opening_statement
from daa_node.disputes.decided_sets import DecidedSets, Drawn
from daa_node.disputes.parts import DisputeParts
from daa_node.disputes.replayer import follows
from daa_node.errors import NodeError, PeerFault, TrainerFailed, Unavailable
from daa_node.observability.events import SEGMENT_OPENED, TRAINER_REFUSED
from daa_node.seams import PeerId
from daa_node.training.boundaries import BOUNDARIES

REQUEST = "opening"  # the request's name
ASKED_BYTES_MAX = 128
OPENED_KEPT_MAX = 4  # segments, 16 bytes a parameter and step each; the lot draws about three
OPENED_EACH_S = 1.0  # between two looks at what was asked for
TRIES_MAX = (
    4  # to open a segment: a worker may die, but a device that leads elsewhere does so again
)


class Openings:
    """Those of one node's own contributions. `run` must be running while rounds walk."""

    def __init__(self, parts: DisputeParts, sets: DecidedSets, bench: Bench) -> None:
        self._me = parts.me
        self._tolerance = Fraction(*parts.rules.tolerance)
        self._sets = sets
        self._trainer = parts.trainer
        self._bench = bench
        self._reach = parts.reach
        self._voice = parts.voice
        self._events = parts.events
        # By contribution, of those drawn: None while it is being opened.
        self._opened: dict[Digest, Signed | None] = {}
        self._failed: Counter[Digest] = Counter()  # tries, of those
        self._last_boundary = parts.last_boundary
        # By drawn contribution: where the one before it left off.
        self._before: dict[Digest, BlobRoot | None] = {}

    async def kept(self) -> set[BlobRoot]:
        """Boundaries and opened states that a dispute may still need.

        Also those that drawn contributions say they continue: names are compared with them, however
        long ago they were made if we were away since. Raises StorageFailed while our chain cannot
        be read: what it does not tell now would be deleted for good.
        """
        await self._look_before(self._ours())
        wanted = list(self._sets.of(self._me))
        kept = {BlobRoot(root) for drawn in wanted for root in drawn.draw.offer.snapshot_roots}
        kept.update(root for root in self._before.values() if root is not None)
        for drawn in wanted:
            opening = self._opened.get(Digest(drawn.draw.offer.root))
            if opening is not None:
                kept.update(BlobRoot(state) for state in opened_states(opening))
        return kept

    async def answer(self, peer_id: PeerId, body: bytes) -> bytes:
        """The signed opening, or nothing while it is being made.

        Raises Unavailable for what is not ours to open any more, PeerFault if the asker is no
        checker of it.
        """
        round_number, contribution = decode_question(body)
        if not self._sets.steps_convict:
            raise PeerFault("bad_question", "steps of this network's model convict nobody")
        drawn = self._sets.find(round_number, contribution)
        if drawn is None or drawn.author != self._me or not self._sets.is_open(round_number):
            raise Unavailable("it is not ours to open")
        if self._reach.node_of(peer_id) not in drawn.draw.checkers:
            raise PeerFault("bad_question", "the lot has drawn no such check")
        if contribution not in self._opened and len(self._opened) >= OPENED_KEPT_MAX:
            raise Unavailable("others are open: our disk has room for so many")
        opening = self._opened.setdefault(contribution, None)
        return b"" if opening is None else encode_signed(opening)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(OPENED_EACH_S)
            ours = self._ours()
            self._opened = {name: made for name, made in self._opened.items() if name in ours}
            self._failed = Counter({name: self._failed[name] for name in self._opened})
            for name in [name for name, made in self._opened.items() if made is None]:
                if self._failed[name] >= TRIES_MAX:
                    continue
                try:
                    self._opened[name] = await self._open(ours[name])
                except NodeError as failure:  # tried again
                    why = str(failure)
                    self._failed[name] += isinstance(failure, TrainerFailed)
                    self._events.emit(TRAINER_REFUSED, round=ours[name].round, why=why)

    def _ours(self) -> dict[Digest, Drawn]:
        return {Digest(drawn.draw.offer.root): drawn for drawn in self._sets.of(self._me)}

    async def _look_before(self, ours: Mapping[Digest, Drawn]) -> None:
        self._before = {name: root for name, root in self._before.items() if name in ours}
        for name in ours.keys() - self._before.keys():
            with suppress(Unavailable):  # the block is not here: what it says nobody can tell
                self._before[name] = await self._last_boundary(ours[name])

    async def _open(self, drawn: Drawn) -> Signed:
        first, last = drawn.ends
        order = drawn.order(0, drawn.steps, first, last, shelf=BOUNDARIES)
        between = await self._bench.do(lambda: self._trainer.open_segment(order))
        # A device that does not repeat itself, or another one since, leads nearby only: whoever
        # signs that its last step ends where the first time did may sign what is not so.
        before, number = between[-1] if between else first, drawn.steps - 1
        ending = drawn.order(number, 1, before, last, exact=True, shelf=BOUNDARIES)
        found = await self._bench.do(lambda: self._trainer.check_segment(ending))
        if not follows(found, self._tolerance):
            raise TrainerFailed("training it again leads elsewhere than the first time")
        opening = await self._voice.sign(
            opening_statement(self._voice.domain(drawn.round), drawn, tuple(between))
        )
        self._events.emit(SEGMENT_OPENED, round=drawn.round, states=len(between) + 2)
        return opening


def encode_question(drawn: Drawn) -> bytes:
    return canonical.encode([drawn.round, drawn.draw.offer.root])


def decode_question(body: bytes) -> tuple[int, Digest]:
    """Raises PeerFault."""
    try:
        match canonical.decode(body, ASKED_BYTES_MAX):
            case [int(round_number), bytes(contribution)]:
                return round_number, Digest(contribution)
            case _:
                raise PeerFault("malformed", "an opening is asked for by round and contribution")
    except NotCanonical as fault:
        raise PeerFault("malformed", str(fault)) from None
