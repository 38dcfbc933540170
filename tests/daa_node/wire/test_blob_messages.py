"""Requests and answers of a bulk session, on the wire and back."""

import pytest

from daa_dag.ids import BlobRoot
from daa_node.errors import PeerFault
from daa_node.wire.blob_messages import (
    CHUNKS_PER_REQUEST_MAX,
    Chunks,
    ChunksRequest,
    FindRequest,
    Found,
    Refusal,
    Refused,
    decode_answer,
    decode_request,
    encode_chunks,
    encode_found,
    encode_refused,
    encode_request,
)
from tests.daa_node.network.bulk_stage import (
    KIND,
)


def test_messages_come_back_as_they_were() -> None:
    root = BlobRoot(b"r" * 32)
    for request in (FindRequest(KIND, root, True), ChunksRequest(KIND, root, (0, 5, 9))):
        assert decode_request(encode_request(request)) == request
    for have in (None, frozenset[int](), frozenset({0, 9, 65_535})):
        assert decode_answer(encode_found(7, have)) == Found(7, have)
    answer = decode_answer(encode_chunks([b"one", None, b""]))
    assert answer == Chunks((memoryview(b"one"), None, memoryview(b"")))
    for reason in Refusal:
        assert decode_answer(encode_refused(reason)) == Refused(reason)


def test_requests_are_bounded_and_ascend() -> None:
    root = BlobRoot(b"r" * 32)
    most = ChunksRequest(KIND, root, tuple(range(60_000, 60_000 + CHUNKS_PER_REQUEST_MAX)))
    assert decode_request(encode_request(most)) == most
    for indices in ((), (1, 1), (2, 1), (-1,), (70_000,), tuple(range(200))):
        with pytest.raises(PeerFault, match="malformed"):
            decode_request(encode_request(ChunksRequest(KIND, root, indices)))
