"""What follows from how near the contributions of a set are to each other."""

from itertools import combinations

import numpy as np
import pytest

from daa_dag.ids import ContributionRoot, Digest, digest_of
from daa_node.errors import PeerFault
from daa_node.spot_checks.copies import (
    MILLIONTHS,
    MUCH_TOO_NEAR,
    NEARLY_SAME,
    Likeness,
    Update,
    compare,
    distances,
    sample_seed,
    sampled,
)
from daa_node.tensors import UInt8Array
from daa_node.updates.compression.codec import codec_named, decode, encode

SEED = Digest(bytes(32))
SIZE = 100_000


def likeness(
    near: dict[tuple[int, int], int], count: int = 7, liars_max: int = 2, far: int = MILLIONTHS
) -> Likeness:
    apart = [[far] * count for _ in range(count)]
    for (one, other), value in near.items():
        apart[one][other] = apart[other][one] = value
    return Likeness(apart, liars_max)


def blob_of(seed: int, codec: str = "int8", size: int = SIZE) -> UInt8Array:
    chance = np.random.default_rng(seed)
    return encode(codec_named(codec), chance.normal(0, 1e-3, size).astype(np.float32))


def test_who_came_first_counts_and_all_its_copies_do_not() -> None:
    found = likeness({(1, 4): 0, (1, 5): 0, (4, 5): 0})
    assert found.later_copies(range(7)) == {4, 5}
    assert found.later_copies([4, 0, 1, 5, 2, 3, 6]) == {1, 5}
    assert found.origins({4, 5}) == {4: 1, 5: 1}


def test_only_a_copy_of_what_counts_may_be_void() -> None:
    found = likeness({(1, 4): 0})
    assert found.origins({4}) == {4: 1}
    assert found.origins({1}) == {1: 4}  # which of them was first, nobody can tell afterwards
    assert found.origins({1, 4}) == {}
    assert found.origins({2}) == {}
    assert found.origins({4, 2}) == {4: 1}


def test_one_that_is_near_to_many_makes_none_of_them_void() -> None:
    """Two different ones cannot be copies of one."""
    found = likeness({(6, 0): 900, (6, 1): 900, (6, 2): 900})
    assert found.origins({0, 1, 2}) == {}
    assert found.origins({0}) == {0: 6}
    assert found.later_copies(range(7)) == {6}
    assert len(found.later_copies([6, 0, 1, 2, 3, 4, 5])) == 1


def test_near_ones_are_copies_only_where_others_are_far() -> None:
    near = {(0, 1): MUCH_TOO_NEAR}
    assert likeness(near).copies[0] == {1}
    assert likeness(near, far=4 * MUCH_TOO_NEAR).copies[0] == {1}
    assert likeness(near, far=4 * MUCH_TOO_NEAR - 1).copies[0] == frozenset()
    assert likeness({(0, 1): MUCH_TOO_NEAR + 1}).copies[0] == frozenset()
    assert likeness({(0, 1): 0}, far=0).copies[0] == set(range(1, 7))  # whoever did not train


def test_where_there_are_few_others_only_what_is_nearly_the_same_is_a_copy() -> None:
    """Of seven that are planned, four came: one that is honest need not be among two others."""
    assert likeness({(0, 1): NEARLY_SAME}, count=4).copies[0] == {1}
    assert likeness({(0, 1): NEARLY_SAME + 1}, count=4).copies[0] == frozenset()
    assert likeness({(0, 1): NEARLY_SAME + 1}, count=5).copies[0] == {1}
    assert likeness({(0, 1): 0}, count=2, liars_max=0).copies[0] == {1}


def test_the_distance_to_others_is_that_of_a_plain_search() -> None:
    chance = np.random.default_rng(1)
    for _ in range(20):
        made = chance.integers(0, 9, (7, 7))
        apart = np.triu(made, 1) + np.triu(made, 1).T
        found = Likeness(apart.tolist(), 2)
        for one, but in combinations(range(7), 2):
            away = sorted((apart[one][at] for at in range(7) if at not in (one, but)), reverse=True)
            assert found.to_others(one, but) == away[2]


@pytest.mark.parametrize("liars", [1, 2])
def test_as_many_liars_as_agreement_survives_make_no_honest_two_copies(liars: int) -> None:
    """All honest ones are near each other; the liars stay as far from them as can be."""
    count, apart = 3 * liars + 1, MUCH_TOO_NEAR // 2
    honest = range(liars, count)
    near = {(a, b): apart for a in honest for b in honest if a != b}
    assert not any(likeness(near, count, liars).copies)
    assert any(likeness(near, count, liars - 1).copies)  # the rule is what holds them off


def test_as_many_liars_as_agreement_survives_hide_no_copy_among_all() -> None:
    """Two of seven copy one, and are as near to each other as to it."""
    found = likeness({(0, 5): 30_000, (0, 6): 30_000, (5, 6): 30_000})
    assert found.copies[0] == {5, 6}


def test_distances_are_exact_and_one_factor_changes_none() -> None:
    values = np.array([[3, 4, 0], [30, 40, 0], [-3, -4, 0], [0, 0, 5], [0, 0, 0]], np.float64)
    apart = distances(values)
    assert apart[0][:3] == [0, 0, 0]
    assert apart[0][3] == apart[0][4] == apart[4][4] == MILLIONTHS


@pytest.mark.parametrize("codec", ["int8", "int4", "top_k"])
@pytest.mark.parametrize("size", [100, 4_097, SIZE])
def test_blocks_cut_out_of_a_blob_decode_to_what_they_held(codec: str, size: int) -> None:
    made = codec_named(codec)
    blob, width = blob_of(1, codec, size), made.block_parameters
    count = -(-size // width)
    whole = np.zeros(count * width, np.int32)
    whole[:size] = decode(made, blob, 0, size, size)
    blocks_K = np.unique([0, count // 2, count - 1])
    cut = made.excerpt(blob, blocks_K, size)
    out = np.empty(blocks_K.size * width, np.int32)
    made.decode_blocks(cut, 0, out.size, out)
    assert (out == whole.reshape(count, width)[blocks_K].reshape(-1)).all()


def test_the_sample_follows_from_every_contribution_of_the_set() -> None:
    roots = [ContributionRoot(digest_of(b"%d" % number)) for number in range(3)]
    seeds = {sample_seed(SEED, roots), sample_seed(SEED, roots[:2])}
    seeds.add(sample_seed(Digest(digest_of(b"")), roots))
    assert len(seeds) == 3
    update = Update(blob_of(1), "int8")
    one, other = (sampled(update, SIZE, seed) for seed in list(seeds)[:2])
    assert one.shape == other.shape == (16_384,)
    assert (one != other).any()


def test_nothing_is_said_of_updates_that_hold_next_to_nothing() -> None:
    nothing = encode(codec_named("int8"), np.zeros(SIZE, np.float32))
    found = compare([Update(nothing, "int8")] * 4, SIZE, SEED, 1)
    assert not any(found.copies)


def test_what_was_damaged_since_it_came_is_no_crash() -> None:
    size = 20_000
    blob = blob_of(1, "top_k", size)
    blob[:16] = 255
    with pytest.raises(PeerFault):
        compare([Update(blob, "top_k")], size, SEED, 0)
