"""A validator's keys in wrong hands: speaks the real protocols, says what no honest node does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import trio

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import OfferBody
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.chunking import cut, manifest_of
from daa_dag.ids import BlobRoot, Digest, VertexId
from daa_node.adapters.bulk_channel import BulkChannel
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.adapters.system_clock import SystemClock, SystemEntropy
from daa_node.agreement.messages import Message, Position, Stated, encode_message
from daa_node.errors import Unavailable
from daa_node.genesis import Genesis
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import Role
from daa_node.identity.session import Local
from daa_node.network.blob_server import BlobServer
from daa_node.network.config import NetworkConfig
from daa_node.network.directory import Directory
from daa_node.network.discovery import OwnRecord
from daa_node.network.hello import OPEN_PROTOCOLS, Hello, OwnStanding
from daa_node.network.topics import dht_namespace
from daa_node.observability.events import EventLog
from daa_node.seams import Address, ByteStream, PeerId
from daa_node.updates.compression.codec import codec_named
from daa_node.wire import protocols
from daa_node.wire.framing import read_message_or_end, write_message


class HostileMember:
    """Connected to every honest member; each verb tells all of them one wrong thing."""

    def __init__(
        self, genesis: Genesis, keys: NodeKeys, transport: Libp2pTransport, store: DiskBlobStore
    ) -> None:
        self._genesis = genesis
        self._keys = keys
        self._transport = transport
        self._store = store
        self._limits = Limits(len(genesis.public_keys), len(genesis.contributors))
        self._streams: dict[PeerId, ByteStream] = {}

    async def say(self, payload: bytes) -> None:
        """These bytes, as one message, to everybody who still listens."""
        for peer_id in self._transport.connected():
            try:
                stream = self._streams.get(peer_id)
                if stream is None:
                    stream = await self._transport.open_stream(peer_id, protocols.VOTES)
                    self._streams[peer_id] = stream
                await write_message(stream, payload)
            except (Unavailable, trio.BrokenResourceError, trio.ClosedResourceError):
                self._streams.pop(peer_id, None)

    async def shout(self, announced_bytes: int) -> None:
        """Announce a message of that size to everybody, and begin to send it."""
        for peer_id in self._transport.connected():
            try:
                stream = await self._transport.open_stream(peer_id, protocols.VOTES)
                await stream.send_all(announced_bytes.to_bytes(4) + b"x" * 4096)
            except (Unavailable, trio.BrokenResourceError):
                continue

    async def offer(self, offer: OfferBody, signer: NodeKeys | None = None) -> None:
        """The offer, truly signed, by us or in the name of `signer`."""
        keys = signer or self._keys
        domain = self._genesis.domain(0)
        statement = Statement(domain, Kind.OFFER, 0, offer.round, offer.as_value())
        await self.say(self._message(envelope.sign(statement, keys)))

    async def seal(self, mantissas: np.ndarray, shifts: np.ndarray) -> tuple[BlobRoot, int]:
        """A blob of these very bytes, served to whoever asks; its root and size."""
        blob = mantissas.tobytes() + shifts.tobytes()
        manifest = manifest_of(blob, cut([len(blob)]))
        writer = await self._store.begin_blob("updates", manifest)
        for index in writer.missing():
            at = manifest.offsets[index]
            await writer.write_chunk(index, blob[at : at + manifest.sizes[index]])
        await writer.commit()
        return manifest.root, len(blob)

    def honest_offer(
        self, round_number: int, base: VertexId, blob_root: BlobRoot, size_bytes: int
    ) -> OfferBody:
        """What would be right for that round, but for the blob."""
        return OfferBody(
            round=round_number,
            author=self._keys.node_id,
            base_vertex_id=base,
            blob_root=blob_root,
            size_bytes=size_bytes,
            codec=self._genesis.job.updates.codec,
            steps=1,
            tokens=self._genesis.job.tokens_per_step,
            us_per_step=1_000,
            upload_bytes_per_s=0,
            base_loss_micronats=0,
            snapshot_roots=(Digest(bytes(32)),) * 2,  # before and after its step
        )

    @property
    def update_bytes(self) -> int:
        count = self._genesis.job.model.parameter_count()
        return codec_named(self._genesis.job.updates.codec).encoded_size_bytes(count)

    async def listen(self, stream: ByteStream) -> None:
        """Honest messages are read, so that nobody waits for us, and mean nothing here."""
        while await read_message_or_end(stream, 2**24) is not None:
            pass

    def _message(self, signed: Signed) -> bytes:
        return encode_message(Message(Position(0, 1, 0, 0, 0), Stated(signed)))


@asynccontextmanager
async def hostile_member(
    genesis: Genesis, keys: NodeKeys, honest: list[Address], scratch: Path
) -> AsyncIterator[HostileMember]:
    """Past every honest member's door, with real transport, hello and bulk channel."""
    clock, entropy = SystemClock(), SystemEntropy()
    log = EventLog(clock.wall_ns)
    config = NetworkConfig(listen=("/ip4/127.0.0.1/tcp/0",))
    transport = Libp2pTransport(keys.ed25519_seed, dht_namespace(genesis.chain_id), config)
    directory = Directory(trio.current_time, genesis.peer_ids, log)
    own = OwnRecord(keys, transport.addresses, Role.CLOUD, ("validator",), clock)
    standing = OwnStanding(own.current_bytes, lambda: 0)
    hello = Hello(transport, directory, clock, log, genesis.chain_id, standing, config)
    store = DiskBlobStore(scratch / "work")
    bulk = BulkChannel(
        Local(genesis.chain_id, keys),
        transport,
        entropy,
        directory.node_of,
        lambda _peer_id, _fault: None,
        transport.doorbell.host_of,
        transport.bulk_door,
    )
    bulk.set_handler(BlobServer({"updates": store}, None, bool).serve, directory.is_member)
    member = HostileMember(genesis, keys, transport, store)
    transport.guard(hello.door, OPEN_PROTOCOLS, lambda _peer_id, _fault: None, directory.is_member)
    transport.set_handler(protocols.HELLO, hello.serve)
    transport.set_handler(protocols.VOTES, member.listen)
    async with trio.open_nursery() as nursery:
        await nursery.start(transport.run)
        await nursery.start(bulk.run)
        for address in honest:
            await transport.dial(address)
        yield member
        nursery.cancel_scope.cancel()


def stranger() -> NodeKeys:
    """Keys that no genesis lists."""
    return NodeKeys.from_seed(b"nobody knows me".ljust(32, b"."))
