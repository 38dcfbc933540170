"""The delta of a sparse round: near the values, short, one vector one blob, any other refused."""

from collections.abc import Callable, Iterator
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daa_node.errors import PeerFault
from daa_node.tensors import Int32Array, UInt8Array
from daa_node.updates.compression.delta import DENSE, delta_format_of
from daa_node.updates.compression.union import GAP_BITS, MANTISSA_MAX, SEGMENT_PARAMETERS, UNION
from daa_node.updates.grid import SHIFT_MAX

D = SEGMENT_PARAMETERS + 4096 * 2 + 700  # more than one segment, and a short last block
Spoil = Callable[[UInt8Array], None]


def merged(seed: int, count: int, kept: float, mantissas: int = MANTISSA_MAX) -> Int32Array:
    """Grid integers of a vector, of which that share is not zero, padded to whole 64."""
    rng = np.random.default_rng(seed)
    shifts_K = rng.integers(0, 17, -(-count // 4096))
    values_D = rng.integers(1, mantissas + 1, count) << np.repeat(shifts_K, 4096)[:count]
    values_D *= rng.choice([-1, 1], count) * (rng.random(count) < kept)
    return np.pad(values_D, (0, -count % 64)).astype(np.int32)


def coded(grid_D: Int32Array, count: int) -> tuple[UInt8Array, Int32Array]:
    """The blob, and what the writer says that it decodes to."""
    writer = UNION.writer(count)
    decoded_D = writer.add(grid_D.copy())
    return writer.blob(), decoded_D[:count]


def decoded(blob: UInt8Array, count: int) -> Int32Array:
    out_D = np.full(-(-count // 64) * 64, -1, np.int32)
    UNION.decode_blocks(blob, 0, count, out_D)
    assert not out_D[count:].any()
    return out_D[:count]


def is_refused(blob: UInt8Array, count: int) -> bool:
    try:
        UNION.check(blob, count)
    except PeerFault:
        return True
    return False


def gap_bits(count: int) -> int:
    """The width of a gap's low bits, from its words: the slow twin."""
    ratio = 4096 * 693 // (1000 * count) if count else 1
    bits = 0
    while 2 ** (bits + 1) <= ratio:
        bits += 1
    return bits


def plain_decode(blob: UInt8Array, count: int) -> list[int]:
    """The slow twin: one bit at a time, from the words of the format."""
    segments = -(-count // 65536)
    payload = blob.tobytes()
    ends = [int.from_bytes(payload[8 * s : 8 * s + 8], "little") for s in range(segments)]
    values = [0] * (segments * 65536)
    begin = 0
    for segment, end in enumerate(ends):
        body = payload[8 * segments + begin : 8 * segments + end]
        begin = end
        blocks = min(16, -(-(count - segment * 65536) // 4096))
        words = [int.from_bytes(body[3 * b : 3 * b + 3], "little") for b in range(blocks)]
        bits = iter(byte >> bit & 1 for byte in body[3 * blocks :] for bit in range(8))
        taken = [0]

        def take(width: int, bits: Iterator[int] = bits, taken: list[int] = taken) -> int:
            taken[0] += width
            return sum(next(bits) << at for at in range(width))

        def align(take: Callable[[int], int] = take, taken: list[int] = taken) -> None:
            assert take(-taken[0] % 8) == 0

        def unary(take: Callable[[int], int] = take) -> int:
            passed = 0
            while not take(1):
                passed += 1
            return passed

        names = [[take(4) for _ in range(word >> 20)] for word in words]
        align()
        counts = [word & 8191 for word in words]
        places = [(b, gap_bits(count)) for b, count in enumerate(counts) for _ in range(count)]
        fields = [(take(gap), take(1), take(words[b] >> 18 & 3)) for b, gap in places]
        align()
        gaps = [unary() << gap for _, gap in places]
        ranks = [unary() << (words[b] >> 18 & 3) for b, _ in places]
        align()
        assert next(bits, None) is None
        read, at, before = (places, fields, gaps, ranks), 0, -1
        for (b, _), (low, sign, low_rank), gap, rank in zip(*read, strict=True):
            at = (0 if b != before else at + 1) + gap + low
            before = b
            value = names[b][rank + low_rank] << (words[b] >> 13 & 31)
            values[segment * 65536 + b * 4096 + at] = -value if sign else value
    return values[:count]


@pytest.mark.parametrize("kept", [0.0, 0.003, 0.016, 0.15, 0.4, 1.0])
def test_decoding_equals_the_slow_twin(kept: float) -> None:
    grid_D = merged(3, D, kept)
    blob, decoded_D = coded(grid_D, D)
    UNION.check(blob, D)
    assert plain_decode(blob, D) == decoded_D.tolist() == decoded(blob, D).tolist()


def test_what_fits_comes_back_exactly_and_the_rest_to_the_nearest() -> None:
    exact_D = merged(4, D, 0.1)
    assert np.array_equal(coded(exact_D, D)[1], exact_D[:D])
    fine_D = merged(5, D, 0.1, mantissas=3000)
    blob, decoded_D = coded(fine_D, D)
    shifts_D = np.repeat(UNION.shifts(blob, 0, D + -D % 64, D), 64)[:D].astype(np.int64)
    halves_D = (1 << shifts_D) >> 1
    assert (np.abs(decoded_D - fine_D[:D].astype(np.int64)) <= halves_D).all()
    plain_D = (fine_D[:D].astype(np.int64) + halves_D) >> shifts_D << shifts_D
    assert np.array_equal(decoded_D, plain_D)  # as a volunteer recomputes it
    peaks_K = [np.abs(fine_D[at : at + 4096]).max() for at in range(0, D, 4096)]
    for peak, shift in zip(peaks_K, shifts_D[::4096], strict=True):
        fits = [s for s in range(25) if (int(peak) + ((1 << s) >> 1)) >> s <= MANTISSA_MAX]
        assert shift == min(fits)


def test_a_range_decodes_to_the_same_as_the_whole() -> None:
    blob, decoded_D = coded(
        merged(6, 3 * SEGMENT_PARAMETERS + 100, 0.05), 3 * SEGMENT_PARAMETERS + 100
    )
    for start, size in ((0, 64), (65536, 65536), (65536, 2 * 65536), (131072, 4096 + 64)):
        out_C = np.full(size, -1, np.int32)
        UNION.decode_blocks(blob, start, 3 * SEGMENT_PARAMETERS + 100, out_C)
        assert np.array_equal(out_C, decoded_D[start : start + size])


def test_a_chunk_of_many_segments_is_coded_like_one_after_another() -> None:
    count = 3 * SEGMENT_PARAMETERS
    grid_D, writer = merged(7, count, 0.05), UNION.writer(count)
    for start in range(0, count, SEGMENT_PARAMETERS):
        writer.add(grid_D[start : start + SEGMENT_PARAMETERS].copy())
    assert np.array_equal(writer.blob(), coded(grid_D, count)[0])


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_whatever_is_accepted_codes_to_itself(data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([1, 64, 5000]))
    kept = data.draw(st.sampled_from([0.0, 0.002, 0.016, 0.3, 1.0]))
    mantissas = data.draw(st.sampled_from([1, 3, 15, 99]))
    blob, _ = coded(merged(data.draw(st.integers(0, 99)), count, kept, mantissas), count)
    spoilt = blob.copy()
    for _ in range(data.draw(st.integers(0, 3))):
        spoilt[data.draw(st.integers(0, spoilt.size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.integers(0, 9))
    spoilt = spoilt[: spoilt.size - cut] if cut < 3 else spoilt
    if is_refused(spoilt, count):
        assert not np.array_equal(spoilt, blob)
        return
    grid_D = np.pad(decoded(spoilt, count), (0, -count % 64))
    assert np.array_equal(coded(grid_D, count)[0], spoilt)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=120), st.booleans())
def test_random_bytes_are_refused_or_code_to_themselves(body: bytes, with_end: bool) -> None:
    directory = len(body).to_bytes(8, "little") if with_end else b""
    blob = np.frombuffer(directory + body, np.uint8)
    if is_refused(blob, 4096):
        return
    assert np.array_equal(coded(decoded(blob, 4096), 4096)[0], blob)


def one_block(values: dict[int, int]) -> UInt8Array:
    grid_D = np.zeros(4096, np.int32)
    for place, value in values.items():
        grid_D[place] = value
    return coded(grid_D, 4096)[0]


# 8 bytes of the directory, 3 of the header, then a byte with both names, 5 and 9.
SOUND = {7: 5 << 4, 9: -9 << 4}


def with_bits(at: int, bits: int) -> Spoil:
    def spoil(blob: UInt8Array) -> None:
        blob[at] ^= bits

    return spoil


def with_names(byte: int) -> Spoil:
    def spoil(blob: UInt8Array) -> None:
        assert blob[11] == 0x95
        blob[11] = byte

    return spoil


def with_one_name(blob: UInt8Array) -> None:
    with_bits(10, 0x30)(blob)
    with_names(0x05)(blob)


REFUSED = {
    "its end is another": (with_bits(0, 1), "do not end where"),
    "a value more": (with_bits(8, 1), "ends within its fields|counts in unary"),
    "too many values": (with_bits(9, 16), "values, at most 4096"),
    "an exponent too large": (with_bits(10, 3), "exponent 4 is above 0"),
    "a smaller shift would do": (with_names(0x75), "a smaller shift"),
    "a mantissa of zero": (with_names(0x05), "a mantissa is zero"),
    "names in another order": (with_names(0x59), "commonest first"),
    "a name twice": (with_names(0x99), "commonest first"),
    "a name less": (with_one_name, "has no name"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_blob_in_another_form_is_refused(why: str) -> None:
    spoil, words = REFUSED[why]
    blob = one_block(SOUND)
    UNION.check(blob, 4096)
    spoil(blob)
    with pytest.raises(PeerFault, match=words):
        UNION.check(blob, 4096)


def by_hand(rank_bits: int) -> UInt8Array:
    """A 3 at place 5, its rank of 0 in so many low bits: a gap of 11 low bits, 5, and a sign."""
    header = 1 | rank_bits << 18 | 1 << 20
    parts = [(7, 8), (header, 3), (3, 1), (5, 2), (0b11, 1)]
    return np.frombuffer(b"".join(n.to_bytes(size, "little") for n, size in parts), np.uint8)


def test_a_width_that_is_not_the_least_is_refused() -> None:
    assert np.array_equal(by_hand(0), one_block({5: 3}))
    with pytest.raises(PeerFault, match="fewer bits in another width"):
        UNION.check(by_hand(1), 4096)


def test_lengths_and_padding_are_judged() -> None:
    blob, _ = coded(merged(8, D, 0.1), D)
    for wrong in (blob[:-1], np.append(blob, np.uint8(0)), blob[:7], blob[:0]):
        with pytest.raises(PeerFault, match="bytes|directory"):
            UNION.check(wrong, D)
    crossed = blob.copy()
    crossed[7] = 1  # the first of two segments ends far behind the second
    with pytest.raises(PeerFault, match="do not end where the directory says"):
        UNION.check(crossed, D)
    last = one_block({4095: 64})
    UNION.check(last, 4096)
    with pytest.raises(PeerFault, match="padding is not zero"):
        UNION.check(last, 4095)
    longest = np.zeros(UNION.size_bytes_max(D) + 1, np.uint8)
    with pytest.raises(PeerFault, match=f"{D} of union take {UNION.size_bytes_max(D)}"):
        UNION.check(longest, D)


def test_no_delta_is_longer_than_its_limit_nor_that_than_a_dense_one() -> None:
    for count in (1, 64, 4096, D):
        rng = np.random.default_rng(count)
        padded = count + -count % 64
        for kept in (0.016, 0.3, 1.0):
            values_D = rng.integers(-15, 16, padded) * (rng.random(padded) < kept)
            values_D[count:] = 0
            assert coded(values_D.astype(np.int32), count)[0].size <= UNION.size_bytes_max(count)
    for kept, width in enumerate(GAP_BITS.tolist()):  # of all places of a block, in bits
        assert kept * (width + 1) + (4096 - kept) // 2**width + 6 * kept <= 4096 * 7
    assert UNION.size_bytes_max(10**9) < DENSE.size_bytes_max(10**9)


@pytest.mark.parametrize("kept", [1 / 64, 1 / 8, 0.3])
def test_places_of_one_magnitude_take_hardly_more_than_they_tell(kept: float) -> None:
    count = 4 * SEGMENT_PARAMETERS
    blob, _ = coded(merged(9, count, kept, mantissas=1), count)
    values = np.count_nonzero(decoded(blob, count))
    kept = values / count
    places_bits = count * (-kept * log2(kept) - (1 - kept) * log2(1 - kept))
    # a sign, a bit for a magnitude that is always the same, and a header with a name
    assert 8 * blob.size < 1.03 * places_bits + 2 * values + 29 * count / 4096


@pytest.mark.parametrize(
    ("codec", "name"), [("int8", "int8"), ("int4", "int8"), ("top_k", "union")]
)
def test_sparse_updates_have_a_sparse_delta(codec: str, name: str) -> None:
    assert delta_format_of(codec).name == name


def test_the_ends_of_the_grid_are_held() -> None:
    for value in (3 << SHIFT_MAX, -3 << SHIFT_MAX, 15 << SHIFT_MAX, 1, -1):
        blob = one_block({0: value, 4095: value})
        UNION.check(blob, 4096)
        assert decoded(blob, 4096)[[0, 4095]].tolist() == [value, value]
