"""The sparse codec: the largest are kept, one vector has one blob, any other is refused."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from daa_node.errors import NotFinite, PeerFault
from daa_node.tensors import Float32Array, UInt8Array
from daa_node.updates.compression.blob import Blob
from daa_node.updates.compression.codec import bits_per_parameter, codec_named, decode, encode
from daa_node.updates.compression.top_k import TOP_K
from daa_node.updates.grid import CHUNK_PARAMETERS

D = CHUNK_PARAMETERS + 4096 * 2 + 700  # more than one chunk, and a short last block
MakeBlob = Callable[[str, str, int, int], UInt8Array]


def plain_decode(blob: UInt8Array, parameter_count: int) -> list[int]:
    """The slow twin: one bit at a time, from the words of the format."""
    values = [0] * (-(-parameter_count // 4096) * 4096)
    for block in range(len(blob) // 81):
        record = blob[block * 81 : block * 81 + 81].tolist()
        j = 0
        for bit in range(128):
            if record[bit // 8] >> (bit % 8) & 1:
                code = record[16 + j]
                position = (bit - j) * 64 + code % 64
                magnitude = 3 if code & 64 else 2
                values[block * 4096 + position] = (
                    -magnitude if code & 128 else magnitude
                ) * 2 ** record[80]
                j += 1
    return values[:parameter_count]


def plain_encode(values: list[float], shift: int) -> list[float]:
    """What is nearest to a block with this exponent: the slow twin of one block."""
    unit = 2.0 ** (shift - 24)
    order = sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[:64]
    nearest = [0.0] * len(values)
    for i in order:
        magnitude = abs(values[i])
        level = 0.0 if magnitude < unit else 2 * unit if magnitude < 2.5 * unit else 3 * unit
        nearest[i] = level if values[i] >= 0 else -level
    return nearest


def squared_error(values: list[float], nearest: list[float]) -> float:
    return float(np.square(np.array(values) - np.array(nearest)).sum())


def random_values(seed: int, count: int) -> Float32Array:
    rng = np.random.default_rng(seed)
    scales_D = np.exp2(rng.integers(-14, 1, -(-count // 4096)).repeat(4096)[:count])
    return (rng.laplace(size=count) * scales_D * 0.1).astype(np.float32)


def test_decoding_equals_the_slow_twin(make_blob: MakeBlob) -> None:
    blob = make_blob("twin", "top_k", D, 24)
    TOP_K.check(blob, D, None)
    assert decode(TOP_K, blob, 0, D, D).tolist() == plain_decode(blob, D)


def test_a_range_decodes_to_the_same_as_the_whole(make_blob: MakeBlob) -> None:
    blob = make_blob("range", "top_k", D, 24)
    whole_D = decode(TOP_K, blob, 0, D, D)
    for start, stop in ((0, 4096), (8192, 13_000), (D // 4096 * 4096, D), (4096, 4096)):
        assert np.array_equal(decode(TOP_K, blob, start, stop, D), whole_D[start:stop])
    out_C = np.full(64 * 11, -1, np.int32)  # the last 700 parameters and padding to whole 64
    TOP_K.decode_blocks(blob, D - 700, D, out_C)
    assert np.array_equal(out_C[:700], whole_D[-700:])
    assert not out_C[700:].any()


def test_encoding_keeps_the_largest_with_the_best_exponent() -> None:
    values_D = random_values(1, 4096 * 9 + 700)
    values_D[:4096] = 0.99  # all alike
    values_D[4096:8192] = 1.5 * 2.0**-24  # hardly more than nothing
    values_D[12288:16384] = 0.0
    values_D[8192:12288] *= 1e-3
    values_D[8192:8256] = np.linspace(1.4, 1.0, 64)  # apart from all others
    blob = np.full(TOP_K.encoded_size_bytes(values_D.size), 0xAA, np.uint8)
    TOP_K.encode_chunk(values_D, 0, blob, values_D.size)
    TOP_K.check(blob, values_D.size, None)
    decoded_D = decode(TOP_K, blob, 0, values_D.size, values_D.size) * 2.0**-24
    for start in range(0, values_D.size, 4096):
        values = values_D[start : start + 4096].astype(np.float64).tolist()
        best = min(
            (plain_encode(values, shift) for shift in range(25)),
            key=lambda nearest: squared_error(values, nearest),
        )
        assert decoded_D[start : start + 4096].tolist() == best


def test_one_vector_has_one_blob(make_blob: MakeBlob) -> None:
    blob = make_blob("again", "top_k", D, 24)
    values_D = (decode(TOP_K, blob, 0, D, D) * 2.0**-24).astype(np.float32)
    assert np.array_equal(encode(TOP_K, values_D), blob)


def test_of_equals_the_first_are_kept() -> None:
    values_D = np.full(2 * 4096, -0.25, np.float32)
    decoded_D = decode(TOP_K, encode(TOP_K, values_D), 0, values_D.size, values_D.size)
    assert np.flatnonzero(decoded_D).tolist() == [*range(64), *range(4096, 4160)]
    assert set(decoded_D[:64].tolist()) == {-(2**22)}


def test_what_rounds_to_nothing_is_not_sent() -> None:
    values_D = np.zeros(4096 * 3, np.float32)
    values_D[:100] = 2.0**-26  # under half of the smallest value
    values_D[4096:4196] = 1e-4
    values_D[4100] = 1.0  # beside it the others are nothing
    blob = encode(TOP_K, values_D)
    TOP_K.check(blob, values_D.size, None)
    assert not blob[:81].any()
    assert not blob[162:].any()
    assert np.flatnonzero(decode(TOP_K, blob, 0, D // 8, 4096 * 3)).tolist() == [4100]


def test_values_out_of_reach_saturate_and_keep_their_sign() -> None:
    values_D = np.full(64, -1e30, np.float32)
    values_D[5] = 1e30
    decoded_D = decode(TOP_K, encode(TOP_K, values_D), 0, 64, 64)
    assert decoded_D.tolist() == [3 << 24 if i == 5 else -3 << 24 for i in range(64)]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_never_encoded(bad: float) -> None:
    values_D = random_values(2, D)
    values_D[CHUNK_PARAMETERS + 3] = bad
    with pytest.raises(NotFinite, match=f"parameter {CHUNK_PARAMETERS + 3}"):
        encode(TOP_K, values_D)


def test_the_norm_is_the_exact_integer(make_blob: MakeBlob) -> None:
    blob = make_blob("norm", "top_k", D, 24)
    expected = sum(value * value for value in plain_decode(blob, D))
    assert expected > 2**53  # past what floats could add up
    TOP_K.check(blob, D, expected)
    assert TOP_K.norm_squared(blob, D) == expected
    with pytest.raises(PeerFault, match="above the cap"):
        TOP_K.check(blob, D, expected - 1)


def record(positions: list[int], codes: int = 0, shift: int = 9) -> bytearray:
    """The record of a block, as hostile as the positions are."""
    bitmap, entries = 0, bytearray(64)
    for j, position in enumerate(positions):
        bitmap |= 1 << (position // 64 + j)
        if j < 64:
            entries[j] = position % 64 | codes
    return bytearray(bitmap.to_bytes(16, "little")) + entries + bytearray([shift])


def with_byte(at: int, byte: int, positions: list[int], shift: int = 9) -> bytearray:
    changed = record(positions, shift=shift)
    changed[at] = byte
    return changed


@pytest.mark.parametrize(
    ("blob", "said"),
    [
        (record([1, 2])[:-1], "80 bytes; 4000 top_k take 81"),
        (record([1, 2]) + b"\0", "82 bytes"),
        (b"", "0 bytes"),
        (record([5, 5]), "positions do not increase"),
        (record([7, 6]), "positions do not increase"),
        (record([64 * j // 2 for j in range(65)]), "keeps 65 parameters, at most 64"),
        (bytes([255]) * 81, "keeps 128 parameters, at most 64"),
        (record([1], shift=25), "exponent 1 is above 0"),
        (record([1], shift=255), "exponent 231 is above 0"),
        (record([], shift=1), "keeps nothing has an exponent"),
        (with_byte(17, 1, [3]), "not used is not zero"),
        (with_byte(79, 128, [3]), "not used is not zero"),
        (with_byte(15, 0x80, []), "outside of its block"),
        (record([*range(0, 64 * 62, 64), 64 * 64]), "outside of its block"),
        (record([3999, 4000]), "padding is not zero"),
    ],
)
def test_a_peer_that_breaks_one_rule_is_refused_with_the_rule(blob: Blob, said: str) -> None:
    TOP_K.check(record([0, 63, 64, 3999], codes=192), 4000, None)  # what all of them nearly are
    with pytest.raises(PeerFault, match=said) as refused:
        TOP_K.check(blob, 4000, None)
    assert refused.value.reason == "bad_update"


def test_a_rule_broken_in_a_late_block_is_seen() -> None:
    count = 4096 * 1030  # more blocks than are judged at a time
    good = record([1, 2, 4095])
    blob = np.frombuffer(bytes(good) * 1030, np.uint8).copy()
    TOP_K.check(blob, count, None)
    assert TOP_K.norm_squared(blob, count) == 1030 * 3 * (2 << 9) ** 2
    blob[-81:] = np.frombuffer(bytes(record([2, 2])), np.uint8)
    with pytest.raises(PeerFault, match="positions do not increase"):
        TOP_K.check(blob, count, None)
    blob[-81:] = np.frombuffer(bytes(good), np.uint8)
    with pytest.raises(PeerFault, match="padding is not zero"):
        TOP_K.check(blob, count - 1, None)


def test_changed_bytes_are_refused_or_decode_as_the_twin_says(make_blob: MakeBlob) -> None:
    rng = np.random.default_rng(11)
    good = make_blob("fuzz", "top_k", 4096 + 900, 24)
    refused = 0
    for _ in range(300):
        blob = good.copy()
        blob[rng.integers(0, blob.size, 2)] ^= np.exp2(rng.integers(0, 8, 2)).astype(np.uint8)
        try:
            TOP_K.check(blob, 4096 + 900, 2**60)
        except PeerFault:
            refused += 1
            continue
        decoded_D = decode(TOP_K, blob, 0, 4096 + 900, 4096 + 900)
        assert decoded_D.tolist() == plain_decode(blob, 4096 + 900)
        again = encode(TOP_K, (decoded_D * 2.0**-24).astype(np.float32))
        assert np.array_equal(again, blob)
    assert 0 < refused < 300


def test_random_bytes_are_refused_or_judged_but_never_crash() -> None:
    rng = np.random.default_rng(12)
    for _ in range(200):
        parameter_count = int(rng.integers(1, 9000))
        size = TOP_K.encoded_size_bytes(parameter_count)
        sparse = rng.integers(0, 256, size) & rng.integers(0, 256, size)
        with suppress(PeerFault):
            TOP_K.check(sparse.astype(np.uint8), parameter_count, 2**60)


def test_bits_a_parameter_order_the_codecs() -> None:
    bits = [bits_per_parameter(codec_named(name)) for name in ("top_k", "int4", "int8")]
    assert [float(each) for each in bits] == [81 * 8 / 4096, 4.125, 8.125]
    count = 10**6
    for name, each in zip(("top_k", "int4", "int8"), bits, strict=True):
        size_bytes = codec_named(name).encoded_size_bytes(count * 64)
        assert size_bytes * 8 == each * count * 64
