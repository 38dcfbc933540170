"""The hand that asks for signatures: nothing is signed but what the rules allow, once."""

from daa_consensus.bft import effects as do
from daa_consensus.bft.agenda import Agenda
from daa_consensus.bft.knowledge import Knowledge
from daa_consensus.bft.messages import AbortPayload, Block
from daa_consensus.bft.safety import Record, Rules, Seen, Verdict, Vote
from daa_consensus.votes import Kind, Statement


class Voter:
    """Keeps the record of own votes; it equals the guard's once the signer has carried them out."""

    def __init__(self, known: Knowledge, agenda: Agenda, record: Record, rules: Rules) -> None:
        self._known = known
        self._rules = rules
        self._agenda = agenda
        self.record = record

    @property
    def here(self) -> Record | None:
        """What is signed in the current slot; None if a later slot has been voted in before."""
        slot = self._known.slot
        return self.record.at(slot) if self.record.slot <= slot else None

    @property
    def has_voted(self) -> bool:
        """Whether anything is signed in the current slot."""
        return self.record.slot == self._known.slot and not self.record.is_empty

    def may(self, kind: Kind, block: Block | None) -> Verdict:
        """What the rules say of signing this; no block is a Nullify of the current view."""
        return self._rules(self.record, self._seen(), self._vote(kind, block))

    def cast(self, kind: Kind, block: Block | None) -> bool:
        """Have it signed and sent, if the rules allow and it has not been signed before."""
        vote = self._vote(kind, block)
        if not self._rules(self.record, self._seen(), vote).allowed:
            return False
        after = self.record.after(vote)
        if after == self.record:
            return False
        self.record = after
        height, value = (0, None) if block is None else (block.height, block.id)
        statement = Statement(self._known.domain, kind, vote.slot[1], height, value)
        sent_along = block if kind == Kind.PROPOSAL else None
        self._known.effects.append(do.SignAndSend(statement, sent_along))
        return True

    def nullify(self, reason: str) -> None:
        """Give the current view up, once."""
        if self.cast(Kind.NULLIFY, None):
            self._known.effects.append(do.GaveUp(self._known.view, reason))

    def _seen(self) -> Seen:
        return self._known.ballots.seen(self._agenda.executed, self._agenda.certified)

    def _vote(self, kind: Kind, block: Block | None) -> Vote:
        if block is None:
            return Vote(kind, self._known.slot)
        aborts = block.payload.round if isinstance(block.payload, AbortPayload) else None
        slot = (block.epoch, block.view)
        return Vote(kind, slot, block.id, block.parent_id, block.parent_view, aborts)
