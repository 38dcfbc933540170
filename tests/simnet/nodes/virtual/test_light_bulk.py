"""Sessions of light nodes keep what the BulkTransport seam promises: frames, limits, refusals."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from daa_dag.ids import NodeId
from daa_node.adapters.bulk_channel import GUEST_FRAME_BYTES_MAX
from daa_node.adapters.bulk_places import SESSIONS_PER_PEER_MAX
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import FrameStream, PeerId
from simnet.nodes.virtual.light_bulk import LightBulk
from simnet.nodes.virtual.network import Network
from tests.simnet.nodes.virtual.test_light_transport import Node, light, meet, play

Script = Callable[[LightBulk, PeerId], Awaitable[None]]
NODE_ID = NodeId(bytes(32))


async def echo(session: FrameStream) -> None:
    while (frame := await session.receive_frame()) is not None:
        await session.send_frame(frame)


def sessions(script: Script, members: bool = True) -> list[str]:
    """`script(bulk, peer)` with a peer that echoes frames; what the peer holds against us."""
    blamed: list[str] = []

    def blame(_peer_id: PeerId, fault: PeerFault) -> None:
        blamed.append(fault.reason)

    async def main(network: Network, nodes: list[Node]) -> None:
        bulks = [LightBulk(node, lambda _: NODE_ID, blame) for node in nodes]
        for bulk in bulks:
            bulk.set_handler(echo, lambda _: members)
        await meet(nodes[0], nodes[1])
        await script(bulks[0], nodes[1].peer_id)

    play(light, main)
    return blamed


def test_frames_come_back_and_the_end_behind_them() -> None:
    async def script(bulk: LightBulk, peer: PeerId) -> None:
        session = await bulk.open(peer)
        assert session.node_id == NODE_ID
        for frame in (b"one", b"", bytes(10**6)):
            await session.send_frame(frame)
            assert await session.receive_frame() == frame
        await session.aclose()

    assert sessions(script) == []


def test_a_peer_has_so_many_sessions_and_a_new_one_when_an_old_one_ends() -> None:
    async def script(bulk: LightBulk, peer: PeerId) -> None:
        held = [await bulk.open(peer) for _ in range(SESSIONS_PER_PEER_MAX)]
        with pytest.raises(Unavailable, match="busy"):
            await bulk.open(peer)
        await held[0].aclose()
        await trio.sleep(0.1)
        await (await bulk.open(peer)).aclose()

    assert sessions(script) == []


def test_a_guests_long_frame_is_a_fault_and_a_members_is_none() -> None:
    async def script(bulk: LightBulk, peer: PeerId) -> None:
        session = await bulk.open(peer)
        await session.send_frame(bytes(GUEST_FRAME_BYTES_MAX + 1))
        await trio.sleep(1)
        await session.aclose()

    assert sessions(script, members=False) == ["oversize"]
    assert sessions(script) == []


def test_nobody_opens_a_session_with_who_is_away_or_has_not_said_who_it_is() -> None:
    async def script(bulk: LightBulk, peer: PeerId) -> None:
        with pytest.raises(Unavailable):
            await bulk.open(PeerId("away"))
        bulk._node_of = lambda _: None
        with pytest.raises(Unavailable, match="has not said"):
            await bulk.open(peer)

    assert sessions(script) == []
