"""What a lying daemon says and hears: every message passes its Behaviour on the way.

    mailbox -> LyingTransport's stream -> MessageFilter.outgoing -> Behaviour.sends -> the honest
    stream the honest stream -> MessageFilter.hears, Behaviour.hears -> mailbox

Messages are messages of the votes' streams, one write each (daa_node/wire/framing.py). What the
behaviour must know of the daemon it learns from the daemon's own messages.
"""

import random
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from daa_consensus.bft.limits import Limits
from daa_consensus.committee import VALIDATORS_MAX
from daa_consensus.votes import Signed, Statement
from daa_node.agreement.messages import (
    Message,
    Proposed,
    Stated,
    decode_message,
    encode_message,
    message_bytes_max,
)
from daa_node.errors import PeerFault
from daa_node.genesis import Genesis
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys, Sign
from daa_node.identity.validators import MemberKeys
from daa_node.seams import (
    ByteStream,
    PeerId,
    StreamHandler,
    Transport,
)
from daa_node.wire.framing import read_message_or_end
from daa_node.wire.limits import LENGTH_PREFIX_BYTES
from daa_node.wire.protocols import REQUEST, VOTES
from simnet.world.adversaries.behaviour import Behaviour, NodePosition, Pen, Voice

LIMITS = Limits(VALIDATORS_MAX, VALIDATORS_MAX)  # of any epoch
SignerOf = Callable[[bytes], Sign]  # of an ML-DSA seed
SIGNED_KEPT = 512  # lies that were signed already: each goes to every receiver, and again


class MessageFilter:
    """One lying daemon's voice, in one life of it."""

    def __init__(
        self,
        genesis: Genesis,
        keys: NodeKeys,
        behaviour: Behaviour,
        chance: random.Random,
        signer_of: SignerOf | None = None,
    ) -> None:
        self._keys = keys
        self._strangers: dict[int, Pen] = {}
        self._signer_of = signer_of
        self._behaviour = behaviour
        self._numbers = {peer: number for number, peer in enumerate(genesis.peer_ids.values())}
        self._at = NodePosition(genesis.domain(0), view=1, height=0)
        self._signed: OrderedDict[tuple[bytes, bytes], Signed] = OrderedDict()
        self._voice = Voice(
            len(self._numbers),
            lambda: self._at,
            self._sign,
            chance,
            self._pen,
        )

    def outgoing(self, receiver: PeerId, payload: bytes) -> list[bytes]:
        """What the receiver gets instead of the message."""
        message = decode_message(payload, LIMITS)
        self._learn(message)
        told = self._behaviour.sends(self._voice, self._numbers.get(receiver, 0), message)
        return [lie if isinstance(lie, bytes) else encode_message(lie) for lie in told]

    def hears(self, payload: bytes) -> None:
        """What comes for the daemon; what is no message is refused by honest code."""
        with suppress(PeerFault):
            self._behaviour.hears(decode_message(payload, LIMITS))

    def _learn(self, message: Message) -> None:
        position, domain = message.position, self._at.domain
        if isinstance(message.body, Stated | Proposed) and self._is_own(message.body.signed):
            said = message.body.signed.statement.domain
            domain = said if said.epoch > domain.epoch else domain
        self._at = NodePosition(domain, position.view, position.resolved_round)

    def _pen(self, number: int) -> Pen:
        if not number:
            return _pen_of(self._keys, self._sign)
        pen = self._strangers.get(number)
        if pen is None:
            seed = self._keys.node_id + number.to_bytes(8)
            keys = NodeKeys.from_seed(seed, self._signer_of)
            pen = _pen_of(keys, lambda statement: envelope.sign(statement, keys))
            self._strangers[number] = pen
        return pen

    def _is_own(self, signed: Signed) -> bool:
        return signed.signer == self._keys.node_id

    def _sign(self, statement: Statement) -> Signed:
        key = (statement.sign_bytes(), statement.context)
        signed = self._signed.get(key)
        if signed is None:
            signed = self._signed[key] = envelope.sign(statement, self._keys)
            if len(self._signed) > SIGNED_KEPT:
                self._signed.popitem(last=False)
        return signed


