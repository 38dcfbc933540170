"""The bookkeeping of a round: what is eligible, what is refused, what an Ack may name."""

from dataclasses import replace

import pytest

from daa_consensus.bft.messages import OfferBody
from daa_consensus.committee import Committee, Validator
from daa_dag.ids import BlobRoot, Digest, NodeId, VertexId
from daa_node.errors import PeerFault
from daa_node.rounds.collect import Collection
from daa_node.rounds.plan import Plan, Share

NODES = [NodeId(bytes([65 + k]) * 32) for k in range(4)]
ALICE = NODES[0]
BASE = VertexId(b"v" * 32)
COMMITTEE = Committee(tuple(Validator(node, 1) for node in NODES))
PLAN = Plan(3, BASE, Digest(BASE), tuple(Share(node, 20, 5_120) for node in NODES))


def offer_of(author: NodeId) -> OfferBody:
    return OfferBody(
        round=3,
        author=author,
        base_vertex_id=BASE,
        blob_root=BlobRoot(author),
        size_bytes=1_000,
        codec="int8",
        steps=20,
        tokens=5_120,
        us_per_step=10_000,
        upload_bytes_per_s=0,
        base_loss_micronats=0,
        snapshot_roots=(),
    )


def new_collection() -> Collection:
    return Collection(PLAN, COMMITTEE, {"int8": 1_000}.get)


def statement(number: int) -> Digest:
    return Digest(bytes([number]) * 32)


def test_a_contribution_is_eligible_with_a_quorum_of_acks_in_any_order() -> None:
    collection, offer = new_collection(), offer_of(ALICE)
    collection.ack(NODES[1], [offer.root], statement(1))  # before the offer itself arrived
    collection.offer(offer)
    collection.ack(NODES[2], [offer.root], statement(2))
    assert collection.eligible() == []
    collection.ack(NODES[3], [offer.root], statement(3))
    assert collection.eligible() == [offer]


def test_acks_are_cumulative_and_an_older_one_takes_nothing_back() -> None:
    collection, offer = new_collection(), offer_of(ALICE)
    collection.offer(offer)
    for node in NODES[1:]:
        assert collection.ack(node, [offer.root], statement(1))
    assert not collection.ack(NODES[1], [], statement(9))
    assert collection.eligible() == [offer]
    assert collection.ack_ids() == [statement(1)] * 3


def test_we_ack_only_what_we_hold_and_did_not_refuse() -> None:
    collection, offer = new_collection(), offer_of(ALICE)
    collection.offer(offer)
    assert collection.held_roots() == []
    collection.held(ALICE)
    assert collection.held_roots() == [offer.root]


def test_a_second_different_offer_of_one_author_is_a_fault() -> None:
    collection = new_collection()
    assert collection.offer(offer_of(ALICE)) is not None
    assert collection.offer(offer_of(ALICE)) is None
    with pytest.raises(PeerFault, match="two_offers"):
        collection.offer(replace(offer_of(ALICE), tokens=1))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"author": NodeId(b"z" * 32)}, "stranger_offer"),
        ({"round": 4}, "wrong_round"),
        ({"base_vertex_id": VertexId(b"w" * 32)}, "wrong_base"),
        ({"codec": "float64"}, "unknown_codec"),
        ({"size_bytes": 2_000_000}, "bad_size"),
        ({"steps": 21}, "too_many_steps"),
        ({"steps": 0}, "too_many_steps"),
    ],
)
def test_an_offer_outside_the_plan_is_refused_with_its_reason(
    change: dict[str, object], reason: str
) -> None:
    collection = new_collection()
    with pytest.raises(PeerFault) as fault:
        collection.offer(replace(offer_of(ALICE), **change))  # type: ignore[arg-type]
    assert fault.value.reason == reason
    assert collection.authors() == set()
