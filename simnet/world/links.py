"""How long a message takes from one node to another, if it arrives at all.

A directed link sends one message after the other at its rate, then each takes latency and jitter;
a lossy link drops messages, or, below a reliable stream, delays them by a retransmission. Messages
keep their order unless the link reorders. All times are integer nanoseconds. The queue in front of
a link is bounded in time, as in a router: what would wait longer is lost.
"""

import random
from dataclasses import dataclass

NS = 1_000_000_000
MS = 1_000_000
MILLION = 1_000_000
RETRANSMITS_MAX = 15  # of one segment, as Linux has it (tcp_retries2)


@dataclass(frozen=True, slots=True)
class LinkModel:
    """What one direction of a link does to messages. `*_ppm` are parts in a million."""

    latency_ns: int = 0
    jitter_ns: int = 0  # at most so much more, evenly distributed
    bits_per_s: int = 0  # 0: as fast as you like
    loss_ppm: int = 0
    reorder_ppm: int = 0  # of messages that others may overtake by up to twice the latency
    queue_ns: int = 2 * NS  # of waiting for the messages before; more is dropped

    def slowed(self, factor: float) -> "LinkModel":
        """The same link, `factor` times slower in latency and rate."""
        return LinkModel(
            int(self.latency_ns * factor),
            int(self.jitter_ns * factor),
            max(1, int(self.bits_per_s / factor)) if self.bits_per_s else 0,
            self.loss_ppm,
            self.reorder_ppm,
            int(self.queue_ns * factor),
        )


class Link:
    """One direction between two nodes, with the messages that it still carries."""

    __slots__ = ("_busy_ns", "_last_ns", "_random", "carried", "dropped", "model")

    def __init__(self, model: LinkModel, chance: random.Random) -> None:
        self.model = model
        self._random = chance
        self._busy_ns = 0  # until when it is sending what it has taken
        self._last_ns = 0  # the newest arrival: later messages come after it
        self.carried = 0
        self.dropped = 0

    def arrival_ns(self, now_ns: int, size_bytes: int) -> int | None:
        """When a datagram sent now arrives; None if it is lost."""
        model = self.model
        if model.loss_ppm and self._random.random() * MILLION < model.loss_ppm:
            self.dropped += 1
            return None
        if self._busy_ns - now_ns > model.queue_ns:
            self.dropped += 1
            return None
        at_ns, late_ns = self._sent_ns(now_ns, size_bytes), self._late_ns()
        if late_ns:
            return at_ns + late_ns
        self._last_ns = max(self._last_ns, at_ns)
        return self._last_ns

    def stream_arrival_ns(self, now_ns: int, size_bytes: int) -> int:
        """When bytes of a reliable stream sent now arrive, in order.

        A loss costs a round trip, again and again with the link's loss rate, as the fast retransmit
        of TCP does. What follows is on its way meanwhile, and is lost and sent again beside it, not
        after it. A longer queue is back-pressure, which the stream's owner feels as waiting. A link
        that loses everything is a cut, which is not ours to notice: RETRANSMITS_MAX ends it.
        """
        model, again = self.model, 0
        if model.loss_ppm:
            while again < RETRANSMITS_MAX and self._random.random() * MILLION < model.loss_ppm:
                again += 1
        at_ns = self._sent_ns(now_ns, size_bytes) + self._late_ns()
        at_ns += again * 2 * model.latency_ns
        self._last_ns = max(self._last_ns, at_ns)
        return self._last_ns

    def _sent_ns(self, now_ns: int, size_bytes: int) -> int:
        """When it arrives behind what the link still sends, alone on the way."""
        model = self.model
        start_ns = self._busy_ns if self._busy_ns > now_ns else now_ns
        if model.bits_per_s:
            start_ns += size_bytes * 8 * NS // model.bits_per_s
            self._busy_ns = start_ns
        at_ns = start_ns + model.latency_ns
        if model.jitter_ns:
            at_ns += int(self._random.random() * (model.jitter_ns + 1))
        self.carried += 1
        return at_ns

    def _late_ns(self) -> int:
        """How much later it comes if others may overtake it; else 0."""
        model = self.model
        if model.reorder_ppm and self._random.random() * MILLION < model.reorder_ppm:
            return int(self._random.random() * (2 * model.latency_ns + 1))
        return 0
