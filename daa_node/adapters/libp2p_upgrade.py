"""From an accepted socket to a session: noise, then our own yamux, paid for by who dials us."""

from collections.abc import Mapping

import trio
from libp2p.abc import IRawConnection, ISecureConn, ISecureTransport
from libp2p.crypto.keys import KeyPair
from libp2p.crypto.x25519 import create_new_key_pair as create_new_x25519_key_pair
from libp2p.custom_types import TMuxerClass, TProtocol
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.security.noise.transport import Transport as Noise
from libp2p.transport.exceptions import MuxerUpgradeFailure
from libp2p.transport.upgrader import TransportUpgrader

from daa_node.adapters.budgets import GREETING_UNITS, NOISE_UNITS, Admission
from daa_node.adapters.libp2p_negotiation import BriefServer, PromptClient
from daa_node.adapters.libp2p_yamux import YamuxSession
from daa_node.network.carried import Carried
from daa_node.wire.limits import KIB

UPGRADE_TIMEOUT_S = 5.0  # noise and yamux take three round trips: 1.5 s on a bad satellite link
READ_BYTES = 64 * KIB


class ExactReader(ReadWriteCloser):
    """Gives exactly what is asked for, from large reads.

    The library gives up after 100 pieces, and it asks as often again after the end of a connection.
    """

    def __init__(self, inner: ReadWriteCloser) -> None:
        self._inner = inner
        self._buffer = bytearray()

    async def read(self, n: int | None = None) -> bytes:
        """`n` bytes. Raises ConnectionClosedError when the connection ends first."""
        wanted = n if n is not None else 1
        while len(self._buffer) < wanted:
            piece = await self._inner.read(READ_BYTES)
            if not piece:
                raise ConnectionClosedError("the peer hung up")
            self._buffer += piece
        size = len(self._buffer) if n is None else n
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def write(self, data: bytes) -> None:
        await self._inner.write(data)

    async def close(self) -> None:
        await self._inner.close()

    def get_remote_address(self) -> tuple[str, int] | None:
        return self._inner.get_remote_address()


class Arrival(RawConnection):
    """An accepted connection, and who pays for what it makes us do."""

    def __init__(self, stream: ReadWriteCloser, admission: Admission) -> None:
        super().__init__(stream, False)
        self.admission = admission


class PaidNoise(Noise):
    """Whoever dials us pays for the handshake before we compute it; who only waits pays nothing."""

    def __init__(self, key_pair: KeyPair) -> None:
        super().__init__(key_pair, noise_privkey=create_new_x25519_key_pair().private_key)

    async def secure_inbound(self, conn: IRawConnection) -> ISecureConn:
        assert isinstance(conn, Arrival)
        await conn.admission.begin()
        await conn.admission.take(NOISE_UNITS)
        secured = await super().secure_inbound(conn)
        vars(secured)["admission"] = conn.admission  # the interface has no place for it
        return secured


class Upgrader(TransportUpgrader):
    """Noise, then our own yamux and no other muxer."""

    def __init__(
        self,
        secure_transports_by_protocol: Mapping[TProtocol, ISecureTransport],
        muxer_transports_by_protocol: Mapping[TProtocol, TMuxerClass],
    ) -> None:
        super().__init__(secure_transports_by_protocol, muxer_transports_by_protocol)
        self.carried = Carried()  # by all sessions that are made here
        for multistream in (self.security_multistream, self.muxer_multistream):
            multistream._selector.multiselect_client = PromptClient()
            multistream._selector.multiselect = BriefServer(multistream.multiselect.handlers)

    async def key_of(self, conn: IRawConnection) -> ID:
        """Who is at the other end of what we dialled. Raises whatever its bytes provoke."""
        noise = await self.security_multistream.select_transport(conn, True)
        assert isinstance(noise, Noise)  # we speak nothing else
        return (await noise.get_pattern().handshake_outbound(conn, None)).get_remote_peer()

    async def upgrade_connection(self, conn: ISecureConn, peer_id: ID) -> YamuxSession:
        admission: Admission | None = vars(conn).get("admission")  # of who dials us
        with trio.move_on_after(UPGRADE_TIMEOUT_S):
            if admission is not None:
                await admission.take(GREETING_UNITS)
            await self.muxer_multistream.select_transport(conn)
            return YamuxSession(conn, peer_id, admission, self.carried)
        raise MuxerUpgradeFailure(f"no muxer agreed within {UPGRADE_TIMEOUT_S:.0f} s")
