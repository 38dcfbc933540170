"""How much of what a member wishes for it gets: one largest letter a delta, each of its own.

A wish is sixty bytes, and what grants it a block or certificates. Honest members wish for what they
lack and ask again after a delta, so that a pace of bytes keeps nobody waiting who reads what comes:
a largest block a delta, or a hundred small ones.
"""

from collections.abc import Callable

from daa_dag.ids import NodeId
from daa_node.network.pace import Pace

WISH_COST_BYTES = 1024  # of a wish that finds nothing: a look at the disk


class Wishes:
    """One node's accounts of the members that ask it."""

    def __init__(self, delta_s: float, letter_bytes_max: Callable[[], int]) -> None:
        self._delta_s = delta_s
        self._letter_bytes_max = letter_bytes_max
        self._paces: dict[NodeId, tuple[int, Pace]] = {}  # of members: nobody else writes to us

    def grants(self, member: NodeId) -> bool:
        """Whether the member may be answered now; counts the look at what it asks for."""
        pace = self._pace_of(member)
        if pace.debt_s:
            return False
        pace.spend(WISH_COST_BYTES)
        return True

    def granted(self, member: NodeId, sent_bytes: int) -> None:
        """So much has been sent to it."""
        self._pace_of(member).spend(sent_bytes)

    def _pace_of(self, member: NodeId) -> Pace:
        most = self._letter_bytes_max()
        of_most, pace = self._paces.get(member, (0, None))
        if pace is None or of_most < most:  # letters grow with the committee
            pace = Pace(most / self._delta_s, 2.0 * most)
            self._paces[member] = (most, pace)
        return pace
