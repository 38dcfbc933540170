"""Requests and answers of a bulk session, on the wire and back."""

import pytest

from daa_dag import canonical
from daa_dag.chunking import CHUNK_BYTES_MAX, CHUNKS_MAX, MANIFEST_BYTES_MAX
from daa_dag.ids import BlobRoot, NodeId
from daa_dag.spread import ORPHANS_MAX, TOLD_MAX, mask_of
from daa_node.errors import PeerFault
from daa_node.wire.blob_messages import (
    BITMAP_BYTES_MAX,
    CHUNKS_PER_REQUEST_MAX,
    MANIFEST_BEGINNING_BYTES_MAX,
    PIECE_BYTES,
    Chunks,
    ChunksRequest,
    FindRequest,
    Found,
    Refusal,
    Refused,
    Shared,
    ShareRequest,
    decode_answer,
    decode_request,
    encode_chunks,
    encode_found,
    encode_refused,
    encode_request,
    encode_shared,
    missing_bytes,
)
from tests.daa_node.network.bulk_stage import (
    KIND,
)


def test_messages_come_back_as_they_were() -> None:
    root = BlobRoot(b"r" * 32)
    for request in (FindRequest(KIND, root, True), ChunksRequest(KIND, root, (0, 5, 9))):
        assert decode_request(encode_request(request)) == request
    for have in (None, 0, mask_of([0, 9, 65_535])):
        for found in (Found(have), Found(have, b"whole"), Found(have, b"some", 7)):
            assert decode_answer(encode_found(found)) == found
    answer = decode_answer(encode_chunks([b"one", None, b""]))
    assert answer == Chunks((memoryview(b"one"), None, memoryview(b"")))
    for reason in Refusal:
        assert decode_answer(encode_refused(reason)) == Refused(reason)


def test_an_answer_in_pieces_says_how_much_is_to_come_and_a_lie_is_refused() -> None:
    whole = encode_chunks([bytes(CHUNK_BYTES_MAX), None, bytes(100_000)])
    assert missing_bytes(whole[:PIECE_BYTES]) == len(whole) - PIECE_BYTES
    found = encode_found(Found(1 << CHUNKS_MAX - 1, bytes(MANIFEST_BEGINNING_BYTES_MAX), 7))
    assert len(found) <= PIECE_BYTES
    for other in (whole, encode_chunks([bytes(100)]), found):
        assert missing_bytes(other) == 0
    for sizes in ([CHUNK_BYTES_MAX] * 5, [CHUNK_BYTES_MAX + 1], [-2], [True], []):
        header = canonical.encode(["chunks", sizes])
        first = (len(header).to_bytes(2) + header).ljust(PIECE_BYTES, b"x")
        with pytest.raises(PeerFault, match="malformed"):
            missing_bytes(first)


def test_what_is_found_is_bounded() -> None:
    most = MANIFEST_BYTES_MAX
    for wrong in ((most - 88, 10), (-1, 10), (0, 100), (0, -2), (True, 0), (0, None)):
        header = canonical.encode(["found", *wrong])
        with pytest.raises(PeerFault, match="malformed"):
            decode_answer(len(header).to_bytes(2) + header + bytes(99))
    header = canonical.encode(["found", most - 89, 10])
    assert decode_answer(len(header).to_bytes(2) + header + bytes(99)) == Found(
        0, bytes(89), most - 89
    )
    header = canonical.encode(["found", 0, BITMAP_BYTES_MAX + 1])
    with pytest.raises(PeerFault, match="malformed"):
        decode_answer(len(header).to_bytes(2) + header + bytes(BITMAP_BYTES_MAX + 1))


def test_requests_are_bounded_and_ascend() -> None:
    root = BlobRoot(b"r" * 32)
    most = ChunksRequest(KIND, root, tuple(range(60_000, 60_000 + CHUNKS_PER_REQUEST_MAX)))
    assert decode_request(encode_request(most)) == most
    for indices in ((), (1, 1), (2, 1), (-1,), (CHUNKS_MAX,), tuple(range(200))):
        with pytest.raises(PeerFault, match="malformed"):
            decode_request(encode_request(ChunksRequest(KIND, root, indices)))


def test_what_is_shared_comes_back_as_it_was_and_is_bounded() -> None:
    root, whole = BlobRoot(b"r" * 32), (1 << CHUNKS_MAX) - 1
    holders = tuple((NodeId(bytes([n]) * 32), whole) for n in range(TOLD_MAX))
    for have in (0, 1, whole):
        asked = ShareRequest(KIND, root, 7, tuple(range(ORPHANS_MAX)), have)
        assert decode_request(encode_request(asked)) == asked
        told = Shared(9, have, holders)
        assert decode_answer(encode_shared(told)) == told
    too_many = (
        ShareRequest(KIND, root, 0, tuple(range(ORPHANS_MAX + 1)), 0),
        ShareRequest(KIND, root, 0, (CHUNKS_MAX,), 0),
        ShareRequest(KIND, root, -1, (), 0),
        ShareRequest(KIND, root, 0, (), 1 << CHUNKS_MAX + 1),
    )
    for request in too_many:
        with pytest.raises(PeerFault, match="malformed"):
            decode_request(encode_request(request))
    crowd = (*holders, (NodeId(b"x" * 32), 1))
    with pytest.raises(PeerFault, match="malformed"):
        decode_answer(encode_shared(Shared(9, 0, crowd)))
    wrongs: list[list[canonical.Value]] = [
        [0, 1, []],
        [0, 0, [[b"short", 0]]],
        [0, 0, [[b"n" * 32, 5]]],
        [0, -1, []],
    ]
    for wrong in wrongs:
        header = canonical.encode(["shared", *wrong])
        with pytest.raises(PeerFault, match="malformed"):
            decode_answer(len(header).to_bytes(2) + header)
