"""Who downloads which update from whom, how fast, and when it is there: fluid on access links.

Every node fetches every update of a round from its author (from another holder once the author is
down), as blob_exchange does: whole blobs, each receiver for itself. An access link is shared
evenly among the transfers on it, and a transfer is as fast as the poorer of its two shares, and at
most a window of chunks a round trip. What one end leaves over is not given to others, so transfers
end a little later than TCP would end them. Loss is not modelled.

A column stands for receivers that are alike. Up to EXACT_NODES_MAX nodes everybody has a column;
beyond, nodes of one class that were there from the start share one, and a share is off by at most
one transfer in n. Rates are elementwise IEEE operations on counts: every machine gets the same.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from daa_dag.fetch import WINDOW_BYTES_MAX
from simnet.heap.training_agenda import EXACT_NODES_MAX
from simnet.links import NS

BITS_A_BYTE = 8
DONE_BYTES = 0.5  # what is left when a transfer is over, but for rounding

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Access:
    """Rates of one node's link to the world, in bytes a second."""

    up: float
    down: float


@dataclass(slots=True)
class Column:
    """Receivers that have fetched the same, at the same rate."""

    nodes: list[int]
    down: float  # bytes a second
    active: bool = True


@dataclass(slots=True)
class Pull:
    """A catch-up: one receiver fetches from everybody who is up."""

    node: int
    size_bytes: int
    left_bytes: float


@dataclass(frozen=True, slots=True)
class Held:
    """These receivers hold the update of this author."""

    author: int
    nodes: tuple[int, ...]


@dataclass(slots=True)
class Progress:
    """What ended in a stretch of time."""

    held: list[Held] = field(default_factory=list)
    pulled: list[int] = field(default_factory=list)


