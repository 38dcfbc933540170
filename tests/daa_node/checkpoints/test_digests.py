"""A list of digests finds each, keeps their order, and takes little room."""

import random
import tracemalloc

import pytest

from daa_dag.ids import DIGEST_BYTES, VertexId, digest_of
from daa_node.checkpoints.digests import Digests
from daa_node.checkpoints.heights import Heights
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.checkpoints.replay import ReplayedState
from daa_node.errors import StorageFailed
from tests.daa_node.checkpoints.little_chain import COMMITTEE, RULES


def test_it_is_a_list_without_repetition_whatever_is_cut_off_and_comes_again() -> None:
    for seed in range(20):
        chance, digests, twin = random.Random(seed), Digests(), list[bytes]()
        for _ in range(600):
            digest = bytes(digest_of(b"%d" % chance.randrange(300)))
            if chance.random() < 0.05:
                length = chance.randrange(len(twin) + 1)
                digests.cut(length)
                del twin[length:]
            digests.add(digest)
            if digest not in twin:
                twin.append(digest)
        assert [digests[place] for place in range(len(digests))] == twin
        for number in range(300):
            digest = bytes(digest_of(b"%d" % number))
            assert digests.place_of(digest) == (twin.index(digest) if digest in twin else None)
            assert (digest in digests) == (digest in twin)


def test_digests_that_begin_alike_are_told_apart() -> None:
    digests = Digests()
    alike = [bytes(DIGEST_BYTES - 1) + bytes([number]) for number in range(100)]
    for digest in alike:
        digests.add(digest)
    assert [digests.place_of(digest) for digest in alike] == list(range(100))
    assert digests.place_of(b"\1" * DIGEST_BYTES) is None


def test_a_hundred_thousand_take_five_megabytes() -> None:
    tracemalloc.start()
    digests = Digests()
    for number in range(100_000):
        digests.add(bytes(digest_of(b"%d" % number)))
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken_bytes < 5e6


def test_heights_are_found_in_whatever_order_they_come() -> None:
    ids = [VertexId(digest_of(b"vertex %d" % height)) for height in range(6)]
    for seed in range(20):
        heights = Heights()
        order = list(enumerate(ids))
        random.Random(seed).shuffle(order)
        for count, pair in enumerate(order, 1):
            heights.take([pair])
            heights.take([pair])
            here = dict(order[:count])
            assert len(heights) == count
            assert [heights.at(height) for height in range(7)] == [here.get(h) for h in range(7)]
            assert list(heights.ids()) == [here[height] for height in sorted(here)]
            assert heights.newest == here[max(here)]
            assert all((vertex_id in heights) == (vertex_id in here.values()) for vertex_id in ids)


def test_two_vertices_of_one_height_are_no_chain() -> None:
    heights = Heights()
    made = ReplayedState(RULES)
    one = genesis_vertex(made.ref(), COMMITTEE.root)
    made.start()
    other = genesis_vertex(made.ref(), COMMITTEE.root)
    heights.add(one)
    heights.add(one)
    with pytest.raises(StorageFailed, match="both of height 0"):
        heights.add(other)
