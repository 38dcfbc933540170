"""How this node stands with others: each tells it when it is asked, and of nobody else.

What they say changes nothing here; it is for the operator. Whoever lies about it, or says nothing,
costs the operator a moment and a line of the list.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import trio

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import NodeId
from daa_node.contributors.records import HealthRecords
from daa_node.contributors.score import PER_MILLE, RULES, Component, Level, Measure
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import PeerId

REQUEST = "standing"
ANSWER_BYTES_MAX = 256  # four short words and a number
PATIENCE_S = 2.0  # for all answers together: an operator waits
FRESH_S = 10.0  # a script that asks without end asks the others no more often
ASKED_AT_ONCE_MAX = 16

# (peer, name of the request, body, bytes of the answer at most) -> answer; raises NodeError
Ask = Callable[[PeerId, str, bytes, int], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class View:
    """What somebody says that it thinks of us. `measure`: which would raise the score most."""

    level: Level
    score: float
    weakest: Component
    measure: Measure | None

    def as_told(self) -> dict[str, Any]:
        return {
            "level": str(self.level),
            "score": round(self.score, 3),
            "weakest": str(self.weakest),
            "would_raise": None if self.measure is None else RULES[self.measure].remedy,
        }


class Views:
    """Both ends of one node: `answer` tells others how they stand, `of_us` asks them."""

    def __init__(
        self,
        records: HealthRecords,
        node_of: Callable[[PeerId], NodeId | None],
        contributors: Callable[[], Mapping[NodeId, PeerId]],
        ask: Ask,
        fault: Callable[[NodeId, PeerFault], None],
    ) -> None:
        """`contributors`: those that we have a connection with."""
        self._records = records
        self._node_of = node_of
        self._contributors = contributors
        self._ask = ask
        self._fault = fault
        self._known: Mapping[NodeId, View] = {}
        self._known_until_s = float("-inf")
        self._turn = trio.Lock()  # who comes while we ask waits for the same answers

    async def answer(self, peer_id: PeerId, body: bytes) -> bytes:
        """Raises PeerFault, and Unavailable for whom we have never seen contribute."""
        if body:
            raise PeerFault("standing-malformed", f"{len(body)} bytes, want none")
        node = self._node_of(peer_id)
        if node is None or not self._records.knows(node):
            raise Unavailable("you have contributed nothing that this node has seen")
        assessment, level = self._records.assessment_of(node), self._records.level_of(node)
        score, weakest = round(assessment.score * PER_MILLE), assessment.weakest
        worst = weakest.worst
        measure = None if worst is None else str(worst)
        return canonical.encode([str(level), score, str(weakest.component), measure])

    async def of_us(self) -> Mapping[NodeId, View]:
        """Who answered, and what; asked again only after a while."""
        async with self._turn:
            if trio.current_time() >= self._known_until_s:
                self._known_until_s = trio.current_time() + FRESH_S  # also if who asked leaves
                self._known = await self._ask_all()
        return self._known

    async def _ask_all(self) -> Mapping[NodeId, View]:
        found: dict[NodeId, View] = {}
        limit = trio.CapacityLimiter(ASKED_AT_ONCE_MAX)
        with trio.move_on_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                for node, peer_id in self._contributors().items():
                    nursery.start_soon(self._ask_one, node, peer_id, limit, found)
        return found

    async def _ask_one(
        self, node: NodeId, peer_id: PeerId, limit: trio.CapacityLimiter, found: dict[NodeId, View]
    ) -> None:
        async with limit:
            try:
                answer = await self._ask(peer_id, REQUEST, b"", ANSWER_BYTES_MAX)
            except (Unavailable, PeerFault):  # it has nothing to say, or its fault is counted
                return
        try:
            found[node] = view_in(answer)
        except PeerFault as fault:
            self._fault(node, fault)


def view_in(answer: bytes) -> View:
    """Raises PeerFault."""
    try:
        value = canonical.decode(answer, ANSWER_BYTES_MAX)
    except NotCanonical as fault:
        raise PeerFault("standing-malformed", str(fault)) from None
    match value:
        case [str(level), int(score), str(weakest), None | str() as measure] if (
            level in list(Level)
            and not isinstance(score, bool)
            and 0 <= score <= PER_MILLE
            and weakest in list(Component)
            and (measure is None or measure in list(Measure))
        ):
            worst = None if measure is None else Measure(measure)
            return View(Level(level), score / PER_MILLE, Component(weakest), worst)
        case _:
            raise PeerFault("standing-malformed", "no level, score, component and measure")
