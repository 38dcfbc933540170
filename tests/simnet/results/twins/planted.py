"""Mistakes that attacks by twins must find, planted into all nodes of a run."""

from functools import partial

from daa_consensus.bft.effects import Effect, SignAndSend
from daa_consensus.bft.events import Event, ProposalArrived
from daa_consensus.bft.safety import Record, Seen, Verdict, Vote, may_vote
from daa_consensus.bft.state import Simplex
from daa_consensus.votes import Kind, Statement
from tests.simnet.results.mutants.make import Make
from tests.simnet.results.mutants.members import ChangesEarly, LeaversCount, OldKeyToo, OldQuorum
from tests.simnet.results.mutants.mutants import (
    Miscounting,
    Trusting,
    own_vote_twice,
    quorum_less_one,
)


class NotarizesTwice(Simplex):
    """Votes for every proposal that it hears, however many there are, and however late."""

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        effects = super().step(now_ns, event)
        if isinstance(event, ProposalArrived) and event.block.epoch == self.known.domain.epoch:
            block = event.block
            self.known.chain.add(block)
            words = Statement(self.known.domain, Kind.NOTARIZE, block.view, block.height, block.id)
            effects.append(SignAndSend(words, None))
        return effects


def nullifies_what_it_finalized(record: Record, seen: Seen, vote: Vote) -> Verdict:
    """A Finalize is no promise."""
    if vote.kind is Kind.NULLIFY:
        return may_vote(Record(*record.slot), seen, vote)
    return may_vote(record, seen, vote)


class NullifiesWhatItFinalized(Simplex):
    """Gives up the view that it has just left with a Finalize, too."""

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        effects = super().step(now_ns, event)
        for effect in list(effects):
            if isinstance(effect, SignAndSend) and effect.statement.kind is Kind.FINALIZE:
                said = effect.statement
                words = Statement(said.domain, Kind.NULLIFY, said.view, 0, None)
                effects.append(SignAndSend(words, None))
        return effects


# Breaks of a rule that only an equivocating leader can use.
NOTARIZES_TWICE = Make(machine=NotarizesTwice, signer=Trusting)
NULLIFIES_WHAT_IT_FINALIZED = Make(
    machine=partial(NullifiesWhatItFinalized, rules=nullifies_what_it_finalized), signer=Trusting
)
MISCOUNTED: dict[str, Make] = {
    "quorum off by one": Make(machine=partial(Miscounting, quorum_less_one)),
    "own vote counted twice": Make(machine=partial(Miscounting, own_vote_twice)),
}
OF_MEMBERS: dict[str, Make] = {
    "leaver still counts": Make(machine=LeaversCount),
    "old quorum after the boundary": Make(machine=OldQuorum),
    "rotation leaves the old key its seat": Make(machine=OldKeyToo),
    "new committee one epoch early": Make(machine=ChangesEarly),
}
