"""The lot: everybody draws the same, nobody can steer it, and shares are what the genesis says."""

from collections import Counter
from dataclasses import replace

import pytest

from daa_consensus.bft.messages import OfferBody
from daa_dag.ids import BlobRoot, BlockId, Digest, NodeId, VertexId
from daa_node.spot_checks.lot import Draw, Lot, draw

AUTHORS = [NodeId(bytes([number]) * 32) for number in range(1, 9)]
SEED, BLOCK = Digest(b"s" * 32), BlockId(b"b" * 32)
TENTH = Lot(share=(1, 10), checkers=1)
ALL = Lot(share=(1, 1), checkers=2)


def offer_of(author: NodeId, roots: int = 5) -> OfferBody:
    return OfferBody(
        round=3,
        author=author,
        base_vertex_id=VertexId(b"v" * 32),
        blob_root=BlobRoot(author),
        size_bytes=1_000,
        codec="int8",
        steps=20,
        tokens=5_120,
        us_per_step=10_000,
        upload_bytes_per_s=0,
        base_loss_micronats=0,
        snapshot_roots=tuple(Digest(bytes([number]) * 32) for number in range(roots)),
    )


OFFERS = [offer_of(author) for author in AUTHORS]


def over_rounds(lot: Lot, rounds: int = 1_000) -> list[Draw]:
    blocks = [BlockId(number.to_bytes(32)) for number in range(rounds)]
    return [drawn for block in blocks for drawn in draw(lot, SEED, block, OFFERS)]


def test_as_many_are_drawn_as_the_genesis_says_and_everybody_alike() -> None:
    drawn = over_rounds(TENTH)
    assert len(drawn) == pytest.approx(800, rel=0.1)  # a tenth of 8,000; three deviations are 80
    authors = Counter(each.offer.author for each in drawn)
    segments = Counter(each.segment for each in drawn)
    checkers = Counter(each.checkers[0] for each in drawn)
    assert len(authors) == len(checkers) == 8
    assert min(authors.values()) > 60
    assert min(checkers.values()) > 60
    assert set(segments) == {0, 1, 2, 3}
    assert min(segments.values()) > 140


def test_a_share_of_one_draws_all_and_of_none_nobody() -> None:
    assert [each.offer for each in draw(ALL, SEED, BLOCK, OFFERS)] == OFFERS
    assert draw(replace(ALL, share=(0, 1)), SEED, BLOCK, OFFERS) == []


def test_checkers_are_others_of_the_set_each_once_and_as_many_as_there_are() -> None:
    for each in over_rounds(ALL, 50):
        assert len(set(each.checkers)) == 2
        assert each.offer.author not in each.checkers
        assert set(each.checkers) <= set(AUTHORS)
    (pair, _) = draw(ALL, SEED, BLOCK, OFFERS[:2])
    assert pair.checkers == (AUTHORS[1],)
    (alone,) = draw(ALL, SEED, BLOCK, OFFERS[:1])
    assert alone.checkers == ()


def test_the_seed_the_block_and_the_offer_each_change_what_is_drawn() -> None:
    def told(seed: Digest, block: BlockId, offers: list[OfferBody]) -> list[object]:
        return [(each.segment, each.checkers) for each in draw(ALL, seed, block, offers)]

    told_first = told(SEED, BLOCK, OFFERS)
    assert told(SEED, BLOCK, list(OFFERS)) == told_first
    assert told(Digest(b"t" * 32), BLOCK, OFFERS) != told_first
    assert told(SEED, BlockId(b"c" * 32), OFFERS) != told_first
    assert told(SEED, BLOCK, [replace(offer, steps=19) for offer in OFFERS]) != told_first


def test_who_committed_to_nothing_is_drawn_by_nobody() -> None:
    assert draw(ALL, SEED, BLOCK, [offer_of(AUTHORS[0], 1), offer_of(AUTHORS[1], 0)]) == []
