"""Decide accusations: every member replays the step, and a quorum that agrees convicts one of two.

    charge --replayed here, exactly--> our verdict --told to all members--> a quorum says the same
           `-- states missing: later            evidence for the next set <--'

If the step does not follow, its author is convicted; if it does, who has accused falsely. Each
member tells its own verdict, with all that the others need to look into it, until they have it. A
replay takes the place of steps of our own, and no round waits for it. Nobody's word counts alone:
less than a quorum convicts nobody, and where states cannot be had there is no verdict.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf

import trio

from daa_consensus.bft.evidence import conviction
from daa_consensus.committee import Committee
from daa_consensus.votes import Certificate, Signed
from daa_dag.ids import Digest, NodeId
from daa_node.disputes.charge import (
    Charge,
    Part,
    charge_of,
    decode_said,
    encode_said,
    verdict_statement,
)
from daa_node.disputes.decided_sets import DecidedSets
from daa_node.disputes.parts import DisputeParts
from daa_node.disputes.replayer import Replayer, follows
from daa_node.errors import NodeError, PeerFault, TrainerFailed, Unavailable
from daa_node.observability.events import VERDICT_FAILED, VERDICT_GIVEN
from daa_node.seams import PeerId

REQUEST = "dispute"  # the request's name
ANSWER_BYTES_MAX = 16
TELL_S = 2.0  # between two tries to tell who has not heard
JUDGE_S = 1.0  # between two looks at what is undecided
JUDGED_MAX = 4  # at a time, of as many accusers: two states of each are on our disk
# Of one accuser, undecided, brought by one member: the lot draws one segment of a tenth of its
# peers a round. What each member hears alone from an accuser, others hear from that member.
CASES_EACH_MAX = 4


@dataclass(slots=True)
class _Case:
    charge: Charge
    brought_by: NodeId
    said: dict[NodeId, Signed] = field(default_factory=dict)  # the first verdict of each
    heard_ours: set[NodeId] = field(default_factory=set)
    telling: set[NodeId] = field(default_factory=set)  # who may take its time to answer
    is_over: bool = False  # a quorum has convicted
    judging: trio.CancelScope = field(default_factory=trio.CancelScope)  # our newest replay
    failed: int = 0  # replays, by our worker
    again_s: float = -inf  # when it is tried again

    def rest(self) -> None:
        """Twice as long as the last time.

        A worker that has not the data fails each time, and two states were fetched for that.
        """
        self.again_s = trio.current_time() + JUDGE_S * 2**self.failed
        self.failed += 1


class Court:
    """One member's part in all disputes. `run` must be running while rounds walk."""

    def __init__(self, parts: DisputeParts, sets: DecidedSets, replayer: Replayer) -> None:
        self._me = parts.me
        self._sets = sets
        self._tolerance = Fraction(*parts.rules.tolerance)
        self._replayer = replayer
        self._named_fault = parts.named_fault
        self._reach = parts.reach
        self._voice = parts.voice
        self._events = parts.events
        self._cases: dict[Digest, _Case] = {}  # in the order of arrival
        self._tried: Counter[NodeId] = Counter()  # when a case of each was, as a count of all tries
        self._tries = 0

    def is_decided(self, accusation: Digest) -> bool:
        """Whether a quorum has convicted, or none can any more, or need not."""
        case = self._cases.get(accusation)
        return case is None or self._is_closed(case)

    async def run(self) -> None:
        """Replay what there is to replay, and tell what came of it. Until cancelled."""
        async with trio.open_nursery() as nursery:
            # Apart: names are compared at once, a replay waits for our next training.
            nursery.start_soon(self._judge_forever, lambda charge: charge.part is Part.NAMES)
            nursery.start_soon(self._judge_forever, lambda charge: charge.part is not Part.NAMES)
            while True:
                await trio.sleep(TELL_S)
                self._forget()
                for case in self._cases.values():
                    for node in self._who_lacks(case):
                        case.telling.add(node)
                        nursery.start_soon(self._tell, node, case)

    async def hear(self, peer_id: PeerId, body: bytes) -> bytes:
        """A member tells its verdict. Raises Unavailable if we cannot take it now, PeerFault."""
        node = self._reach.node_of(peer_id)
        if node is None or node not in self._voice.validators.listeners:
            raise Unavailable("disputes are decided by members")
        said = decode_said(body)
        if said.verdict.signer != node:
            raise PeerFault("malformed", "a verdict is told by who has come to it")
        round_number = said.accusation.statement.height
        if not self._sets.knows(round_number):  # nor, maybe, the epoch that it is signed in
            raise Unavailable(f"no dispute over round {round_number} can be decided here")
        for signed in (said.accusation, said.opening, said.verdict):
            if signed is not None:
                self._voice.verify_about(signed, round_number)
        case = self._case_of(said.accusation, said.opening, node)
        if case is not None:
            self._note(case, said.verdict)
        return b""

    async def accuse(self, charge: Charge) -> None:
        """Bring a charge of our own, which we have replayed. Raises NodeError."""
        case = self._cases.setdefault(charge.id, _Case(charge, self._me))
        await self._give(case, charge.drawn.author)

    def _case_of(self, accusation: Signed, opening: Signed | None, teller: NodeId) -> _Case | None:
        """None for one that would change nothing: whoever is convicted may bring any number."""
        known = self._cases.get(accusation.id)
        if known is not None:
            return known
        charge = charge_of(accusation, opening, self._sets)
        if self._is_idle(charge):
            return None
        of_both = (charge.accuser, teller)
        alike = [c for c in self._cases.values() if (c.charge.accuser, c.brought_by) == of_both]
        if sum(not self._is_closed(case) for case in alike) >= CASES_EACH_MAX:
            raise Unavailable("others of that accuser are undecided")
        return self._cases.setdefault(charge.id, _Case(charge, teller))

    def _note(self, case: _Case, verdict: Signed) -> None:
        """A verdict, verified. Raises PeerFault if it is one on something else."""
        charge, statement = case.charge, verdict.statement
        parties = ([charge.drawn.author, charge.id], [charge.accuser, charge.id])
        if statement.value not in parties or statement.height != charge.drawn.round:
            raise PeerFault("malformed", "a verdict convicts the author, or the accuser")
        case.said.setdefault(verdict.signer, verdict)
        committee = self._committee(charge)
        same = {
            node: signed.signature
            for node, signed in case.said.items()
            if signed.statement == statement and node in committee.stake_of
        }
        if not case.is_over and committee.weight(same.keys()) >= committee.quorum:
            case.is_over = True
            evidence = conviction(Certificate(statement, tuple(sorted(same.items()))))
            assert evidence is not None
            self._voice.convict(evidence)

    async def _judge_forever(self, is_mine: Callable[[Charge], bool]) -> None:
        """Cases of one accuser after another: nobody's hold up those of others."""
        judged = set[NodeId]()  # accusers, of whom a case each is looked into
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(JUDGE_S)
                owed = [case for case in self._cases.values() if self._is_owed(case)]
                mine = [case for case in owed if is_mine(case.charge)]
                for case in sorted(mine, key=self._urgency):
                    accuser = case.charge.accuser
                    if accuser not in judged and len(judged) < JUDGED_MAX:
                        judged.add(accuser)
                        nursery.start_soon(self._judge, case, judged)

    def _urgency(self, case: _Case) -> tuple[int, int]:
        """Of one accuser's, first what most have judged: a quorum ends them all."""
        return self._tried[case.charge.accuser], -len(case.said)

    async def _judge(self, case: _Case, judged: set[NodeId]) -> None:
        charge = case.charge
        self._tries += 1
        self._tried[charge.accuser] = self._tries
        try:
            with trio.CancelScope() as case.judging:
                await self._give(case, await self._guilty(charge))
        except NodeError as failure:
            if isinstance(failure, TrainerFailed):
                case.rest()
            self._events.emit(VERDICT_FAILED, round=charge.drawn.round, why=str(failure))
        finally:
            judged.discard(charge.accuser)

    async def _guilty(self, charge: Charge) -> NodeId:
        """Whom the replay convicts. Raises NodeError."""
        author, accuser, order = charge.drawn.author, charge.accuser, charge.order
        if order is None:
            return accuser if await self._named_fault(charge.drawn) is None else author
        try:
            found = await self._replayer.replayed(order, author, accuser)
        except PeerFault:  # what the author has signed is no state of this job
            return author
        return accuser if follows(found, self._tolerance) else author

    async def _give(self, case: _Case, convicted: NodeId) -> None:
        charge = case.charge
        domain = charge.accusation.statement.domain
        verdict = await self._voice.sign(verdict_statement(domain, charge, convicted))
        self._events.emit(
            VERDICT_GIVEN,
            round=charge.drawn.round,
            author=charge.drawn.author,
            accuser=charge.accuser,
            convicted=convicted,
        )
        self._note(case, verdict)

    async def _tell(self, node: NodeId, case: _Case) -> None:
        body = encode_said(case.charge, case.said[self._me])
        try:
            await self._reach.ask(node, REQUEST, body, ANSWER_BYTES_MAX)
        except NodeError:
            return  # it is told again
        finally:
            case.telling.discard(node)
        case.heard_ours.add(node)

    def _who_lacks(self, case: _Case) -> set[NodeId]:
        if self._me not in case.said:
            return set()
        return self._reach.members() - case.heard_ours - case.telling

    def _is_owed(self, case: _Case) -> bool:
        charge = case.charge
        if self._me in case.said or self._me not in self._committee(charge).stake_of:
            return False
        if trio.current_time() < case.again_s:
            return False
        return not self._is_idle(charge)

    def _is_closed(self, case: _Case) -> bool:
        return case.is_over or self._is_idle(case.charge)

    def _is_idle(self, charge: Charge) -> bool:
        """One of the two stands convicted, of this or of something else."""
        return self._voice.is_convicted(charge.drawn.author, charge.accuser)

    def _committee(self, charge: Charge) -> Committee:
        return self._voice.validators.committee(charge.accusation.statement.domain.epoch)

    def _forget(self) -> None:
        """What can be decided no more; and end replays that decide nothing."""
        for case in self._cases.values():
            if self._is_idle(case.charge) or not self._sets.is_open(case.charge.drawn.round):
                case.judging.cancel()
        self._cases = {
            name: case
            for name, case in self._cases.items()
            if self._sets.is_open(case.charge.drawn.round)
        }
