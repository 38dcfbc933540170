"""Where py-libp2p 0.8.1 must be changed from outside so that a stranger cannot stop or swell us.

Most of its defects are mended by what takes a part's place: libp2p_yamux, libp2p_sockets,
libp2p_swarm, libp2p_pubsub and libp2p_dht. `install()` changes, in the library's own modules, the
names that no argument reaches, and takes names of hosts that the library does not. It knows one
version and refuses every other.
"""

import importlib.metadata
import logging
from types import SimpleNamespace
from typing import Any

import trio

from daa_node.errors import UserError
from daa_node.prompt_lock import PromptLock
from daa_node.wire.limits import KIB, RECORD_BYTES_MAX

LIBP2P_VERSION = "0.8.1"
MULTISELECT_BYTES_MAX = 256  # a protocol's name; the library reads whatever length is announced
SEEN_MAX = 65_536  # gossip ids of two minutes at 500 a second
# Forty peers with eight addresses each: 86 kB, what they have signed as much again; and a record.
DHT_MESSAGE_BYTES_MAX = 192 * KIB


def check_version() -> None:
    """Raises UserError naming both versions when the library is not the one we know."""
    found = importlib.metadata.version("libp2p")
    if found != LIBP2P_VERSION:
        raise UserError(
            f"libp2p {found} is installed, and the hardening knows libp2p {LIBP2P_VERSION} only: "
            f"run `pip install libp2p=={LIBP2P_VERSION}`"
        )


def install() -> None:
    """Change the library in this process; harmless when called again. Raises UserError."""
    check_version()
    import libp2p.crypto.serialization as serialization
    import libp2p.kad_dht.kad_dht as kad_dht
    import libp2p.kad_dht.peer_routing as peer_routing
    import libp2p.kad_dht.provider_store as provider_store
    import libp2p.kad_dht.routing_table as routing_table
    import libp2p.kad_dht.value_store as value_store
    import libp2p.network.connection.swarm_connection as swarm_connection
    import libp2p.network.stream.net_stream as net_stream
    import libp2p.protocol_muxer.multiselect_communicator as communicator
    import libp2p.pubsub.pubsub as pubsub
    import multiaddr.codecs as codecs
    import multiaddr.codecs.domain as domain
    from libp2p.crypto.keys import KeyType

    from daa_node.adapters.libp2p_dht import ConnectedBucket
    from daa_node.adapters.libp2p_dht_messages import read_sane_answer
    from daa_node.adapters.libp2p_pubsub import BoundedOutbox

    # A stranger writes log lines at will: the library's logs say nothing that an operator can use.
    quiet = logging.getLogger("libp2p")
    quiet.handlers = [logging.NullHandler()]
    quiet.propagate = False
    quiet.setLevel(logging.CRITICAL)
    _replace(swarm_connection, "logging", quiet)  # it writes to the root logger
    # A record names an Ed25519 key: whoever has another one has no place here, and with RSA it is
    # the signer who says how long we verify.
    ed25519 = KeyType.Ed25519.value
    readers = serialization.key_type_to_public_key_deserializer
    _replace(serialization, "key_type_to_public_key_deserializer", {ed25519: readers[ed25519]})
    # A stream's state is looked at before every read and write: no lock of it is ever waited for.
    _replace(net_stream, "trio", SimpleNamespace(**{**vars(trio), "Lock": PromptLock}))
    _replace(communicator, "read_delim", _read_delim)
    _replace(pubsub, "LastSeenCache", BoundedSeen)
    _replace(pubsub, "RpcQueue", BoundedOutbox)
    for module in (kad_dht, peer_routing, provider_store, value_store):
        _replace(module, "MAX_DHT_MESSAGE_SIZE", DHT_MESSAGE_BYTES_MAX)
    for module in (peer_routing, provider_store, value_store):
        _replace(module, "read_varint_prefixed_bytes_limited", read_sane_answer)
    _replace(routing_table, "KBucket", ConnectedBucket)
    _replace(kad_dht, "MAX_RECORD_SIZE", RECORD_BYTES_MAX + KIB)
    codecs.CODEC_CACHE["domain"] = HostNameCodec(domain.Codec())


def _replace(module: Any, name: str, value: object) -> None:
    assert hasattr(module, name)  # the version check has passed
    setattr(module, name, value)


async def _read_delim(reader: Any) -> bytes:
    """One multistream line, at most MULTISELECT_BYTES_MAX and UTF-8. Raises ParseError."""
    from libp2p.exceptions import ParseError
    from libp2p.utils.varint import read_varint_prefixed_bytes_limited

    line: bytes = await read_varint_prefixed_bytes_limited(reader, MULTISELECT_BYTES_MAX)
    try:
        line.decode()
    except UnicodeDecodeError:
        raise ParseError("a protocol's name is not UTF-8") from None
    if not line.endswith(b"\n"):
        raise ParseError("a protocol's name does not end")
    return line[:-1]


class BoundedSeen:
    """Ids seen lately, at most SEEN_MAX, the oldest forgotten first; no thread and no clock."""

    def __init__(self, ttl: int, sweep_interval: int = 60) -> None:
        self._ids: dict[bytes, None] = {}

    def has(self, key: bytes) -> bool:
        return key in self._ids

    def add(self, key: bytes) -> bool:
        is_new = key not in self._ids
        self._ids[key] = None
        if len(self._ids) > SEEN_MAX:
            del self._ids[next(iter(self._ids))]
        return is_new

    def stop(self) -> None:
        """Nothing runs."""


class HostNameCodec:
    """Of /dns/ and its kin: the library's, which lets no service of Compose through: my_node."""

    def __init__(self, known: Any) -> None:
        self.SIZE = known.SIZE
        self.IS_PATH = known.IS_PATH
        self._known = known

    def to_bytes(self, proto: Any, string: str) -> bytes:
        """Judged as if a letter stood for each underscore. Raises as the library's."""
        self._known.to_bytes(proto, string.replace("_", "a"))
        return string.encode()

    def to_string(self, proto: Any, buf: bytes) -> str:
        self._known.to_string(proto, buf.replace(b"_", b"a"))
        return buf.decode()
