"""Who downloads which update from whom, how fast, and when it is there: fluid on access links.

Every node fetches every update of a round from its author (from another holder once the author is
down), as blob_exchange does: whole blobs, each receiver for itself. An access link is shared
evenly among the transfers on it, and a transfer is as fast as the poorer of its two shares, and at
most a window of chunks a round trip. What one end leaves over is not given to others, so transfers
end a little later than TCP would end them. Between nodes that are cut off from each other nothing
moves. A lossy link bounds each stream on it as it bounds TCP Reno: Padhye et al. 1998, as in RFC
5348, section 3.1; for little loss that is Mathis et al. 1997, a segment a round trip over its root.

A column stands for receivers that are alike. Up to EXACT_NODES_MAX nodes everybody has a column;
beyond, nodes of one class that were there from the start share one, and a share is off by at most
one transfer in n. Rates are elementwise IEEE operations on counts: every machine gets the same.
"""

from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from daa_dag.fetch import WINDOW_BYTES_MAX
from simnet.heap.training_agenda import EXACT_NODES_MAX
from simnet.heap.training_reach import Classes, classes_of
from simnet.links import NS

BITS_A_BYTE = 8
DONE_BYTES = 0.5  # what is left when a transfer is over, but for rounding
SEGMENT_BYTES = 1460
SEGMENTS_AN_ACK = 2
TIMEOUT_S_MIN = 0.2  # before a retransmission, as Linux has it; else four round trips

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

    nodes: Int64s
    down: float  # bytes a second
    active: bool = True

    def apart(self, nodes: list[int]) -> "Column":
        """Takes these nodes out; their own column."""
        self.nodes = np.setdiff1d(self.nodes, nodes)
        return Column(np.array(nodes), self.down, self.active)


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
    nodes: Int64s
    source: int  # who sent it


@dataclass(slots=True)
class Progress:
    """What ended in a stretch of time."""

    held: list[Held] = field(default_factory=list)
    pulled: list[int] = field(default_factory=list)


def stream_rate(loss: float, round_trip_s: float) -> float:
    """Bytes a second of one stream that loses this share of its segments."""
    if not loss:
        return float("inf")
    timeout_s = max(TIMEOUT_S_MIN, 4 * round_trip_s)
    shares = SEGMENTS_AN_ACK * loss
    again_s = timeout_s * min(1.0, 3 * sqrt(3 * shares / 8)) * loss * (1 + 32 * loss**2)
    return SEGMENT_BYTES / (round_trip_s * sqrt(2 * shares / 3) + again_s)


