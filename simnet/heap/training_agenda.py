"""What is to happen when, in virtual time: calls on a heap, those of one moment in their order."""

import heapq
from collections.abc import Callable

EXACT_NODES_MAX = 64
GRID_NS_A_NODE = 100_000


def grid_ns(node_count: int) -> int:
    """To which moments events are rounded up: all of them in a small world.

    In a large one, where thousands end within a second, a tenth of a second for a thousand nodes.
    """
    return 1 if node_count <= EXACT_NODES_MAX else node_count * GRID_NS_A_NODE


class Agenda:
    """The clock of a world. Calls that are no longer wanted see so themselves when they run."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0
        self.now_ns = 0

    def at(self, at_ns: int, call: Callable[[], None]) -> None:
        assert at_ns >= self.now_ns, "nothing happens in the past"
        heapq.heappush(self._heap, (at_ns, self._made, call))
        self._made += 1

    def after(self, wait_ns: int, call: Callable[[], None]) -> None:
        self.at(self.now_ns + wait_ns, call)

    def run(self, until_ns: int, is_done: Callable[[], bool]) -> None:
        """Until it is done, or the time is over: it passes also where nothing is left to happen."""
        while not is_done():
            if not self._heap or self._heap[0][0] > until_ns:
                self.now_ns = until_ns
                return
            self.now_ns, _, call = heapq.heappop(self._heap)
            call()