def _pen_of(keys: NodeKeys, sign: Callable[[Statement], Signed]) -> Pen:
    return Pen(keys.node_id, MemberKeys.of(keys), sign)


class LyingTransport:
    """A Transport whose messages pass a MessageFilter."""

    def __init__(
        self,
        inner: Transport,
        message_filter: MessageFilter,
        answers: Callable[[ByteStream], ByteStream] = lambda stream: stream,
        hangs_up_after: int | None = None,
        speaks: Callable[[ByteStream], ByteStream] = lambda stream: stream,
    ) -> None:
        """`answers` takes each stream on which somebody asks, `speaks` those that are opened.

        `hangs_up_after` so many messages it closes each stream of others'; None: never.
        """
        self._hangs_up_after = hangs_up_after
        self._inner = inner
        self._message_filter = message_filter
        self._answers = answers
        self._speaks = speaks
        self.addresses, self.connected = inner.addresses, inner.connected
        self.dial, self.hang_up, self.network_of = inner.dial, inner.hang_up, inner.network_of
        self.guard, self.set_record_judge = inner.guard, inner.set_record_judge
        self.join_topic, self.publish = inner.join_topic, inner.publish
        self.put_record, self.get_record = inner.put_record, inner.get_record
        self.provide, self.find_providers = inner.provide, inner.find_providers

    @property
    def peer_id(self) -> PeerId:
        return self._inner.peer_id

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        stream = await self._inner.open_stream(peer_id, protocol)
        return Speaking(stream, self._message_filter) if protocol == VOTES else self._speaks(stream)

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        async def hearing(stream: ByteStream) -> None:
            await handler(Hearing(stream, self._message_filter, self._hangs_up_after))

        async def answering(stream: ByteStream) -> None:
            await handler(self._answers(stream))

        by_protocol = {VOTES: hearing, REQUEST: answering}
        self._inner.set_handler(protocol, by_protocol.get(protocol, handler))


class Speaking:
    """A ByteStream to somebody who gets what the liar wants."""

    def __init__(self, inner: ByteStream, message_filter: MessageFilter) -> None:
        self._inner = inner
        self._message_filter = message_filter
        self.receive_some, self.aclose = inner.receive_some, inner.aclose

    @property
    def peer_id(self) -> PeerId:
        return self._inner.peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        message = bytes(payload[LENGTH_PREFIX_BYTES:])
        for told in self._message_filter.outgoing(self.peer_id, message):
            await self._inner.send_all(_framed(told))


class Hearing:
    """A ByteStream from somebody, to whom the liar listens, for so long."""

    def __init__(
        self, inner: ByteStream, message_filter: MessageFilter, messages_left: int | None
    ) -> None:
        self._inner = inner
        self._message_filter = message_filter
        self._messages_left = messages_left  # then it hangs up; None: never
        self._heard = b""
        self.send_all, self.aclose = inner.send_all, inner.aclose

    @property
    def peer_id(self) -> PeerId:
        return self._inner.peer_id

    async def receive_some(self, size_bytes_max: int) -> bytes:
        if not self._heard:
            if self._messages_left == 0:
                await self.aclose()
                return b""
            message = await read_message_or_end(self._inner, message_bytes_max(LIMITS))
            if self._messages_left is not None:
                self._messages_left -= 1
            if message is None:
                return b""
            self._message_filter.hears(message)
            self._heard = _framed(message)
        piece, self._heard = self._heard[:size_bytes_max], self._heard[size_bytes_max:]
        return piece


def _framed(message: bytes) -> bytes:
    return len(message).to_bytes(LENGTH_PREFIX_BYTES) + message
