"""Who rings at our door: a few bytes on the port that peers dial show that it can be dialled.

    who dials back                  our listener
    first byte, token           -->     is it one that we wait for?
                                        the socket is closed, whatever it was

Nothing is answered: whoever rings learns only that something has taken the socket. A bell that is
waited for costs a task and 33 bytes, and no handshake.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio
from libp2p.peer.id import ID

from daa_node.adapters.bulk_sockets import read_up_to
from daa_node.errors import Unavailable
from daa_node.seams import BELL_TOKEN_BYTES, Address, PeerId
from daa_node.wire.hosts import is_host

if TYPE_CHECKING:
    from daa_node.adapters.libp2p_swarm import BoundedSwarm

FIRST_BYTE = b"R"  # multistream begins with 0x13, HTTP with "G", TLS with 0x16
READ_TIMEOUT_S = 2.0


class SocketDoorbell:
    """The Doorbell seam over TCP; the listeners and the swarm of a running transport know it."""

    def __init__(self) -> None:
        self.swarm: BoundedSwarm | None = None  # while the transport runs
        self.is_dialable = True
        self.outside: Address | None = None
        self._awaited: dict[bytes, trio.Event] = {}

    @property
    def is_awaited(self) -> bool:
        """Whether any token is; else nobody's first byte means anything."""
        return bool(self._awaited)

    async def hear(self, stream: trio.SocketStream) -> None:
        """Someone has said our first byte."""
        with trio.move_on_after(READ_TIMEOUT_S):
            said = await read_up_to(stream, len(FIRST_BYTE) + BELL_TOKEN_BYTES)
            rung = self._awaited.get(said[len(FIRST_BYTE) :])
            if rung is not None:
                rung.set()

    @contextmanager
    def awaiting(self, token: bytes) -> Iterator[trio.Event]:
        assert len(token) == BELL_TOKEN_BYTES
        self._awaited[token] = trio.Event()
        try:
            yield self._awaited[token]
        finally:
            del self._awaited[token]

    async def ring(self, host: str, port: int, token: bytes) -> None:
        try:
            async with await trio.open_tcp_stream(host, port) as stream:
                await stream.send_all(FIRST_BYTE + token)
        except (OSError, trio.BrokenResourceError):
            return  # the asker notices by itself

    def host_of(self, peer_id: PeerId) -> str:
        host = None if self.swarm is None else self.swarm.host_of(ID.from_base58(peer_id))
        if host is None or not is_host(host.split("%")[0]):
            raise Unavailable(f"{peer_id} is not connected, or not from an address")
        return host
