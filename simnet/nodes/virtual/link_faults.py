"""What befalls links: cut in some shape, held, slow, lossy, out of order; messages that come twice.

Every verb returns what heals it again.

Faults may overlap: a link is free when the last that blocks it has healed, and as slow and lossy as
all that have not healed make it together.
"""

from collections.abc import Callable, Sequence

from simnet.nodes.virtual.member_transport import Retries
from simnet.nodes.virtual.network import Network, Route, lossy
from simnet.world.faults import parts
from simnet.world.links import LinkModel

Heal = Callable[[], None]
Changed = Callable[[LinkModel], LinkModel]


class LinkFaults:
    """The faults of one network between `count` nodes."""

    def __init__(self, network: Network, retries: Retries, count: int) -> None:
        self._network = network
        self.retries = retries
        self._count = count
        self._changes: dict[Route, list[Changed]] = {}

    def partition(self, shape: str, nodes: Sequence[int]) -> Heal:
        """Cut the network in the shapes of simnet.world.faults.parts; what is returned heals it."""
        groups = parts(shape, nodes, self._count)
        inside = frozenset(nodes)
        apart = [
            (a, b)
            for a in range(self._count)
            for b in range(self._count)
            if a != b and not any({a, b} <= group for group in groups)
        ]
        return self.block([r for r in apart if shape != "one_way" or r[0] in inside])

    def hold(self, nodes: Sequence[int]) -> Heal:
        """Keep back all that goes to and comes from these nodes."""
        return self.block(self._routes_of(nodes))

    def block(self, routes: Sequence[Route]) -> Heal:
        for route in routes:
            self._network.block(route)

        def heal() -> None:
            for route in routes:
                self._network.unblock(route)

        return heal

    def slow(self, nodes: Sequence[int], factor: float) -> Heal:
        """All links of these nodes take so many times longer, and carry as much less."""
        return self._change(self._routes_of(nodes), lambda model: model.slowed(factor))

    def lose(self, nodes: Sequence[int], percent: float) -> Heal:
        """All links of these nodes lose so many more packets."""
        return self._change(self._routes_of(nodes), lambda model: lossy(model, percent))

    def reorder(self, nodes: Sequence[int], percent: float) -> Heal:
        """So much of what goes to and comes from these nodes is overtaken by other streams."""
        routes = self._routes_of(nodes)
        for route in routes:
            self._network.overtaking.setdefault(route, []).append(percent)

        def heal() -> None:
            for route in routes:
                self._network.overtaking[route].remove(percent)

        return heal

    def duplicate(self, nodes: Sequence[int], percent: float) -> Heal:
        """So many messages of these nodes, and all their announcements, are sent twice."""
        heals = [self.retries.begin(node, percent) for node in nodes]

        def heal() -> None:
            for each in heals:
                each()

        return heal

    def _routes_of(self, nodes: Sequence[int]) -> list[Route]:
        return [
            (a, b)
            for a in range(self._count)
            for b in range(self._count)
            if a != b and (a in nodes or b in nodes)
        ]

    def _change(self, routes: Sequence[Route], change: Changed) -> Heal:
        for route in routes:
            self._changes.setdefault(route, []).append(change)
            self._apply(route)

        def heal() -> None:
            for route in routes:
                self._changes[route].remove(change)
                self._apply(route)

        return heal

    def _apply(self, route: Route) -> None:
        self._network.ways.restore(route)
        link = self._network.ways.link(route)
        for change in self._changes[route]:
            link.model = change(link.model)
        self._network.on_change()
