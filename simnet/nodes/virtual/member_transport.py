"""What members send each other, looked at by the world as it leaves, and now and then sent twice.

A message comes twice where its stream breaks once it is through, which is what a network that
breaks connections does to whoever resends: the receiver has it, the sender cannot know, opens
another stream and sends it again, and whatever else follows a new stream. An announcement is
published twice, each of them: one every five seconds is all that there may be.
"""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import trio

from daa_node.seams import ByteStream, PeerId, Transport
from daa_node.wire.limits import LENGTH_PREFIX_BYTES
from daa_node.wire.protocols import VOTES

OnMessage = Callable[[bytes], None]


class Retries:
    """Of one run: how often what each node sends is lost sight of."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._percents: dict[int, list[float]] = {}
        self.befallen: Counter[str] = Counter()

    def begin(self, node: int, percent: float) -> Callable[[], None]:
        """So many of its messages, and all announcements, until what is returned is called."""
        percents = self._percents.setdefault(node, [])
        percents.append(percent)
        return partial(percents.remove, percent)

    def repeats(self, node: int, what: str) -> bool:
        """Whether the fault lasts, for what is too rare to be drawn."""
        struck = bool(self._percents.get(node))
        self.befallen[what] += struck
        return struck

    def strikes(self, node: int, what: str) -> bool:
        percents = self._percents.get(node)
        if not percents:
            return False
        struck = any(self._chance.random() * 100 < p for p in percents)
        self.befallen[what] += struck
        return struck


class MemberTransport:
    """A Transport that shows each message, and loses sight of what it has sent."""

    def __init__(
        self, inner: Transport, retries: Retries, node: int, on_message: OnMessage
    ) -> None:
        self._inner = inner
        self._retries = retries
        self._node = node
        self._on_message = on_message
        self.addresses, self.connected = inner.addresses, inner.connected
        self.dial, self.hang_up, self.network_of = inner.dial, inner.hang_up, inner.network_of
        self.guard, self.set_record_judge = inner.guard, inner.set_record_judge
        self.keep_visitor = inner.keep_visitor
        self.provide, self.find_providers = inner.provide, inner.find_providers
        self.set_handler, self.join_topic = inner.set_handler, inner.join_topic
        self.put_record, self.get_record = inner.put_record, inner.get_record

    @property
    def peer_id(self) -> PeerId:
        return self._inner.peer_id

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        stream = await self._inner.open_stream(peer_id, protocol)
        if protocol != VOTES:
            return stream
        return _MemberStream(stream, self._retries, self._node, self._on_message)

    async def publish(self, topic: str, payload: bytes) -> None:
        await self._inner.publish(topic, payload)
        if self._retries.repeats(self._node, "announcement published twice"):
            await self._inner.publish(topic, payload)


class _MemberStream:
    """A ByteStream of which every write is one message, and that may break behind it."""

    def __init__(
        self, inner: ByteStream, retries: Retries, node: int, on_message: OnMessage
    ) -> None:
        self._inner = inner
        self._retries = retries
        self._node = node
        self._on_message = on_message
        self.receive_some, self.aclose = inner.receive_some, inner.aclose

    @property
    def peer_id(self) -> PeerId:
        return self._inner.peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        self._on_message(bytes(payload[LENGTH_PREFIX_BYTES:]))
        await self._inner.send_all(payload)
        if self._retries.strikes(self._node, "message sent twice"):
            await self._inner.aclose()
            raise trio.BrokenResourceError("the stream broke behind what was sent")
