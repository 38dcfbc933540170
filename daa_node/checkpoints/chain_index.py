"""What a verifier must find again of a long chain, in a file that it throws away.

loose     files that are no records of packs, with their bytes
finals    each block with a finalization of its own, by epoch
path      final blocks from the genesis block up
vertices  that final results name, lowest first, with their roots and what of their states is listed
used      names that belong to the chain, each once; of a chunk with its size
"""

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, BlockId, VertexId
from daa_node.packs.format import key_of

CACHE_KIB = 4096  # of the file, in memory
ROWS = 256  # read at a time

_TABLES = """
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA temp_store = FILE;
    CREATE TABLE loose (name TEXT PRIMARY KEY, size INTEGER) WITHOUT ROWID;
    CREATE TABLE finals (id BLOB PRIMARY KEY, epoch INTEGER, view INTEGER) WITHOUT ROWID;
    CREATE TABLE path (place INTEGER PRIMARY KEY, id BLOB UNIQUE);
    CREATE TABLE vertices (
        place INTEGER PRIMARY KEY, height INTEGER, id BLOB, delta BLOB, model BLOB,
        outer_state BLOB, holds INTEGER, has_delta INTEGER, has_model INTEGER, has_outer INTEGER
    );
    CREATE TABLE used (key BLOB PRIMARY KEY, size INTEGER) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A vertex, as far as its state goes."""

    height: int
    vertex_id: VertexId
    delta_root: BlobRoot
    model_root: BlobRoot
    outer_root: BlobRoot
    has_delta: bool
    has_model: bool
    has_outer: bool

    @property
    def has_snapshot(self) -> bool:
        return self.has_model and self.has_outer


_USE = "INSERT OR IGNORE INTO used VALUES (?, ?)"
_STEPS = (
    "SELECT height, id, delta, model, outer_state, has_delta, has_model, has_outer FROM vertices"
)


class ChainIndex:
    """Raises sqlite3.Error when the disk is full."""

    def __init__(self, path: Path | None) -> None:
        """None: in memory."""
        self._base = sqlite3.connect(path or ":memory:", isolation_level=None)
        self._base.executescript(_TABLES)
        self._base.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._base.execute("BEGIN")  # or every row would be written at once
        self.names = Names(self._base)
        self.headers = Headers(self._base)
        self.vertices = Vertices(self._base)

    def close(self) -> None:
        self._base.close()


class Names:
    """Of files, as `kind/name`: which are no records of packs, and which belong to the chain."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base

    def forget_loose(self) -> None:
        self._base.execute("DELETE FROM loose")

    def add_loose(self, name: str, size_bytes: int) -> None:
        self._base.execute("INSERT INTO loose VALUES (?, ?)", (name, size_bytes))

    def loose(self) -> Iterator[tuple[str, int]]:
        """Each with its bytes."""
        yield from _rows(self._base, "SELECT name, size FROM loose ORDER BY name")

    def is_loose(self, name: str) -> bool:
        return _has(self._base, "SELECT 1 FROM loose WHERE name = ?", name)

    def use(self, name: str) -> bool:
        """The name belongs to the chain; whether that is new."""
        return self._base.execute(_USE, (_key(name), 0)).rowcount > 0

    def use_all(self, names: Iterable[str]) -> None:
        self._base.executemany(_USE, ((_key(name), 0) for name in names))

    def uses(self, name: str) -> bool:
        """Whether it belongs to the chain."""
        return _has(self._base, "SELECT 1 FROM used WHERE key = ?", _key(name))

    def keep_size(self, name: str, size_bytes: int) -> None:
        """A chunk's name belongs to the chain; with what is to be known of it."""
        self._base.execute(_USE, (_key(name), size_bytes))

    def size_of(self, name: str) -> int | None:
        """What is known of a chunk."""
        found = self._base.execute("SELECT size FROM used WHERE key = ?", (_key(name),)).fetchone()
        return None if found is None else int(found[0])


