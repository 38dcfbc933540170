"""Sockets that peers open for sessions of our asking, as we cannot dial them.

expected --the peer's socket, proved--> given --> taken by whoever asked
    +--a word of the peer, or the end of its stream--> not coming
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import trio

from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.session import Token
from daa_node.seams import ByteStream
from daa_node.wire.framing import read_message_or_end

NO_WORD = (trio.BrokenResourceError, trio.ClosedResourceError, PeerFault, Unavailable)


class Arrival:
    """One that is expected."""

    def __init__(self) -> None:
        self.stream: trio.SocketStream | None = None
        self.came = trio.Event()

    async def or_word(self, control: ByteStream, word_bytes_max: int) -> bytes | None:
        """Until the socket is here; or the peer's word that it will not be, None at its end."""
        word: bytes | None = None

        async def listen() -> None:
            nonlocal word
            with suppress(*NO_WORD):
                word = await read_message_or_end(control, word_bytes_max)
            self.came.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await self.came.wait()
            nursery.cancel_scope.cancel()
        return word

    def taken(self) -> trio.SocketStream:
        stream, self.stream = self.stream, None
        assert stream is not None
        return stream


class Arrivals:
    """All that are expected, by their tokens."""

    def __init__(self) -> None:
        self._expected: dict[Token, Arrival] = {}  # as many as tokens wait, see session_tokens

    @contextmanager
    def expect(self, token: Token) -> Iterator[Arrival]:
        """What has come and is not taken when this ends is closed."""
        arrival = self._expected[token] = Arrival()
        try:
            yield arrival
        finally:
            del self._expected[token]
            if arrival.stream is not None:
                arrival.stream.socket.close()

    def give(self, token: Token, stream: trio.SocketStream) -> None:
        """To whoever still waits for it, under a descriptor of its own: the listener closes its."""
        arrival = self._expected.get(token)
        if arrival is not None:
            arrival.stream = trio.SocketStream(stream.socket.dup())
            arrival.came.set()
