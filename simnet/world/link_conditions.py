"""What every link is like at a moment: the topology, and the faults that are under way then.

Pure, so that a world asks for the whole state at each change and no fault can be half undone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from simnet.world.faults import Edge
from simnet.world.links import MILLION, LinkModel
from simnet.world.partitions import Partition, partition_of
from simnet.world.topology import Topology

Ends = tuple[int, int]  # sender, receiver
OF_LINKS = ("partition", "hold", "slow", "loss")  # kinds of faults that befall links


@dataclass(frozen=True, slots=True)
class LinkState:
    """What one direction between two nodes is like now."""

    model: LinkModel
    is_open: bool = True
    holds: bool = False


LinkStates = Mapping[Ends, LinkState]


@dataclass(frozen=True, slots=True)
class LinkConditions:
    """The links of `count` nodes."""

    topology: Topology
    count: int

    def states(self, faults: Iterable[Edge], now_ns: int) -> dict[Ends, LinkState]:
        """All links at `now_ns` of the run, under the begun faults."""
        under_way = [edge for edge in faults if edge.fault.kind in OF_LINKS]
        partitions, everybody = self._partitions(under_way), range(self.count)
        return {
            (one, other): self._state(
                (one, other),
                under_way,
                not any(partition.blocks(now_ns, one, other) for partition in partitions),
            )
            for one in everybody
            for other in everybody
            if one != other
        }

    def next_flap_ns(self, faults: Iterable[Edge], now_ns: int) -> int | None:
        """When a flapping partition next opens or closes by itself."""
        turns = (partition.turns_ns(now_ns) for partition in self._partitions(faults))
        return min((at_ns for at_ns in turns if at_ns is not None), default=None)

    def _partitions(self, faults: Iterable[Edge]) -> list[Partition]:
        return [partition_of(edge, self.count) for edge in faults if edge.fault.kind == "partition"]

    def _state(self, ends: Ends, faults: list[Edge], is_open: bool) -> LinkState:
        state = LinkState(self.topology.link(*ends), is_open)
        for edge in faults:
            if not set(ends) & set(edge.nodes):
                continue
            match edge.fault.kind:
                case "hold":
                    state = replace(state, holds=True)
                case "slow":
                    state = replace(state, model=state.model.slowed(edge.fault.factor))
                case "loss":
                    state = replace(state, model=_lossier(state.model, edge.fault.percent))
        return state


def _lossier(model: LinkModel, percent: float) -> LinkModel:
    """Lost by either of two independent causes."""
    more_ppm = int(percent * MILLION / 100)
    both_ppm = MILLION - (MILLION - model.loss_ppm) * (MILLION - more_ppm) // MILLION
    return replace(model, loss_ppm=both_ppm)
