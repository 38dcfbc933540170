"""Streams of the library as our seams have them: a ByteStream, and a handler that serves one."""

from typing import cast

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import StreamHandlerFn
from libp2p.exceptions import BaseLibp2pError
from libp2p.io.exceptions import IOException
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.network.stream.net_stream import NetStream

from daa_node.adapters.served_stream import serve
from daa_node.adapters.yamux_streams import YamuxStream
from daa_node.seams import ByteStream, PeerId, StreamHandler

RECEIVE_BYTES = 64 * 1024


class PeerStream:
    """A libp2p stream as a ByteStream."""

    def __init__(self, stream: INetStream) -> None:
        self._stream = stream
        self._peer_id = PeerId(str(stream.muxed_conn.peer_id))
        self._unwritten = 0  # writes that are under way, or were given up
        self._unread = 0  # reads that are under way, or were given up

    @property
    def peer_id(self) -> PeerId:
        return self._peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        self._unwritten += 1
        try:
            await self._stream.write(bytes(payload))
            self._unwritten -= 1
        except (IOException, BaseLibp2pError) as error:
            raise trio.BrokenResourceError(f"stream to {self._peer_id} was cut: {error}") from None

    async def receive_some(self, size_bytes_max: int = RECEIVE_BYTES) -> bytes:
        self._unread += 1
        try:
            received = await self._stream.read(size_bytes_max)
            self._unread -= 1
            return received
        except StreamEOF:
            self._unread -= 1
            return b""
        except (IOException, BaseLibp2pError) as error:
            raise trio.BrokenResourceError(f"stream of {self._peer_id} was cut: {error}") from None

    async def aclose(self) -> None:
        # An end in the middle of a message would be held against us, and whoever still sends to a
        # reader that has gone would wait for it, and keep what it sends.
        if self._unwritten or self._unread:
            await self.abort()
            return
        with trio.CancelScope(shield=True):  # it only queues a frame
            try:
                await self._stream.close()
            except (IOException, BaseLibp2pError):
                return

    def set_apart(self) -> None:
        self._yamux().set_apart()

    def count_elsewhere(self) -> None:
        self._yamux().is_counted = False

    def _yamux(self) -> YamuxStream:
        return cast(YamuxStream, cast(NetStream, self._stream).muxed_stream)

    async def abort(self) -> None:
        with trio.CancelScope(shield=True):
            await self._stream.reset()


def set_apart(stream: ByteStream) -> None:
    """A circuit: what nobody takes of it holds up no other stream of that connection.

    Else whoever reads nothing would have all that a peer sends wait, and its connection end. Who
    calls bounds how many there are, each of WINDOW_BYTES.
    """
    if isinstance(stream, PeerStream):
        stream.set_apart()


def count_elsewhere(stream: ByteStream) -> None:
    """Whoever carries something over this stream counts it as what it is, and no byte twice."""
    if isinstance(stream, PeerStream):
        stream.count_elsewhere()


def serving(handler: StreamHandler) -> StreamHandlerFn:
    """What the library calls for each stream."""

    async def serve_one(stream: INetStream) -> None:
        await serve(PeerStream(stream), handler)

    return serve_one
