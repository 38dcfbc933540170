"""What is to happen when, in virtual time: calls on a heap, those of one moment in their order."""

import heapq
from collections.abc import Callable


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
        """Until it is done, nothing is left to happen, or the time is over."""
        while self._heap and not is_done():
            at_ns, _, call = self._heap[0]
            if at_ns > until_ns:
                self.now_ns = until_ns
                return
            heapq.heappop(self._heap)
            self.now_ns = at_ns
            call()
