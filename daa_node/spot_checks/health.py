"""What a node has seen of each contributor's work: kept in memory, for people and for this node.

A segment that does not come out as its author says convicts nobody: devices differ, and so far one
node has looked. It is counted beside what came out right.
"""

from collections import OrderedDict
from dataclasses import dataclass

from daa_dag.ids import NodeId
from daa_node.spot_checks.findings import Finding

AUTHORS_MAX = 1024  # the longest unseen is forgotten


@dataclass(frozen=True, slots=True)
class Record:
    """Checks of one author, by this node."""

    sound: int = 0
    differs: int = 0
    unshown: int = 0
    distance: float | None = None  # of the newest one that was recomputed, see SegmentCheck


class Health:
    """Records of contributors, by node id."""

    def __init__(self) -> None:
        self._records: OrderedDict[NodeId, Record] = OrderedDict()

    def of(self, author: NodeId) -> Record:
        return self._records.get(author, Record())

    def note(self, author: NodeId, finding: Finding, distance: float | None = None) -> None:
        if finding is Finding.UNCHECKED:
            return
        before = self.of(author)
        self._records[author] = Record(
            before.sound + (finding is Finding.SOUND),
            before.differs + (finding is Finding.DIFFERS),
            before.unshown + (finding is Finding.UNSHOWN),
            before.distance if distance is None else distance,
        )
        self._records.move_to_end(author)
        if len(self._records) > AUTHORS_MAX:
            self._records.popitem(last=False)
