"""What a verifier must find again of a long chain, in a file that it throws away.

finals    each block with a finalization of its own, by epoch
path      final blocks from the genesis block up
vertices  by height, with their roots and what of their states is there
used      names of states that belong to the chain, each once
"""

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, BlockId

CACHE_KIB = 4096  # of the file, in memory
ROWS = 256  # read at a time

_TABLES = """
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA temp_store = FILE;
    CREATE TABLE finals (id BLOB PRIMARY KEY, epoch INTEGER) WITHOUT ROWID;
    CREATE TABLE path (place INTEGER PRIMARY KEY, id BLOB UNIQUE);
    CREATE TABLE vertices (
        height INTEGER PRIMARY KEY, id BLOB, delta BLOB, model BLOB, outer_state BLOB,
        has_delta INTEGER, has_snapshot INTEGER
    );
    CREATE TABLE used (name TEXT PRIMARY KEY, kind TEXT, size INTEGER) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A vertex, as far as its state goes."""

    height: int
    delta_root: BlobRoot
    model_root: BlobRoot
    outer_root: BlobRoot
    has_delta: bool
    has_snapshot: bool


class ChainIndex:
    """Raises sqlite3.Error when the disk is full."""

    def __init__(self, path: Path) -> None:
        self._base = sqlite3.connect(path, isolation_level=None)
        self._base.executescript(_TABLES)
        self._base.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._lowest = 0  # place on the path: it is told from the tip down

    def close(self) -> None:
        self._base.close()

    def add_final(self, block_id: BlockId, epoch: int) -> None:
        self._base.execute("INSERT INTO finals VALUES (?, ?)", (block_id, epoch))

    def add_below(self, block_id: BlockId) -> None:
        """The next block of the path, from its tip down."""
        self._lowest -= 1
        self._base.execute("INSERT INTO path VALUES (?, ?)", (self._lowest, block_id))

    def path_up(self) -> Iterator[BlockId]:
        """From the genesis block to the tip."""
        for (block_id,) in self._rows("SELECT id FROM path ORDER BY place"):
            yield BlockId(block_id)

    def has_final(self, block_id: BlockId) -> bool:
        found = self._base.execute("SELECT 1 FROM finals WHERE id = ?", (block_id,)).fetchone()
        return found is not None

    def beside_path(self, lowest_epoch: int, highest_epoch: int) -> list[BlockId]:
        """Blocks of these epochs with a finalization of their own that are not on the path."""
        found = self._base.execute(
            "SELECT finals.id FROM finals LEFT JOIN path ON path.id = finals.id "
            "WHERE finals.epoch BETWEEN ? AND ? AND path.id IS NULL",
            (lowest_epoch, highest_epoch),
        )
        return [BlockId(block_id) for (block_id,) in found]

    def index_epochs(self) -> None:
        """Once all finals are in."""
        self._base.execute("CREATE INDEX by_epoch ON finals (epoch)")

    def add_vertex(self, vertex: Vertex, has_delta: bool, has_snapshot: bool) -> None:
        roots = (vertex.delta_root, vertex.model_root, vertex.outer_state_root)
        self._base.execute(
            "INSERT INTO vertices VALUES (?, ?, ?, ?, ?, ?, ?)",
            (vertex.height, vertex.vertex_id, *roots, has_delta, has_snapshot),
        )

    def has_vertex(self, vertex_id: bytes) -> bool:
        found = self._base.execute("SELECT 1 FROM vertices WHERE id = ?", (vertex_id,)).fetchone()
        return found is not None

    def steps(self, lowest: int = 0) -> Iterator[Step]:
        """From this height up."""
        for height, delta, model, outer, has_delta, has_snapshot in self._rows(
            "SELECT height, delta, model, outer_state, has_delta, has_snapshot FROM vertices "
            "WHERE height >= ? ORDER BY height",
            (lowest,),
        ):
            roots = (BlobRoot(delta), BlobRoot(model), BlobRoot(outer))
            yield Step(height, *roots, bool(has_delta), bool(has_snapshot))

    def floor(self) -> int | None:
        """The height that a replay begins at: 0, or that of a pruned chain's first snapshot.

        None if the deltas that are there begin at no snapshot. Of deltas at the floor and below,
        only those are there that are steps above it as well.
        """
        lacking = "SELECT max(height) FROM vertices WHERE height > 0 AND NOT has_delta"
        (highest,) = self._base.execute(lacking).fetchone()
        if highest is None:
            return 0
        self._base.execute("CREATE INDEX by_delta ON vertices (delta, height)")
        found = self._base.execute(
            "SELECT min(height) FROM vertices AS first WHERE height >= ? AND has_snapshot "
            "AND NOT EXISTS (SELECT 1 FROM vertices AS below WHERE below.height <= first.height "
            "AND below.height > 0 AND below.has_delta AND NOT EXISTS (SELECT 1 FROM vertices AS "
            "above WHERE above.delta = below.delta AND above.height > first.height))",
            (highest,),
        )
        height: int | None = found.fetchone()[0]
        return height

    def use(self, kind: str, name: str, size_bytes: int = 0) -> int | None:
        """A name of a state belongs to the chain; the size that it had, if it is known already."""
        found = self._base.execute("SELECT size FROM used WHERE name = ?", (name,)).fetchone()
        if found is not None:
            return int(found[0])
        self._base.execute("INSERT INTO used VALUES (?, ?, ?)", (name, kind, size_bytes))
        return None

    def uses(self, name: str) -> bool:
        """Whether it belongs to the chain."""
        found = self._base.execute("SELECT 1 FROM used WHERE name = ?", (name,)).fetchone()
        return found is not None

    def used(self) -> dict[str, int]:
        """How many names of each kind belong to the chain."""
        return dict(self._base.execute("SELECT kind, count(*) FROM used GROUP BY kind"))

    def _rows(self, query: str, values: Iterable[int] = ()) -> Iterator[tuple[Any, ...]]:
        cursor = self._base.execute(query, tuple(values))
        while rows := cursor.fetchmany(ROWS):
            yield from rows
