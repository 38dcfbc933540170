"""What a peer asks for in gossip's control messages it is given once, and no more than it reads."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils import encode_varint_prefixed

from daa_node.adapters.libp2p_pubsub import (
    ED25519_ID_PREFIX,
    MESSAGES_BURST,
    MESSAGES_PER_S_MAX,
    OUTBOX_BYTES_MAX,
    RPC_BYTES_MAX,
    SEQUENCE_NUMBER_BYTES,
    BoundedPubsub,
)
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.seams import Announcement, ByteStream, GossipFilter
from tests.daa_node.adapters.lone_transport import transport

MESHSUB, TOPIC = "/meshsub/1.1.0", "daa/test"
NEWS_BYTES = 30_000
SETTLE_S = 0.5


def welcome(_announcement: Announcement) -> bool:
    return True


async def deaf(_stream: ByteStream) -> None:
    await trio.sleep_forever()


def pubsub_of(node: Libp2pTransport) -> BoundedPubsub:
    assert node._parts is not None
    return node._parts.pubsub


@asynccontextmanager
async def rude_peer(
    ours: Libp2pTransport, may_be_news: GossipFilter = welcome
) -> AsyncIterator[ByteStream]:
    """Its gossip stream towards us; what we say on ours it never reads."""
    ours.join_topic(TOPIC, may_be_news, welcome)
    async with transport(3) as rude:
        rude.set_handler(MESHSUB, deaf)
        await rude.dial(ours.addresses()[0])
        with trio.fail_after(30):
            while rude._id not in pubsub_of(ours).peer_queues:
                await trio.sleep(0.05)
        yield await rude.open_stream(ours.peer_id, MESHSUB)


def waiting(ours: Libp2pTransport) -> list[rpc_pb2.RPC]:
    """What is queued for the only peer."""
    (queue,) = pubsub_of(ours).peer_queues.values()
    return [*queue._queue._priority, *queue._queue._non_priority]


async def says(stream: ByteStream, *controls: rpc_pb2.ControlMessage) -> None:
    for control in controls:
        rpc = rpc_pb2.RPC(control=control)
        await stream.send_all(encode_varint_prefixed(rpc.SerializeToString()))
    await trio.sleep(SETTLE_S)


def spellings(message_id: bytes, count: int) -> list[bytes]:
    """The same id in hexadecimal, in ever other message cases."""
    text = message_id.hex()
    messages = [at for at, message in enumerate(text) if message.isalpha()][:9]
    spelt = []
    for number in range(count):
        upper = {at for bit, at in enumerate(messages) if number >> bit & 1}
        cased = (c.upper() if at in upper else c for at, c in enumerate(text))
        spelt.append("".join(cased).encode())
    return spelt


async def test_a_message_that_is_wanted_in_512_spellings_is_sent_once() -> None:
    async with transport(2) as ours, rude_peer(ours) as stream:
        await ours.publish(TOPIC, bytes(NEWS_BYTES))
        (entry,) = pubsub_of(ours)._gossip.mcache.history[0]
        wanted = rpc_pb2.ControlIWant(messageIDs=spellings(entry.mid, 512))
        await says(stream, *10 * [rpc_pb2.ControlMessage(iwant=[wanted])])
        queued = sum(rpc.ByteSize() for rpc in waiting(ours))
        assert queued <= 10 * 2 * NEWS_BYTES, f"{queued} bytes wait for one peer"


async def test_what_waits_for_a_peer_that_reads_nothing_is_bounded_in_bytes() -> None:
    assert OUTBOX_BYTES_MAX >= RPC_BYTES_MAX  # whatever honest peers say once finds room
    async with transport(2) as ours, rude_peer(ours) as stream:
        for number in range(64):
            await ours.publish(TOPIC, bytes([number]) * NEWS_BYTES)
        history = pubsub_of(ours)._gossip.mcache.history
        ids = [entry.mid.hex().encode() for window in history for entry in window]
        wanted = rpc_pb2.ControlMessage(iwant=[rpc_pb2.ControlIWant(messageIDs=ids)])
        await says(stream, *8 * [wanted])
        queued = sum(rpc.ByteSize() for rpc in waiting(ours))
        assert queued <= OUTBOX_BYTES_MAX, f"{queued} bytes wait for one peer"


async def test_a_topic_is_grafted_once_in_a_message_however_often_it_is_named() -> None:
    async with transport(2) as ours, rude_peer(ours) as stream:
        (queue,) = pubsub_of(ours).peer_queues.values()
        prune = rpc_pb2.ControlMessage(prune=[rpc_pb2.ControlPrune(topicID=TOPIC, backoff=60)])
        graft = rpc_pb2.ControlMessage(graft=64 * [rpc_pb2.ControlGraft(topicID=TOPIC)])
        await says(stream, prune)
        answers: list[rpc_pb2.RPC] = []
        push = queue.push

        def counted(rpc: rpc_pb2.RPC, priority: bool = False) -> bool:
            answers.append(rpc)
            return push(rpc, priority)

        vars(queue)["push"] = counted
        await says(stream, graft)
        with trio.fail_after(30):
            while not any(rpc.control.prune for rpc in answers):
                await trio.sleep(0.05)
        assert 1 <= sum(len(rpc.control.prune) for rpc in answers) <= 2


async def test_messages_that_are_no_news_are_looked_at_at_a_pace_however_many_come() -> None:
    looked_at = 0

    def stale(_announcement: Announcement) -> bool:
        nonlocal looked_at
        looked_at += 1
        return False

    old = rpc_pb2.Message(
        data=b"old",
        topicIDs=[TOPIC],
        from_id=ED25519_ID_PREFIX + bytes(32),
        seqno=bytes(SEQUENCE_NUMBER_BYTES),
    )
    many = rpc_pb2.RPC(publish=1000 * [old])
    assert len(many.publish) > MESSAGES_BURST
    async with transport(2) as ours, rude_peer(ours, stale) as stream:
        began_s = trio.current_time()
        await stream.send_all(encode_varint_prefixed(many.SerializeToString()))
        with trio.fail_after(20):
            while looked_at < MESSAGES_BURST:
                await trio.sleep(0.05)
        await trio.sleep(SETTLE_S)
        elapsed_s = trio.current_time() - began_s
    assert looked_at <= MESSAGES_BURST + MESSAGES_PER_S_MAX * elapsed_s + 5  # what is under way
