"""What we take of a Kademlia message; the rest is cut off before the library reads it.

The library keeps whatever it is told: signed records of peers with thousands of addresses, which it
hands on to everybody until its own answers are too long to be read, and peers that do not exist, as
many as fit a message. It verifies signatures of whatever kind their author chose. Nothing of ours
asks for any of that: addresses of those that matter are in node records, which judges verify. What
stays is the sender's own record, in reason: without it nobody learns where it listens, and who has
been away finds no one.

Source: libp2p specs, kad-dht/README.md, "RPC messages".
"""

from google.protobuf.message import DecodeError
from libp2p.abc import INetStream
from libp2p.kad_dht.common import BUCKET_SIZE
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.peer.id import ID
from libp2p.peer.pb.crypto_pb2 import KeyType
from libp2p.peer.pb.envelope_pb2 import Envelope
from libp2p.utils.varint import read_varint_prefixed_bytes_limited

from daa_node.adapters.libp2p_peer_store import ADDRESSES_PER_PEER_MAX

PEERS_MAX = BUCKET_SIZE  # of each kind; the library names no more
ADDRESS_BYTES_MAX = 256  # of a record's, which are text, none is longer
SIGNED_BYTES_MAX = 2048  # a key, a signature, and as many addresses as we keep of a peer


def sane_request(payload: bytes, sender: ID) -> bytes:
    """What `sender` asks, or says that it provides itself. Raises DecodeError."""
    asked = Message.FromString(payload)
    own = [peer for peer in asked.providerPeers if peer.id == sender.to_bytes()]
    asked.ClearField("closerPeers")
    asked.ClearField("providerPeers")
    asked.providerPeers.extend(own[:1])
    return _cut(asked).SerializeToString()


async def read_sane_answer(stream: INetStream, size_bytes_max: int) -> bytes:
    """In place of the library's reader. Raises DecodeError, and what that reader raises."""
    payload = await read_varint_prefixed_bytes_limited(stream, size_bytes_max)
    return _cut(Message.FromString(payload)).SerializeToString()


def _cut(message: Message) -> Message:
    if not _is_kept(message.senderRecord):
        message.ClearField("senderRecord")
    if message.HasField("record"):
        message.record.ClearField("author")
        message.record.ClearField("signature")
    for peers in (message.closerPeers, message.providerPeers):
        del peers[PEERS_MAX:]
        for peer in peers:
            peer.ClearField("signedRecord")
            short = [address for address in peer.addrs if len(address) <= ADDRESS_BYTES_MAX]
            peer.ClearField("addrs")
            peer.addrs.extend(short[:ADDRESSES_PER_PEER_MAX])
    return message


def _is_kept(signed: bytes) -> bool:
    """Whether this is a peer's record of a size and with a key that ours have, too."""
    if len(signed) > SIGNED_BYTES_MAX:
        return False
    try:
        return bool(Envelope.FromString(signed).public_key.Type == KeyType.Ed25519)
    except DecodeError:
        return False
