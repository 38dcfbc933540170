"""The bookkeeping of a round: what is eligible, what is refused, what an Ack may name."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
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
from daa_node.rounds.collect import Collection
from daa_node.rounds.plan import Plan, Share
from daa_node.updates.aggregation.mean import Mean

NODES = [NodeId(bytes([65 + k]) * 32) for k in range(4)]
ALICE = NODES[0]
BASE = VertexId(b"v" * 32)
COMMITTEE = Committee(tuple(Validator(node, 1) for node in NODES))
DOMAIN = Domain(ChainId(b"c" * 32), 0, ValidatorSetRoot(COMMITTEE.root))
PLAN = Plan(3, BASE, Digest(BASE), tuple(Share(node, 20, 5_120) for node in NODES), 256, 7_000_000)


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


def acked(signer: NodeId, roots: Iterable[ContributionRoot]) -> Signed:
    return Signed(Statement(DOMAIN, Kind.ACK, 0, 3, sorted(roots)), signer, b"signature")


def test_a_contribution_is_eligible_with_a_quorum_of_acks_in_any_order() -> None:
    collection, offer = new_collection(), offer_of(ALICE)
    collection.ack(acked(NODES[1], [offer.root]))  # before the offer itself arrived
    collection.offer(offer)
    collection.ack(acked(NODES[2], [offer.root]))
    assert collection.eligible() == []
    collection.ack(acked(NODES[3], [offer.root]))
    assert collection.eligible() == [offer]


def test_a_contribution_that_the_plan_allows_can_be_averaged_alone() -> None:
    for tokens in (0, 1, 5_120):
        try:
            new_collection().offer(replace(offer_of(ALICE), tokens=tokens))
        except PeerFault:
            continue
        weights = [PLAN.weight_of(ALICE, tokens)]
        merged = Mean().aggregate_chunk(np.array([[7, -7]], np.int32), weights, 0)
        assert merged.tolist() == [7, -7]


def test_a_word_that_makes_nothing_eligible_costs_no_list() -> None:
    collection, offer = new_collection(), offer_of(ALICE)
    collection.offer(offer)
    collection.held(offer.root)
    before = collection.eligible(), collection.held_roots()
    for node in NODES[1:3]:
        collection.ack(acked(node, [offer.root]))
    assert collection.eligible() is before[0]
    collection.ack(acked(NODES[3], [offer.root]))
    after = collection.eligible()
    assert after == [offer]
    collection.ack(acked(ALICE, [offer.root]))  # a quorum has it already
    assert collection.eligible() is after
    assert collection.held_roots() is before[1]
    assert offer.root is offer.root


def test_acks_are_cumulative_and_an_older_one_takes_nothing_back() -> None:
    collection, offer = new_collection(), offer_of(ALICE)
    collection.offer(offer)
    words = [acked(node, [offer.root]) for node in NODES[1:]]
    for word in words:
        collection.ack(word)
    collection.ack(acked(NODES[1], []))
    assert collection.eligible() == [offer]
    assert collection.acks.ids() == sorted(word.id for word in words)
    assert collection.show([offer.root]) == ((offer,), tuple(words))


def test_we_ack_only_what_we_hold_and_did_not_refuse() -> None:
    collection, offer = new_collection(), offer_of(ALICE)
    collection.offer(offer)
    assert collection.held_roots() == []
    collection.held(offer.root)
    assert collection.held_roots() == [offer.root]


def test_a_second_different_offer_of_one_author_is_a_fault() -> None:
    collection = new_collection()
    assert collection.offer(offer_of(ALICE)) is not None
    assert collection.offer(offer_of(ALICE)) is None
    with pytest.raises(PeerFault, match="two_offers"):
        collection.offer(replace(offer_of(ALICE), tokens=1))


def test_what_a_quorum_vouches_for_is_adopted_beside_another_offer_and_never_acked_by_us() -> None:
    collection, ours = new_collection(), offer_of(ALICE)
    theirs = replace(ours, blob_root=BlobRoot(b"t" * 32))
    collection.offer(ours)
    collection.held(ours.root)
    for node in NODES[1:]:
        collection.ack(acked(node, [theirs.root]))
    assert collection.acks.has_quorum(theirs.root)
    assert not collection.acks.has_quorum(ours.root)
    candidate = collection.adopt(theirs)
    assert candidate is not None
    assert collection.adopt(theirs) is None
    assert collection.eligible() == [theirs]
    collection.held(theirs.root)
    assert collection.held_roots() == [ours.root]


def test_of_two_contributions_with_quorums_one_is_eligible_the_same_everywhere() -> None:
    one, other = offer_of(ALICE), replace(offer_of(ALICE), blob_root=BlobRoot(b"t" * 32))
    chosen = []
    for first, second in ((one, other), (other, one)):
        collection = new_collection()
        collection.adopt(first)
        collection.adopt(second)
        for node in NODES[1:]:
            collection.ack(acked(node, [one.root, other.root]))
        chosen.append(collection.eligible())
    assert chosen[0] == chosen[1]
    assert len(chosen[0]) == 1


def test_a_validator_that_acks_ever_more_is_a_fault_and_costs_no_memory() -> None:
    collection = new_collection()
    roots = [ContributionRoot(bytes([number]) * 32) for number in range(5)]
    for number in range(4):
        collection.ack(acked(NODES[1], [roots[number]]))
    with pytest.raises(PeerFault, match="too_many_acks"):
        collection.ack(acked(NODES[1], [roots[4]]))
    assert [len(collection.acks.ackers_of(root)) for root in roots] == [0] * 4 + [1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"author": NodeId(b"z" * 32)}, "stranger_offer"),
        ({"round": 4}, "wrong_round"),
        ({"base_vertex_id": VertexId(b"w" * 32)}, "wrong_base"),
        ({"codec": "float64"}, "unknown_codec"),
        ({"size_bytes": 2_000_000}, "bad_size"),
        ({"snapshot_roots": (Digest(bytes(32)),)}, "bad_boundaries"),
        ({"steps": 21}, "too_many_steps"),
        ({"steps": 0}, "too_many_steps"),
        ({"steps": 19}, "too_many_tokens"),
        ({"tokens": 2**63 - 1}, "too_many_tokens"),
        ({"tokens": 0}, "no_tokens"),
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