class AccessLinks:
    """All transfers of one moment. The owner says when time passes, and is told what it brought."""

    def __init__(self, access: list[Access], classes: list[str], round_trip_s: float) -> None:
        self._plain = access
        self._classes = classes
        count = len(access)
        self._slowed = [1.0] * count
        self._round_trip_s = max(round_trip_s, 1e-6)
        self._classes_now = classes_of((), count)
        self._kind_of = np.zeros(count, np.int64)  # of each node, among those classes
        self._up = np.array([link.up for link in access])
        self._active = np.ones(count, np.bool_)  # is up, and not paused
        self._stream_max = np.full(count, WINDOW_BYTES_MAX / self._round_trip_s)
        self._columns: list[Column] = []
        self._column_of = np.zeros(count, np.int64)
        self._left = np.zeros((count, 0))  # bytes, by author and column
        self._wanted = np.zeros((count, 0), np.bool_)
        # who serves the update of this author to nodes of this class of reach; -1: nobody
        self._source = np.full((count, 1), -1)
        self._sizes = np.zeros(count, np.int64)
        self._offered = np.zeros(count, np.bool_)
        self.holds = np.zeros((count, count), np.bool_)  # [author, node]
        self.received_bytes = np.zeros(count, np.int64)  # by node, of updates
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
            alike: dict[tuple[object, ...], list[int]] = {}
            for node in range(count):
                if self._active[node]:
                    looks = (self._classes[node], self._down(node), self._stream_max[node])
                    alike.setdefault((*looks, self._classes_now.of[node]), []).append(node)
            groups = [*alike.values(), *([n] for n in range(count) if not self._active[n])]
        self._columns = [
            Column(np.array(nodes), self._down(nodes[0]), bool(self._active[nodes[0]]))
            for nodes in groups
        ]
        self._column_of = np.zeros(count, np.int64)
        for index, column in enumerate(self._columns):
            self._column_of[column.nodes] = index
        self._left = np.zeros((count, len(groups)))
        self._wanted = np.zeros((count, len(groups)), np.bool_)
        self._source[:] = -1
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
        if len(self._columns[mine].nodes) == 1:
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
        if active:
            unserved = self.holds[:, node] & (self._source < 0).any(axis=1)
            unserved[node] = True
            self._find_sources(unserved)
        else:
            self._find_sources((self._source == node).any(axis=1))
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

    def lose(self, node: int, loss: float) -> None:
        """Its link loses this share of all segments; 0 heals it."""
        window_rate = WINDOW_BYTES_MAX / self._round_trip_s
        self._stream_max[node] = min(window_rate, stream_rate(loss, self._round_trip_s))
        self._split_off(node)
        self._rates = None

    def set_classes(self, classes: Classes) -> None:
        """Who is linked with whom; what was under way between others waits."""
        self._classes_now = classes
        self._kind_of = np.array(classes.of)
        for mine, column in enumerate(list(self._columns)):
            kinds: dict[int, list[int]] = {}
            for node in column.nodes.tolist():
                kinds.setdefault(classes.of[node], []).append(node)
            for nodes in list(kinds.values())[1:]:
                self._add_column(mine, column.apart(nodes))
        self._source = np.full((len(self._plain), classes.count), -1)
        self._find_sources(self._offered)
        self._rates = None

    def lose_disk(self, node: int) -> None:
        """What it held of this round is gone, its own update included."""
        self._split_off(node)
        mine = self._column_of[node]
        self.holds[:, node] = False
        self._left[:, mine] = np.where(self._offered, self._sizes, 0)
        self._wanted[:, mine] = self._offered
        self._find_sources((self._source == node).any(axis=1))
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
            nodes = column.nodes[~self.holds[author, column.nodes]]
            self._wanted[author, index] = False
            self.holds[author, nodes] = True
            self.received_bytes[nodes] += self._sizes[author]
            source = self._source[author, self._classes_now.of[column.nodes[0]]]
            progress.held.append(Held(int(author), nodes, int(source)))
        progress.pulled = [pull.node for pull in self._pulls if pull.left_bytes <= DONE_BYTES]
        if progress.held or progress.pulled:
            self._pulls = [pull for pull in self._pulls if pull.left_bytes > DONE_BYTES]
            self._rates = None
            for held in progress.held:
                if self._source[held.author].min() < 0:
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

    def source_of(self, author: int, node: int) -> int:
        """Who serves this update to `node`; -1 if nobody who holds it is up and linked with it."""
        return int(self._source[author, self._classes_now.of[node]])

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
        kind_of = self._kind_of[[column.nodes[0] for column in self._columns]]
        served = (self._source >= 0) & self._offered[:, None]
        flows = self._wanted & up_active & served[:, kind_of]
        receivers = flows * sizes  # transfers of each (author, column)
        every = np.arange(len(self._plain))
        to_itself = flows[every, self._column_of] & self.holds[every, every]
        receivers[every, self._column_of] -= to_itself
        out_count = np.zeros(len(self._plain), np.int64)
        by_kind = np.stack(
            [receivers[:, kind_of == kind].sum(axis=1) for kind in range(self._classes_now.count)],
            axis=1,
        )
        np.add.at(out_count, self._source[served], by_kind[served])
        in_count = flows.sum(axis=0)
        for pull in self._pulls:
            in_count[self._column_of[pull.node]] += 1
        up_share = self._up[self._source] / np.maximum(out_count[self._source], 1)
        up_share = np.minimum(up_share, self._stream_max[self._source])
        down_share = downs / np.maximum(in_count, 1)
        stream_max = self._stream_max[[column.nodes[0] for column in self._columns]]
        rates = np.minimum(up_share[:, kind_of], np.minimum(down_share, stream_max)[None, :])
        self._rates = np.where(flows, rates, 0.0)
        self._pull_rates = self._rates_of_pulls(down_share)
        return self._rates

    def _rates_of_pulls(self, down_share: Float64s) -> list[float]:
        """A pull takes from everybody linked with it; all pulls of a moment share that evenly."""
        if not self._pulls:
            return []
        classes = self._classes_now
        giving = np.where(self._active, np.minimum(self._up, self._stream_max), 0.0)
        givers = [np.flatnonzero(giving * near[self._kind_of]) for near in classes.linked]
        totals = [float(sum(giving[near].tolist())) for near in givers]
        found = []
        for pull in self._pulls:
            kind = classes.of[pull.node]
            others = max(0.0, totals[kind] - float(giving[pull.node])) / len(self._pulls)
            streams = float(self._stream_max[pull.node]) * len(givers[kind])
            found.append(min(float(down_share[self._column_of[pull.node]]), others, streams))
        return found

    def _find_sources(self, authors: Bools) -> None:
        for author in np.flatnonzero(authors & self._offered).tolist():
            self._find_source(author)

    def _find_source(self, author: int) -> None:
        """The author if it is up, linked and has it, else the first such holder."""
        able = np.flatnonzero(self.holds[author] & self._active)
        kinds, linked = self._kind_of[able], self._classes_now.linked
        for kind in range(self._classes_now.count):
            near = able[linked[kind, kinds]]
            self._source[author, kind] = -1 if not len(near) else near[0]
            if author in near:
                self._source[author, kind] = author

    def _split_off(self, node: int) -> None:
        """A column of its own for `node`, with what its old one has fetched."""
        mine = self._column_of[node]
        if len(self._columns[mine].nodes) > 1:
            self._add_column(mine, self._columns[mine].apart([node]))

    def _add_column(self, mine: int, column: Column) -> None:
        """For nodes that were in column `mine`."""
        self._columns.append(column)
        self._column_of[column.nodes] = len(self._columns) - 1
        self._left = np.concatenate([self._left, self._left[:, mine : mine + 1]], axis=1)
        self._wanted = np.concatenate([self._wanted, self._wanted[:, mine : mine + 1]], axis=1)
        for index, nodes in ((mine, self._columns[mine].nodes), (-1, column.nodes)):
            self._wanted[self.holds[:, nodes].all(axis=1), index] = False
        self._rates = None
