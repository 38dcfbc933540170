"""What a verifier is asked to trust, and what it tells."""

from dataclasses import dataclass, field

from daa_dag.ids import ChainId, VertexId
from daa_node.checkpoints.plain_files import Problem


@dataclass(frozen=True, slots=True)
class Anchor:
    """A vertex that the operator trusts; with `starts_replay` no delta below it is replayed."""

    vertex_id: VertexId
    starts_replay: bool = False


@dataclass(slots=True)
class Report:
    """What was checked. Problems name files by their path in the chain directory."""

    chain_id: ChainId
    heights: int = 0  # of the highest vertex that is certified
    tip: VertexId | None = None  # that vertex
    promised: tuple[int, VertexId] | None = None  # final by the headers, above it, and not here
    replayed_from: int = 0  # height of the state that the replay began with
    pruned_below: int = 0  # height of the snapshot below which states were let go; 0: none were
    vertices: int = 0
    certificates: int = 0
    light: int = 0  # vertices that the end of their epoch proves, and no certificate of theirs
    chunks: int = 0
    bytes_read: int = 0
    unfinished: int = 0  # files of a write under way: whole, and not yet part of the chain
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def settle(self) -> None:
        """Each problem once, in their order."""
        self.problems = sorted({*self.problems}, key=lambda p: (p.where, p.what))
