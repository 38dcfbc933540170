"""One node of a gossip mesh: eager push to the mesh, lazy hints to others. Pure: no clock, no wire.

As gossipsub v1.1 (libp2p specs, pubsub/gossipsub) with a mesh that is given and stays: there is no
GRAFT, PRUNE or score. New data goes to all mesh peers but the one that it came from. On each
heartbeat a few peers outside the mesh are told the ids of the newest windows (IHAVE); who lacks one
asks for it (IWANT) and gets it while it is in the message cache.

Bounds, whatever arrives: the seen cache and the message cache keep the newest of each, a hint names
at most so many ids, and a heartbeat answers at most so many hints of one peer.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from blake3 import blake3

HEARTBEAT_S = 1
HISTORY_WINDOWS = 5  # of the message cache: mcache_len
GOSSIP_WINDOWS = 3  # that hints speak of: mcache_gossip
LAZY_PEERS = 6  # that a heartbeat hints to: D_lazy
HEADER_BYTES = 40  # of the frame and its control message
ID_BYTES = 32
KEY_BYTES = 7  # fits a signed 64-bit number


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one node's memory. At ten messages a second the seen cache covers seven minutes.

    What is cached must have been seen: `cached_max <= seen_max`.
    """

    seen_max: int = 4096
    cached_max: int = 1024
    ids_max: int = 5000  # go-libp2p's GossipSubMaxIHaveLength
    hints_max: int = 10  # of one peer between heartbeats: GossipSubMaxIHaveMessages


def key_of(kind: bytes, payload: bytes) -> int:
    """What stands for a message's bytes in a trace."""
    return int.from_bytes(blake3(kind + payload).digest(length=KEY_BYTES))


@dataclass(slots=True)
class Data:
    """A published message. Its key, a digest of its bytes, is its id."""

    key: int
    size_bytes: int


@dataclass(slots=True)
class Ids:
    """What names messages."""

    ids: tuple[int, ...]
    key: int = field(init=False)
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.key = key_of(type(self).__name__.lower().encode(), array("q", self.ids).tobytes())
        self.size_bytes = HEADER_BYTES + ID_BYTES * len(self.ids)


class Have(Ids):
    """IHAVE: the sender has seen these of late."""

    __slots__ = ()


class Want(Ids):
    """IWANT: send me these."""

    __slots__ = ()


Message = Data | Have | Want
Sends = Sequence[tuple[Message, Sequence[int]]]  # each with the peers that it goes to
NOTHING: Sends = ()


class GossipNode:
    """Feed it what arrives; send what it returns."""

    __slots__ = ("_cache", "_chance", "_hints", "_lazy", "_limits", "_mesh", "_seen", "_windows")

    def __init__(
        self, mesh: tuple[int, ...], lazy: tuple[int, ...], chance: Random, limits: Limits
    ) -> None:
        """`mesh`: peers that get everything at once. `lazy`: others that may be hinted to."""
        self._mesh = mesh
        self._lazy = lazy
        self._chance = chance
        self._limits = limits
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._cache: OrderedDict[int, Data] = OrderedDict()
        self._windows: list[list[int]] = [[]]  # ids in the cache, the newest window first
        self._hints: dict[int, int] = {}  # peer -> hints answered since the heartbeat

    def publish(self, data: Data) -> Sends:
        self._remember(data)
        return ((data, self._mesh),)

    def on_data(self, sender: int, data: Data) -> Sends | None:
        """None: it was seen before."""
        if data.key in self._seen:
            return None
        self._remember(data)
        return ((data, [peer for peer in self._mesh if peer != sender]),)

    def on_have(self, sender: int, have: Have) -> Sends:
        lacking = [each for each in have.ids[: self._limits.ids_max] if each not in self._seen]
        if not lacking:
            return NOTHING
        answered = self._hints.get(sender, 0)
        if answered >= self._limits.hints_max:
            return NOTHING
        self._hints[sender] = answered + 1
        return ((Want(tuple(lacking)), (sender,)),)

    def on_want(self, sender: int, want: Want) -> Sends:
        kept = [self._cache.get(each) for each in want.ids[: self._limits.ids_max]]
        return [(data, (sender,)) for data in kept if data is not None]

    def on_heartbeat(self) -> Sends:
        self._hints.clear()
        windows = self._windows
        recent = [each for window in windows[:GOSSIP_WINDOWS] for each in window]
        windows.insert(0, [])
        if len(windows) > HISTORY_WINDOWS:
            for forgotten in windows.pop():
                self._cache.pop(forgotten, None)
        if not recent or not self._lazy:
            return NOTHING
        peers = self._chance.sample(self._lazy, min(LAZY_PEERS, len(self._lazy)))
        return ((Have(tuple(recent[: self._limits.ids_max])), peers),)

    def within_limits(self) -> bool:
        """Whether every cache is as small as it has to be."""
        return (
            len(self._seen) <= self._limits.seen_max
            and len(self._cache) <= self._limits.cached_max
            and len(self._windows) <= HISTORY_WINDOWS
            and sum(map(len, self._windows)) <= self._limits.cached_max
        )

    def _remember(self, data: Data) -> None:
        key = data.key
        self._seen[key] = None
        if len(self._seen) > self._limits.seen_max:
            self._seen.popitem(last=False)
        self._cache[key] = data
        self._windows[0].append(key)
        if len(self._cache) > self._limits.cached_max:
            oldest, _ = self._cache.popitem(last=False)
            next(window for window in reversed(self._windows) if window).remove(oldest)
