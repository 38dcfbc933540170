"""Sealing: the difference is clipped, what the codec lost is owed, and NaN never leaves."""

import numpy as np
import pytest

from daa_node.errors import NotFinite
from daa_node.tensors import Float32Array
from daa_node.updates.compression.codec import codec_named, decode
from daa_node.updates.grid import CHUNK_PARAMETERS, to_float32
from daa_node.updates.pipeline import Sealed, seal

D = CHUNK_PARAMETERS + 100


def trained_pair(seed: int, scale: float = 1e-3) -> tuple[Float32Array, Float32Array]:
    rng = np.random.default_rng(seed)
    base_D = (rng.standard_normal(D) * 0.02).astype(np.float32)
    return base_D, base_D + (rng.standard_normal(D) * scale).astype(np.float32)


def opened(sealed: Sealed, codec: str) -> Float32Array:
    decoded_D = decode(codec_named(codec), sealed.blob, 0, D, D)
    return (decoded_D * 2.0**-24).astype(np.float32)


@pytest.mark.parametrize(("codec", "error_max"), [("int8", 0.015), ("int4", 0.25)])
def test_what_is_opened_is_base_minus_trained_within_the_codec(
    codec: str, error_max: float
) -> None:
    base_D, trained_D = trained_pair(1)
    sealed = seal(base_D, trained_D, None, codec_named(codec), None)
    codec_named(codec).check(sealed.blob, D, None)
    difference_D = base_D - trained_D
    error = np.linalg.norm(opened(sealed, codec) - difference_D)
    assert 0 < error / np.linalg.norm(difference_D) < error_max
    assert sealed.norm == pytest.approx(float(np.linalg.norm(difference_D)), rel=1e-5)
    assert sealed.residual_D is None
    assert sealed.clip_factor == 1.0


@pytest.mark.parametrize("clip_norm", [None, 0.1])
@pytest.mark.parametrize("codec", ["int8", "int4", "top_k"])
def test_sent_plus_residual_is_exactly_what_was_wanted(codec: str, clip_norm: float | None) -> None:
    base_D, trained_D = trained_pair(2)
    owed_D = np.full(D, 1e-4, np.float32)
    sealed = seal(base_D, trained_D, owed_D, codec_named(codec), clip_norm)
    assert sealed.residual_D is not None
    assert (sealed.clip_factor < 1) == (clip_norm is not None)
    wanted_D = (base_D - trained_D) * np.float32(sealed.clip_factor)
    wanted_D += owed_D * np.float32(codec_named(codec).residual_share)
    assert np.array_equal(opened(sealed, codec) + sealed.residual_D, wanted_D)


def test_what_every_round_loses_arrives_in_the_end() -> None:
    base_D, trained_D = trained_pair(3)
    rounds = 40
    sent_D, sent_without_D = np.zeros(D), np.zeros(D)
    residual_D = np.zeros(D, np.float32)
    for _ in range(rounds):
        sealed = seal(base_D, trained_D, residual_D, codec_named("int4"), None)
        assert sealed.residual_D is not None
        residual_D = sealed.residual_D
        sent_D += opened(sealed, "int4")
        sent_without_D += opened(seal(base_D, trained_D, None, codec_named("int4"), None), "int4")
    wanted_D = rounds * (base_D - trained_D).astype(np.float64)
    error = np.linalg.norm(sent_D - wanted_D) / np.linalg.norm(wanted_D)
    error_without = np.linalg.norm(sent_without_D - wanted_D) / np.linalg.norm(wanted_D)
    assert error < error_without / 10


def test_what_a_sparse_codec_never_sends_is_not_added_up_for_good() -> None:
    base_D = np.zeros(4096, np.float32)
    trained_D = np.full(4096, -(2.0**-10), np.float32)
    trained_D[:64] = -0.25  # always among the largest, and sent whole
    residual_D = np.zeros(4096, np.float32)
    for rounds in range(1, 81):
        sealed = seal(base_D, trained_D, residual_D, codec_named("top_k"), None)
        assert sealed.residual_D is not None
        residual_D = sealed.residual_D
        owed = 2.0**-10 * (1 - 0.95**rounds) / (1 - 0.95)
        assert np.allclose(residual_D[64:], owed, rtol=1e-5)
        assert not residual_D[:64].any()


def test_a_clipped_update_has_the_norm_that_was_allowed() -> None:
    base_D, trained_D = trained_pair(4)
    unclipped = seal(base_D, trained_D, None, codec_named("int8"), None)
    sealed = seal(base_D, trained_D, None, codec_named("int8"), unclipped.norm / 3)
    assert sealed.clip_factor == pytest.approx(1 / 3)
    assert np.linalg.norm(opened(sealed, "int8")) == pytest.approx(unclipped.norm / 3, rel=1e-3)
    assert sealed.norm == unclipped.norm


def test_an_update_under_the_limit_is_not_touched_by_clipping() -> None:
    base_D, trained_D = trained_pair(5)
    free = seal(base_D, trained_D, None, codec_named("int8"), None)
    limited = seal(base_D, trained_D, None, codec_named("int8"), free.norm * 1.0001)
    assert np.array_equal(free.blob, limited.blob)


def test_what_is_owed_is_not_clipped_away() -> None:
    base_D, _ = trained_pair(6)
    owed_D = np.full(D, 0.5, np.float32)
    sealed = seal(base_D, base_D, owed_D, codec_named("int8"), 1e-6)
    assert np.allclose(opened(sealed, "int8"), 0.5, rtol=0.01)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_training_result_that_is_not_finite_is_not_sealed(bad: float) -> None:
    base_D, trained_D = trained_pair(7)
    trained_D[CHUNK_PARAMETERS + 9] = bad
    with pytest.raises(NotFinite, match=f"trained weights.* parameter {CHUNK_PARAMETERS + 9}"):
        seal(base_D, trained_D, None, codec_named("int8"), None)


def test_the_inputs_of_sealing_stay_as_they_were() -> None:
    base_D, trained_D = trained_pair(8)
    owed_D = np.ones(D, np.float32)
    copies = [a.copy() for a in (base_D, trained_D, owed_D)]
    seal(base_D, trained_D, owed_D, codec_named("int8"), 0.1)
    for before, after in zip(copies, (base_D, trained_D, owed_D), strict=True):
        assert np.array_equal(before, after)


@pytest.mark.parametrize("codec", ["int8", "top_k"])
def test_a_base_on_the_grid_is_sealed_by_pieces_to_the_same_bits(codec: str) -> None:
    rng = np.random.default_rng(7)
    grid_D = rng.integers(-(2**31) + 1, 2**31 - 1, D, np.int32)
    trained_D = to_float32(grid_D) + rng.standard_normal(D).astype(np.float32)
    owed_D = np.full(D, 1e-4, np.float32)
    whole = seal(to_float32(grid_D), trained_D, owed_D, codec_named(codec), 0.1)
    pieces = seal(grid_D, trained_D, owed_D, codec_named(codec), 0.1)
    assert pieces.blob.tobytes() == whole.blob.tobytes()
    assert pieces.residual_D is not None
    assert whole.residual_D is not None
    assert pieces.residual_D.tobytes() == whole.residual_D.tobytes()
    assert pieces.norm == whole.norm
