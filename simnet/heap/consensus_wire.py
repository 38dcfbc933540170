"""Letters between simulated validators: who can reach whom, and when a letter arrives.

A pair's letters travel over one reliable stream in each direction, as over the daemon's own: in
order, a lost packet only late. A cut link, a full outbox and a crash lose letters; a held one
releases them all at once when it ends.
"""

from collections.abc import Callable
from math import prod

from simnet.cuts import Cut, cut_of
from simnet.determinism import Streams
from simnet.faults import Edge
from simnet.links import Link
from simnet.topology import Topology

HELD_MAX = 4096  # letters that all held links keep together; more are lost

Deliver = Callable[[int], None]  # takes the moment of arrival


class Wire:
    """All links of one world."""

    def __init__(self, topology: Topology, streams: Streams, count: int) -> None:
        self._topology = topology
        self._streams = streams.below("wire")
        self._loss = self._streams.random("loss")
        self._count = count
        self._links: dict[tuple[int, int], Link] = {}
        self._cuts: list[tuple[Edge, Cut]] = []
        self._slowed: dict[int, list[float]] = {}  # by node: factors of all faults in force
        self._lossy: dict[int, list[float]] = {}  # and percentages
        self._holding: dict[int, int] = {}
        self._held: list[tuple[int, int, int, Deliver]] = []

    def send(self, now_ns: int, sender: int, receiver: int, size: int, deliver: Deliver) -> None:
        """`deliver` is called, now or at a release, with the moment of arrival; or never."""
        if self._cuts and not self.reaches(now_ns, sender, receiver):
            return
        if self._lossy:
            for percent in (*self._lossy.get(sender, ()), *self._lossy.get(receiver, ())):
                if self._loss.random() * 100 < percent:
                    return
        if self._holding and (sender in self._holding or receiver in self._holding):
            if len(self._held) < HELD_MAX:
                self._held.append((sender, receiver, size, deliver))
            return
        deliver(self._arrival_ns(now_ns, sender, receiver, size))

    @property
    def is_cut(self) -> bool:
        """Whether there is a partition."""
        return bool(self._cuts)

    def reaches(self, now_ns: int, sender: int, receiver: int) -> bool:
        """Whether a stream between the two can be opened now."""
        return not any(cut.blocks(now_ns, sender, receiver) for _, cut in self._cuts)

    def begin(self, edge: Edge) -> None:
        """A fault of links begins."""
        fault = edge.fault
        match fault.kind:
            case "partition":
                self._cuts.append((edge, cut_of(edge, self._count)))
            case "slow":
                for node in edge.nodes:
                    self._slowed.setdefault(node, []).append(fault.factor)
            case "loss":
                for node in edge.nodes:
                    self._lossy.setdefault(node, []).append(fault.percent)
            case "hold":
                for node in edge.nodes:
                    self._holding[node] = self._holding.get(node, 0) + 1

    def end(self, now_ns: int, edge: Edge) -> int:
        """And ends; how many letters that releases."""
        fault = edge.fault
        match fault.kind:
            case "partition":
                self._cuts = [(e, cut) for e, cut in self._cuts if e.fault is not fault]
            case "slow":
                for node in edge.nodes:
                    self._slowed[node].remove(fault.factor)
            case "loss":
                for node in edge.nodes:
                    self._lossy[node].remove(fault.percent)
            case "hold":
                for node in edge.nodes:
                    self._holding[node] -= 1
                    if not self._holding[node]:
                        del self._holding[node]
                return self._release(now_ns)
        return 0

    def _release(self, now_ns: int) -> int:
        waiting, self._held = self._held, []
        for sender, receiver, size, deliver in waiting:
            if sender in self._holding or receiver in self._holding:
                self._held.append((sender, receiver, size, deliver))
            else:
                deliver(self._arrival_ns(now_ns, sender, receiver, size))
        return len(waiting) - len(self._held)

    def _arrival_ns(self, now_ns: int, sender: int, receiver: int, size: int) -> int:
        link = self._links.get((sender, receiver))
        if link is None:
            chance = self._streams.random(f"link {sender} {receiver}")
            link = self._links[sender, receiver] = Link(
                self._topology.link(sender, receiver), chance
            )
        at_ns = link.stream_arrival_ns(now_ns, size)
        if self._slowed:
            factor = max(prod(self._slowed.get(sender, ())), prod(self._slowed.get(receiver, ())))
            at_ns = now_ns + int((at_ns - now_ns) * factor)
        return at_ns
