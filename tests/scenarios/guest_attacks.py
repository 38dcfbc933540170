"""What somebody does who has keys of its own, and is let in as anybody is, but is no member.

Attacks for `stranger_attacks.SIEGE`: each goes on for as long as it can.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import trio
from libp2p.exceptions import BaseLibp2pError
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils import encode_varint_prefixed
from multiaddr import Multiaddr

from daa_dag import canonical
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.adapters.system_clock import SystemClock
from daa_node.cli import local
from daa_node.errors import PeerFault, Unavailable
from daa_node.genesis import Genesis
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import Role
from daa_node.network.config import NetworkConfig
from daa_node.network.directory import Directory
from daa_node.network.discovery import OwnRecord
from daa_node.network.hello import OPEN_PROTOCOLS, Hello, OwnStanding
from daa_node.network.topics import dht_namespace, heads_topic
from daa_node.observability.events import EventLog
from daa_node.seams import Address, PeerId
from daa_node.wire import protocols

GUESTS = 6  # at once; each comes anew when it is parted with
STAY_S = 5.0
SILENT_STREAMS = 14  # the library served twelve
MESSAGES_PER_S = 120  # more than is read; the attacker shares our two cores
THROWN_OUT = (OSError, trio.BrokenResourceError, trio.TooSlowError, BaseLibp2pError, Unavailable)


class Victim(Protocol):
    """A node to attack, and the genesis of its network, which is no secret."""

    address: Multiaddr
    genesis: Path


@asynccontextmanager
async def guest(victim: Victim, keys: NodeKeys) -> AsyncIterator[Libp2pTransport]:
    """Past the victim's door, with real transport and hello."""
    made = local.read_genesis(victim.genesis)
    clock = SystemClock()
    log = EventLog(clock.wall_ns)
    config = NetworkConfig(listen=("/ip4/127.0.0.1/tcp/0",), websocket=False)
    transport = Libp2pTransport(keys.ed25519_seed, dht_namespace(made.chain_id), config)
    directory = Directory(trio.current_time, made.peer_ids, log)
    own = OwnRecord(keys, transport.addresses, Role.EDGE, (), clock)
    standing = OwnStanding(own.current_bytes, lambda: 0)
    hello = Hello(transport, directory, clock, log, made.chain_id, standing, config)
    transport.guard(hello.door, OPEN_PROTOCOLS, forgiving, directory.is_member)
    transport.set_handler(protocols.HELLO, hello.serve)
    async with trio.open_nursery() as nursery:
        await nursery.start(transport.run)
        await transport.dial(Address(str(victim.address)))
        yield transport
        nursery.cancel_scope.cancel()


def forgiving(_peer_id: PeerId, _fault: PeerFault) -> None:
    """We hold nothing against our victims."""


async def one_name_with_many_transport_keys(victim: Victim) -> None:
    """The same ML-DSA name under ever new transport keys, several at once."""
    name = NodeKeys.generate()

    async def come_and_stay() -> None:
        while True:
            keys = NodeKeys(name.ml_dsa_seed, name.ml_kem_seed, os.urandom(32))
            try:
                async with guest(victim, keys):
                    await trio.sleep(STAY_S)
            except* THROWN_OUT:
                await trio.sleep(0.2)

    async with trio.open_nursery() as nursery:
        for _ in range(GUESTS):
            nursery.start_soon(come_and_stay)


async def silent_questions_and_bad_gossip(victim: Victim) -> None:
    """Streams of the DHT that say nothing; heads of who is no member, true ones and forged ones."""
    made = local.read_genesis(victim.genesis)
    async with trio.open_nursery() as nursery:
        for talk in (_sit_at_the_dht, _tell_true_heads, _tell_forged_heads):
            nursery.start_soon(_as_ever_new_guests, victim, made, talk)


async def _as_ever_new_guests(victim: Victim, made: Genesis, talk: "_Talk") -> None:
    while True:
        keys = NodeKeys.generate()
        try:
            async with guest(victim, keys) as transport:
                await talk(transport, PeerId(victim.address.value_for_protocol("p2p")), keys, made)
        except* THROWN_OUT:
            await trio.sleep(0.2)


class _Talk(Protocol):
    async def __call__(
        self, transport: Libp2pTransport, victim: PeerId, keys: NodeKeys, made: Genesis
    ) -> None: ...


async def _sit_at_the_dht(
    transport: Libp2pTransport, victim: PeerId, keys: NodeKeys, made: Genesis
) -> None:
    while True:
        held = [
            await transport.open_stream(victim, "/ipfs/kad/1.0.0") for _ in range(SILENT_STREAMS)
        ]
        await held[0].receive_some(1)  # until it is cut
        for stream in held:
            await stream.aclose()


async def _tell_true_heads(
    transport: Libp2pTransport, victim: PeerId, keys: NodeKeys, made: Genesis
) -> None:
    await _tell(transport, victim, made, keys)


async def _tell_forged_heads(
    transport: Libp2pTransport, victim: PeerId, keys: NodeKeys, made: Genesis
) -> None:
    await _tell(transport, victim, made, None)


async def _tell(
    transport: Libp2pTransport, victim: PeerId, made: Genesis, author: NodeKeys | None
) -> None:
    """Heads without end; without an author in the name of the genesis' first member."""
    stream = await transport.open_stream(victim, "/meshsub/1.1.0")
    source = author.peer_id if author is not None else next(iter(made.peer_ids.values()))
    number = 0
    while True:
        for _ in range(MESSAGES_PER_S // 10):
            number += 1
            await stream.send_all(_head(made, source, number, author))
        await trio.sleep(0.1)


def _head(made: Genesis, source: PeerId, number: int, author: NodeKeys | None) -> bytes:
    message = rpc_pb2.Message(
        data=canonical.encode([10**6 + number]),
        topicIDs=[heads_topic(made.chain_id)],
        from_id=ID.from_base58(source).to_bytes(),
        seqno=number.to_bytes(8, "big"),
    )
    covered = b"libp2p-pubsub:" + message.SerializeToString()
    message.signature = os.urandom(64) if author is None else author.sign_ed25519(covered)
    return encode_varint_prefixed(rpc_pb2.RPC(publish=[message]).SerializeToString())
