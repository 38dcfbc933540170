"""What a lying daemon says and hears: every message passes its Behaviour on the way.

    mailbox -> Rewritten -> MessageFilter.outgoing -> Behaviour.sends -> the honest stream
    the honest stream -> Hearing -> MessageFilter.hears, Behaviour.hears -> mailbox

What the behaviour must know of the daemon it learns from the daemon's own messages.
"""

import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress

from daa_consensus.votes import Signed, Statement
from daa_node.agreement.messages import (
    Message,
    Proposed,
    Stated,
    encode_message,
    message_bytes_max,
)
from daa_node.errors import PeerFault
from daa_node.genesis import Genesis
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys
from daa_node.seams import ByteStream, PeerId, StreamHandler, Transport
from daa_node.wire.framing import message_in_pieces, read_message_or_end, write_message
from daa_node.wire.limits import LENGTH_PREFIX_BYTES
from daa_node.wire.protocols import REQUEST, VOTES
from simnet.world.adversaries.behaviour import Behaviour, Pen, Voice
from simnet.world.adversaries.shapes import LIMITS
from simnet.world.decoded_messages import decoded
from simnet.world.wrapped_transport import WrappedTransport

KeysOf = Callable[[str], NodeKeys]  # by whose they are
Rewrite = Callable[[bytes], Awaitable[list[bytes]]]  # what is sent instead of a message
SIGNED_KEPT = 512  # lies that were signed already: each goes to every receiver, and again


def made_up(whose: str) -> NodeKeys:
    return NodeKeys.from_seed(whose.encode())


class MessageFilter:
    """One lying daemon's voice, in one life of it."""

    def __init__(
        self,
        genesis: Genesis,
        keys: NodeKeys,
        behaviour: Behaviour,
        chance: random.Random,
        keys_of: KeysOf,
    ) -> None:
        self._keys = keys
        self._keys_of = keys_of
        self._behaviour = behaviour
        self._numbers = {peer: number for number, peer in enumerate(genesis.peer_ids.values())}
        self._signed: OrderedDict[tuple[bytes, bytes], Signed] = OrderedDict()
        nodes, domain = len(self._numbers), genesis.domain(0)
        self._voice = Voice(nodes, domain, 1, 0, self._sign, chance, self._pen)

    def outgoing(self, receiver: PeerId, payload: bytes) -> list[bytes]:
        """What the receiver gets instead of the message."""
        message = decoded(payload, LIMITS)
        self._learn(message)
        told = self._behaviour.sends(self._voice, self._numbers.get(receiver, 0), message)
        return [
            lie if isinstance(lie, bytes) else payload if lie is message else encode_message(lie)
            for lie in told
        ]

    def hears(self, payload: bytes) -> None:
        """What comes for the daemon; what is no message is refused by honest code."""
        with suppress(PeerFault):
            message = decoded(payload, LIMITS)
            self._voice.seen.note(message)
            self._behaviour.hears(message)

    def _learn(self, message: Message) -> None:
        voice, position = self._voice, message.position
        voice.seen.note(message)
        match message.body:
            case Stated(own) | Proposed(own) if own.signer == self._keys.node_id:
                voice.domain = max(voice.domain, own.statement.domain, key=lambda each: each.epoch)
            case _:
                pass
        voice.view, voice.height = position.view, position.resolved_round

    def _pen(self, number: int) -> Pen:
        if not number:
            return Pen(self._keys.node_id, MemberKeys.of(self._keys), self._sign)
        keys = self._keys_of(f"stranger {number} of {self._keys.node_id.hex()}")
        return Pen(keys.node_id, MemberKeys.of(keys), lambda said: envelope.sign(said, keys))

    def _sign(self, statement: Statement) -> Signed:
        key = (statement.sign_bytes(), statement.context)
        signed = self._signed.get(key)
        if signed is None:
            signed = self._signed[key] = envelope.sign(statement, self._keys)
            if len(self._signed) > SIGNED_KEPT:
                self._signed.popitem(last=False)
        return signed


class LyingTransport(WrappedTransport):
    """A Transport whose messages pass a MessageFilter, and others what the liar likes."""

    def __init__(
        self,
        inner: Transport,
        message_filter: MessageFilter,
        asks: Rewrite | None = None,
        answers: Rewrite | None = None,
        hangs_up_after: int | None = None,
    ) -> None:
        """`asks` rewrites what goes over streams that are opened, `answers` what others asked for.

        `hangs_up_after` so many messages it closes each stream of others'; None: never.
        """
        self._hangs_up_after = hangs_up_after
        super().__init__(inner)
        self._message_filter = message_filter
        self._asks, self._answers = asks, answers

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        stream = await self._inner.open_stream(peer_id, protocol)

        async def said(message: bytes) -> list[bytes]:
            return self._message_filter.outgoing(peer_id, message)

        return _rewritten(stream, said if protocol == VOTES else self._asks)

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        async def hearing(stream: ByteStream) -> None:
            await handler(Hearing(stream, self._message_filter, self._hangs_up_after))

        async def answering(stream: ByteStream) -> None:
            await handler(_rewritten(stream, self._answers))

        by_protocol = {VOTES: hearing, REQUEST: answering}
        self._inner.set_handler(protocol, by_protocol.get(protocol, handler))


def _rewritten(stream: ByteStream, rewrite: Rewrite | None) -> ByteStream:
    return stream if rewrite is None else Rewritten(stream, rewrite)


class Rewritten:
    """A ByteStream on which others get, for each message that the daemon writes, what is told."""

    def __init__(self, inner: ByteStream, rewrite: Rewrite) -> None:
        self._inner = inner
        self._rewrite = rewrite
        self._said = bytearray()  # long messages come in pieces
        self.peer_id = inner.peer_id
        self.receive_some, self.aclose = inner.receive_some, inner.aclose

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        self._said += payload
        size_bytes = LENGTH_PREFIX_BYTES + int.from_bytes(self._said[:LENGTH_PREFIX_BYTES])
        if len(self._said) < size_bytes:
            return
        message, self._said = bytes(self._said[LENGTH_PREFIX_BYTES:]), bytearray()
        for told in await self._rewrite(message):
            await write_message(self._inner, told)


class Hearing:
    """A ByteStream from somebody, to whom the liar listens, for so long."""

    def __init__(
        self, inner: ByteStream, message_filter: MessageFilter, messages_left: int | None
    ) -> None:
        self._inner = inner
        self._message_filter = message_filter
        self._messages_left = messages_left  # then it hangs up; None: never
        self._heard = b""
        self.peer_id = inner.peer_id
        self.send_all, self.aclose = inner.send_all, inner.aclose

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
            self._heard = b"".join(message_in_pieces(message, len(message)))
        piece, self._heard = self._heard[:size_bytes_max], self._heard[size_bytes_max:]
        return piece
