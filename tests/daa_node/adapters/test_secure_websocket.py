"""Pages that came over HTTPS dial the port of all others, over TLS; nobody is any the worse."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio_websocket

from daa_node.adapters import libp2p_sockets
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.network.config import NetworkConfig
from tests.daa_node.adapters.certificates import make_certificate
from tests.daa_node.adapters.lone_transport import transport

MULTISTREAM = b"\x13/multistream/1.0.0\n"


@asynccontextmanager
async def secured(directory: Path) -> AsyncIterator[tuple[Libp2pTransport, int]]:
    """A transport with a certificate, and its port."""
    config = NetworkConfig(listen=("/ip4/127.0.0.1/tcp/0",))
    own = Libp2pTransport(b"s" * 32, "test", config)
    own.certificate = make_certificate(directory)
    async with trio.open_nursery() as nursery:
        await nursery.start(own.run)
        yield own, int(own.addresses()[0].split("/")[4])
        nursery.cancel_scope.cancel()


def trusting(directory: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(directory / "cert.pem"))


async def greeting(port: int, context: ssl.SSLContext) -> bytes:
    """What libp2p says to a page that dials."""
    url = f"wss://127.0.0.1:{port}/"
    async with trio_websocket.open_websocket_url(url, ssl_context=context) as channel:
        await channel.send_message(MULTISTREAM)
        said = await channel.get_message()
        assert isinstance(said, bytes)
        return said


async def shake_hands(port: int, context: ssl.SSLContext) -> None:
    """Raises trio.BrokenResourceError when there is no TLS that `context` trusts."""
    async with await trio.open_ssl_over_tcp_stream(
        "127.0.0.1", port, ssl_context=context, https_compatible=True
    ) as stream:
        await stream.do_handshake()


async def test_a_websocket_over_tls_leads_to_libp2p(tmp_path: Path) -> None:
    async with secured(tmp_path) as (_, port):
        with trio.fail_after(30):
            assert await greeting(port, trusting(tmp_path)) == MULTISTREAM


async def test_the_same_port_serves_tcp_and_plain_websockets(tmp_path: Path) -> None:
    async with secured(tmp_path) as (own, _), transport(7, websocket=True) as other:
        for address in own.addresses():
            await other.dial(address)
            assert own.peer_id in other.connected()
            await other.hang_up(own.peer_id)


async def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    async with secured(tmp_path) as (_, port):
        old = trusting(tmp_path)
        with trio.fail_after(30):
            assert await greeting(port, old) == MULTISTREAM
            make_certificate(tmp_path)
            assert await greeting(port, trusting(tmp_path)) == MULTISTREAM
            with pytest.raises(trio.BrokenResourceError):
                await shake_hands(port, old)


@pytest.mark.parametrize("first", [b"\x16", b"\x16\x03\x01\x00\x05hello", b"\x16" * 10_000])
async def test_tls_that_is_none_ends_its_own_connection(
    tmp_path: Path, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libp2p_sockets, "UPGRADE_TIMEOUT_S", 0.5)
    async with secured(tmp_path) as (_, port):
        stranger = await trio.open_tcp_stream("127.0.0.1", port)
        await stranger.send_all(first)
        await stranger.send_eof()
        with trio.fail_after(30):
            try:
                while await stranger.receive_some(1024):
                    pass
            except trio.BrokenResourceError:
                pass
            monkeypatch.undo()  # whoever is honest has the time of a slow machine
            assert await greeting(port, trusting(tmp_path)) == MULTISTREAM
        await stranger.aclose()


async def test_without_a_certificate_tls_is_no_way_in() -> None:
    async with transport(8, websocket=True) as own:
        port = int(own.addresses()[0].split("/")[4])
        with trio.fail_after(30), pytest.raises(trio.BrokenResourceError):
            await shake_hands(port, ssl.create_default_context())
