"""What every link is like at a moment: the topology, and the faults of links under way just then.

One model for every way of running nodes: a world says which fault begins or ends, and asks what its
links are like from then on, so that no fault can be half undone. A link is open when the last that
cuts it has healed, and as slow and lossy as all that have not healed make it together.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from simnet.world.faults import Edge, parts
from simnet.world.links import MILLION, NS, LinkModel

Ends = tuple[int, int]  # sender, receiver
OF_LINKS = ("partition", "hold", "slow", "loss")  # kinds of faults that befall links


@dataclass(frozen=True, slots=True)
class LinkState:
    """What one direction between two nodes is like now."""

    model: LinkModel
    is_open: bool = True
    holds: bool = False


LinkStates = Mapping[Ends, LinkState]


class Cut:
    """A partition in force between `count` nodes: those that share a bit can talk."""

    def __init__(self, edge: Edge, count: int) -> None:
        self.edge = edge
        self._is_one_way = edge.fault.shape == "one_way"  # only what the first part says is lost
        is_flapping = edge.fault.shape == "flapping"
        self._period_ns = round(edge.fault.period_s * NS) if is_flapping else 0
        self._sides = [0] * count  # [node] -> the bits of its parts
        for bit, part in enumerate(parts(edge.fault.shape, edge.nodes, count)):
            for node in part:
                self._sides[node] |= 1 << bit

    def parts_them(self, sender: int, receiver: int) -> bool:
        """Whether it is between the two at all, open just then or not."""
        if self._sides[sender] & self._sides[receiver]:
            return False
        return not self._is_one_way or bool(self._sides[sender] & 1)

    def is_shut(self, now_ns: int) -> bool:
        """One that flaps cuts first, and every other period from then on."""
        return not self._period_ns or self._periods(now_ns) % 2 == 0

    def turns_ns(self, now_ns: int) -> int | None:
        """When it next opens or closes by itself; None if it does not flap."""
        if not self._period_ns:
            return None
        return self.edge.at_ns + (self._periods(now_ns) + 1) * self._period_ns

    def _periods(self, now_ns: int) -> int:
        return (now_ns - self.edge.at_ns) // self._period_ns


class LinkConditions:
    """The links of `count` nodes, each without faults as `link` has it."""

    def __init__(self, link: Callable[[int, int], LinkModel], count: int) -> None:
        self._link = link
        self._count = count
        self._under_way: list[Edge] = []
        self._cuts: list[Cut] = []

    def turn(self, edge: Edge) -> None:
        """A fault begins or ends, at its edge's time."""
        if not edge.begins:
            self._under_way = [each for each in self._under_way if not _same(each, edge)]
            self._cuts = [cut for cut in self._cuts if not _same(cut.edge, edge)]
        elif edge.fault.kind == "partition":
            self._cuts.append(Cut(edge, self._count))
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
        return any(
            cut.parts_them(*ends) and (now_ns is None or cut.is_shut(now_ns)) for cut in self._cuts
        )

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
        turns = (cut.turns_ns(now_ns) for cut in self._cuts)
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
