"""What goes wrong when: a scenario's faults as a timeline.

A fault is data, so that a failing run can be shrunk by leaving faults out. `timeline` gives its
edges in time; what an edge does to a world is that world's business. Random ones are drawn in
random_faults.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from simnet.world.determinism import Streams
from simnet.world.links import NS
from simnet.world.releases import stops_of
from simnet.world.scenario import FOREVER_S, FaultConfig, Scenario

ATTRITION_KILLS_MAX = 100_000  # of one fault: ten a node of the largest world


@dataclass(frozen=True, slots=True)
class Edge:
    """A fault begins or ends."""

    at_ns: int
    begins: bool
    fault: FaultConfig
    nodes: tuple[int, ...]  # whom it befalls, chosen; nobody yet if it is aimed

    def told(self) -> dict[str, Any]:
        """What a trace's FAULT event says of it."""
        kind, nodes = self.fault.kind, list(self.nodes)
        return {"kind": kind, "begins": self.begins, "nodes": nodes, "detail": _detail(self.fault)}


def _detail(fault: FaultConfig) -> str:
    match fault.kind:
        case "partition":
            return fault.shape
        case "slow":
            return f"{fault.factor:g} times"
        case "loss" | "reorder" | "duplicate":
            return f"{fault.percent:g} %"
        case "disk":
            return fault.disk
        case "clock":
            return f"{fault.skew_ms:g} ms, {fault.drift_ppm:g} ppm"
        case _:
            return ""


class Aims:
    """Whom aimed faults befall: who leads as they begin, and the same node as they heal."""

    def __init__(self, leader: Callable[[], int | None]) -> None:
        """`leader` says who leads the newest view; None if nobody is up who knows."""
        self._leader = leader
        self._struck: list[Edge] = []  # that have not healed

    def taken(self, edge: Edge) -> Edge:
        """The edge with its victim, if it is aimed and there is one."""
        if edge.fault.aim is None:
            return edge
        if not edge.begins:
            begun = next(e for e in self._struck if e.fault is edge.fault)
            self._struck = [e for e in self._struck if e is not begun]
            return replace(edge, nodes=begun.nodes)
        leader = self._leader()
        edge = replace(edge, nodes=() if leader is None else (leader,))
        self._struck.append(edge)
        return edge


def timeline(scenario: Scenario, streams: Streams) -> list[Edge]:
    """All edges in the order of their time.

    Whom aimed faults befall their world finds out, by Aims.
    """
    edges: list[Edge] = []
    for fault in (*(each for _, each in placed(scenario, streams)), *_upgrades(scenario)):
        edges.append(Edge(round(fault.at_s * NS), True, fault, fault.nodes))
        edges.append(Edge(round(fault.heals_s * NS), False, fault, fault.nodes))
    return sorted(edges, key=lambda edge: edge.at_ns)


def placed(scenario: Scenario, streams: Streams) -> Iterator[tuple[int, FaultConfig]]:
    """Every fault with its victims, the seed's where the scenario names none, and its place there.

    Attrition comes as the kills it is made of.
    """
    for index, fault in enumerate(scenario.faults):
        chance = streams.random(f"fault {index}")
        if fault.kind == "attrition":
            yield from ((index, kill) for kill in _attrition(fault, scenario, chance))
        elif fault.nodes or fault.aim is not None:
            yield index, fault
        else:
            nodes = _victims(fault, scenario.node_count, chance)
            yield index, fault.model_copy(update={"nodes": nodes})


def _attrition(fault: FaultConfig, scenario: Scenario, chance: Random) -> Iterator[FaultConfig]:
    """Kills at random moments, `percent` of the nodes a minute; who is down is not killed again."""
    nodes = fault.nodes or tuple(range(scenario.node_count))
    until_s = min(fault.heals_s, scenario.duration_s)
    kills_per_s = len(nodes) * fault.percent / 100 / 60
    back_s = dict.fromkeys(nodes, 0.0)
    kills, at_s = 0, fault.at_s + chance.expovariate(kills_per_s)
    while at_s < until_s and kills < ATTRITION_KILLS_MAX:
        victim, away_s = chance.choice(nodes), chance.uniform(*fault.away_s)
        if back_s[victim] <= at_s:
            kills, back_s[victim] = kills + 1, min(at_s + away_s, until_s)
            for_s = max(back_s[victim] - at_s, 1 / NS)
            yield FaultConfig(kind="kill", at_s=at_s, for_s=for_s, nodes=(victim,))
        at_s += chance.expovariate(kills_per_s)


def _upgrades(scenario: Scenario) -> Iterator[FaultConfig]:
    """Who is given another release is stopped for it."""
    return (FaultConfig.model_validate(stop) for stop in stops_of(scenario.nodes))


def healed_ns(scenario: Scenario) -> int:
    """When all that heals has healed, and what never heals has begun: then all is as it stays."""
    over_s = [
        fault.heals_s if fault.heals_s < FOREVER_S else fault.at_s
        for fault in (*scenario.faults, *_upgrades(scenario))
    ]
    return max((round(at_s * NS) for at_s in over_s), default=0)


def parts(shape: str, nodes: Sequence[int], count: int) -> list[frozenset[int]]:
    """Who can talk to whom in a partition: nodes that share a part can.

    Halves: `nodes` and the others. A bridge: the same, but node `nodes[0]` belongs to both.
    """
    inside = frozenset(nodes)
    outside = frozenset(range(count)) - inside
    match shape:
        case "bridge":
            return [inside, outside | {nodes[0]}]
        case "isolate":
            return [*(frozenset({node}) for node in nodes), outside]
        case _:
            return [inside, outside]


def _victims(fault: FaultConfig, count: int, chance: Random) -> tuple[int, ...]:
    half = fault.kind == "partition" and fault.shape != "isolate"
    return tuple(sorted(chance.sample(range(count), count // 2 if half and count > 1 else 1)))
