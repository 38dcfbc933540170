"""Epochs that a member has shown beyond the one that is being taken: judged when their turn comes.

Who follows an epoch of another committee must have followed all below, so none is looked at before.
"""

from collections import deque
from collections.abc import Iterable

from daa_consensus.bft.messages import Block
from daa_dag.ids import NodeId
from daa_node.checkpoints.epochs import follows
from daa_node.checkpoints.publish import Page


class EpochsAhead:
    """What one member has shown, oldest first: at most one answer's."""

    def __init__(self) -> None:
        self._node = NodeId(b"")
        self._pages: deque[Page] = deque()

    def keep(self, node: NodeId, pages: Iterable[Page]) -> None:
        """In place of all that was kept."""
        self._node, self._pages = node, deque(pages)

    def take(self, tip: Block) -> tuple[NodeId, Page] | None:
        """The page right above the tip, and who brought it; without one, nothing is kept."""
        if self._pages and follows(self._pages[0], tip.id):
            return self._node, self._pages.popleft()
        self.clear()
        return None

    def clear(self) -> None:
        self._pages.clear()
