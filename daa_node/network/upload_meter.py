"""How fast peers take what we send, whoever of them does not.

A link that several share is measured once: bytes over the time in which any of them was being sent
to. Whoever takes an answer and never reads it would stretch that time for ever, and make its server
believe in a thin link, train less and round more. So the peer that was sent to alone for longest
counts for nothing, as long as there are others: one that stalls changes nothing.

What was sent is counted since the start. So a cap that its operator has lowered since bounds it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from daa_dag.ids import NodeId


class UploadMeter:
    """One link's. Times are those of trio's clock."""

    def __init__(self, cap: Callable[[], float | None] = lambda: None) -> None:
        """`cap`: bytes a second that may leave now; None: as the link bears."""
        self._cap = cap
        self._sending: Counter[NodeId] = Counter()  # frames on their way at this moment
        self._counted_s = 0.0  # up to when time is counted
        self.sending_s = 0.0  # while anybody was being sent to
        self._alone_s: defaultdict[NodeId, float] = defaultdict(float)  # while nobody else was
        self._bytes_to: Counter[NodeId] = Counter()

    @property
    def bytes_per_s(self) -> float | None:
        """None before anything was sent."""
        found, cap = self._measured(), self._cap()
        return found if found is None or cap is None else min(found, cap)

    def _measured(self) -> float | None:
        self._count()
        sent_bytes, spent_s = self._bytes_to.total(), self.sending_s
        for slowest in sorted(self._alone_s, key=self._alone_s.__getitem__)[-1:]:
            others_bytes = sent_bytes - self._bytes_to[slowest]
            others_s = spent_s - self._alone_s[slowest]
            if others_bytes and others_s > 0:
                return others_bytes / others_s
        return sent_bytes / spent_s if spent_s else None

    @contextmanager
    def sends(self, node_id: NodeId, size_bytes: int) -> Iterator[None]:
        """While a frame is on its way to the peer; its bytes count once it has left."""
        self._count()
        self._sending[node_id] += 1
        try:
            yield
            self._bytes_to[node_id] += size_bytes
        finally:
            self._count()
            self._sending[node_id] -= 1
            if not self._sending[node_id]:
                del self._sending[node_id]

    def _count(self) -> None:
        now_s = trio.current_time()
        passed_s, self._counted_s = now_s - self._counted_s, now_s
        if self._sending:
            self.sending_s += passed_s
        if len(self._sending) == 1:
            self._alone_s[next(iter(self._sending))] += passed_s
