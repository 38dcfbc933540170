"""A double offerer: one contribution to every second node, another one to the others, or both.

Met by evidence (two Offers in one slot) and by Acks: a validator acknowledges the first that it saw
of an author, so at most one of the two gets a quorum (daa_node/rounds/collect.py). A daemon's own
Offer is doubled; where nobody offers, two are invented beside each vote.
"""

from collections.abc import Sequence
from dataclasses import replace

from daa_consensus.bft.messages import OfferBody, offer_from_value
from daa_consensus.votes import Kind, Statement
from daa_dag.ids import BlobRoot, NodeId, VertexId, tagged_digest
from daa_node.agreement.letters import Letter, Said
from simnet.adversaries.conduct import Conduct, Stand, Voice

BOTH_ONE_IN = 4  # of its Offers


class DoubleOfferer(Conduct):
    """Which of its two Offers depends on who gets it, as a rule."""

    def __init__(self) -> None:
        self._has_offers = False

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter | bytes]:
        match letter.body:
            case Said(signed) if signed.statement.kind is Kind.OFFER:
                self._has_offers = True
                if not _which(voice, receiver):
                    return (letter,)
                honest = offer_from_value(signed.statement.value)
                other = replace(honest, us_per_step=honest.us_per_step + 1)
                lie = voice.sign(replace(signed.statement, value=other.as_value()))
                own = lie.signer == signed.signer  # others' words are passed on as they are
                return (replace(letter, body=Said(lie)) if own else letter,)
            case Said(signed) if signed.statement.view > 0 and not self._has_offers:
                stand = voice.stand()
                if stand.tip_open:
                    return (letter,)  # of the open round there is nothing to offer any more
                offer = _invented(signed.signer, stand, _which(voice, receiver))
                said = Statement(stand.domain, Kind.OFFER, 0, stand.round, offer.as_value())
                return (letter, Letter(letter.position, Said(voice.sign(said))))
            case _:
                return (letter,)


def _which(voice: Voice, receiver: int) -> int:
    return receiver % 2 if voice.chance.randrange(BOTH_ONE_IN) else voice.chance.randrange(2)


def _invented(author: NodeId, stand: Stand, which: int) -> OfferBody:
    return OfferBody(
        round=stand.round,
        author=author,
        base_vertex_id=VertexId(tagged_digest("vertex", stand.height)),
        blob_root=BlobRoot(tagged_digest("invented", [stand.round, which])),
        size_bytes=1,
        codec="int8",
        steps=1,
        tokens=1,
        us_per_step=1,
        upload_bytes_per_s=1,
        base_loss_micronats=0,
        snapshot_roots=(),
    )
