"""What this node has seen of each contributor, and how each stands with it.

Answers and faults of a round become one observation when it ends, so that a round with many of
them counts for no more than another. The longest unseen author makes room.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from daa_consensus.committee import VALIDATORS_MAX
from daa_dag.ids import NodeId
from daa_node.contributors.score import (
    ROUNDS_KEPT,
    Assessment,
    Level,
    Measure,
    Observation,
    as_told,
    assessed,
    is_last,
    level_of,
    observation,
    turn_of,
)
from daa_node.network.reputation import MILD_COSTS
from daa_node.observability.events import STANDING_CHANGED, EventLog
from daa_node.spot_checks.findings import Finding

AUTHORS_MAX = 2 * VALIDATORS_MAX  # of this committee, and as many that have left it
SOON_S = 1.0  # an answer that takes longer is worth less: others are asked by then


@dataclass(slots=True)
class Record:
    """Of one contributor."""

    history: dict[Measure, deque[Observation]] = field(default_factory=lambda: _empty())
    level: Level = Level.NORMAL
    since_round: int = 0  # at this level
    excluded_because: str | None = None
    assessment: Assessment | None = None  # None: something was seen since
    # of the round under way
    answers: int = 0
    worth: float = 0.0
    has_erred: bool = False


class HealthRecords:
    """One node's. `why_excluded` tells why somebody is, or None."""

    def __init__(
        self, me: NodeId, why_excluded: Callable[[NodeId], str | None], events: EventLog
    ) -> None:
        self._me = me
        self._why_excluded = why_excluded
        self._events = events
        self._authors: OrderedDict[NodeId, Record] = OrderedDict()  # the newest seen last
        self.newest_round = 0

    def authors(self) -> Iterable[tuple[NodeId, Record]]:
        """The newest seen last."""
        return self._authors.items()

    def recall(self, newest_round: int, authors: Sequence[tuple[NodeId, Record]]) -> None:
        """What was known before a restart."""
        self.newest_round = newest_round
        self._authors = OrderedDict(authors[-AUTHORS_MAX:])

    def knows(self, node: NodeId) -> bool:
        """Whether anything was ever seen of it."""
        return node in self._authors

    def level_of(self, node: NodeId) -> Level:
        """As it stood when the newest round ended; normal for a stranger."""
        author = self._authors.get(node)
        return Level.NORMAL if author is None else author.level

    def is_last(self, node: NodeId) -> bool:
        """Whether all others come first, and nobody waits for it."""
        return is_last(self.level_of(node))

    def place_of(self, node: NodeId) -> tuple[bool, int]:
        """`is_last`, and its turn among equals: the least is first."""
        level = self.level_of(node)
        return is_last(level), turn_of(level)

    def assessment_of(self, node: NodeId) -> Assessment:
        author = self._authors.get(node) or Record()
        if author.assessment is None:
            author.assessment = assessed(author.history, self.newest_round)
        return author.assessment

    def told_of(self, node: NodeId) -> dict[str, Any] | None:
        """All there is to tell of it; None of whom nothing was ever seen."""
        author = self._authors.get(node)
        if author is None:
            return None
        return {
            "level": str(author.level),
            "since_round": author.since_round,
            "excluded_because": author.excluded_because,
            **as_told(self.assessment_of(node), author.history),
        }

    def note_finding(self, node: NodeId, finding: Finding) -> None:
        """Of a check by this node. What we had no time for says nothing, nor does a mere doubt."""
        if finding not in (Finding.UNCHECKED, Finding.DOUBTED):
            sound = 1.0 if finding is Finding.SOUND else 0.0
            self._observe(node, Measure.CHECKED, self.newest_round, sound)

    def note_answer(self, node: NodeId, took_s: float, has_come: bool) -> None:
        """What we waited for, until it came, failed, or we gave up."""
        if node in self._authors:
            author = self._authors[node]
            author.answers += 1
            author.worth += SOON_S / max(SOON_S, took_s) if has_come else 0.0

    def note_fault(self, node: NodeId, reason: str) -> None:
        """Mild ones cost time, and that is measured for itself."""
        if node in self._authors and reason not in MILD_COSTS:
            self._authors[node].has_erred = True

    def note_useful(self, round_number: int, worths: Mapping[NodeId, float]) -> None:
        for node, worth in worths.items():
            self._observe(node, Measure.USEFUL, round_number, worth)

    def note_round(self, round_number: int, seen: Mapping[NodeId, Mapping[Measure, float]]) -> None:
        """A round's set is decided: what was seen of each of its planned contributors."""
        self.newest_round = max(self.newest_round, round_number)
        for node, measures in seen.items():
            if node not in self._authors and not any(measures.values()):
                continue  # it has not come yet
            for measure, value in measures.items():
                self._observe(node, measure, round_number, value)
        for node, author in self._authors.items():
            self._end_round(author)
            self._judge(node, author, contributes=node in seen)

    def _observe(self, node: NodeId, measure: Measure, round_number: int, value: float) -> None:
        if node == self._me:
            return
        author = self._authors.setdefault(node, Record(since_round=self.newest_round))
        self._authors.move_to_end(node)
        while len(self._authors) > AUTHORS_MAX:
            self._authors.popitem(last=False)
        author.history[measure].append(observation(round_number, value))
        author.assessment = None

    def _end_round(self, author: Record) -> None:
        if author.has_erred or author.answers:
            worth = 0.0 if author.has_erred else author.worth / author.answers
            author.history[Measure.ANSWERED].append(observation(self.newest_round, worth))
        author.answers, author.worth, author.has_erred = 0, 0.0, False
        author.assessment = None

    def _judge(self, node: NodeId, author: Record, contributes: bool) -> None:
        why = self._why_excluded(node)
        if why is None and author.level is Level.EXCLUDED and not contributes:
            why = author.excluded_because  # whoever was expelled is no member that stands convicted
        assessment = self.assessment_of(node)
        before, level = author.level, level_of(assessment.score, author.level, why is not None)
        author.excluded_because = why
        if level is before:
            return
        author.level, author.since_round = level, self.newest_round
        self._events.emit(
            STANDING_CHANGED,
            node_id=node,
            level=str(level),
            before=str(before),
            score=round(assessment.score, 3),
            weakest=str(assessment.weakest.component),
            why=why or f"would raise it: {assessment.remedy}",
        )


def _empty() -> dict[Measure, deque[Observation]]:
    return {measure: deque(maxlen=ROUNDS_KEPT) for measure in Measure}
