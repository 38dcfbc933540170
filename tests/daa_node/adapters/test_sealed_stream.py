"""How long a session waits: for a frame to begin, and for the rest of one that has begun."""

import pytest
import trio
import trio.testing

from daa_dag.ids import NodeId
from daa_node.adapters.sealed_stream import FRAME_TIMEOUT_S, RelayPipe, SealedStream
from daa_node.errors import Unavailable
from daa_node.identity.frames import DATA, HEADER_BYTES, TAG_BYTES
from daa_node.identity.session import KEY_BYTES, SUITES, SessionKeys, Token
from daa_node.seams import IDLE_TIMEOUT_S

KEY = bytes(KEY_BYTES)


def keys_of(is_initiator: bool) -> SessionKeys:
    node_id = NodeId(bytes(32))
    return SessionKeys(SUITES[0], node_id, is_initiator, KEY, KEY, Token(KEY), KEY, ())


@pytest.mark.parametrize("begun", [False, True])
async def test_a_frame_that_has_begun_must_come_sooner_than_the_next_one(
    begun: bool, autojump_clock: trio.testing.MockClock
) -> None:
    here, there = trio.testing.memory_stream_pair()
    session = SealedStream(RelayPipe(here), keys_of(True))  # type: ignore[arg-type]
    frame = memoryview(bytearray(HEADER_BYTES + 5 + TAG_BYTES))
    keys_of(False).sealer().seal_into(b"hello", DATA, frame)
    if begun:
        await there.send_all(frame[:-1])
    with pytest.raises(Unavailable, match="fell silent"):
        await session.receive_frame()
    assert trio.current_time() == pytest.approx(FRAME_TIMEOUT_S if begun else IDLE_TIMEOUT_S)
    with pytest.raises(Unavailable, match="broken"):
        await session.send_frame(b"")


async def test_a_frame_that_came_late_but_whole_is_opened(
    autojump_clock: trio.testing.MockClock,
) -> None:
    here, there = trio.testing.memory_stream_pair()
    session = SealedStream(RelayPipe(here), keys_of(True))  # type: ignore[arg-type]
    sealer = keys_of(False).sealer()
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            for payload in (b"one", b"two"):
                frame = memoryview(bytearray(HEADER_BYTES + 3 + TAG_BYTES))
                sealer.seal_into(payload, DATA, frame)
                await trio.sleep(0.9 * IDLE_TIMEOUT_S)
                await there.send_all(frame[:-1])
                await trio.sleep(0.9 * FRAME_TIMEOUT_S)
                await there.send_all(frame[-1:])

        nursery.start_soon(send)
        assert [await session.receive_frame() for _ in range(2)] == [b"one", b"two"]
