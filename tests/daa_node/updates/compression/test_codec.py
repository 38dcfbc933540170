"""Blobs: encoded to the nearest, decoded exactly, and refused when any rule is broken."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from daa_node.errors import NotFinite, PeerFault
from daa_node.tensors import Float32Array, Int32Array, UInt8Array
from daa_node.updates.compression.blob import Blob
from daa_node.updates.compression.codec import codec_named, decode, encode
from daa_node.updates.compression.dense import INT4, INT8
from daa_node.updates.grid import CHUNK_PARAMETERS, block_count_of

CODECS = ["int8", "int4"]
DENSE = {"int8": INT8, "int4": INT4}
D = CHUNK_PARAMETERS + 64 * 5 + 17  # more than one chunk, and a short last block
MakeBlob = Callable[[str, str, int, int], UInt8Array]
MakeGrid = Callable[[str, int, int], Int32Array]


def plain_decode(codec: str, blob: UInt8Array, parameter_count: int) -> list[int]:
    """The slow twin: one parameter at a time, from the words of the format."""
    blocks = -(-parameter_count // 64)
    values = []
    for i in range(parameter_count):
        if codec == "int8":
            mantissa = int(blob[i]) - 256 * (int(blob[i]) > 127)
            shift = int(blob[blocks * 64 + i // 64])
        else:
            nibble = int(blob[i // 2]) >> (4 * (i % 2)) & 15
            mantissa = nibble - 16 * (nibble > 7)
            shift = int(blob[blocks * 32 + i // 64])
        values.append(mantissa * 2**shift)
    return values


def gaussian(seed: int, scale: float = 1e-3) -> Float32Array:
    rng = np.random.default_rng(seed)
    spread_D = np.exp2(rng.integers(-12, 4, -(-D // 64)).repeat(64)[:D])  # every exponent occurs
    return (rng.standard_normal(D) * spread_D * scale).astype(np.float32)


@pytest.mark.parametrize("codec", CODECS)
def test_decoding_equals_the_slow_twin(codec: str, make_blob: MakeBlob) -> None:
    blob = make_blob("twin", codec, 64 * 9 + 5, 24)
    decoded_D = decode(codec_named(codec), blob, 0, 64 * 9 + 5, 64 * 9 + 5)
    assert decoded_D.tolist() == plain_decode(codec, blob, 64 * 9 + 5)


@pytest.mark.parametrize("codec", CODECS)
def test_a_range_decodes_to_the_same_as_the_whole(codec: str, make_blob: MakeBlob) -> None:
    blob = make_blob("range", codec, D, 24)
    whole_D = decode(codec_named(codec), blob, 0, D, D)
    for start, stop in ((0, 64), (128, 1000), (D // 64 * 64, D), (64, 64)):
        part = decode(codec_named(codec), blob, start, stop, D)
        assert np.array_equal(part, whole_D[start:stop])


@pytest.mark.parametrize("codec", CODECS)
def test_encoding_is_the_nearest_multiple_with_the_least_exponent(codec: str) -> None:
    values_D = gaussian(1)
    values_D[:64] = 0.0
    encoder = DENSE[codec]
    blob = encode(encoder, values_D)
    encoder.check(blob, D, None)
    decoded_D = decode(encoder, blob, 0, D, D)
    shifts_D = encoder.shifts(blob, 0, -(-D // 64) * 64, D).repeat(64)[:D].astype(np.float64)
    error_D = np.abs(values_D.astype(np.float64) * 2.0**24 - decoded_D)
    assert (error_D <= np.exp2(shifts_D) / 2).all()
    peaks = np.abs(np.pad(values_D, (0, -D % 64)).reshape(-1, 64)).max(axis=1) * 2.0**24
    shifts = shifts_D[::64]
    finer = np.exp2(shifts - 1) * (encoder.mantissa_max + 0.5)
    assert (peaks[shifts > 0] >= finer[shifts > 0]).all()
    assert shifts.min() == 0
    assert shifts.max() > 8


@pytest.mark.parametrize("codec", CODECS)
def test_encoding_what_was_decoded_gives_the_same_values(codec: str, make_blob: MakeBlob) -> None:
    blob = make_blob("again", codec, D, 24)
    encoder = codec_named(codec)
    decoded_D = decode(encoder, blob, 0, D, D)
    values_D = (decoded_D * 2.0**-24).astype(np.float32)
    again_D = decode(encoder, encode(encoder, values_D), 0, D, D)
    assert np.array_equal(again_D, decoded_D)


def test_values_out_of_reach_saturate_and_keep_their_sign() -> None:
    for codec, limit in (("int8", 127), ("int4", 7)):
        values_D = np.full(64, -1e30, np.float32)
        values_D[0] = limit + 0.6
        blob = encode(codec_named(codec), values_D)
        codec_named(codec).check(blob, 64, None)
        decoded_D = decode(codec_named(codec), blob, 0, 64, 64)
        assert decoded_D.tolist() == [limit << 24] + [-limit << 24] * 63


@pytest.mark.parametrize("codec", CODECS)
def test_a_peak_that_would_round_up_past_the_largest_mantissa_takes_the_next_exponent(
    codec: str,
) -> None:
    limit = DENSE[codec].mantissa_max
    for shift in range(24):
        values_D = np.zeros(64, np.float32)
        values_D[7] = -(limit + 0.5) * 2.0 ** (shift - 24)
        values_D[8] = -values_D[7]
        blob = encode(codec_named(codec), values_D)
        codec_named(codec).check(blob, 64, None)
        decoded_D = decode(codec_named(codec), blob, 0, 64, 64)
        assert decoded_D[7:9].tolist() == [-(limit + 1) << shift, (limit + 1) << shift]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_never_encoded(bad: float) -> None:
    values_D = gaussian(2)
    values_D[CHUNK_PARAMETERS + 3] = bad
    with pytest.raises(NotFinite, match=f"parameter {CHUNK_PARAMETERS + 3}"):
        encode(codec_named("int8"), values_D)


@pytest.mark.parametrize("codec", CODECS)
def test_the_norm_is_the_exact_integer(codec: str, make_blob: MakeBlob) -> None:
    blob = make_blob("norm", codec, D, 24)
    decoded_D = decode(codec_named(codec), blob, 0, D, D)
    expected = sum(v * v for v in decoded_D.tolist())
    assert expected > 2**63  # past what int64 could add up
    codec_named(codec).check(blob, D, expected)
    assert codec_named(codec).norm_squared(blob, D) == expected
    with pytest.raises(PeerFault, match="above the cap"):
        codec_named(codec).check(blob, D, expected - 1)


def test_the_largest_mantissas_of_a_whole_chunk_still_add_up_exactly() -> None:
    parameter_count = CHUNK_PARAMETERS * 2
    blob = np.full(codec_named("int8").encoded_size_bytes(parameter_count), 127, np.uint8)
    blob[parameter_count:] = 24
    expected = parameter_count * (127 << 24) ** 2
    assert codec_named("int8").norm_squared(blob, parameter_count) == expected
    codec_named("int8").check(blob, parameter_count, expected)  # the bound itself
    with pytest.raises(PeerFault, match="above the cap"):
        codec_named("int8").check(blob, parameter_count, expected - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_peer_that_breaks_one_rule_is_refused_with_the_rule(
    codec: str, make_blob: MakeBlob
) -> None:
    judge = codec_named(codec)
    good = make_blob("good", codec, D, 24)
    judge.check(good, D, None)
    lowest = 0x80 if codec == "int8" else 0x08

    def changed(at: int, byte: int) -> UInt8Array:
        blob = good.copy()
        blob[at] = byte
        return blob

    mantissa_bytes = -(-D // 64) * (64 if codec == "int8" else 32)
    cases: list[tuple[Blob, str]] = [
        (good[:-1], "bytes; "),
        (np.append(good, np.uint8(0)), "bytes; "),
        (b"", "bytes; "),
        (changed(3, lowest), "mantissa -"),
        (changed(mantissa_bytes, 25), "exponent 1 is above 0"),
        (changed(good.size - 1, 255), "exponent 231 is above 0"),
        (changed(mantissa_bytes - 1, 1), "padding is not zero"),
        (changed(mantissa_bytes - 1, 0x10), "padding is not zero"),
    ]
    for blob, said in cases:
        with pytest.raises(PeerFault, match=said) as refused:
            judge.check(blob, D, None)
        assert refused.value.reason == "bad_update"


def test_the_high_nibble_is_judged_too() -> None:
    blob = encode(codec_named("int4"), np.ones(64, np.float32))
    blob[5] = 0x80
    with pytest.raises(PeerFault, match="mantissa -8"):
        codec_named("int4").check(blob, 64, None)


def test_random_bytes_are_refused_or_judged_but_never_crash() -> None:
    rng = np.random.default_rng(11)
    for codec in CODECS:
        for _ in range(200):
            parameter_count = int(rng.integers(1, 200))
            size = codec_named(codec).encoded_size_bytes(parameter_count)
            blob = rng.integers(0, 256, size).astype(np.uint8)
            if rng.random() < 0.5:
                blob[size - block_count_of(parameter_count) :] %= 25
            with suppress(PeerFault):
                codec_named(codec).check(blob, parameter_count, 2**60)


def test_bytes_views_and_mapped_files_decode_alike(make_blob: MakeBlob, tmp_path: Path) -> None:
    blob = make_blob("views", "int8", 200, 24)
    path = tmp_path / "blob"
    path.write_bytes(blob.tobytes())
    forms: list[Blob] = [blob.tobytes(), bytearray(blob.tobytes()), memoryview(blob.tobytes())]
    forms.append(np.memmap(path, np.uint8, "r"))
    expected = plain_decode("int8", blob, 200)
    for form in forms:
        assert decode(codec_named("int8"), form, 0, 200, 200).tolist() == expected
        codec_named("int8").check(form, 200, None)


def test_a_codec_that_nobody_has_is_the_fault_of_who_named_it() -> None:
    with pytest.raises(PeerFault, match="no codec is named 'zip'; there are int8, int4, top_k"):
        codec_named("zip")


def test_requantising_rounds_to_the_nearest_with_integers_only(make_grid: MakeGrid) -> None:
    count = 64 * 40
    for bits in (5, 8, 20, 30):
        grid_D = make_grid(f"requantise {bits}", count, bits)
        grid_D[0], grid_D[1] = 127 << 24, -(127 << 24)
        grid_D[64:128] = [127 + (i == 9) for i in range(64)]  # one value needs a shift of one
        blob = np.zeros(codec_named("int8").encoded_size_bytes(count), np.uint8)
        decoded_D = INT8.requantise_chunk(grid_D.copy(), 0, blob, count)
        assert np.array_equal(decode(codec_named("int8"), blob, 0, count, count), decoded_D)
        codec_named("int8").check(blob, count, None)
        shifts = INT8.shifts(blob, 0, count, count)
        for block in range(count // 64):
            values = [int(v) for v in grid_D[block * 64 : block * 64 + 64]]
            peak = max(map(abs, values))
            shift = next(s for s in range(25) if (2 * peak + (1 << s)) >> (s + 1) <= 127)
            assert shifts[block] == shift
            expected = [(2 * v + (1 << shift)) >> (shift + 1) << shift for v in values]
            assert decoded_D[block * 64 : block * 64 + 64].tolist() == expected
