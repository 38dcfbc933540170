"""Letters between simulated validators: who can reach whom, and when a letter arrives.

A pair's letters travel over one reliable stream in each direction, as over the daemon's own: in
order, a lost packet only late. A cut link, a full outbox and a crash lose letters; a held one
releases them all at once when it ends.
"""

from collections.abc import Callable
from dataclasses import dataclass

from simnet.determinism import Streams
from simnet.faults import Edge, parts
from simnet.links import NS, Link
from simnet.topology import Topology

HELD_MAX = 4096  # letters that all held links keep together; more are lost

Deliver = Callable[[int], None]  # takes the moment of arrival


@dataclass(frozen=True, slots=True)
class _Cut:
    """One partition."""

    parts: tuple[frozenset[int], ...]
    shape: str
    period_ns: int

    def blocks(self, now_ns: int, sender: int, receiver: int) -> bool:
        if self.shape == "flapping" and now_ns // self.period_ns % 2:
            return False
        if self.shape == "one_way":
            return sender in self.parts[0] and receiver not in self.parts[0]
        return not any(sender in part and receiver in part for part in self.parts)


class Wire:
    """All links of one world."""

    def __init__(self, topology: Topology, streams: Streams, count: int) -> None:
        self._topology = topology
        self._streams = streams.below("wire")
        self._loss = self._streams.random("loss")
        self._count = count
        self._links: dict[tuple[int, int], Link] = {}
        self._cuts: list[tuple[Edge, _Cut]] = []
        self._slowed: dict[int, float] = {}
        self._lossy: dict[int, float] = {}
        self._holding: dict[int, int] = {}
        self._held: list[tuple[int, int, int, Deliver]] = []

    def send(self, now_ns: int, sender: int, receiver: int, size: int, deliver: Deliver) -> None:
        """`deliver` is called, now or at a release, with the moment of arrival; or never."""
        if self._cuts and not self.reaches(now_ns, sender, receiver):
            return
        if self._lossy:
            for node in (sender, receiver):
                if node in self._lossy and self._loss.random() * 100 < self._lossy[node]:
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
                split = tuple(parts(fault.shape, edge.nodes, self._count))
                cut = _Cut(split, fault.shape, int(fault.period_s * NS))
                self._cuts.append((edge, cut))
            case "slow":
                self._slowed |= dict.fromkeys(edge.nodes, fault.factor)
            case "loss":
                self._lossy |= dict.fromkeys(edge.nodes, fault.percent)
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
                    self._slowed.pop(node, None)
            case "loss":
                for node in edge.nodes:
                    self._lossy.pop(node, None)
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
            factor = max(self._slowed.get(sender, 1.0), self._slowed.get(receiver, 1.0))
            at_ns = now_ns + int((at_ns - now_ns) * factor)
        return at_ns
