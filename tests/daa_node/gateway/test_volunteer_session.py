"""How one volunteer's session ends, whatever its stream does."""

import pytest
import trio

from daa_dag.ids import NodeId
from daa_node.gateway.task_desk import Seat
from daa_node.gateway.volunteer_session import VolunteerSession
from daa_node.seams import PeerId


class Cut:
    """A ByteStream that breaks as soon as it is read."""

    peer_id = PeerId("somebody")

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        raise trio.BrokenResourceError("cut")

    async def receive_some(self, size_bytes_max: int) -> bytes:
        raise trio.BrokenResourceError("cut")

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("says", [False, True])
async def test_a_stream_that_is_cut_has_ended_as_one_that_was_closed(says: bool) -> None:
    session = VolunteerSession(Cut(), Seat(b"s", NodeId(b"n"), b"key", "a"), lambda message: None)
    if says:
        session.send(b"welcome")
    await session.run()
