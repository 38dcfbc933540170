"""A made-up next release: the same daemon, which also says what this one has never heard of.

Before a version is in use, all that a newer node may do beside an older one is to say more than
that expects where the protocol leaves room for it:

  * its hello has a field at its end;
  * it opens streams of a protocol of its own;
  * it asks for what it calls by a new name.

Each must come to nothing, and cost it nothing.
"""

from dataclasses import replace

import trio

from daa_dag import canonical
from daa_node.errors import PeerFault, Unavailable
from daa_node.node_parts import NodeParts
from daa_node.seams import ByteStream, PeerId, StreamHandler, Transport
from daa_node.wire.framing import read_message, write_message
from daa_node.wire.protocols import HELLO, OURS, REQUEST
from simnet.world.adversaries.message_filter import Rewritten
from simnet.world.wrapped_transport import WrappedTransport

GREETING_FIELDS = 6  # of this release
NEW_FIELD = "what a later release says of itself"
NEW_PROTOCOL = "/daa/9/next"
NEW_REQUEST = "next"
ASK_EVERY_S = 0.5
ASK_TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 4096


def of_release(parts: NodeParts) -> NodeParts:
    """The parts of a daemon of the release that its versions tell: this one, or the next."""
    if parts.speaks.most <= OURS.most:
        return parts
    transport = NextTransport(parts.transport)

    async def start_outside(nursery: trio.Nursery) -> None:
        await parts.start_outside(nursery)
        nursery.start_soon(ask_for_more, transport)

    return replace(parts, transport=transport, start_outside=start_outside)


async def greeted(message: bytes) -> list[bytes]:
    """A hello with one field more; what else is said on its stream stays."""
    value = canonical.decode(message, len(message))
    if isinstance(value, list) and len(value) == GREETING_FIELDS:
        return [canonical.encode([*value, NEW_FIELD])]
    return [message]


async def ask_for_more(transport: Transport) -> None:
    """Now and then, of each peer, what nobody of this release has. Until cancelled."""
    while True:
        await trio.sleep(ASK_EVERY_S)
        for peer_id in sorted(transport.connected()):
            for protocol in (NEW_PROTOCOL, REQUEST):
                await _ask(transport, peer_id, protocol)


async def _ask(transport: Transport, peer_id: PeerId, protocol: str) -> None:
    try:
        with trio.fail_after(ASK_TIMEOUT_S):
            stream = await transport.open_stream(peer_id, protocol)
            try:
                await write_message(stream, canonical.encode([NEW_REQUEST, b"body"]))
                await read_message(stream, ANSWER_BYTES_MAX)
            finally:
                await stream.aclose()
    except (Unavailable, PeerFault, trio.TooSlowError, trio.BrokenResourceError):
        return


class NextTransport(WrappedTransport):
    """A Transport whose hellos say more."""

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        stream = await self._inner.open_stream(peer_id, protocol)
        return Rewritten(stream, greeted) if protocol == HELLO else stream

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        async def greeting(stream: ByteStream) -> None:
            await handler(Rewritten(stream, greeted))

        self._inner.set_handler(protocol, greeting if protocol == HELLO else handler)
