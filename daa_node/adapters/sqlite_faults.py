"""What is wrong with a history file, and what SQLite says of it in our words."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from daa_node.adapters import sqlite_schema as schema
from daa_node.errors import StorageFailed

BUSY_S = 2.0  # somebody copies the file, or looks at it with another program
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
PRIMARY_CODE = 0xFF  # of an error code: what lies above it says more exactly what happened
REMEDY = ". A daemon sets it aside when it starts, and begins another"


def fault_of(path: Path) -> str | None:
    """What is wrong with the file; None if nothing is.

    Raises StorageFailed for one of a newer program.
    """
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as database:
            database.text_factory = partial(str, encoding="utf-8", errors="replace")
            (application,) = database.execute("PRAGMA application_id").fetchone()
            (version,) = database.execute("PRAGMA user_version").fetchone()
            (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
            tables = _tables(database)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as fault:  # names and messages rot, too
        if isinstance(fault, sqlite3.DatabaseError) and not is_damage(fault):
            raise
        return f"is damaged ({fault})"
    if (application, version, tables) == (0, 0, set()):
        return None  # begun, and no more
    if application != schema.APPLICATION_ID:
        return "is no history of a node"
    if schema.VERSION < version <= schema.VERSIONS_MAX:
        raise of_newer(path, version)
    with closing(sqlite3.connect(":memory:")) as fresh:
        fresh.executescript(schema.TABLES)
        lacks = sorted(name for name, _ in _tables(fresh) - tables)
    if found == "ok" and version == schema.VERSION and not lacks:
        return None
    why = found if found != "ok" else f"version {version}, tables: {', '.join(lacks) or 'whole'}"
    return f"is damaged ({why})"


def of_newer(path: Path | None, version: int) -> StorageFailed:
    """A file that is whole, and not ours to change."""
    return StorageFailed(
        f"{path} was written by a newer daa-node: it is a history of format {version}, this "
        f"program reads up to {schema.VERSION}; update the program, or move it away: another one "
        "is begun from the chain"
    )


def _tables(database: sqlite3.Connection) -> set[tuple[str, str]]:
    """Name and statement of each table and index."""
    return set(database.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def is_damage(fault: sqlite3.Error) -> bool:
    """Not a disk that is full, slow or read-only."""
    code = getattr(fault, "sqlite_errorcode", None)
    return code is not None and code & PRIMARY_CODE in DAMAGE


@contextmanager
def storage(path: Path | None) -> Iterator[None]:
    """StorageFailed in place of what SQLite and the system raise."""
    try:
        yield
    except sqlite3.Error as fault:
        raise StorageFailed(f"the history at {path}: {fault}{REMEDY * is_damage(fault)}") from fault
    except (ValueError, TypeError, LookupError, OverflowError) as fault:  # as rotten rows are read
        raise StorageFailed(f"the history at {path} is damaged: {fault}{REMEDY}") from fault
    except OSError as fault:
        raise StorageFailed(f"the history at {path}: {fault.strerror or fault}") from fault
