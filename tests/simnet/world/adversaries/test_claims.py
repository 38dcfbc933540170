"""False Acks and double offers against the bookkeeping of a round."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from daa_consensus.bft.messages import OfferBody
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import (
    BlobRoot,
    ChainId,
    ContributionRoot,
    Digest,
    NodeId,
    ValidatorSetRoot,
    VertexId,
)
from daa_node.errors import PeerFault
from daa_node.rounds.collect import UNKNOWN_EACH_MAX, Collection
from daa_node.rounds.plan import Plan, Share

NODES = [NodeId(bytes([65 + k]) * 32) for k in range(4)]
BASE = VertexId(b"v" * 32)
COMMITTEE = Committee(tuple(Validator(node, 1) for node in NODES))
PLAN = Plan(3, BASE, Digest(BASE), tuple(Share(node, 20, 5_120) for node in NODES), 256, 7_000_000)
DOMAIN = Domain(ChainId(b"c" * 32), 0, ValidatorSetRoot(COMMITTEE.root))


def acked(signer: NodeId, roots: Iterable[ContributionRoot]) -> Signed:
    return Signed(Statement(DOMAIN, Kind.ACK, 0, 3, sorted(roots)), signer, b"signature")


def offer_of(author: NodeId, blob: bytes = b"b") -> OfferBody:
    root = BlobRoot(blob * 32)
    return OfferBody(3, author, BASE, root, 1_000, "int8", 20, 5_120, 1, 1, 0, ())


def new_collection() -> Collection:
    return Collection(PLAN, COMMITTEE, {"int8": 1_000}.get)


def test_acks_of_f_liars_and_their_author_make_nothing_eligible() -> None:
    collection, invented = new_collection(), offer_of(NODES[3])
    collection.offer(invented)
    for liar in NODES[2:]:  # f and one more: an honest one is missing still
        collection.ack(acked(liar, [invented.root]))
    assert collection.eligible() == []
    assert not collection.acks.has_quorum(invented.root)


def test_a_false_acker_is_stopped_at_a_function_of_the_contributors() -> None:
    collection = new_collection()
    allowed = UNKNOWN_EACH_MAX * len(NODES)
    invented = [ContributionRoot(index.to_bytes(32)) for index in range(allowed + 1)]
    for root in invented[:allowed]:
        collection.ack(acked(NODES[0], [root]))
    with pytest.raises(PeerFault, match="too_many_acks"):
        collection.ack(acked(NODES[0], [invented[-1]]))


def test_of_two_offers_of_one_author_at_most_one_gets_a_quorum() -> None:
    """The author itself is a liar and acks both; honest nodes ack the first that they saw."""
    author, one, other = NODES[0], offer_of(NODES[0], b"1"), offer_of(NODES[0], b"2")
    views = [new_collection() for _ in NODES[1:]]
    held: dict[NodeId, ContributionRoot] = {}
    for node, collection, order in zip(
        NODES[1:], views, [(one, other), (other, one), (one, other)], strict=True
    ):
        collection.offer(order[0])
        with pytest.raises(PeerFault, match="two_offers"):
            collection.offer(order[1])
        collection.held(order[0].root)
        (held[node],) = collection.held_roots()
    for collection in views:
        collection.ack(acked(author, [one.root, other.root]))
        for node, root in held.items():
            collection.ack(acked(node, [root]))
        assert collection.acks.has_quorum(one.root)
        assert not collection.acks.has_quorum(other.root)


def test_an_offer_in_a_strangers_name_or_on_another_base_is_refused() -> None:
    collection = new_collection()
    with pytest.raises(PeerFault, match="stranger_offer"):
        collection.offer(offer_of(NodeId(b"S" * 32)))
    with pytest.raises(PeerFault, match="wrong_base"):
        collection.offer(replace(offer_of(NODES[0]), base_vertex_id=VertexId(b"w" * 32)))
