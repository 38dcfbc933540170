"""A list of digests finds each, keeps their order, and takes little room."""

import random
import tracemalloc

from daa_dag.ids import DIGEST_BYTES, digest_of
from daa_node.checkpoints.digests import Digests


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
