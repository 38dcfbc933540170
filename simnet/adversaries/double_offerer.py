"""A double offerer: one contribution to every second node, another one to the others, or both.

Met by evidence (two Offers in one slot) and by Acks: a validator acknowledges the first that it saw
of an author, so at most one of the two gets a quorum (daa_node/rounds/collect.py).
"""

from collections.abc import Sequence

from daa_consensus.bft.messages import OfferBody
from daa_consensus.votes import Kind, Statement
from daa_dag.ids import BlobRoot, VertexId, tagged_digest
from daa_node.agreement.letters import Letter, Said
from simnet.adversaries.conduct import Conduct, Voice

BOTH_ONE_IN = 4  # of its Offers


class DoubleOfferer(Conduct):
    """Every vote goes along with an Offer: which one depends on who gets it, as a rule."""

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter | bytes]:
        if not isinstance(letter.body, Said) or letter.body.signed.statement.view == 0:
            return (letter,)
        known = voice.machine.known
        if known.chain.tip_open:
            return (letter,)  # of the open round there is nothing to offer any more
        round_ = known.chain.tip.height + 1
        which = receiver % 2 if voice.chance.randrange(BOTH_ONE_IN) else voice.chance.randrange(2)
        offer = OfferBody(
            round=round_,
            author=letter.body.signed.signer,
            base_vertex_id=VertexId(tagged_digest("vertex", known.chain.tip.id)),
            blob_root=BlobRoot(tagged_digest("invented", [round_, which])),
            size_bytes=1,
            codec="int8",
            steps=1,
            tokens=1,
            us_per_step=1,
            upload_bytes_per_s=1,
            base_loss_micronats=0,
            snapshot_roots=(),
        )
        said = Statement(known.domain, Kind.OFFER, 0, round_, offer.as_value())
        return (letter, Letter(letter.position, Said(voice.sign(said))))
