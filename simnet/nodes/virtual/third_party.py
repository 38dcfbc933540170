"""What libraries ask of the machine and a repeatable run must answer instead; undone afterwards.

Only names inside the libraries' own modules are replaced:

  * `time` and `datetime` in libp2p: peers' back-off, dates of DHT records and the first sequence
    number of gossip messages would follow this machine's clock.
  * `random` and `secrets` in libp2p: which peers gossip goes to, and which keys a routing table is
    refreshed for.
  * hashes: of a peer id, since Python salts the hash of bytes anew in every process; of a stream,
    which is its address in memory; of a task, which is a random UUID. The order of the library's
    sets follows them, and with it who is told first, or reset first.
  * the choice between two connections with one peer: with equally many streams the library takes
    the one at the higher address in memory.
  * the last number that peer records were given: they are numbered by the clock, upwards for as
    long as the process lives, over all the runs in it.
  * a stream's `write`: nothing changes, but the trace sees what noise is about to seal.

Keys that noise and the bulk channel draw are left to OpenSSL: they change ciphertext only, never
its length, and the trace covers what is inside. Nothing here starts a thread: our own hardening has
replaced the library's only one.
"""

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, tzinfo
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

import trio
from libp2p.abc import INetConn
from libp2p.network.stream.net_stream import NetStream
from libp2p.network.swarm import Swarm
from libp2p.peer import peer_record
from libp2p.peer.id import ID

from daa_node.adapters import libp2p_hardening
from daa_node.adapters.yamux_streams import YamuxStream
from simnet.world.determinism import Streams

EPOCH_S = 1_700_000_000  # virtual time begins then; any constant does
LIBRARY = "libp2p"
OURS = "daa_node.adapters.libp2p_pubsub"  # follows the library's clock where it prunes for it
HASH_BYTES = 7  # of an id's random end: a hash is below 2^61


Written = Callable[[YamuxStream, bytes], None]


@contextmanager
def subdued(streams: Streams, on_written: Written = lambda stream, payload: None) -> Iterator[None]:
    """The libraries' time and chance are the run's own, until the block ends.

    `on_written` sees what goes into each stream before noise seals it.
    """
    libp2p_hardening.install()  # as every transport does; it imports what is to be replaced
    replacements = {
        "time": _clock(),
        "random": streams.random("libp2p"),
        "secrets": _secrets(streams),
        "datetime": _Dates,
        "uuid": _uuids(streams),
    }
    with ExitStack() as undo:
        for name, module in sorted(sys.modules.items()):
            if name == OURS or name.split(".")[0] == LIBRARY:
                _replace_names(undo, module, replacements)
        _replace(undo, peer_record, "_last_timestamp", 0)
        _replace(undo, ID, "__hash__", _hash)
        _replace(undo, YamuxStream, "write", _telling(on_written))
        _replace(undo, NetStream, "__hash__", _hash_of_stream)
        _replace(undo, Swarm, "_best_connection", _best_connection)
        yield


def _replace_names(undo: ExitStack, module: ModuleType, replacements: dict[str, Any]) -> None:
    for name, replacement in replacements.items():
        before = vars(module).get(name)
        if getattr(before, "__name__", None) == name and before is not replacement:
            _replace(undo, module, name, replacement)


def _replace(undo: ExitStack, owner: ModuleType | type, name: str, replacement: object) -> None:
    if name in vars(owner):
        undo.callback(setattr, owner, name, vars(owner)[name])
    else:
        undo.callback(delattr, owner, name)
    setattr(owner, name, replacement)


def _clock() -> SimpleNamespace:
    def wall_s() -> float:
        return EPOCH_S + trio.current_time()

    return SimpleNamespace(
        time=wall_s,
        time_ns=lambda: round(wall_s() * 1e9),
        monotonic=trio.current_time,
        monotonic_ns=lambda: round(trio.current_time() * 1e9),
        perf_counter=trio.current_time,
    )


class _Dates(datetime):
    """Dates whose present is virtual."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "_Dates":
        return cls.fromtimestamp(EPOCH_S + trio.current_time(), tz)


def _secrets(streams: Streams) -> SimpleNamespace:
    chance = streams.random("libp2p secrets")
    return SimpleNamespace(
        randbelow=chance.randrange,
        randbits=chance.getrandbits,
        token_bytes=lambda size=32: chance.randbytes(size),
        choice=chance.choice,
    )


def _uuids(streams: Streams) -> SimpleNamespace:
    chance = streams.random("libp2p uuids")
    return SimpleNamespace(
        uuid4=lambda: UUID(int=chance.getrandbits(128), version=4),
        UUID=UUID,
    )


def _hash(peer_id: ID) -> int:
    return int.from_bytes(peer_id.to_bytes()[-HASH_BYTES:])


def _hash_of_stream(stream: NetStream) -> int:
    """No two streams of one connection share a number, and no set holds those of several."""
    return int(vars(stream.muxed_stream)["stream_id"])


def _telling(on_written: Written) -> Callable[[YamuxStream, bytes], Awaitable[None]]:
    inner = YamuxStream.write

    async def write(stream: YamuxStream, data: bytes) -> None:
        on_written(stream, data)
        await inner(stream, data)

    return write


def _best_connection(_swarm: Swarm, connections: list[INetConn]) -> INetConn:
    """The one with most streams; of equals, the newest."""
    return max(enumerate(connections), key=lambda item: (len(item[1].get_streams()), item[0]))[1]
