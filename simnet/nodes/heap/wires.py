"""Thousands of nodes' links and lives: what arrives where and when, and who is there to hear it.

Datagrams may be lost, a stream's messages only late (simnet.world.links). Faults cut links, hold,
slow and thin out what they carry, and kill or freeze the nodes at their ends. What a frozen node
would have heard or done comes when it wakes, in order; what was meant for a dead one is gone.

Every message goes into the trace hash: when it was sent, from whom to whom, when it arrives (or
that it does not) and a digest of what it says, in batches.
"""

from array import array
from collections.abc import Callable
from math import prod
from typing import Any, Generic, Protocol, TypeVar

from daa_node.errors import UserError
from simnet.nodes.heap.engine import Call, Engine
from simnet.world.determinism import FAULT, Streams, Trace
from simnet.world.faults import Edge, timeline
from simnet.world.link_conditions import OF_LINKS, LinkConditions
from simnet.world.links import NS, Link
from simnet.world.scenario import FaultKind, Scenario
from simnet.world.topology import Topology

LOG_NUMBERS_MAX = 1 << 16  # 512 KiB: hashing more at once is no faster
NODE_BITS = 32
# Under more than this a link is not counted on: a fault of either end, or several together.
OPEN_SLOWNESS_MAX = 10
OPEN_LOSS_PERCENT_MAX = 50
LOST = -1  # in place of a moment of arrival
FAULTS: frozenset[FaultKind] = frozenset(
    ("partition", "hold", "slow", "loss", "kill", "pause", "attrition")
)


