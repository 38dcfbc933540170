"""What the leader of an open view puts on the newest notarized block.

* its round is open and I can close it          -> the result, or the abort
* it is not final, and was not for a delta      -> an empty block: finalizing it finalizes both
* it is final and its round is closed           -> the host chooses the next set
"""

from daa_consensus.bft import effects as do
from daa_consensus.bft.agenda import Agenda
from daa_consensus.bft.chain import Fit
from daa_consensus.bft.knowledge import Knowledge
from daa_consensus.bft.messages import Block, EmptyPayload, Payload, SetPayload


class Proposer:
    """Remembers, for one view, whether the host was asked for a set and what it chose."""

    def __init__(self, known: Knowledge, agenda: Agenda) -> None:
        self._known = known
        self._agenda = agenda
        self._asked = False
        self._chosen: SetPayload | None = None

    def begin_view(self) -> None:
        self._asked, self._chosen = False, None

    def choose(self, view: int, payload: SetPayload) -> None:
        """The host's answer; of no use once the view is over."""
        if view == self._known.view and self._asked:
            self._chosen = payload

    def block(self, empty_due: bool) -> Block | None:
        """What to propose now on the newest notarized block, if anything."""
        known = self._known
        parent_id = known.ballots.parent_for(known.view)
        if parent_id is None:
            return None
        parent, decisions = known.chain.get(parent_id), known.chain.decisions(parent_id)
        if parent is None or decisions is None:
            return None  # being fetched, as the newest notarized block is
        payload = self._payload(parent, known.chain.is_open(decisions), empty_due)
        if payload is None:
            return None
        height = payload.round if isinstance(payload, SetPayload) else parent.height
        chain_id, (epoch, view) = known.domain.chain_id, known.slot
        block = Block(chain_id, epoch, view, height, parent.id, parent.view, payload)
        return block if known.chain.place(block).fit == Fit.FITS else None

    def _payload(self, parent: Block, is_open: bool, empty_due: bool) -> Payload | None:
        closing = self._agenda.closing(parent.height) if is_open else None
        if closing is not None:
            return closing
        if parent is not self._known.chain.tip:
            return EmptyPayload() if empty_due else None
        if not is_open and not self._asked:
            self._asked = True
            ask = do.AskPayload(self._known.view, parent, parent.height + 1)
            self._known.effects.append(ask)
        return self._chosen
