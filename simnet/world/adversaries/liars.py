"""Liars that do one thing wrong, and the table of all kinds that lie to consensus.

Each class says what its node does, and which defence of the honest meets it.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from daa_consensus.bft.messages import Block, EmptyPayload, SetPayload, offer_from_value
from daa_consensus.errors import BadMessage
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import ContributionRoot, NodeId, tagged_digest
from daa_node.agreement.messages import Certified, Message, Proposed, SentBlock, Stated
from simnet.world.adversaries.babbler import Babbler
from simnet.world.adversaries.behaviour import Behaviour, Shelf, Slot, Voice, forget
from simnet.world.adversaries.framers import LateAccuser
from simnet.world.adversaries.puppet import Puppet
from simnet.world.scenario import AdversaryKind

LIES_ONE_IN = 4  # of an equivocator's own votes
BOTH_ONE_IN = 4  # of a double offerer's Offers
FALSE_ROOTS = 2  # in each Ack of a false acker
OFFERS_KEPT = 256  # the newest
MESSAGES_LATE = 12  # of a staller, to each receiver: about a view of statements, sent twice
NAMES = 3  # of a sybil: a quorum of four, if names counted
CERTIFICATE_ONE_IN = 4  # of a forger's own votes
VOTES = (Kind.NOTARIZE, Kind.NULLIFY, Kind.FINALIZE)

Told = Sequence[Message | bytes]


def votes_beside(statement: Statement, block: Block | None) -> list[Statement]:
    """All that there is to say in the statement's view: give it up, and vote for the block."""
    said: list[tuple[Kind, int, bytes | None]] = [(Kind.NULLIFY, 0, None)]
    if block is not None:
        said += [(kind, block.height, block.id) for kind in (Kind.NOTARIZE, Kind.FINALIZE)]
    return [
        Statement(statement.domain, kind, statement.view, height, value)
        for kind, height, value in said
    ]


class Equivocator(Behaviour):
    """As leader it proposes two blocks, and it sends votes along with their opposite.

    Every second node gets a block of its own making, a set that relies on one Ack less, or an empty
    block. Met by one Notarize a view (no second quorum forms), by evidence of two Proposals, two
    Notarize, or Finalize beside Nullify.
    """

    def sends(self, voice: Voice, receiver: int, message: Message) -> Told:
        if isinstance(message.body, Proposed):
            return [_another(voice, message, message.body) if receiver % 2 else message]
        if voice.chance.randrange(2):
            return self._lies(voice, message)
        return [message, *self._lies(voice, message)]

    def _lies(self, voice: Voice, message: Message) -> list[Message]:
        vote = _vote(message)
        if vote is None or voice.chance.randrange(LIES_ONE_IN):
            return []
        blocks = voice.seen.of(vote)
        lies = votes_beside(vote, voice.chance.choice(blocks) if blocks else None)
        return [Message(message.position, Stated(voice.sign(lie))) for lie in lies]


def _another(voice: Voice, message: Message, proposed: Proposed) -> Message:
    """A block of the same view that its leader might as well have proposed."""
    block, payload = proposed.block, proposed.block.payload
    match payload:
        case SetPayload() if payload.ack_ids:
            other: Block = replace(block, payload=replace(payload, ack_ids=payload.ack_ids[1:]))
        case SetPayload():
            other = replace(block, height=block.height - 1, payload=EmptyPayload())
        case _:
            other = replace(block, payload=EmptyPayload())
    words = replace(proposed.signed.statement, height=other.height, value=other.id)
    # never a result: no certificate goes with it
    return replace(message, body=Proposed(voice.sign(words), other, None))


class Twin(Behaviour):
    """One key on two machines of honest code, each with a disk and a guard of its own.

    Whoever hears both sees a node that signs two statements for a slot. Met by quorums that share
    an honest node, and by evidence: both statements carry the one signature (Bano et al. 2020,
    "Twins: BFT Systems Made Robust"). Partitions that keep the two apart come from
    simnet/results/twins/scripts.py.
    """

    daemons = 2


class Conflicter(Behaviour):
    """It votes for everything that it has seen, and for giving up, in every view.

    Met by evidence (Finalize beside Nullify, two Notarize) and by counting one vote a key and kind.
    What it says always convicts it, so it cannot stay long where evidence takes stake.
    """

    def sends(self, voice: Voice, receiver: int, message: Message) -> Told:
        vote = _vote(message)
        if vote is None:
            return [message]
        lies = [lie for block in voice.seen.of(vote) for lie in votes_beside(vote, block)]
        return [message, *(Message(message.position, Stated(voice.sign(lie))) for lie in lies)]


