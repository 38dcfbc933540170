"""A forger: what it signs itself is well-formed, and what stands behind it is not there.

In every view that it enters it proposes at once, whoever leads: on the newest final block, past
views that nobody gave up, or on a block that it made up. And it shows certificates of too few. Met
by looking at who leads a view, by voting only on notarized blocks over nullified views, and by
weighing every certificate.
"""

from collections.abc import Sequence

from daa_consensus.bft.messages import Block, EmptyPayload
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import NodeId
from daa_node.agreement.messages import Certified, Message, Proposed, SentBlock, Stated
from simnet.world.adversaries.behaviour import Behaviour, Voice
from simnet.world.adversaries.seen_blocks import BLOCKS_KEPT, votes_beside

CERTIFICATE_ONE_IN = 4  # of own votes
VOTES = (Kind.NOTARIZE, Kind.NULLIFY, Kind.FINALIZE)

Slot = tuple[int, int]


class Forger(Behaviour):
    """Honest beside its forgeries; the same ones for everybody."""

    def __init__(self) -> None:
        self._blocks: dict[Slot, Block] = {}  # the first proposed, the newest views'
        self._votes: dict[Statement, dict[NodeId, bytes]] = {}  # heard, the newest
        self._forged: dict[Slot, tuple[Message, ...]] = {}
        self._shown: set[int] = set()  # to whom, of the newest view's

    def sends(self, voice: Voice, receiver: int, message: Message) -> Sequence[Message | bytes]:
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
            case Proposed(_, block, _):
                self._blocks.setdefault((block.epoch, block.view), block)
                while len(self._blocks) > BLOCKS_KEPT:
                    del self._blocks[min(self._blocks)]
            case Stated(signed) if signed.statement.kind in VOTES:
                votes = self._votes.setdefault(signed.statement, {})
                votes[signed.signer] = signed.signature
                while len(self._votes) > BLOCKS_KEPT:
                    del self._votes[next(iter(self._votes))]
            case _:
                pass

    def _proposal(self, voice: Voice, message: Message) -> tuple[Message, ...]:
        """Of the view that it is in: an empty block; then the parent, if nobody else has it.

        Who wants the parent asks for it once it has come so far: it is shown again and again.
        """
        at, domain = message.position, voice.at().domain
        parent = next((b for (_, v), b in self._blocks.items() if v == at.finalized_view), None)
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
        block = self._blocks.get((own.statement.domain.epoch, own.statement.view))
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
