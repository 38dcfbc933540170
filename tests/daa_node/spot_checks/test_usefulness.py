"""Measures tell an update that goes with the others from one that does not."""

import numpy as np
import pytest

from daa_dag.ids import Digest, NodeId
from daa_node.spot_checks.copies import Update
from daa_node.spot_checks.usefulness import (
    AUTHORS_MAX,
    ROUNDS_KEPT,
    Usefulness,
    UsefulnessLog,
    measured,
    worths,
)
from daa_node.tensors import Float32Array
from daa_node.updates.compression.codec import codec_named, encode

SEED = Digest(bytes(32))
SIZE = 20_000
CHANCE = np.random.default_rng(1)
SIGNAL = CHANCE.standard_t(3, SIZE).astype(np.float32) * np.float32(1e-3)


def honest() -> Float32Array:
    """What all learn, and noise of the batch as large as that."""
    noise_D = CHANCE.normal(0, float(np.std(SIGNAL)), SIZE)
    return (SIGNAL + noise_D).astype(np.float32)


def measures_of(other: Float32Array, codec: str = "int8") -> list[Usefulness]:
    """Of four honest ones, and of the other one last."""
    vectors = [*(honest() for _ in range(4)), other]
    updates = [Update(encode(codec_named(codec), each), codec) for each in vectors]
    return measured(7, updates, SIZE, SEED)


@pytest.mark.parametrize("codec", ["int8", "int4"])
def test_honest_updates_go_together(codec: str) -> None:
    for one in measures_of(honest(), codec):
        assert one.round == 7
        assert 0.9 < one.norm < 1.1
        assert one.cosine > 0.5
        assert one.agreement > 0.2
        assert one.distance < 2


def test_what_goes_against_the_others_is_told_by_its_cosine() -> None:
    *others, flipped = measures_of(-honest())
    assert flipped.cosine < -0.5
    assert flipped.distance > max(one.distance for one in others)
    assert min(one.cosine for one in others) > 0.3


def test_what_is_too_large_is_told_by_its_norm_and_distance() -> None:
    *others, large = measures_of(10 * honest())
    assert 9 < large.norm < 11
    assert large.distance > 5 > max(one.distance for one in others if one.norm < 2) / 2


def test_noise_is_told_by_its_cosine_and_its_positions() -> None:
    noise_D = CHANCE.normal(0, float(np.std(SIGNAL)) * 1.4, SIZE).astype(np.float32)
    *others, noise = measures_of(noise_D)
    assert abs(noise.cosine) < 0.1
    assert noise.agreement < 0.12 < min(one.agreement for one in others)


def test_an_empty_update_is_no_division_by_zero() -> None:
    *_, nothing = measures_of(np.zeros(SIZE, np.float32))
    assert (nothing.norm, nothing.cosine, nothing.agreement) == (0, 0, 0)
    assert nothing.distance == pytest.approx(1)


def test_of_one_update_alone_nothing_is_said() -> None:
    blob = encode(codec_named("int8"), honest())
    assert measured(7, [Update(blob, "int8")], SIZE, SEED) == []


def test_the_log_keeps_the_newest_rounds_of_the_newest_authors() -> None:
    log = UsefulnessLog()
    for number in range(AUTHORS_MAX + 1):
        author = NodeId(number.to_bytes(32, "big"))
        log.note({author: Usefulness(0, 1, 1, 1, 1)})
    for number in range(ROUNDS_KEPT + 3):
        log.note({author: Usefulness(number, 1, 1, 1, 1)})
    assert log.of(NodeId(bytes(32))) == ()
    assert [one.round for one in log.of(author)] == list(range(3, ROUNDS_KEPT + 3))


def test_what_an_update_is_worth_is_told_beside_its_round() -> None:
    """All but one go together: they are worth nearly 1, and what goes elsewhere is worth less."""

    def worth_of(other: Float32Array) -> list[float]:
        names = [NodeId(bytes([at]) * 32) for at in range(5)]
        return list(worths(dict(zip(names, measures_of(other), strict=True))).values())

    assert min(worth_of(honest())) > 0.95
    for other in (-honest(), 10 * honest(), honest() / 10):
        *honest_ones, strange = worth_of(other.astype(np.float32))
        assert strange < 0.8
        assert min(honest_ones) > strange + 0.1


def test_where_most_are_worthless_nobody_is_worth_less_for_it() -> None:
    """As in a round whose updates are all noise, or zero."""
    names = [NodeId(bytes([at]) * 32) for at in range(3)]
    assert worths({}) == {}
    nothing = Usefulness(1, 0.0, 0.0, 0.0, 0.0)
    assert set(worths(dict.fromkeys(names, nothing)).values()) == {0.75}
    noise = Usefulness(1, 1.0, -0.1, 1.0, 0.0)
    assert set(worths(dict.fromkeys(names, noise)).values()) == {1.0}
