"""What every link is like at a moment: the topology, and the faults of links under way just then.

One model for every way of running nodes: a world says which fault begins or ends, and asks what its
links are like from then on, so that no fault can be half undone. A link is open when the last that
cuts it has healed, and as slow and lossy as all that have not healed make it together.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from simnet.world.faults import Edge
from simnet.world.links import MILLION, LinkModel
from simnet.world.partitions import Partition, partition_of

Ends = tuple[int, int]  # sender, receiver
OF_LINKS = ("partition", "hold", "slow", "loss")  # kinds of faults that befall links


@dataclass(frozen=True, slots=True)
class LinkState:
    """What one direction between two nodes is like now."""

    model: LinkModel
    is_open: bool = True
    holds: bool = False


LinkStates = Mapping[Ends, LinkState]


class LinkConditions:
    """The links of `count` nodes, each without faults as `link` has it."""

    def __init__(self, link: Callable[[int, int], LinkModel], count: int) -> None:
        self._link = link
        self._count = count
        self._under_way: list[Edge] = []
        self._cuts: list[tuple[Edge, Partition]] = []

    def turn(self, edge: Edge) -> None:
        """A fault begins or ends, at its edge's time."""
        if not edge.begins:
            self._under_way = [each for each in self._under_way if not _same(each, edge)]
            self._cuts = [(each, cut) for each, cut in self._cuts if not _same(each, edge)]
        elif edge.fault.kind == "partition":
            self._cuts.append((edge, partition_of(edge, self._count)))
        else:
            self._under_way.append(edge)

    @property
    def is_fair(self) -> bool:
        return not (self._cuts or self._under_way)

    def befalling(self, ends: Ends, *kinds: str) -> list[Edge]:
        """Faults of these kinds at either end, but for partitions."""
        return [
            edge
            for edge in self._under_way
            if edge.fault.kind in kinds and not set(ends).isdisjoint(edge.nodes)
        ]

    def is_cut(self, ends: Ends, now_ns: int | None = None) -> bool:
        """Whether a partition lies between them; at some time or other, if none is named."""
        if now_ns is None:
            return any(cut.parts_them(*ends) for _, cut in self._cuts)
        return any(cut.blocks(now_ns, *ends) for _, cut in self._cuts)

    def model(self, ends: Ends) -> LinkModel:
        model = self._link(*ends)
        for edge in self.befalling(ends, "slow", "loss"):
            if edge.fault.kind == "slow":
                model = model.slowed(edge.fault.factor)
            else:
                model = _lossier(model, edge.fault.percent)
        return model

    def states(self, now_ns: int) -> dict[Ends, LinkState]:
        """All links at `now_ns` of the run."""
        return {
            ends: LinkState(
                self.model(ends),
                not self.is_cut(ends, now_ns),
                bool(self.befalling(ends, "hold")),
            )
            for ends in all_ends(self._count)
        }

    def next_flap_ns(self, now_ns: int) -> int | None:
        """When a flapping partition next opens or closes by itself."""
        turns = (cut.turns_ns(now_ns) for _, cut in self._cuts)
        return min((at_ns for at_ns in turns if at_ns is not None), default=None)


def all_ends(count: int) -> Iterator[Ends]:
    return ((one, other) for one in range(count) for other in range(count) if one != other)


def _same(one: Edge, other: Edge) -> bool:
    """Two edges of one fault."""
    return one.fault is other.fault and one.nodes == other.nodes


def _lossier(model: LinkModel, percent: float) -> LinkModel:
    """Lost by either of two independent causes."""
    more_ppm = int(percent * MILLION / 100)
    both_ppm = MILLION - (MILLION - model.loss_ppm) * (MILLION - more_ppm) // MILLION
    return replace(model, loss_ppm=both_ppm)