class Headers:
    """Final blocks."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base
        self._lowest = 0  # place on the path: it is told from the tip down

    def add_final(self, block_id: BlockId, epoch: int, view: int) -> None:
        self._base.execute("INSERT INTO finals VALUES (?, ?, ?)", (block_id, epoch, view))

    def index_finals(self) -> None:
        """Once all are in."""
        self._base.execute("CREATE INDEX by_slot ON finals (epoch, view)")

    def finals_down(self) -> Iterator[tuple[BlockId, int, int]]:
        """With epoch and view, the newest first."""
        yield from _rows(
            self._base, "SELECT id, epoch, view FROM finals ORDER BY epoch DESC, view DESC"
        )

    def count_finals(self) -> int:
        found: int = self._base.execute("SELECT count(*) FROM finals").fetchone()[0]
        return found

    def has_final(self, block_id: BlockId) -> bool:
        return _has(self._base, "SELECT 1 FROM finals WHERE id = ?", block_id)

    def add_below(self, block_id: BlockId) -> None:
        """The next block of the path, from its tip down."""
        self._lowest -= 1
        self._base.execute("INSERT INTO path VALUES (?, ?)", (self._lowest, block_id))

    def path_up(self) -> Iterator[BlockId]:
        """From the genesis block to the tip."""
        for (block_id,) in _rows(self._base, "SELECT id FROM path ORDER BY place"):
            yield block_id

    def beside_path(self, lowest_epoch: int, highest_epoch: int) -> list[BlockId]:
        """Blocks of these epochs with a finalization of their own that are not on the path."""
        found = self._base.execute(
            "SELECT finals.id FROM finals LEFT JOIN path ON path.id = finals.id "
            "WHERE finals.epoch BETWEEN ? AND ? AND path.id IS NULL",
            (lowest_epoch, highest_epoch),
        )
        return [block_id for (block_id,) in found]


class Vertices:
    """The genesis vertex, and those that final results name."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base

    def add(self, vertex: Vertex, holds: bool, is_listed: tuple[bool, bool, bool]) -> None:
        """The next one; whether it holds, and whether delta, weights and momentum are listed."""
        roots = (vertex.delta_root, vertex.model_root, vertex.outer_state_root)
        self._base.execute(
            "INSERT INTO vertices VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (vertex.height, vertex.vertex_id, *roots, holds, *is_listed),
        )

    def index(self) -> None:
        """Once all are in."""
        self._base.execute("CREATE INDEX by_delta ON vertices (delta, height)")
        self._base.execute("CREATE INDEX by_id ON vertices (id)")

    def height_of(self, vertex_id: VertexId) -> int | None:
        """Of one that holds."""
        found = self._base.execute(
            "SELECT height FROM vertices WHERE id = ? AND holds", (vertex_id,)
        ).fetchone()
        return None if found is None else int(found[0])

    def all(self) -> Iterator[Step]:
        return self._steps("ORDER BY place")

    def holding(self, lowest: int) -> Iterator[Step]:
        """What holds, from this height up."""
        return self._steps("WHERE holds AND height >= ? ORDER BY place", lowest)

    def not_replayed(self, start: int, pruned_below: int) -> Iterator[Step]:
        """All but the genesis vertex, and what holds above `start` or up to the other one."""
        either = (start, pruned_below)
        return self._steps(
            "WHERE place > 1 AND NOT (holds AND (height > ? OR height <= ?)) AND NOT EXISTS "
            "(SELECT 1 FROM vertices AS other WHERE other.id = vertices.id AND other.holds AND "
            "other.place > 1 AND (other.height > ? OR other.height <= ?)) ORDER BY place",
            *either,
            *either,
        )

    def floor(self) -> int:
        """The height whose snapshot a pruned chain starts with; 0 for a chain kept whole.

        Pruning keeps the snapshot of some height s and, of the deltas up to s, only those that are
        steps above s as well.
        """
        lacking = "SELECT max(height) FROM vertices WHERE holds AND height > 0 AND NOT has_delta"
        (highest,) = self._base.execute(lacking).fetchone()
        if highest is None:
            return 0
        found = self._base.execute(
            "SELECT min(height) FROM vertices AS first WHERE holds AND height >= ? AND has_model "
            "AND has_outer AND NOT EXISTS (SELECT 1 FROM vertices AS below WHERE below.holds AND "
            "below.height BETWEEN 1 AND first.height AND below.has_delta AND NOT EXISTS (SELECT 1 "
            "FROM vertices AS above WHERE above.delta = below.delta AND above.holds AND "
            "above.height > first.height))",
            (highest,),
        )
        return int(found.fetchone()[0] or 0)

    def highest_snapshot(self, above: int, highest: int) -> int | None:
        """Of what holds."""
        found: int | None = self._base.execute(
            "SELECT max(height) FROM vertices WHERE holds AND height > ? AND height <= ? AND "
            "has_model AND has_outer",
            (above, highest),
        ).fetchone()[0]
        return found

    def _steps(self, which: str, *values: int) -> Iterator[Step]:
        for height, vertex_id, delta, model, outer, *there in _rows(
            self._base, f"{_STEPS} {which}", values
        ):
            yield Step(height, vertex_id, delta, model, outer, *map(bool, there))


def _has(base: sqlite3.Connection, query: str, value: bytes | str) -> bool:
    return base.execute(query, (value,)).fetchone() is not None


def _rows(
    base: sqlite3.Connection, query: str, values: Iterable[int] = ()
) -> Iterator[tuple[Any, ...]]:
    cursor = base.execute(query, tuple(values))
    while rows := cursor.fetchmany(ROWS):
        yield from rows


def _key(name: str) -> bytes:
    """A third of the name, which must be one of a chain."""
    kind, _, rest = name.partition("/")
    key = key_of(kind, rest)
    assert key is not None
    return key