def _vote(message: Message) -> Statement | None:
    """What the message says of a view, if it is a statement about one."""
    body = message.body
    is_vote = isinstance(body, Stated) and body.signed.statement.view > 0
    return body.signed.statement if isinstance(body, Stated) and is_vote else None


class Withholder(Behaviour):
    """It gives nobody what only it may have, and proposes to one node only.

    Certificates, blocks and what proves a result stay with it, and its Finalize too. Met by asking
    another holder each time (what a quorum certified, f+1 honest nodes hold) and by timers: the
    views that it leads are nullified.
    """

    shelf = Shelf.CLOSED

    def sends(self, voice: Voice, receiver: int, message: Message) -> Told:
        match message.body:
            case Certified() | SentBlock():
                return ()
            case Stated(signed) if signed.statement.kind is Kind.FINALIZE:
                return ()
            case Proposed(signed, block, _):
                favoured = signed.statement.view % voice.nodes
                bare = Message(message.position, Proposed(signed, block, None))
                return (bare,) if receiver == favoured else ()
            case _:
                return (message,)


class FalseAcker(Behaviour):
    """It acknowledges contributions that it does not hold, and that nobody offered.

    Every Offer that it hears is acknowledged unseen, beside inventions; whoever then asks it for a
    blob gets nothing. Met by the quorum that an Ack needs to make a contribution eligible (f+1
    honest nodes hold it), by asking other ackers for it, and by a limit on what one validator may
    acknowledge (daa_node/rounds/collect.py).
    """

    shelf = Shelf.CLOSED

    def __init__(self) -> None:
        self._offered: dict[ContributionRoot, int] = {}  # with their rounds

    def sends(self, voice: Voice, receiver: int, message: Message) -> Told:
        if _vote(message) is None:
            return (message,)
        invented = [voice.chance.randbytes(32) for _ in range(FALSE_ROOTS)]
        heard = [root for root, round_ in self._offered.items() if round_ == voice.round]
        ack = Statement(voice.domain, Kind.ACK, 0, voice.round, sorted([*invented, *heard]))
        return (message, Message(message.position, Stated(voice.sign(ack))))

    def hears(self, message: Message) -> None:
        match message.body:
            case Stated(signed) if signed.statement.kind is Kind.OFFER:
                try:
                    offer = offer_from_value(signed.statement.value)
                except BadMessage:
                    return  # somebody else's lie
                self._offered[offer.root] = signed.statement.height
                if len(self._offered) > OFFERS_KEPT:
                    del self._offered[next(iter(self._offered))]


class DoubleOfferer(Behaviour):
    """One contribution to every second node, as a rule, and another one to the others.

    Met by evidence (two Offers in one slot) and by Acks: a validator acknowledges the first that it
    saw of an author, so at most one of the two gets a quorum (daa_node/rounds/collect.py).
    """

    def sends(self, voice: Voice, receiver: int, message: Message) -> Told:
        match message.body:
            case Stated(signed) if signed.statement.kind is Kind.OFFER:
                is_usual = voice.chance.randrange(BOTH_ONE_IN)
                if not (receiver % 2 if is_usual else voice.chance.randrange(2)):
                    return (message,)
                honest = offer_from_value(signed.statement.value)
                other = replace(honest, us_per_step=honest.us_per_step + 1)
                lie = voice.sign(replace(signed.statement, value=other.as_value()))
                own = lie.signer == signed.signer  # others' statements are passed on as they are
                return (replace(message, body=Stated(lie)) if own else message,)
            case _:
                return (message,)


class FalseExecutor(Behaviour):
    """It signs Exec of a root that it made up, and another one for every second node.

    Met by the quorum that a result needs, by an abort where no result gets one, and by evidence: an
    Exec against its certificate, or two Exec for one round.
    """

    def sends(self, voice: Voice, receiver: int, message: Message) -> Told:
        match message.body:
            case Stated(signed) if signed.statement.kind is Kind.EXEC:
                which = [signed.statement.height, receiver % 2]
                value = [tagged_digest(f"invented {what}", which) for what in ("vertex", "result")]
                lie = voice.sign(replace(signed.statement, value=value))
                return (replace(message, body=Stated(lie)),)
            case _:
                return (message,)


class Staller(Behaviour):
    """It says everything, as late as it may.

    Each message leaves only once so many more are due to the same receiver. Met by timers (a view
    that it leads is given up and led by the next), by quorums that need nobody in particular, and
    by a round's window, which waits for no single contributor.
    """

    shelf = Shelf.SLOW

    def __init__(self) -> None:
        self._late: dict[int, deque[Message]] = {}

    def sends(self, voice: Voice, receiver: int, message: Message) -> Told:
        waiting = self._late.setdefault(receiver, deque())
        waiting.append(message)
        return (waiting.popleft(),) if len(waiting) > MESSAGES_LATE else ()


