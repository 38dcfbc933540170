"""However a stream's handler ends, the stream counts for its peer no more."""

from types import SimpleNamespace
from typing import cast

import pytest
import trio
from libp2p.abc import INetStream

from daa_node.adapters.libp2p_host import GatedHost


class Stream:
    """As much of the library's stream as its end touches; it is its own yamux stream."""

    def __init__(self) -> None:
        self.muxed_stream = self
        self.ends: list[str] = []

    async def reset(self) -> None:
        self.ends.append("reset")

    def release(self) -> None:
        self.ends.append("released")


@pytest.mark.parametrize(
    ("how", "ends"),
    [
        ("done", ["released"]),
        ("a fault of the library", ["reset", "released"]),
        ("cancelled", ["released"]),
    ],
)
async def test_a_stream_is_released_however_it_was_served(
    how: str, ends: list[str], autojump_clock: object
) -> None:
    async def answer(_stream: INetStream) -> None:
        if how == "cancelled":
            await trio.sleep_forever()
        elif how != "done":
            raise ValueError(how)

    host, stream = SimpleNamespace(_answer=answer), Stream()
    with trio.move_on_after(1.0):
        await GatedHost._swarm_stream_handler(cast(GatedHost, host), cast(INetStream, stream))
    assert stream.ends == ends
