"""A stranger's record, or its word in the DHT, makes nobody ask a resolver; a member's does."""

import socket
from dataclasses import replace
from typing import Any

import pytest
import trio
from libp2p.network.exceptions import SwarmException
from libp2p.peer.id import ID
from multiaddr import Multiaddr

from daa_dag.ids import VertexId
from daa_node.identity.record import SignedRecord, sign_record
from daa_node.network.holders import Holders
from daa_node.network.topics import checkpoint_key
from daa_node.seams import Address
from tests.daa_node.network.neighbours import KEYS, Neighbour, running

HERE = VertexId(b"\x01" * 32)
NAME = "bait.example"


class Resolver(trio.abc.HostnameResolver):
    """Knows nobody, and remembers whom it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def getaddrinfo(
        self, host: bytes | None, port: Any, family: int = 0, *_: Any, **__: Any
    ) -> Any:
        self.asked.append((host or b"").decode())
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")


def baited(number: int) -> SignedRecord:
    """A record that sends whoever dials its author to a name."""
    keys = KEYS[number]
    own = Neighbour(number).own.current().record
    address = Address(f"/dns4/{NAME}/tcp/4001/p2p/{keys.peer_id}")
    return sign_record(replace(own, addresses=(address,)), keys)


async def asked_for(ours: Neighbour, other: int) -> list[str]:
    """Which names we look up once we know that record and dial its author wherever we would."""
    resolver = Resolver()
    before = trio.socket.set_custom_hostname_resolver(resolver)
    try:
        async with running(ours):
            ours.directory.learn(baited(other))
            peer_id = KEYS[other].peer_id
            await ours.discovery._dial(peer_id)
            parts = ours.transport._parts
            assert parts is not None
            own_statement = Multiaddr(f"/dns4/{NAME}/tcp/4001")
            parts.swarm.peerstore.add_addrs(ID.from_base58(peer_id), [own_statement], 120)
            await ours.transport.find_providers(checkpoint_key(HERE), 8)
            holders = Holders(ours.transport, ours.directory)
            await holders._reach(peer_id)
            with pytest.raises(SwarmException):
                await parts.swarm.dial_peer(ID.from_base58(peer_id))
    finally:
        trio.socket.set_custom_hostname_resolver(before)
    return resolver.asked


async def test_no_stranger_has_a_name_looked_up() -> None:
    assert await asked_for(Neighbour(0, members=(0, 1)), other=2) == []


async def test_a_member_may_live_behind_a_name() -> None:
    asked = await asked_for(Neighbour(0, members=(0, 1)), other=1)
    assert NAME in asked
