"""What one peer asks of the DHT, or does not finish asking, keeps nobody else from it."""

import pytest
import trio
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.utils import encode_varint_prefixed

from daa_node.adapters.libp2p_dht import REQUEST_BYTES_MAX, STREAMS_SERVED
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.seams import ByteStream
from tests.daa_node.adapters.lone_transport import transport

KAD = "/ipfs/kad/1.0.0"
STREAMS = 14  # two more than the library serves at once


def request(target: Libp2pTransport) -> bytes:
    asked = Message(type=Message.MessageType.FIND_NODE, key=target._id.to_bytes())
    return encode_varint_prefixed(asked.SerializeToString())


async def silent(stream: ByteStream, target: Libp2pTransport) -> None:
    """Says nothing."""


async def half_a_request(stream: ByteStream, target: Libp2pTransport) -> None:
    await stream.send_all(request(target)[:5])


async def takes_no_answer(stream: ByteStream, target: Libp2pTransport) -> None:
    for _ in range(1200):  # four times what the pace of requests allows at once
        await stream.send_all(request(target))


async def answered(asker: Libp2pTransport, target: Libp2pTransport) -> bool:
    try:
        stream = await asker.open_stream(target.peer_id, KAD)
        await stream.send_all(request(target))
        found = await stream.receive_some(65536)
        await stream.aclose()
        return bool(found)
    except trio.BrokenResourceError:
        return False


@pytest.mark.parametrize("trick", [silent, half_a_request, takes_no_answer])
async def test_many_streams_of_one_peer_take_nobody_elses_place(trick: object) -> None:
    async with transport(2) as ours, transport(3) as rude, transport(4) as honest:
        for peer in (rude, honest):
            await peer.dial(ours.addresses()[0])
        async with trio.open_nursery() as nursery:
            for _ in range(STREAMS):
                stream = await rude.open_stream(ours.peer_id, KAD)
                nursery.start_soon(trick, stream, ours)  # type: ignore[arg-type]
            await trio.sleep(0.5)
            with trio.fail_after(30):
                assert all([await answered(honest, ours) for _ in range(STREAMS)])
            nursery.cancel_scope.cancel()


async def test_one_peer_asks_through_its_own_places_one_after_another() -> None:
    async with transport(2) as ours, transport(3) as asker:
        await asker.dial(ours.addresses()[0])
        held = [await asker.open_stream(ours.peer_id, KAD) for _ in range(STREAMS_SERVED)]
        waiting = await asker.open_stream(ours.peer_id, KAD)
        await waiting.send_all(request(ours))
        with trio.move_on_after(0.3):
            assert not await waiting.receive_some(65536)
        await held[0].aclose()
        with trio.fail_after(30):
            assert await waiting.receive_some(65536)


async def test_a_request_larger_than_any_of_ours_ends_its_stream() -> None:
    async with transport(2) as ours, transport(3) as rude:
        await rude.dial(ours.addresses()[0])
        stream = await rude.open_stream(ours.peer_id, KAD)
        await stream.send_all(encode_varint_prefixed(bytes(REQUEST_BYTES_MAX + 1)))
        with trio.fail_after(30), pytest.raises(trio.BrokenResourceError):
            await stream.receive_some(100)
