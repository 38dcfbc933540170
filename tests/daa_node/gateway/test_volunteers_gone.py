"""Whose session is over is connected no more, whichever way it went."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import memory_stream_pair

from daa_dag import canonical
from daa_dag.ids import ChainId, NodeId
from daa_node.gateway.config import GatewayConfig
from daa_node.gateway.volunteers import Surroundings, Volunteers
from daa_node.identity.keys import NodeKeys
from daa_node.observability.events import EventLog
from daa_node.seams import ByteStream, PeerId
from daa_node.wire.framing import read_message, write_message
from daa_node.wire.limits import TASK_BYTES_MAX
from simnet.nodes.virtual.volunteer import Volunteer

CHAIN, GATEWAY = ChainId(b"c" * 32), NodeId(b"g" * 32)
KEYS = NodeKeys.from_seed(b"who")
End = Callable[[Any], Awaitable[None]]


class Host:
    """A Transport of one peer."""

    def __init__(self) -> None:
        self.hung_up: list[PeerId] = []

    def network_of(self, peer_id: PeerId) -> str:
        return "a"

    def keep_visitor(self, peer_id: PeerId, protocol: str) -> bool:
        return True

    async def hang_up(self, peer_id: PeerId) -> None:
        self.hung_up.append(peer_id)


def volunteers_at(host: Host) -> Volunteers:
    clock, entropy = SimpleNamespace(wall_ns=lambda: 0), SimpleNamespace(bytes=bytes)
    nothing = cast(Any, None)
    around = Surroundings(
        *(CHAIN, GATEWAY, host, cast(Any, clock), cast(Any, entropy), nothing, nothing),
        EventLog(lambda: 0, lambda event: None),
    )
    return Volunteers(GatewayConfig(), around, (), lambda evidence: None)


async def says_no_more(far: Any) -> None:
    far.send_stream.close()


async def hears_no_more(far: Any) -> None:
    far.receive_stream.close()
    far.send_stream.close()


async def is_wrong_and_hears_no_more(far: Any) -> None:
    await write_message(far, b"\xff")
    await hears_no_more(far)


@pytest.mark.parametrize("end", [says_no_more, hears_no_more, is_wrong_and_hears_no_more])
@pytest.mark.parametrize("is_welcome", [True, False])
async def test_a_connection_goes_with_its_session(
    end: End, is_welcome: bool, autojump_clock: object
) -> None:
    """Else one address leaves a connection behind with each, until there is none for a member."""
    host, who = Host(), Volunteer(KEYS, CHAIN, GATEWAY, lambda: 0)
    far, near = memory_stream_pair()
    stream = SimpleNamespace(
        peer_id=KEYS.peer_id, send_all=near.send_all, receive_some=near.receive_some
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(volunteers_at(host).serve, cast(ByteStream, stream))
        reader = cast(ByteStream, far)
        challenge = canonical.decode(await read_message(reader, TASK_BYTES_MAX), TASK_BYTES_MAX)
        if is_welcome:
            await write_message(reader, who.hello(challenge[2]))
            said = canonical.decode(await read_message(reader, TASK_BYTES_MAX), TASK_BYTES_MAX)
            assert said[0] == "welcome"
            assert not host.hung_up
        await end(far)
    assert host.hung_up == [KEYS.peer_id]
