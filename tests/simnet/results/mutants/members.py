"""Mistakes about who votes, each planted by swapping a daemon's part."""

from dataclasses import replace

from daa_consensus.bft.ballots import Ballots
from daa_consensus.bft.effects import Effect
from daa_consensus.bft.events import Event, ProposalArrived
from daa_consensus.bft.messages import Block, SetPayload
from daa_consensus.bft.state import Simplex
from daa_consensus.committee import Committee, Validator
from daa_consensus.operations import Rotate, membership_operations
from daa_node.agreement.member_list import MemberList
from daa_node.identity.validators import Validators
from tests.simnet.results.mutants.make import Make


def _follow(machine: Simplex, committee: Committee) -> None:
    """Count by this committee from now on, and sign under it."""
    known = machine.known
    known.committee = committee
    known.catch_up.follow(committee)
    known.domain = replace(known.domain, validator_set_root=committee.root)
    known.ballots = Ballots(committee, known.chain.tip.view, known.chain.tip.id)


class ChangesEarly(Simplex):
    """The next committee counts as soon as a final set asks for it, not from the next epoch on."""

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        tip, known = self.known.chain.tip, self.known
        effects = super().step(now_ns, event)
        if known.chain.tip is not tip and known.membership.waiting:
            committee = known.membership.next_epoch().committee
            if committee != known.committee:
                _follow(self, committee)
        return effects


class OldQuorum(Simplex):
    """The new committee's votes are held against the weight that the first one took."""

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        before = self.known.committee
        effects = super().step(now_ns, event)
        if self.known.committee is not before:
            vars(self.known.committee).update(quorum=before.quorum)
        return effects


class LeaversCount(Simplex):
    """Who has left weighs what it weighed."""

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        before = self.known.committee
        effects = super().step(now_ns, event)
        if self.known.committee is not before:
            stakes = {**before.stake_of, **self.known.committee.stake_of}
            vars(self.known.committee).update(stake_of=stakes)
        return effects


class OldKeyToo(Simplex):
    """A rotation gives the seat to the new key, and leaves it to the old one as well."""

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        before = self.known.committee
        effects = super().step(now_ns, event)
        membership = self.known.membership
        rotated = [r.action for r in membership.applied if isinstance(r.action, Rotate)]
        if self.known.committee is not before and rotated:
            kept = [Validator(a.subject, before.stake_of[a.subject]) for a in rotated]
            both = Committee(tuple(sorted((*membership.committee.validators, *kept))))
            self.known.membership = replace(membership, committee=both)
            _follow(self, both)
        return effects


class AppliesWhatIsNotFinal(Simplex):
    """A request counts as soon as a leader proposes a set that carries it."""

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        effects = super().step(now_ns, event)
        known = self.known
        if isinstance(event, ProposalArrived) and isinstance(event.block.payload, SetPayload):
            asked = membership_operations(event.block.payload.operations)
            known.membership = known.membership.decided(asked)
        return effects


class OthersStay(Simplex):
    """Who is ahead is looked for among those of the first committee."""

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        vars(self.known.catch_up).update(follow=lambda committee: None)
        return super().step(now_ns, event)


class SwitchesAlone(Simplex):
    """The newest protocol version that one has said is used from there on, whoever else has."""

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        effects, known = super().step(now_ns, event), self.known
        said = dict(known.membership.words.said)
        version = said.get(self._me, 1) if self._me is not None else 1
        if version > known.committee.version:
            _follow(self, replace(known.committee, version=version))
        return effects


class SwitchesShort(Simplex):
    """A protocol version is used from the next epoch on once a quorum but one speaks it."""

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        known = self.known
        before, said = known.membership, known.membership.words.said
        effects = super().step(now_ns, event)
        after = known.membership
        if after.epoch != before.epoch and after.committee == before.committee:
            version = before.committee.version + 1
            speakers = {name for name, most in said.items() if most >= version}
            if before.committee.weight(speakers) >= before.committee.quorum - 1:
                switched = replace(after.committee, version=version)
                known.membership = replace(after, committee=switched)
                _follow(self, switched)
        return effects


class RequestsForgotten(MemberList):
    """A restart reads epochs' ends from the chain, and not what waits for the next one."""

    def matters(self, block: Block) -> bool:
        return not isinstance(block.payload, SetPayload) and super().matters(block)


class JudgesLate(Validators):
    """Signatures are judged by the committee of the epoch before."""

    def committee(self, epoch: int) -> Committee:
        return super().committee(max(0, epoch - 1))


MEMBER_MUTANTS: dict[str, Make] = {
    "new committee one epoch early": Make(machine=ChangesEarly),
    "old quorum after the boundary": Make(machine=OldQuorum),
    "leaver still counts": Make(machine=LeaversCount),
    "rotation leaves the old key its seat": Make(machine=OldKeyToo),
    "requests applied before they are final": Make(machine=AppliesWhatIsNotFinal),
    "catch-up keeps to the first committee": Make(machine=OthersStay),
    "waiting requests lost by a restart": Make(roll=RequestsForgotten),
    "each uses a protocol version when it likes": Make(machine=SwitchesAlone),
    "protocol version used one short of a quorum": Make(machine=SwitchesShort),
    "words judged by the committee before": Make(history=JudgesLate),
}
