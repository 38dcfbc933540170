"""Chunks cover a blob exactly, start anew at every part, and their manifest names the blob."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daa_dag import canonical
from daa_dag.chunking import CHUNK_BYTES_MAX, CHUNKS_MAX, cut, decode_manifest, manifest_of, root_of
from daa_dag.errors import DagError, Malformed
from daa_dag.ids import digest_of


@given(st.lists(st.integers(0, 5 * CHUNK_BYTES_MAX), max_size=30))
def test_a_cut_covers_every_part_and_none_crosses_a_boundary(parts: list[int]) -> None:
    sizes = cut(parts)
    assert all(1 <= size <= CHUNK_BYTES_MAX for size in sizes)
    ends, at = set(), 0
    for size in sizes:
        at += size
        ends.add(at)
    boundary = 0
    for part in parts:
        boundary += part
        assert boundary in ends or boundary == 0
    assert at == boundary
    assert len(sizes) == sum(-(-part // CHUNK_BYTES_MAX) for part in parts)


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=20))
def test_a_manifest_names_each_chunk_and_comes_back(chunks: list[bytes]) -> None:
    blob = b"".join(chunks)
    manifest = manifest_of(blob, [len(chunk) for chunk in chunks])
    assert manifest.digests == tuple(digest_of(chunk) for chunk in chunks)
    assert manifest.size_bytes == len(blob)
    for chunk, offset, size in zip(chunks, manifest.offsets, manifest.sizes, strict=True):
        assert blob[offset : offset + size] == chunk
    assert root_of(manifest.encode()) == manifest.root
    again = decode_manifest(manifest.encode())
    assert again == manifest
    assert again.root == manifest.root


@given(st.binary(min_size=2, max_size=400), st.data())
def test_one_changed_byte_changes_the_root(blob: bytes, data: st.DataObject) -> None:
    sizes = [1, len(blob) - 1]
    at = data.draw(st.integers(0, len(blob) - 1))
    other = blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :]
    assert manifest_of(other, sizes).root != manifest_of(blob, sizes).root


def test_the_same_bytes_cut_otherwise_have_another_root() -> None:
    assert manifest_of(b"abcd", [2, 2]).root != manifest_of(b"abcd", [4]).root


@given(st.binary(max_size=300))
def test_any_bytes_are_a_manifest_or_refused(payload: bytes) -> None:
    try:
        manifest = decode_manifest(payload)
    except DagError:
        return
    assert manifest.encode() == payload


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        [[], b""],
        [[1], b"x" * 31],
        [[1, 1], b"x" * 32],
        [[0], b"x" * 32],
        [[-1], b"x" * 32],
        [[True], b"x" * 32],
        [[CHUNK_BYTES_MAX + 1], b"x" * 32],
        [["1"], b"x" * 32],
        [[1], "x" * 32],
        [[1], b"x" * 32, 0],
    ],
)
def test_other_shapes_are_no_manifest(value: canonical.Value) -> None:
    with pytest.raises(Malformed):
        decode_manifest(canonical.encode(value))


def test_the_number_of_chunks_is_bounded() -> None:
    at_most = canonical.encode([[1] * CHUNKS_MAX, b"x" * (32 * CHUNKS_MAX)])
    assert decode_manifest(at_most).size_bytes == CHUNKS_MAX
    with pytest.raises(DagError):
        decode_manifest(canonical.encode([[1] * (CHUNKS_MAX + 1), b"x" * 32 * (CHUNKS_MAX + 1)]))


def test_sizes_that_do_not_cover_the_blob_are_refused() -> None:
    with pytest.raises(Malformed, match="the blob has 3"):
        manifest_of(b"abc", [2])
