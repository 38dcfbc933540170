"""What sets rest on is shown: who judges one asks for it, who refuses one says what it can show.

    a set is proposed, and Acks are missing here  --WantStatements--> its leader, once a delta
    a set leaves out what is eligible here        --Missed--> everybody
    Missed, and Acks are missing here             --WantStatements--> who says so, one a delta
    a round opens here, in its middle perhaps  --WantStatements--> two who are there, for all of it
    WantStatements  --Shown: contributions, and Acks that make a quorum--> eligible here, too

So what one honest member refuses a set for, the leaders after that know before they propose.
Memory: one claim a member, and who was answered within the last half delta.
"""

from collections.abc import Sequence

import trio

from daa_consensus.bft.messages import SetPayload
from daa_consensus.votes import Kind
from daa_dag.ids import ContributionRoot, NodeId
from daa_node.agreement.messages import Missed, Shown, Stated, WantStatements
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.questions import Questions
from daa_node.agreement.round_talk import RoundTalk
from daa_node.agreement.writer import Writer

# Of those heard last, or met next. If neither knows or tells, whoever proposes a set shows it.
LATECOMER_ASKS = 2


class Showing:
    """One member's part in it."""

    def __init__(
        self, parts: AgreementParts, talk: RoundTalk, questions: Questions, writer: Writer
    ) -> None:
        self._parts = parts
        self._talk = talk
        self._questions = questions
        self._writer = writer
        self._answered_s: dict[NodeId, float] = {}  # when a member's wish was granted
        self._claims: dict[NodeId, Missed] = {}  # the newest of each, those heard first before
        self._asked_s = -1e9  # when somebody who claims something was asked
        self._was_in: int | None = None  # the newest round that was not over when it opened here
        self._asks_left = 0  # members to be asked what was said in it before

    def entered(self, round_number: int, heard_last: Sequence[NodeId]) -> None:
        """The round is open here, and not over.

        Who has just started or was away may come into the middle of it: what was said by members
        that are gone by now, others have heard.
        """
        if self._was_in is None or round_number > self._was_in + 1:
            self._asks_left = LATECOMER_ASKS
        self._was_in = round_number
        for member in heard_last:
            self.met(member)

    def met(self, member: NodeId) -> None:
        """A stream to the member was opened, or it was heard: it is asked if that is still due."""
        if self._asks_left:
            self._asks_left -= 1
            self._writer.send(member, WantStatements(self._talk.round))

    def missed(self, round_number: int, roots: Sequence[ContributionRoot]) -> None:
        """A set leaves these out, whose Ack quorums we can show."""
        self._writer.broadcast(Missed(round_number, tuple(roots)))

    def ask(self) -> None:
        """Once a delta: what we miss for a judgement the proposer has, as its set relies on it."""
        validators = self._parts.validators
        for block in self._questions.unjudged.values():
            if isinstance(block.payload, SetPayload):
                roots = [offer.root for offer in block.payload.offers]
                domain = validators.domain(block.epoch)
                leader = validators.committee(block.epoch).leader(domain, block.view)
                self._want(leader, block.height, roots)
        self._ask_a_claimant()

    def claimed(self, member: NodeId, missed: Missed) -> None:
        """A member says that it can show what a set leaves out; while it waits it keeps its place.

        Who was asked comes last when it claims again. Were it so for who only says it once more,
        as honest members do at each set that they refuse, liars could be asked before it for ever.
        """
        self._claims[member] = missed
        self._ask_a_claimant()

    def answer(self, member: NodeId, wanted: WantStatements) -> None:
        """Show what was asked for; what everybody said, if nothing was named."""
        now_s = trio.current_time()
        # Two messages a member are an answer, or one for all and an Offer each: once a delta.
        before_s = now_s - self._parts.delta_ns / 2e9
        self._answered_s = {n: at_s for n, at_s in self._answered_s.items() if at_s > before_s}
        if member in self._answered_s:
            return
        self._answered_s[member] = now_s
        listener = self._talk.listener(wanted.round)
        statements = self._talk.heard_statements(wanted.round)
        if wanted.roots:
            offers, acks = ((), ()) if listener is None else listener.show(wanted.roots)
            if offers:
                self._writer.answer(member, Shown(wanted.round, offers, acks))
            # And what their authors signed: who has heard another Offer of one then holds both.
            authors = {offer.author for offer in offers}
            statements = [
                w for w in statements if w.statement.kind is Kind.OFFER and w.signer in authors
            ]
        for signed in statements:
            if signed.signer != member:
                self._writer.answer(member, Stated(signed))

    def take(self, shown: Shown) -> None:
        """Acks that verified, and what they prove. Raises PeerFault if they do not."""
        listener = self._talk.listener(shown.round)
        if listener is not None:
            listener.shown(shown.offers, shown.acks)

    def _ask_a_claimant(self) -> None:
        now_s = trio.current_time()
        if now_s - self._asked_s < self._parts.delta_ns / 1e9:
            return
        while self._claims:
            member = next(iter(self._claims))
            claim = self._claims.pop(member)
            if self._want(member, claim.round, claim.roots):
                self._asked_s = now_s
                return

    def _want(self, member: NodeId, round_number: int, roots: Sequence[ContributionRoot]) -> bool:
        """Ask the member for what we lack of these; False if we lack nothing of them."""
        listener = self._talk.listener(round_number)
        lacking = () if listener is None else tuple(listener.lacks(roots))
        if lacking:
            self._writer.send(member, WantStatements(round_number, lacking))
        return bool(lacking)
