"""How long each source of blobs lets us wait for an answer: who is slow is asked after the others.

A source may answer just before it would count as silent, and each time it was asked first that is
what a blob costs. So it is asked first once. Costs are seconds an answer, smoothed; whoever was
never asked costs nothing, and differences that a link makes change no order. Whoever stands low
with us is asked after all others, and of equals whoever stands high is asked first.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from daa_dag.ids import NodeId

# Sources are tried in the order given, but for who is slow to answer, each this much after the one
# before, or once one fails: a small blob comes from the first alone, and the others' sessions are
# not opened for nothing.
STAGGER_S = 0.1
# And no sooner than it takes four times until one says what it has: before that a session takes
# three round trips. Else hundreds that look on would each ask ever more members the busier all of
# them are, and wait for each other's questions.
STAGGER_SEARCHES = 4
STAGGER_S_MAX = 5.0  # a quarter of what any answer may take
SAME_S = 0.25  # half of what a round trip may take between continents
SEARCHES_KEPT = 8  # the newest, of all sources
LONG_S = 1.0  # whoever lets us wait for longer is no better for being given up
# Whether all others are asked before it, and its turn among equals: the least is first.
PlaceOf = Callable[[NodeId], tuple[bool, int]]
# (source, seconds, whether the answer came)
OnAnswer = Callable[[NodeId, float, bool], None]

SOURCES_MAX = 256  # remembered, the newest: more than vote in any network


class Waits:
    """Of one fetcher. Times are those of trio's clock."""

    def __init__(self, slowness: float = 1.0) -> None:
        """`slowness`: how many times longer than usual answers take of anybody."""
        self._slowness = slowness
        self._cost_s: dict[NodeId, float] = {}
        self.place_of: PlaceOf = lambda _node_id: (False, 0)
        self.on_answer: OnAnswer = lambda _node_id, _took_s, _has_come: None
        self._searches_s: deque[float] = deque(maxlen=SEARCHES_KEPT)

    def rank(self, node_id: NodeId) -> tuple[bool, int, int]:
        """Whom to ask first: the least; many are alike."""
        is_last, turn = self.place_of(node_id)
        return is_last, int(self._cost_s.get(node_id, 0.0) / SAME_S), turn

    @property
    def busy_s(self) -> float | None:
        """What it takes at least, as things are now, until a source says what it has.

        None before one has.

        Whoever lies alone makes itself slow: it is asked after the others, and theirs are shorter.
        """
        return min(self._searches_s, default=None)

    def stagger_s(self, unknown_s: float) -> float:
        """Between two sources that are tried; `unknown_s` before one has said what it has."""
        busy_s = self.busy_s
        if busy_s is None:
            return min(STAGGER_S_MAX, unknown_s)
        return min(STAGGER_S_MAX, max(STAGGER_S, STAGGER_SEARCHES * busy_s))

    def failed(self, node_id: NodeId) -> None:
        """It cannot be reached, or has hung up on us."""
        self.on_answer(node_id, 0.0, False)

    @contextmanager
    def searching(self, node_id: NodeId) -> Iterator[None]:
        """As `waiting`, for what it has: a few bytes, whatever the link."""
        began_s = trio.current_time()
        with self.waiting(node_id):
            yield
        self._searches_s.append(trio.current_time() - began_s)

    @contextmanager
    def waiting(self, node_id: NodeId) -> Iterator[None]:
        """While an answer is due. What we gave up waiting for makes nobody look quicker."""
        began_s, has_come = trio.current_time(), False
        try:
            yield
            has_come = True
        finally:
            cost_s = (trio.current_time() - began_s) / self._slowness
            if has_come or cost_s > LONG_S:
                self.on_answer(node_id, cost_s, has_come)
            before_s = self._cost_s.pop(node_id, cost_s)
            mean_s = (before_s + cost_s) / 2
            self._cost_s[node_id] = mean_s if has_come else max(mean_s, before_s)
            while len(self._cost_s) > SOURCES_MAX:
                del self._cost_s[next(iter(self._cost_s))]
