"""What answers of the bulk channel weigh, where their real bytes stand for many more.

The real bytes of a blob of one chunk arrive at once; the weight follows, over links of its own,
which it shares with no vote. Whoever serves an answer is busy until its weight has left, and
measures its uplink by that; whoever fetches a blob holds it once the weight of all its answers is
there. Where updates and deltas are cut into parts, each part arrives with its weight, and only then
is it passed on.

An access link is shared evenly by what is on it; a load is no faster than the link of the pair, and
than as many fetch windows each round trip as sessions of the pair wait for an answer. What a load
cannot use of one link, since it waits for another, the others there get: shares are max-min fair.
Nothing moves between nodes that are cut off from each other; after a while the load is lost, as a
connection breaks then, and so it is when an end of it dies. What had arrived of it need not come
again.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf

import trio

from daa_dag.chunking import CHUNK_BYTES_MAX
from daa_dag.fetch import WINDOW_BYTES_MAX
from daa_dag.ids import BlobRoot, NodeId
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.untaken import Piece
from daa_node.seams import (
    IDLE_TIMEOUT_S,
    BulkTransport,
    FrameHandler,
    FrameStream,
    IsMember,
    PeerId,
)
from daa_node.wire.blob_messages import (
    IN_TURN,
    Chunks,
    ChunksRequest,
    decode_answer,
    decode_request,
)
from simnet.nodes.virtual.job import Founding
from simnet.nodes.virtual.network import UNACKNOWLEDGED_S_MAX, Network, Route
from simnet.nodes.virtual.scheduling import Processes, at, now_ns
from simnet.world.job import cuts_updates
from simnet.world.links import NS
from simnet.world.nominal_models import Nominal
from simnet.world.scenario import Scenario
from simnet.world.topology import MBIT, TIERS

DONE_BYTES = 0.5  # what is left when a load has arrived, but for rounding
BITS_A_BYTE = 8
RATE_MIN = 1.0  # bytes a second: rounding leaves nobody nothing
PARTED_KINDS = frozenset({"updates", "deltas"})  # a state is as many chunks as it has tensors

_Link = tuple[int, int]  # of a node: 0 up, 1 down
Rates = tuple[float, float]  # of a node's link to the world, up and down, in bytes a second


class Load:
    """The weight of one answer, on its way."""

    def __init__(self, route: Route, root: BlobRoot, size_bytes: float) -> None:
        self.route = route
        self.root = root
        self.size_bytes = size_bytes
        self.left_bytes = size_bytes
        self.rate = 0.0
        self.stuck_ns: int | None = None  # since when nothing moves
        self.over = trio.Event()
        self.is_lost = False


class Freight:
    """All loads of a run."""

    def __init__(
        self,
        network: Network,
        rates_of: Callable[[int], Rates],
        is_stopped: Callable[[int], bool],
        weigh: Callable[[int], int],
        slowness: float | None = None,
    ) -> None:
        """`weigh`: what so many real bytes stand for.

        `slowness`: how many chunks a part of an update or of a delta stands for; None: not cut.
        """
        self.slowness = slowness
        self._network = network
        self._rates_of = rates_of
        self._is_stopped = is_stopped
        self.weigh = weigh
        self._loads: dict[Load, None] = {}  # under way, oldest first
        self._of: dict[tuple[int, BlobRoot], list[Load]] = {}  # by receiver; until they are asked
        self._spared: Counter[tuple[int, BlobRoot]] = Counter()  # arrived, of loads that were lost
        self._settled_ns = 0
        self._turn = 0
        self._is_due = False  # a new plan
        self.asking: Counter[Route] = Counter()  # sessions with an answer due, by its way
        self.sent_bytes: defaultdict[int, float] = defaultdict(float)
        self.received_bytes: defaultdict[int, float] = defaultdict(float)
        network.on_change = self.look_again

    def weigh_frame(self, frame: Piece) -> int:
        """What a frame of the bulk channel stands for, as whoever sends or reads it counts it."""
        payload = bytes(frame)
        try:
            return max(len(payload), self.weigh(_chunk_bytes(payload)))
        except PeerFault:  # a piece of a manifest, or a liar's
            return len(payload)

    def load(self, route: Route, root: BlobRoot, real_bytes: int) -> Load:
        """Send what so many bytes of that blob weigh."""
        key, weight = (route[1], root), self.weigh(real_bytes)
        spared = min(weight, self._spared.pop(key, 0))
        load = Load(route, root, weight - spared)
        self._of.setdefault(key, []).append(load)
        self._begin(load)
        return load

    async def bring(self, route: Route, root: BlobRoot, real_bytes: int) -> None:
        """Return when what so many bytes of that blob weigh is there. Raises Unavailable."""
        key, weight = (route[1], root), self.weigh(real_bytes)
        spared = min(weight, self._spared.pop(key, 0))
        load = Load(route, root, weight - spared)
        self._begin(load)
        with self.given_up(load):
            await load.over.wait()
        if load.is_lost:
            raise Unavailable(f"{root.hex()[:8]} was cut off on its way")

    def _begin(self, load: Load) -> None:
        self._settle()
        self._loads[load] = None
        self._plan_soon()

    def _plan_soon(self) -> None:
        """Once for all that begins and ends at this moment."""
        if not self._is_due:
            self._is_due = True
            at(now_ns() + 1, self._plan)

    @contextmanager
    def given_up(self, load: Load) -> Iterator[None]:
        """Whoever stops waiting for it before it is over loses it, for both ends."""
        try:
            yield
        finally:
            self._lose(load)

    async def arrived(self, node: int, root: BlobRoot) -> None:
        """Return when all that was sent to `node` of the blob is there. Raises Unavailable."""
        for load in self._of.pop((node, root), []):
            with self.given_up(load):
                await load.over.wait()
            if load.is_lost:
                raise Unavailable(f"{root.hex()[:8]} was cut off on its way")

    def cut(self, node: int) -> None:
        """It is gone."""
        for load in [load for load in self._loads if node in load.route]:
            self._lose(load)

    def look_again(self) -> None:
        """Who reaches whom, or how fast, is another matter now."""
        if self._loads:
            self._settle()
            self._plan()

    def _lose(self, load: Load) -> None:
        if load not in self._loads:
            return
        self._settle()
        if load in self._loads:
            self._break(load)
        self._plan_soon()

    def _break(self, load: Load) -> None:
        load.is_lost = True
        self._spared[load.route[1], load.root] += int(load.size_bytes - load.left_bytes)
        self._end(load)

    def _end(self, load: Load) -> None:
        del self._loads[load]
        load.over.set()

    def _settle(self) -> None:
        """Let the time pass that has passed."""
        now = now_ns()
        passed_s, self._settled_ns = (now - self._settled_ns) / NS, now
        for load in list(self._loads):
            sender, receiver = load.route
            moved = min(load.left_bytes, load.rate * passed_s)
            load.left_bytes -= moved
            self.sent_bytes[sender] += moved
            self.received_bytes[receiver] += moved
            if load.left_bytes <= DONE_BYTES:
                self._end(load)

    def _plan(self) -> None:
        """How fast each load is from now on, and when to look next."""
        self._is_due = False
        self._settle()
        moving = [load for load in self._loads if self._moves(load.route)]
        now, waits_s = now_ns(), []
        for load in self._loads:
            load.rate = 0.0
            if load.stuck_ns is None:
                load.stuck_ns = now
        self._share_out(moving)
        for load in moving:
            load.stuck_ns = None
            waits_s.append(load.left_bytes / load.rate)
        stuck_ns = [load.stuck_ns for load in self._loads if load.stuck_ns is not None]
        waits_s += [UNACKNOWLEDGED_S_MAX - (now - since) / NS for since in stuck_ns]
        self._turn += 1
        if waits_s:
            turn, due_ns = self._turn, now + int(max(0.0, min(waits_s)) * NS) + 1
            at(due_ns, lambda: self._ring(turn))

    def _share_out(self, moving: Sequence[Load]) -> None:
        """Max-min fair rates: whoever has least cannot have more, at whatever cost to others.

        The fullest link first: its loads get equal shares of it, and that is what they leave of
        their other link to the rest. A load whose stream is slower than any share gets just that.
        """
        left: dict[_Link, float] = {}
        on: dict[_Link, dict[Load, None]] = {}
        slow: list[tuple[float, int, Load]] = []
        for number, load in enumerate(moving):
            for node, way in zip(load.route, (0, 1), strict=True):
                left.setdefault((node, way), self._rates_of(node)[way])
                on.setdefault((node, way), {})[load] = None
            slow.append((self._stream_rate(load.route), number, load))
        slow.sort(reverse=True)  # the slowest stream is last

        def give(load: Load, rate: float) -> None:
            load.rate = rate
            for link in zip(load.route, (0, 1), strict=True):
                left[link] = max(0.0, left[link] - rate)
                del on[link][load]
                if not on[link]:
                    del on[link]

        while on:
            share, link = min((left[link] / len(loads), link) for link, loads in on.items())
            share = max(RATE_MIN, share)
            is_spared = False  # some of that link, by streams that are slower
            while slow and (slow[-1][2].rate or slow[-1][0] < share):
                rate, _, load = slow.pop()
                if not load.rate:
                    give(load, rate)
                    is_spared = is_spared or link in zip(load.route, (0, 1), strict=True)
            if not is_spared:
                for load in list(on[link]):
                    give(load, share)

    def _ring(self, turn: int) -> None:
        if turn != self._turn:
            return  # planned anew since
        self._settle()
        now = now_ns()
        for load in list(self._loads):
            if load.stuck_ns is not None and now - load.stuck_ns >= UNACKNOWLEDGED_S_MAX * NS:
                self._break(load)
        self._plan_soon()

    def _moves(self, route: Route) -> bool:
        blocked = self._network.is_blocked(route) or self._network.is_blocked(route[::-1])
        return not blocked and not any(self._is_stopped(node) for node in route)

    def _stream_rate(self, route: Route) -> float:
        model = self._network.ways.link(route).model
        round_trip_s = (2 * model.latency_ns + model.jitter_ns) / NS
        window_bytes = WINDOW_BYTES_MAX * max(1, self.asking[route])
        windows = window_bytes / round_trip_s if round_trip_s else inf
        return min(windows, model.bits_per_s / BITS_A_BYTE if model.bits_per_s else inf)


def freight_of(
    scenario: Scenario, founding: Founding, network: Network, processes: Processes
) -> Freight:
    """What the scenario's large model weighs, on the access links of its classes.

    Of a class that says nothing of its link, that is as fast as the topology's.
    """
    training = founding.training
    nominal = Nominal.of(training, scenario.work.parameters)
    chunk_bytes = training.updates.chunk_bytes
    times = nominal.weigh_part(chunk_bytes) / CHUNK_BYTES_MAX if cuts_updates(scenario) else None
    preset = scenario.topology.preset
    tier = TIERS["wan" if preset == "three_tier" else preset]
    mbit_s = scenario.topology.mbit_s or tier.mbit_s

    def rates_of(node: int) -> Rates:
        group = scenario.group_of(node)
        up, down = group.up_mbit_s or mbit_s, group.down_mbit_s or mbit_s
        return up * MBIT / BITS_A_BYTE, down * MBIT / BITS_A_BYTE

    return Freight(network, rates_of, processes.is_stopped, nominal.weigh, times)


class LadenBulk:
    """A BulkTransport whose answers weigh what they stand for."""

    def __init__(
        self, inner: BulkTransport, freight: Freight, node: int, number: Callable[[NodeId], int]
    ) -> None:
        self._inner = inner
        self._freight = freight
        self._node = node
        self._number = number

    async def open(self, peer_id: PeerId) -> FrameStream:
        return await self._inner.open(peer_id)

    def set_handler(self, handler: FrameHandler, is_member: IsMember) -> None:
        async def laden(stream: FrameStream) -> None:
            route = self._node, self._number(stream.node_id)
            frames = _LadenFrames(stream, self._freight, route)
            try:
                await handler(frames)
            finally:
                frames.over()

        self._inner.set_handler(laden, is_member)


class _LadenFrames:
    """The serving end of a session: one request after the other."""

    def __init__(self, inner: FrameStream, freight: Freight, route: Route) -> None:
        self._inner = inner
        self._freight = freight
        self._route = route
        self._asked: ChunksRequest | None = None
        self.aclose = inner.aclose

    @property
    def node_id(self) -> NodeId:
        return self._inner.node_id

    async def receive_frame(self, within_s: float = IDLE_TIMEOUT_S) -> bytes | None:
        self._note(None)
        frame = await self._inner.receive_frame(within_s)
        self._note(None if frame is None else _chunks_asked(frame))
        return frame

    def _note(self, asked: ChunksRequest | None) -> None:
        more = (asked is not None) - (self._asked is not None)
        self._asked = asked
        if more:
            self._freight.asking[self._route] += more

    def over(self) -> None:
        """Whatever was asked is not waited for any more."""
        self._note(None)

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        size_bytes = 0 if self._asked is None else _chunk_bytes(bytes(payload))
        if self._asked is None or not size_bytes:
            await self._inner.send_frame(payload)
            return
        root = self._asked.root
        if self._freight.slowness is not None and self._asked.kind in PARTED_KINDS:
            await self._freight.bring(self._route, root, size_bytes)
            await self._inner.send_frame(payload)
            return
        load = self._freight.load(self._route, root, size_bytes)
        with self._freight.given_up(load):
            await self._inner.send_frame(payload)
            await load.over.wait()


def _chunks_asked(frame: bytes) -> ChunksRequest | None:
    try:
        request = decode_request(frame)
    except PeerFault:
        return None  # the daemon will say so
    return request if isinstance(request, ChunksRequest) else None


def _chunk_bytes(answer: bytes) -> int:
    if answer == IN_TURN:
        return 0
    told = decode_answer(answer)
    if not isinstance(told, Chunks):
        return 0
    return sum(len(payload) for payload in told.payloads if payload is not None)
