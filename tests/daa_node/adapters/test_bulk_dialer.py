"""Where a peer is dialled; who cannot be is left alone for a while, and dialled again after it."""

import os
import socket
from dataclasses import replace

import pytest
import trio
import trio.testing

from daa_node.adapters import bulk_dialer
from daa_node.adapters.bulk_dialer import UNDIALABLE_FOR_S, EndpointDialer, at_its_own, near
from daa_node.adapters.bulk_door import FIRST_BYTE
from daa_node.adapters.bulk_sockets import read_up_to
from daa_node.identity.session import (
    KEY_BYTES,
    PROOF_BYTES,
    WHERE_SEEN,
    Endpoint,
    Initiator,
    Remote,
    Responder,
    SessionKeys,
)
from daa_node.seams import Address, PeerId
from daa_node.wire.hosts import is_host
from tests.daa_node.adapters.bulk_nodes import Node, World, nodes

PEER = PeerId("peer")


def agreed(nursery: trio.Nursery, port: int) -> SessionKeys:
    """The keys of a session with somebody who names this port."""
    world = World(nursery)
    alice, bob = Node(world, b"alice", False), Node(world, b"bob", False)
    ours = Initiator(alice.local, Remote(bob.keys.node_id, bob.peer_id), os.urandom(32))
    remote = Remote(alice.keys.node_id, alice.peer_id)
    theirs = Responder(bob.local, remote, os.urandom(32), ())
    ready, _ = theirs.on_confirmation(ours.on_answer(theirs.on_opening(ours.opening())))
    return replace(ours.on_ready(ready), endpoints=(Endpoint("127.0.0.1", port),))


def closed_port() -> int:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return int(closed.getsockname()[1])


async def test_who_could_not_be_dialled_is_dialled_again_after_a_minute_and_not_before(
    mock_clock: trio.testing.MockClock,
) -> None:
    """Time stands still but for what the test lets pass."""
    async with trio.open_nursery() as nursery:
        keys, dialer, calls = agreed(nursery, closed_port()), EndpointDialer(), 0

        async def answer(stream: trio.SocketStream) -> None:
            nonlocal calls
            calls += 1
            await read_up_to(stream, len(FIRST_BYTE) + KEY_BYTES + PROOF_BYTES)
            await stream.send_all(keys.welcome_proof())

        assert await dialer.dial(PEER, keys) is None
        await nursery.start(trio.serve_tcp, answer, keys.endpoints[0].port)
        mock_clock.jump(UNDIALABLE_FOR_S - 1.0)
        assert await dialer.dial(PEER, keys) is None
        assert calls == 0
        mock_clock.jump(1.0)
        stream = await dialer.dial(PEER, keys)
        assert stream is not None
        await stream.aclose()
        nursery.cancel_scope.cancel()


async def test_of_many_who_cannot_be_dialled_the_newest_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_dialer, "UNDIALABLE_MAX", 3)
    async with trio.open_nursery() as nursery:
        keys, dialer = agreed(nursery, closed_port()), EndpointDialer()
        for number in range(5):
            assert await dialer.dial(PeerId(f"peer {number}"), keys) is None
        assert list(dialer._undialable) == [f"peer {number}" for number in (2, 3, 4)]


@pytest.mark.parametrize(
    ("seen_at", "named", "dialled"),
    [
        ("8.8.4.4", ("8.8.4.4", 443), True),
        ("8.8.4.4", ("::ffff:8.8.4.4", 443), True),
        ("8.8.4.4", ("8.8.8.8", 4002), True),  # it has several, or names both of its families
        ("8.8.4.4", ("8.8.8.8", 443), False),
        ("8.8.4.4", ("2001:4860::1", 4002), True),
        ("2001:4860::7", ("2001:4860::1", 443), True),
        ("2001:4860::7", ("8.8.4.4", 4002), True),
        ("8.8.4.4", ("192.168.0.1", 8080), False),  # of our own network, or of its
        ("8.8.4.4", ("127.0.0.1", 8080), False),
        ("8.8.4.4", ("::1", 8080), False),
        ("8.8.4.4", ("224.0.0.1", 8080), False),
        ("8.8.4.4", ("::", 8080), False),
        ("8.8.4.4", ("router.home", 8080), False),
        ("192.168.0.7", ("192.168.0.8", 4002), True),
        ("192.168.0.7", ("8.8.8.8", 4002), False),
        ("127.0.0.1", ("127.0.0.1", 80), True),
        (None, ("8.8.8.8", 4002), False),  # joined by a relay: it names none
        (None, ("0.0.0.0", 4002), False),
        (None, ("", 4002), False),
    ],
)
def test_a_peer_names_its_own_address_or_another_of_that_kind(
    seen_at: str | None, named: tuple[str, int], dialled: bool
) -> None:
    endpoint = Endpoint(*named)
    assert near([endpoint], seen_at) == ((endpoint,) if dialled else ())


@pytest.mark.parametrize("seen_at", ["8.8.4.4", "192.168.0.7", "::1", "2001:4860::1"])
def test_who_names_no_number_is_dialled_where_it_is_seen(seen_at: str) -> None:
    endpoints = (Endpoint(WHERE_SEEN, 443),)
    assert near(endpoints, seen_at) == at_its_own(endpoints, seen_at) == (Endpoint(seen_at, 443),)


async def test_addresses_name_where_to_dial_and_names_are_never_resolved() -> None:
    async with trio.open_nursery() as nursery:
        bob = Node(World(nursery), b"bob")
        bob.transport.given_addresses = [
            Address(text)
            for text in (
                "/ip4/10.0.0.1/tcp/4001/p2p/12D3",
                "/ip4/10.0.0.1/tcp/4001/ws/p2p/12D3",
                "/ip4/10.0.0.1/tcp/14001/p2p/12D3",  # a router's, which leads to that
                "/ip6/fd00::1/tcp/4001",
                "/ip4/10.0.0.2/tcp/443/ws",  # a proxy may stand there
                "/ip4/0.0.0.0/tcp/4001",
                "/dns4/example.org/tcp/4001",
                "/ip4/10.9.9.9/tcp/4001/p2p/12D3/p2p-circuit",
                "/ip4/nonsense/tcp/1",
                "",
            )
        ]
        assert bob.bulk._endpoints() == (
            Endpoint("10.0.0.1", 4001),
            Endpoint("10.0.0.1", 14001),
            Endpoint("fd00::1", 4001),
            Endpoint(WHERE_SEEN, 4001),  # of the name
        )
        assert not is_host("localhost")
        nursery.cancel_scope.cancel()


async def test_who_cannot_be_dialled_names_no_endpoint() -> None:
    async with nodes() as (_, bob):
        assert bob.bulk._door is not None
        assert bob.bulk._endpoints() == (Endpoint("127.0.0.1", bob.port),)
        bob.bulk._door.is_dialable = lambda: False
        assert bob.bulk._endpoints() == ()
