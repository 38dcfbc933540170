"""Gossipsub that reads each peer's messages one after another, at a bounded pace.

The library starts a task for every message, trusts every field, and dies of the first exception.
Here each message goes through

    of our form? -> seen before? -> may it be news? -> its author's signature -> the topic's judge

and is passed on only past all five. A wrong form or signature and what the judge raises are held
against whoever sent the message to us: it could tell as well as we. What is old, of no use to us
or only too soon is dropped, and nobody is to blame. Nothing that a message raises ends more than
its stream.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import trio
from google.protobuf.message import DecodeError
from libp2p.abc import IMuxedConn, INetStream
from libp2p.custom_types import TProtocol
from libp2p.network.stream.net_stream import NetStream
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.rpc_queue import RpcQueue
from libp2p.pubsub.score import ScoreParams, TopicScoreParams
from libp2p.pubsub.utils import safe_bytes_from_hex
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX
from libp2p.utils.varint import read_varint_prefixed_bytes_limited

from daa_node.adapters.libp2p_host import GatedHost
from daa_node.adapters.libp2p_yamux import YamuxSession
from daa_node.adapters.mishaps import Mishaps
from daa_node.adapters.yamux_streams import YamuxStream
from daa_node.errors import PeerFault
from daa_node.identity.keys import verify_ed25519
from daa_node.network.pace import Pace
from daa_node.seams import Announcement, GossipFilter, GossipJudge, OnFault, PeerId
from daa_node.wire.limits import GOSSIP_BYTES_MAX, KIB, MIB

HEARTBEAT_S = 1
TOPICS_MAX = 64
RPCS_PER_S_MAX = 100.0  # of one member; more is read later, not dropped
RPCS_BURST = 400.0
RPC_UNITS = 20  # see budgets: to verify one message, or to answer one control message
BYTES_PER_S_MAX = 2.0 * MIB
BYTES_BURST = 8.0 * MIB
CONTROL_IDS_MAX = 512  # ids in one IHAVE or IWANT; the message cache holds five heartbeats
# The library keeps 32 and drops the rest: a hundred members may announce a head at once.
OUTBOX_RPCS_MAX = 256
RPC_BYTES_MAX = 4 * GOSSIP_BYTES_MAX + 16 * KIB
OUTBOX_BYTES_MAX = 2 * RPC_BYTES_MAX  # of the largest; what is asked for twice is made twice
# A hundred members that all tell a head in five seconds are 20 a second. More waits.
MESSAGES_PER_S_MAX = 100.0
MESSAGES_BURST = 400.0
MESSAGE_BYTES_MAX = GOSSIP_BYTES_MAX + KIB  # with author, topic, number, key and signature
BEHAVIOUR_FAULTS_MAX = 10.0  # floods of grafts and of ids
# An Ed25519 author's id is its key: an identity multihash of 36 bytes of protobuf.
ED25519_ID_PREFIX = b"\x00\x24\x08\x01\x12\x20"
SEQUENCE_NUMBER_BYTES = 8
STREAMS_PER_PEER_MAX = 2  # the one before may still be closing


def score_params() -> ScoreParams:
    """Good deliveries earn up to 10; the fourth invalid message lately silences its forwarder."""
    return ScoreParams(
        p2_first_message_deliveries=TopicScoreParams(weight=1.0, cap=10.0, decay=0.97),
        p4_invalid_messages=TopicScoreParams(weight=20.0, cap=50.0, decay=0.99),
        p5_behavior_penalty_weight=1.0,
        p5_behavior_penalty_decay=0.98,  # halved in 34 heartbeats
        p5_behavior_penalty_threshold=BEHAVIOUR_FAULTS_MAX,
        publish_threshold=-60.0,
        gossip_threshold=-40.0,
        graylist_threshold=-80.0,
        accept_px_threshold=float("inf"),  # whom to know is for discovery to say
    )


class BoundedGossip(GossipSub):
    """The library's router with fitted limits and nothing that grows with time."""

    def __init__(self, mishaps: Mishaps) -> None:
        self._mishaps = mishaps
        super().__init__(
            protocols=[TProtocol(PROTOCOL_ID_V11)],
            degree=8,
            degree_low=6,
            degree_high=12,
            heartbeat_interval=HEARTBEAT_S,
            score_params=score_params(),
            adaptive_gossip_enabled=False,
            # one machine, or one site, may well hold every peer that we have
            eclipse_protection_enabled=False,
            # it punishes a forwarder for what others say; we read no faster than we can judge
            spam_protection_enabled=False,
            prune_back_off=10,
        )

    async def publish(self, msg_forwarder: ID, pubsub_msg: rpc_pb2.Message) -> None:
        await super().publish(msg_forwarder, pubsub_msg)
        self.recent_message_deliveries.clear()  # read by the adaptive mode alone, emptied by none

    async def heartbeat(self) -> None:
        while True:
            try:
                await super().heartbeat()
            except Exception as fault:
                # the library's own bookkeeping: one lost beat is no reason to end the daemon
                self._mishaps.note("gossip heartbeat", fault)
                await trio.sleep(HEARTBEAT_S)

    def _check_equivocation(self, msg: rpc_pb2.Message) -> bool:
        return True  # the library keeps a thousand whole messages for it; seen ids do the same

    def _periodic_security_cleanup(self) -> None:
        super()._periodic_security_cleanup()
        now_s = int(time.time())
        for peers in self.back_off.values():
            for peer_id in [peer for peer, until_s in peers.items() if until_s <= now_s]:
                del peers[peer_id]


