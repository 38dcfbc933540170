"""What befalls links: cut in some shape, held, slow, lossy, out of order; messages that come twice.

Every verb returns what heals it again. What holds a link keeps back what is sent over it, as what
cuts it does: streams wait.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

from simnet.nodes.virtual.member_transport import Retries
from simnet.nodes.virtual.network import Network, Route
from simnet.nodes.virtual.scheduling import at, now_ns
from simnet.world.faults import Edge
from simnet.world.link_conditions import LinkConditions, all_ends
from simnet.world.links import LinkModel
from simnet.world.scenario import FaultConfig

Heal = Callable[[], None]


class LinkFaults:
    """The faults of one network between `count` nodes."""

    def __init__(
        self,
        network: Network,
        retries: Retries,
        link: Callable[[int, int], LinkModel],
        count: int,
    ) -> None:
        self._network = network
        self._retries = retries
        self._conditions = LinkConditions(link, count)
        self._count = count
        self._blocked: set[Route] = set()  # by cuts and holds
        self._flaps_ns: int | None = None  # when we look again

    def partition(self, shape: str, nodes: Sequence[int]) -> Heal:
        """Cut the network in the shapes of simnet.world.faults.parts."""
        return self._begin({"kind": "partition", "shape": shape}, nodes)

    def hold(self, nodes: Sequence[int]) -> Heal:
        """Keep back all that goes to and comes from these nodes."""
        return self._begin({"kind": "hold"}, nodes)

    def slow(self, nodes: Sequence[int], factor: float) -> Heal:
        """All links of these nodes take so many times longer, and carry as much less."""
        return self._begin({"kind": "slow", "factor": factor}, nodes)

    def lose(self, nodes: Sequence[int], percent: float) -> Heal:
        """All links of these nodes lose so many more packets."""
        return self._begin({"kind": "loss", "percent": percent}, nodes)

    def _begin(self, fault: dict[str, object], nodes: Sequence[int]) -> Heal:
        return self.begin(FaultConfig.model_validate({"at_s": 0.0, **fault}), nodes)

    def begin(self, fault: FaultConfig, nodes: Sequence[int]) -> Heal:
        """Any of these, as a scenario has it: a partition may flap."""
        edge = Edge(now_ns(), True, fault, tuple(nodes))
        self._turn(edge)
        return partial(self._turn, replace(edge, begins=False))

    def block(self, routes: Collection[Route]) -> Heal:
        for route in routes:
            self._network.block(route)
        return all_of(partial(self._network.unblock, route) for route in routes)

    def reorder(self, nodes: Sequence[int], percent: float) -> Heal:
        """So much of what goes to and comes from these nodes is overtaken by other streams."""
        overtaking = self._network.overtaking
        percents = [overtaking.setdefault(route, []) for route in self._routes_of(nodes)]
        for each in percents:
            each.append(percent)
        return all_of(partial(each.remove, percent) for each in percents)

    def duplicate(self, nodes: Sequence[int], percent: float) -> Heal:
        """So many messages of these nodes, and all their announcements, are sent twice."""
        return all_of(self._retries.begin(node, percent) for node in nodes)

    def _routes_of(self, nodes: Sequence[int]) -> list[Route]:
        return [ends for ends in all_ends(self._count) if not set(ends).isdisjoint(nodes)]

    def _turn(self, edge: Edge) -> None:
        self._conditions.turn(edge)
        if edge.fault.kind in ("partition", "hold"):
            self._look_again()
        else:
            for route in self._routes_of(edge.nodes):
                self._network.ways.link(route).model = self._conditions.model(route)
            self._network.on_change()

    def _look_again(self) -> None:
        """What cuts and holds block now; some cuts open and close by themselves."""
        now, before = now_ns(), self._blocked
        self._blocked = {ends for ends in all_ends(self._count) if self._is_blocked(ends, now)}
        for route in sorted(self._blocked - before):
            self._network.block(route)
        for route in sorted(before - self._blocked):
            self._network.unblock(route)
        flaps_ns = self._conditions.next_flap_ns(now)
        if flaps_ns is not None and flaps_ns != self._flaps_ns:
            at(flaps_ns, self._look_again)
        self._flaps_ns = flaps_ns

    def _is_blocked(self, route: Route, now: int) -> bool:
        conditions = self._conditions
        return conditions.is_cut(route, now) or bool(conditions.befalling(route, "hold"))


def all_of(heals: Iterable[Heal]) -> Heal:
    """Several that begin now and heal at once."""
    begun = list(heals)

    def heal() -> None:
        for each in begun:
            each()

    return heal
