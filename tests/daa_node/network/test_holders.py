"""Whoever lags finds, in the DHT, a node that it has no connection with and that was there."""

import trio

from daa_dag.ids import VertexId
from daa_node.errors import PeerFault
from daa_node.identity.keys import NodeKeys
from daa_node.network.directory import Directory
from daa_node.network.holders import TELLERS, Holders
from tests.daa_node.network.neighbours import Neighbour, running, until

HERE, ELSEWHERE = VertexId(b"\x01" * 32), VertexId(b"\x02" * 32)


async def test_a_holder_is_found_dialled_and_named_once_a_search() -> None:
    ahead, hub, laggard = Neighbour(0), Neighbour(1), Neighbour(2)
    asking = Holders(laggard.transport, laggard.directory)
    async with running(ahead), running(hub), running(laggard), trio.open_nursery() as nursery:
        await ahead.transport.dial(hub.address)
        await laggard.transport.dial(hub.address)
        await until(lambda: hub.welcomed(ahead) and hub.welcomed(laggard))
        nursery.start_soon(Holders(ahead.transport, ahead.directory).tell, lambda: HERE)
        dht = hub.transport._parts.dht  # type: ignore[union-attr]
        await until(lambda: bool(dht.provider_store.providers))

        laggard.directory.learn(ahead.own.current())  # as gossip or the DHT's records bring it
        await laggard.transport.hang_up(ahead.peer_id)  # the DHT may have been quick
        assert await asking.find([ELSEWHERE, HERE]) == [ahead.keys.node_id]
        assert ahead.peer_id in laggard.transport.connected()
        assert await asking.find([HERE]) == []  # a moment ago

        while not laggard.directory.blame(ahead.peer_id, PeerFault("bad-signature")):
            pass
        assert await Holders(laggard.transport, laggard.directory).find([HERE]) == []
        nursery.cancel_scope.cancel()


async def test_nobody_provides_what_nobody_has_told() -> None:
    ours, other = Neighbour(0), Neighbour(1)
    async with running(ours), running(other):
        await ours.transport.dial(other.address)
        await until(lambda: ours.welcomed(other))
        assert await Holders(ours.transport, ours.directory).find([HERE]) == []


def test_a_checkpoint_of_many_is_told_of_by_few() -> None:
    ours = Neighbour(0)
    keys = [NodeKeys.from_seed(bytes([n]) * 32) for n in range(100)]
    members = {key.node_id: key.peer_id for key in keys}
    checkpoints = [VertexId(bytes([n]) * 32) for n in range(200)]
    few = Holders(ours.transport, Directory(lambda: 0.0, {}, ours.events))
    many = Holders(ours.transport, Directory(lambda: 0.0, members, ours.events))
    assert all(few._tells_of(vertex_id) for vertex_id in checkpoints)
    told = sum(many._tells_of(vertex_id) for vertex_id in checkpoints)
    assert TELLERS <= told <= 3 * TELLERS  # 32 of 200: sixteen of a hundred nodes each time