_OfATopic = TypeVar("_OfATopic", rpc_pb2.ControlIHave, rpc_pb2.ControlGraft, rpc_pb2.ControlPrune)


class _Survivors:
    """The service's manager, whose tasks end alone: the library's end the service.

    Nor does the manager know of them: it looks through all that it knows whenever one begins.
    """

    def __init__(self, manager: Any, tasks: trio.Nursery | None, mishaps: Mishaps) -> None:
        self._manager = manager
        self._tasks = tasks
        self._mishaps = mishaps

    def run_task(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        assert self._tasks is not None  # peers come when the service runs
        self._tasks.start_soon(self._survive, task, *arguments)

    async def _survive(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        try:
            await task(*arguments)
        except Exception as fault:
            # a task that serves one peer: what its bytes provoked ends with it
            self._mishaps.note("gossip with a peer", fault)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)


@dataclass(frozen=True, slots=True)
class _Topic:
    may_be_news: GossipFilter
    judge: GossipJudge


def _is_signed(message: rpc_pb2.Message) -> bool:
    """By its author (libp2p specs, pubsub/README.md, "Message Signing"), of our form."""
    covered = rpc_pb2.Message(
        data=message.data,
        topicIDs=message.topicIDs,
        from_id=message.from_id,
        seqno=message.seqno,
    ).SerializeToString()
    public_key = message.from_id[len(ED25519_ID_PREFIX) :]
    return verify_ed25519(public_key, message.signature, PUBSUB_SIGNING_PREFIX.encode() + covered)


class BoundedOutbox(RpcQueue):
    """What waits for one peer to read it, bounded in number and in bytes; the rest is dropped."""

    def __init__(self) -> None:
        super().__init__(max_size=OUTBOX_RPCS_MAX, max_message_size=RPC_BYTES_MAX)
        self.size_bytes = 0

    def push(self, rpc: rpc_pb2.RPC, priority: bool = False) -> bool:
        size_bytes = rpc.ByteSize()
        if self.size_bytes + size_bytes > OUTBOX_BYTES_MAX or not super().push(rpc, priority):
            return False
        self.size_bytes += size_bytes
        return True

    async def pop(self) -> rpc_pb2.RPC | None:
        rpc = await super().pop()
        if rpc is not None:
            self.size_bytes -= rpc.ByteSize()
        return rpc


def _first_of_each(entries: Iterable[_OfATopic], topics: Collection[str]) -> Iterable[_OfATopic]:
    """One entry for each of these topics, at most."""
    told = {entry.topicID: entry for entry in reversed(list(islice(entries, TOPICS_MAX)))}
    return [entry for topic, entry in told.items() if topic in topics]


def _distinct(wire_ids: Iterable[str | bytes]) -> list[bytes]:
    """As the library understands them, for one id has many spellings."""
    ids = (safe_bytes_from_hex(wire_id) for wire_id in islice(wire_ids, CONTROL_IDS_MAX))
    return list(dict.fromkeys(wanted.hex().encode() for wanted in ids if wanted is not None))


def _count_as_strangers(stream: INetStream) -> None:
    """Any of them may start what members pass on to each other (see network/link_limits)."""
    cast(YamuxStream, cast(NetStream, stream).muxed_stream).is_of_strangers = True


class _Paces:
    """How fast one connection's gossip is read, over all of its streams."""

    def __init__(self) -> None:
        self.rpcs = Pace(RPCS_PER_S_MAX, RPCS_BURST)
        self.volume = Pace(BYTES_PER_S_MAX, BYTES_BURST)
        self.messages = Pace(MESSAGES_PER_S_MAX, MESSAGES_BURST)


class BoundedPubsub(Pubsub):
    """Peers come in by `welcome` alone, once admitted; `on_fault` is told of their faults."""

    def __init__(
        self, host: GatedHost, router: BoundedGossip, on_fault: OnFault, mishaps: Mishaps
    ) -> None:
        super().__init__(
            host,
            router,
            strict_signing=True,
            max_subscriptions_per_rpc=TOPICS_MAX,
            max_subscriptions_per_peer=TOPICS_MAX,
            max_inbound_rpc_size=RPC_BYTES_MAX,
        )
        host.swarm.notifees.pop()  # the library's own would greet strangers
        self._gossip = router
        self._on_fault = on_fault
        self._mishaps = mishaps
        self._judged: dict[str, _Topic] = {}
        self._reading: dict[ID, int] = {}
        self._paces: WeakKeyDictionary[IMuxedConn, _Paces] = WeakKeyDictionary()
        self._tasks: trio.Nursery | None = None

    async def join(self, name: str, may_be_news: GossipFilter, judge: GossipJudge) -> None:
        self._judged[name] = _Topic(may_be_news, judge)
        await self.subscribe(name)

    def notify_subscriptions(self, publish_message: rpc_pb2.Message) -> None:
        """The judge has it already; the library's queue would only fill up."""

    @property
    def manager(self) -> Any:
        return _Survivors(self._manager, self._tasks, self._mishaps)

    async def run(self) -> None:
        async with trio.open_nursery() as self._tasks:
            await super().run()
            self._tasks.cancel_scope.cancel()

    def welcome(self, peer_id: ID) -> None:
        self.manager.run_task(self._handle_new_peer_with_retry, peer_id)

    def farewell(self, peer_id: ID) -> None:
        self._handle_dead_peer(peer_id)

    def _handle_dead_peer(self, peer_id: ID) -> None:
        """Our stream to the peer has ended; what it told us on its own stream still holds."""
        topics = [name for name, peers in self.peer_topics.items() if peer_id in peers]
        super()._handle_dead_peer(peer_id)
        if self._peer_is_connected(peer_id):
            for name in topics:
                self.peer_topics.setdefault(name, set()).add(peer_id)
            self._peer_subscription_count[peer_id] = len(topics)

    async def stream_handler(self, stream: INetStream) -> None:
        peer_id = stream.muxed_conn.peer_id
        if self._reading.get(peer_id, 0) >= STREAMS_PER_PEER_MAX:
            await stream.reset()
            return
        _count_as_strangers(stream)
        self._reading[peer_id] = self._reading.get(peer_id, 0) + 1
        try:
            await self.continuously_read_stream(stream)
        finally:
            self._reading[peer_id] -= 1
            if not self._reading[peer_id]:
                del self._reading[peer_id]
            await stream.reset()

    async def handle_sending_messages(
        self, peer_id: ID, stream: INetStream, queue: RpcQueue
    ) -> None:
        _count_as_strangers(stream)
        await super().handle_sending_messages(peer_id, stream, queue)

    async def continuously_read_stream(self, stream: INetStream) -> None:
        """Until the stream ends; raises what the library raises at its end, or on garbage."""
        peer_id = stream.muxed_conn.peer_id
        session = cast(YamuxSession, stream.muxed_conn)
        paces = self._paces.setdefault(session, _Paces())
        while self.manager.is_running:
            payload = await read_varint_prefixed_bytes_limited(stream, RPC_BYTES_MAX)
            rpc = rpc_pb2.RPC()
            try:
                rpc.ParseFromString(payload)
            except DecodeError:
                self._blame(peer_id, PeerFault("gossip-malformed", "no message of gossipsub"))
                return
            session.bill.units += RPC_UNITS * max(1, len(rpc.publish))
            await self._take(peer_id, rpc, paces)
            await paces.rpcs.take()
            await paces.volume.take(len(payload))

    async def _take(self, peer_id: ID, rpc: rpc_pb2.RPC, paces: _Paces) -> None:
        for subscription in rpc.subscriptions[:TOPICS_MAX]:
            if subscription.topicid in self.topic_ids:
                self.handle_subscription(peer_id, subscription)
        for message in rpc.publish:
            await paces.messages.take()
            await self.push_msg(peer_id, message)
        if rpc.HasField("control"):
            await self._gossip.handle_rpc(rpc_pb2.RPC(control=self._sane(rpc.control)), peer_id)

    def _sane(self, control: rpc_pb2.ControlMessage) -> rpc_pb2.ControlMessage:
        """Of topics that we joined; each topic once, each id once, and no peer exchange."""
        sane = rpc_pb2.ControlMessage()
        for ihave in _first_of_each(control.ihave, self.topic_ids):
            sane.ihave.add(topicID=ihave.topicID, messageIDs=_distinct(ihave.messageIDs))
        wanted = _distinct(wire_id for iwant in control.iwant for wire_id in iwant.messageIDs)
        if wanted:
            sane.iwant.add(messageIDs=wanted)
        for graft in _first_of_each(control.graft, self.topic_ids):
            sane.graft.add(topicID=graft.topicID)
        for prune in _first_of_each(control.prune, self.topic_ids):
            sane.prune.add(topicID=prune.topicID, backoff=min(prune.backoff, 60))
        return sane

    async def push_msg(self, msg_forwarder: ID, msg: rpc_pb2.Message) -> None:
        if msg_forwarder == self.my_id:
            await super().push_msg(msg_forwarder, msg)
            return
        try:
            if self._is_silenced(msg_forwarder) or not self._is_news(msg_forwarder, msg):
                return
        except PeerFault as fault:
            self._blame(msg_forwarder, fault)
            return
        self._mark_msg_seen(msg)
        assert self._gossip.scorer is not None
        self._gossip.scorer.on_first_delivery(msg_forwarder, msg.topicIDs[0])
        await self.router.publish(msg_forwarder, msg)

    def _is_silenced(self, peer_id: ID) -> bool:
        """Whether too many faults lately stand against it; they count for every topic alike."""
        scorer, topics = self._gossip.scorer, list(self._judged)
        assert scorer is not None
        return bool(topics) and not scorer.allow_publish(peer_id, topics[:1])

    def _is_news(self, forwarder: ID, message: rpc_pb2.Message) -> bool:
        """Raises PeerFault for what the forwarder should not have passed on."""
        self._check_form(message)
        if self._is_msg_seen(message) or message.from_id == self.my_id.to_bytes():
            return False
        topic = self._judged[message.topicIDs[0]]
        source, sender = (PeerId(str(ID(raw))) for raw in (message.from_id, forwarder.to_bytes()))
        announcement = Announcement(source, message.data, sender)
        if not topic.may_be_news(announcement):
            return False
        if not _is_signed(message):
            raise PeerFault("bad-signature", f"gossip in the name of {source}")
        return topic.judge(announcement)

    def _check_form(self, message: rpc_pb2.Message) -> None:
        """Raises PeerFault unless there is one topic that we joined, and an Ed25519 author."""
        if len(message.topicIDs) != 1 or message.topicIDs[0] not in self._judged:
            raise PeerFault("gossip-malformed", "a message has one topic, and that one of ours")
        if message.ByteSize() > MESSAGE_BYTES_MAX or len(message.data) > GOSSIP_BYTES_MAX:
            raise PeerFault("gossip-malformed", f"{message.ByteSize()} bytes are no announcement")
        if len(message.seqno) != SEQUENCE_NUMBER_BYTES:
            raise PeerFault("gossip-malformed", f"a number has {SEQUENCE_NUMBER_BYTES} bytes")
        if len(message.from_id) != 38 or not message.from_id.startswith(ED25519_ID_PREFIX):
            raise PeerFault("gossip-malformed", "an author is an Ed25519 key")

    def _blame(self, peer_id: ID, fault: PeerFault) -> None:
        assert self._gossip.scorer is not None
        for topic in self._judged:
            self._gossip.scorer.on_invalid_message(peer_id, topic)
        self._on_fault(PeerId(str(peer_id)), fault)
