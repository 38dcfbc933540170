"""No byte that a stream carries may change unseen, but for what a bulk session says."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from daa_node.adapters.yamux_streams import YamuxStream
from daa_node.wire.protocols import BULK, HELLO, VOTES
from simnet.nodes.virtual import scheduling
from simnet.nodes.virtual.plaintext import hashed
from simnet.world.determinism import Trace


class Stream:
    """One of a connection of node 0 to node 1."""

    muxed_conn = SimpleNamespace(
        peer_id="bob", secured_conn=SimpleNamespace(get_local_peer=lambda: "alice")
    )


def line(words: str) -> bytes:
    return bytes([len(words) + 1]) + words.encode() + b"\n"


def each_hashed(*runs: Sequence[bytes]) -> list[str]:
    """What the trace says of each run's writes, on a stream of its own."""
    told = []

    async def main(_: scheduling.Processes) -> None:
        for writes in runs:
            trace, stream = Trace(), cast(Any, Stream())
            written = hashed(trace, {"alice": 0, "bob": 1})
            for payload in writes:
                written(cast(YamuxStream, stream), payload)
            told.append(trace.digest())

    scheduling.run(main, 0)
    return told


def silent(protocol: str, message: bytes) -> list[int]:
    """At which places a byte may change, and the trace says the same."""
    changed = [
        message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :] for at in range(len(message))
    ]
    opening = line("/multistream/1.0.0") + line(protocol)
    told, *tolds = each_hashed(*([opening, each] for each in (message, *changed)))
    return [at for at, other in enumerate(tolds) if other == told]


@pytest.mark.parametrize("protocol", ["/ipfs/id/1.0.0", "/meshsub/1.1.0", HELLO, VOTES])
def test_no_byte_may_change_unseen(protocol: str) -> None:
    assert silent(protocol, b"who are you") == []


def test_no_byte_on_a_stream_that_bulk_is_only_named_on_may_change_unseen() -> None:
    assert silent("/ipfs/id/1.0.0", line(BULK) + b"and more") == []


def test_of_a_bulk_session_the_number_of_bytes_counts() -> None:
    told = each_hashed(
        [line(BULK), b"sealed one"],
        [line(BULK), b"sealed two"],
        [line(BULK), b"sealed three"],
        [line(BULK), b"sealed", b" two"],
        [line(VOTES), b"sealed one"],
    )
    assert told[0] == told[1]
    assert len(set(told)) == 4