class Message(Protocol):
    """What travels. `key` stands for its bytes: equal keys, equal bytes; below 2^63."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def key(self) -> int: ...


M = TypeVar("M", bound=Message)
Deliver = Callable[[int, int, M], None]  # sender, receiver, message


class Wires(Generic[M]):
    """All links of one world, as datagrams or as streams."""

    def __init__(
        self, scenario: Scenario, trace: Trace, deliver: Deliver[M], reliable: bool
    ) -> None:
        """Raises UserError for faults that befall what these worlds do not have."""
        for index, fault in enumerate(scenario.faults):
            if fault.kind not in FAULTS:
                raise UserError(f"heap {scenario.work.kind} has no {fault.kind}: faults[{index}]")
        streams = Streams(scenario.seed)
        count = scenario.node_count
        self.topology = Topology(scenario, streams)
        self.engine = Engine()
        self.end_ns = int(scenario.duration_s * NS)
        self._edges = timeline(scenario, streams)
        self._trace = trace
        self._deliver = deliver
        self._reliable = reliable
        self._count = count
        self._chances = [streams.random(f"links of {node}") for node in range(count)]
        self._links: list[dict[int, Link]] = [{} for _ in range(count)]  # [sender][receiver]
        self._log: list[int] = []
        self.sent = [0] * count  # messages
        self.sent_bytes = [0] * count
        self.lost = 0
        self._conditions = LinkConditions(self.topology.link, count)
        self._paused: list[Edge] = []
        self._down = [0] * count  # of how many faults
        self._lives = [0] * count  # how often it died

    def play(self, on_edge: Callable[[Edge], None]) -> None:
        """The whole scenario. `on_edge` hears of each fault that begins or ends, and applies it."""
        for edge in self._edges:
            if edge.at_ns <= self.end_ns:
                self.engine.at(edge.at_ns, on_edge, edge)
        self.engine.run(self.end_ns)
        self._flush()

    def send(self, sender: int, receiver: int, message: M) -> None:
        """It leaves now, and is delivered when it arrives, if it does."""
        engine = self.engine
        now_ns, size_bytes = engine.now_ns, message.size_bytes
        link = self._links[sender].get(receiver) or self._open(sender, receiver)
        arrival_ns = link.stream_arrival_ns if self._reliable else link.arrival_ns
        at_ns = arrival_ns(now_ns, size_bytes)
        if at_ns is not None and not self._conditions.is_fair:
            at_ns = self._troubled(now_ns, sender, receiver, at_ns)
        self.sent[sender] += 1
        self.sent_bytes[sender] += size_bytes
        arrives_ns = LOST if at_ns is None else at_ns
        self._log += (now_ns, sender << NODE_BITS | receiver, arrives_ns, message.key)
        if len(self._log) >= LOG_NUMBERS_MAX:
            self._flush()
        if at_ns is None:
            self.lost += 1
        else:
            engine.at(at_ns, self._arrive, sender, receiver, message)

    def alarm(self, when_ns: int, node: int, call: Call, *args: Any) -> None:
        """A timer of `node`: it dies with the node, and sleeps with it."""
        self.engine.at(when_ns, self._ring, self._lives[node], node, call, args)

    def _flush(self) -> None:
        """Bring the trace up to date."""
        self._trace.frames(array("q", self._log).tobytes(), len(self._log) // 4)
        self._log.clear()

    def is_up(self, node: int) -> bool:
        return not self._down[node]

    @property
    def is_calm(self) -> bool:
        """No fault befalls anybody now."""
        return self._conditions.is_fair and not (self._paused or any(self._down))

    def is_open(self, sender: int, receiver: int) -> bool:
        """Whether both are up and what one says now comes to the other soon, as a rule.

        A flapping link counts as cut at all times.
        """
        if self._down[sender] or self._down[receiver]:
            return False
        ends, conditions = (sender, receiver), self._conditions
        if any(node in edge.nodes for edge in self._paused for node in ends):
            return False
        if conditions.befalling(ends, "hold") or conditions.is_cut(ends):
            return False
        slowness = prod(edge.fault.factor for edge in conditions.befalling(ends, "slow"))
        loss_percent = sum(edge.fault.percent for edge in conditions.befalling(ends, "loss"))
        return slowness <= OPEN_SLOWNESS_MAX and loss_percent <= OPEN_LOSS_PERCENT_MAX

    def apply(self, edge: Edge) -> list[int]:
        """A fault begins or ends. Says which nodes died, or came back without what they knew."""
        fault = edge.fault
        self._trace.note(self.engine.now_ns, FAULT, **edge.told())
        if fault.kind in OF_LINKS:
            self._conditions.turn(edge)
            if fault.kind in ("slow", "loss"):
                self._remodel(edge.nodes)
        elif fault.kind != "pause":
            return [node for node in edge.nodes if self._dies_or_returns(node, edge.begins)]
        elif edge.begins:
            self._paused.append(edge)
        else:
            self._paused = [each for each in self._paused if each.fault is not fault]
        return []

    def _arrive(self, sender: int, receiver: int, message: M) -> None:
        if self._down[receiver]:
            self.lost += 1
        elif self._paused and (wakes_ns := self._wakes_ns(receiver)) > self.engine.now_ns:
            self.engine.at(wakes_ns, self._arrive, sender, receiver, message)
        else:
            self._deliver(sender, receiver, message)

    def _ring(self, life: int, node: int, call: Call, args: tuple[Any, ...]) -> None:
        if life != self._lives[node]:
            return
        if self._paused and (wakes_ns := self._wakes_ns(node)) > self.engine.now_ns:
            self.engine.at(wakes_ns, self._ring, life, node, call, args)
        else:
            call(*args)

    def _wakes_ns(self, node: int) -> int:
        return _end_ns([edge for edge in self._paused if node in edge.nodes])

    def _troubled(self, now_ns: int, sender: int, receiver: int, at_ns: int) -> int | None:
        ends = (sender, receiver)
        if self._conditions.is_cut(ends, now_ns):
            return None
        return max(at_ns, _end_ns(self._conditions.befalling(ends, "hold")))

    def _dies_or_returns(self, node: int, dies: bool) -> bool:
        """Whether it did: of two faults that kill it, the first does and the last lets go."""
        before = self._down[node]
        self._down[node] += 1 if dies else -1
        if dies and not before:
            self._lives[node] += 1
        return not before or not self._down[node]

    def _open(self, sender: int, receiver: int) -> Link:
        link = Link(self._conditions.model((sender, receiver)), self._chances[sender])
        self._links[sender][receiver] = link
        return link

    def _remodel(self, nodes: tuple[int, ...]) -> None:
        touched = frozenset(nodes)
        for sender, links in enumerate(self._links):
            for receiver, link in links.items():
                if sender in touched or receiver in touched:
                    link.model = self._conditions.model((sender, receiver))
                    if not self._reliable:
                        # what a slower link still carries may be overtaken: only streams keep order
                        links[receiver] = Link(link.model, self._chances[sender])


def _end_ns(edges: list[Edge]) -> int:
    return max((int(edge.fault.heals_s * NS) for edge in edges), default=0)
