"""What every link is like at a moment: the topology, and the faults that are under way then.

Pure, so that a world asks for the whole state at each change and no fault can be half undone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from simnet.faults import Edge, parts
from simnet.links import MILLION, NS, LinkModel
from simnet.processes.switch import LinkState
from simnet.topology import Topology

Ends = tuple[int, int]  # sender, receiver
OF_LINKS = ("partition", "hold", "slow", "loss")  # kinds of faults that befall links


@dataclass(frozen=True, slots=True)
class Weather:
    """The links of `count` nodes."""

    topology: Topology
    count: int

    def pairs(self) -> list[Ends]:
        everybody = range(self.count)
        return [(one, other) for one in everybody for other in everybody if one != other]

    def states(self, faults: Iterable[Edge], now_ns: int) -> dict[Ends, LinkState]:
        """All links at `now_ns` of the run, under the begun faults."""
        under_way = [edge for edge in faults if edge.fault.kind in OF_LINKS]
        return {ends: self._state(ends, under_way, now_ns) for ends in self.pairs()}

    def _state(self, ends: Ends, faults: list[Edge], now_ns: int) -> LinkState:
        state = LinkState(self.topology.link(*ends))
        for edge in faults:
            touched = bool(set(ends) & set(edge.nodes))
            match edge.fault.kind:
                case "partition":
                    if self._cut(edge, ends, now_ns):
                        state = replace(state, is_open=False)
                case "hold" if touched:
                    state = replace(state, holds=True)
                case "slow" if touched:
                    state = replace(state, model=state.model.slowed(edge.fault.factor))
                case "loss" if touched:
                    state = replace(state, model=_lossier(state.model, edge.fault.percent))
        return state

    def _cut(self, edge: Edge, ends: Ends, now_ns: int) -> bool:
        fault, (sender, receiver) = edge.fault, ends
        if fault.shape == "flapping" and now_ns // int(fault.period_s * NS) % 2:
            return False
        if fault.shape == "one_way":  # what `nodes` say is not heard outside
            return sender in edge.nodes and receiver not in edge.nodes
        sides = parts(fault.shape, edge.nodes, self.count)
        return not any(sender in side and receiver in side for side in sides)


def next_flap_ns(faults: Iterable[Edge], now_ns: int) -> int | None:
    """When a flapping partition next opens or closes by itself."""
    periods = [
        int(edge.fault.period_s * NS)
        for edge in faults
        if edge.fault.kind == "partition" and edge.fault.shape == "flapping"
    ]
    return min(((now_ns // period + 1) * period for period in periods), default=None)


def _lossier(model: LinkModel, percent: float) -> LinkModel:
    """Lost by either of two independent causes."""
    more_ppm = int(percent * MILLION / 100)
    both_ppm = MILLION - (MILLION - model.loss_ppm) * (MILLION - more_ppm) // MILLION
    return replace(model, loss_ppm=both_ppm)