class AccessLinks:
    """All transfers of one moment. The owner says when time passes, and is told what it brought."""

    def __init__(self, access: list[Access], classes: list[str], round_trip_s: float) -> None:
        self._plain = access
        self._classes = classes
        count = len(access)
        self._slowed = [1.0] * count
        self._up = np.array([link.up for link in access])
        self._active = np.ones(count, np.bool_)  # is up, and not paused
        self._flow_rate_max = WINDOW_BYTES_MAX / max(round_trip_s, 1e-6)
        self._columns: list[Column] = []
        self._column_of = np.zeros(count, np.int64)
        self._left = np.zeros((count, 0))  # bytes, by author and column
        self._wanted = np.zeros((count, 0), np.bool_)
        self._source = np.arange(count)  # who serves the update of this author; -1: nobody
        self._sizes = np.zeros(count, np.int64)
        self._offered = np.zeros(count, np.bool_)
        self.holds = np.zeros((count, count), np.bool_)  # [author, node]
        self._pulls: list[Pull] = []
        self._rates: Float64s | None = None
        self._pull_rates: list[float] = []
        self._now_ns = 0

    def new_round(self) -> None:
        """Nobody has offered anything yet; what is still under way is given up."""
        count = len(self._plain)
        if count <= EXACT_NODES_MAX:
            groups = [[node] for node in range(count)]
        else:
            alike: dict[tuple[str, float], list[int]] = {}
            for node in range(count):
                if self._active[node]:
                    alike.setdefault((self._classes[node], self._down(node)), []).append(node)
            groups = [*alike.values(), *([n] for n in range(count) if not self._active[n])]
        self._columns = [
            Column(nodes, self._down(nodes[0]), bool(self._active[nodes[0]])) for nodes in groups
        ]
        self._column_of = np.zeros(count, np.int64)
        for index, column in enumerate(self._columns):
            for node in column.nodes:
                self._column_of[node] = index
        self._left = np.zeros((count, len(groups)))
        self._wanted = np.zeros((count, len(groups)), np.bool_)
        self._source = np.arange(count)
        self._offered[:] = False
        self.holds[:] = False
        self._rates = None

    def offer(self, author: int, size_bytes: int) -> None:
        """Everybody fetches it from now on."""
        self._offered[author] = True
        self._sizes[author] = size_bytes
        self.holds[author, author] = True
        self._left[author] = size_bytes
        self._wanted[author] = True
        mine = self._column_of[author]
        if self._columns[mine].nodes == [author]:
            self._wanted[author, mine] = False
        self._find_source(author)
        self._rates = None

    def pull(self, node: int, size_bytes: int) -> None:
        """`node` fetches so much from all the others together; replaces what it was pulling."""
        self._pulls = [pull for pull in self._pulls if pull.node != node]
        self._pulls.append(Pull(node, size_bytes, float(size_bytes)))
        self._rates = None

    def set_active(self, node: int, active: bool) -> None:
        """A node goes or comes back; what it has fetched of a blob so far is on its disk."""
        self._active[node] = active
        self._split_off(node)
        self._columns[self._column_of[node]].active = active
        for author in np.flatnonzero(self._offered):
            self._find_source(int(author))
        if not active:
            self._pulls = [pull for pull in self._pulls if pull.node != node]
        self._rates = None

    def slow(self, node: int, factor: float) -> None:
        """Its link is so many times slower than its class's; 1 heals it."""
        self._slowed[node] = factor
        self._up[node] = self._plain[node].up / factor
        self._split_off(node)
        self._columns[self._column_of[node]].down = self._down(node)
        self._rates = None

    def lose_disk(self, node: int) -> None:
        """What it held of this round is gone, its own update included."""
        self._split_off(node)
        mine = self._column_of[node]
        self.holds[:, node] = False
        self._left[:, mine] = np.where(self._offered, self._sizes, 0)
        self._wanted[:, mine] = self._offered
        for author in np.flatnonzero(self._offered):
            self._find_source(int(author))
        self._rates = None

    def advance(self, now_ns: int) -> Progress:
        """Let time pass up to `now_ns`."""
        progress = Progress()
        if now_ns == self._now_ns:
            return progress
        elapsed_s = (now_ns - self._now_ns) / NS
        rates = self._current_rates()
        self._now_ns = now_ns
        self._left -= rates * elapsed_s
        for pull, rate in zip(self._pulls, self._pull_rates, strict=True):
            pull.left_bytes -= rate * elapsed_s
        done = self._wanted & (self._left <= DONE_BYTES)
        for author, index in zip(*np.nonzero(done), strict=True):
            column = self._columns[index]
            nodes = tuple(node for node in column.nodes if not self.holds[author, node])
            self._wanted[author, index] = False
            self.holds[author, list(nodes)] = True
            progress.held.append(Held(int(author), nodes))
        progress.pulled = [pull.node for pull in self._pulls if pull.left_bytes <= DONE_BYTES]
        if progress.held or progress.pulled:
            self._pulls = [pull for pull in self._pulls if pull.left_bytes > DONE_BYTES]
            self._rates = None
            for held in progress.held:
                if self._source[held.author] < 0:
                    self._find_source(held.author)
        return progress

    def next_ns(self) -> int | None:
        """When something ends at the present rates; None if nothing ever does."""
        rates = self._current_rates()
        moving = rates > 0
        waits_s = []
        if moving.any():
            waits_s.append(float((self._left[moving] / rates[moving]).min()))
        for pull, rate in zip(self._pulls, self._pull_rates, strict=True):
            if rate > 0:
                waits_s.append(pull.left_bytes / rate)
        if not waits_s:
            return None
        return self._now_ns + max(1, int(min(waits_s) * NS) + 1)

    def source_of(self, author: int) -> int:
        """Who serves this update; -1 if nobody who holds it is up."""
        return int(self._source[author])

    def size_of(self, author: int) -> int:
        return int(self._sizes[author])

    def _down(self, node: int) -> float:
        return self._plain[node].down / self._slowed[node]

    def _current_rates(self) -> Float64s:
        if self._rates is not None:
            return self._rates
        up_active = np.array([column.active for column in self._columns], np.bool_)
        sizes = np.array([len(column.nodes) for column in self._columns], np.int64)
        downs = np.array([column.down for column in self._columns])
        served = (self._source >= 0) & self._offered
        flows = self._wanted & up_active & served[:, None]
        receivers = flows * sizes  # transfers of each (author, column)
        every = np.arange(len(self._plain))
        to_itself = flows[every, self._column_of] & self.holds[every, every]
        receivers[every, self._column_of] -= to_itself
        out_count = np.zeros(len(self._plain), np.int64)
        np.add.at(out_count, self._source[served], receivers[served].sum(axis=1))
        in_count = flows.sum(axis=0)
        for pull in self._pulls:
            in_count[self._column_of[pull.node]] += 1
        up_share = self._up[self._source] / np.maximum(out_count[self._source], 1)
        down_share = downs / np.maximum(in_count, 1)
        rates = np.minimum(np.minimum(up_share[:, None], down_share[None, :]), self._flow_rate_max)
        self._rates = np.where(flows, rates, 0.0)
        up_total = float(sum(self._up[self._active].tolist()))
        self._pull_rates = [
            min(
                float(down_share[self._column_of[pull.node]]),
                max(0.0, up_total - float(self._up[pull.node])) / len(self._pulls),
            )
            for pull in self._pulls
        ]
        return self._rates

    def _find_source(self, author: int) -> None:
        """The author if it is up and has it, else the first holder who is up."""
        able = self.holds[author] & self._active
        if able[author]:
            self._source[author] = author
            return
        holders = np.flatnonzero(able)
        self._source[author] = int(holders[0]) if len(holders) else -1

    def _split_off(self, node: int) -> None:
        """A column of its own for `node`, with what its old one has fetched."""
        mine = self._column_of[node]
        column = self._columns[mine]
        if len(column.nodes) == 1:
            return
        column.nodes.remove(node)
        self._columns.append(Column([node], column.down, column.active))
        self._column_of[node] = len(self._columns) - 1
        self._left = np.concatenate([self._left, self._left[:, mine : mine + 1]], axis=1)
        wanted = self._wanted[:, mine : mine + 1].copy()
        wanted[self.holds[:, node]] = False
        self._wanted = np.concatenate([self._wanted, wanted], axis=1)
        self._rates = None