class Sybil(Behaviour):
    """One node that speaks under many names, none of which has stake.

    Its own vote comes back under every invented name. Met by counting stake, not names: statements
    of whoever is no validator are refused before any machine sees them, and their sender is scored.
    """

    def sends(self, voice: Voice, receiver: int, message: Message) -> Told:
        if not isinstance(message.body, Stated):
            return (message,)
        own = message.body.signed
        names = [NodeId(tagged_digest("sybil", [own.signer, index])) for index in range(NAMES)]
        echoes = [Message(message.position, Stated(replace(own, signer=name))) for name in names]
        return (message, *echoes)


class Forger(Behaviour):
    """What it signs itself is well-formed, and what stands behind it is not there.

    In every view that it enters it proposes at once, whoever leads: on the newest final block, past
    views that nobody gave up, or on a block that it made up. And it shows certificates of too few.
    The same forgeries for everybody. Met by looking at who leads a view, by voting only on
    notarized blocks over nullified views, and by weighing every certificate.
    """

    def __init__(self) -> None:
        self._votes: dict[Statement, dict[NodeId, bytes]] = {}  # heard
        self._forged: dict[Slot, tuple[Message, ...]] = {}
        self._shown: set[int] = set()  # to whom, of the newest view's

    def sends(self, voice: Voice, receiver: int, message: Message) -> Told:
        self._note(message)
        at = message.position
        slot = (at.epoch, at.view)
        if slot not in self._forged:
            self._forged = {slot: self._proposal(voice, message)}
            self._shown.clear()
        forged = self._forged[slot]
        if receiver in self._shown:
            forged = forged[1:]
        self._shown.add(receiver)
        match message.body:
            case Stated(signed) if signed.statement.kind in VOTES:
                if not voice.chance.randrange(CERTIFICATE_ONE_IN):
                    forged += (self._certificate(voice, message, signed),)
            case _:
                pass
        return (*forged, message)

    def hears(self, message: Message) -> None:
        self._note(message)

    def _note(self, message: Message) -> None:
        match message.body:
            case Stated(signed) if signed.statement.kind in VOTES:
                votes = self._votes.setdefault(signed.statement, {})
                votes[signed.signer] = signed.signature
                forget(self._votes)
            case _:
                pass

    def _proposal(self, voice: Voice, message: Message) -> tuple[Message, ...]:
        """Of the view that it is in: an empty block; then the parent, if nobody else has it.

        Who wants the parent asks for it once it has come so far: it is shown again and again.
        """
        at, domain = message.position, voice.domain
        parent = voice.seen.first_of_view(at.finalized_view)
        if parent is None:
            return ()
        beside: list[Message] = []
        if parent.view < at.view - 1 and voice.chance.randrange(2):
            parent = _empty(at.epoch, at.view - 1, parent)
            beside = [Message(at, SentBlock(parent))]
        block = _empty(at.epoch, at.view, parent)
        words = Statement(domain, Kind.PROPOSAL, at.view, block.height, block.id)
        return (Message(at, Proposed(voice.sign(words), block, None)), *beside)

    def _certificate(self, voice: Voice, message: Message, own: Signed) -> Message:
        """Of what it votes for, or of giving the view up, by less than half of all."""
        block = next(iter(voice.seen.of(own.statement)), None)
        words = voice.chance.choice([own.statement, *votes_beside(own.statement, block)])
        signed = voice.sign(words)
        heard = sorted(self._votes.get(words, {}).items())
        others = [pair for pair in heard if pair[0] != signed.signer][: voice.nodes // 2 - 1]
        pairs = tuple(sorted([*others, (signed.signer, signed.signature)]))
        return Message(message.position, Certified(Certificate(words, pairs), block))


def _empty(epoch: int, view: int, parent: Block) -> Block:
    return Block(
        parent.chain_id, epoch, view, parent.height, parent.id, parent.view, EmptyPayload()
    )


BEHAVIOURS: Final[Mapping[AdversaryKind, Callable[[], Behaviour]]] = {
    "equivocator": Equivocator,
    "twin": Twin,
    "conflicter": Conflicter,
    "withholder": Withholder,
    "false_acker": FalseAcker,
    "double_offerer": DoubleOfferer,
    "false_executor": FalseExecutor,
    "staller": Staller,
    "sybil": Sybil,
    "babbler": Babbler,
    "forger": Forger,
    "late_accuser": LateAccuser,
    "puppet": Puppet,
}
