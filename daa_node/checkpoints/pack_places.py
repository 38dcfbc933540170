"""Which of very many packs holds a record: in a file of the system's own, which it throws away.

A daemon merges its packs, so a hundred are a lot. Whoever hands over a directory may have cut a
chain into tens of thousands, and each record would be looked for in all of them.
"""

import sqlite3
from collections.abc import Iterable, Iterator

CACHE_KIB = 4096  # of the file, in memory

_TABLE = """
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE places (key BLOB PRIMARY KEY, pack INTEGER) WITHOUT ROWID;
"""


class PackPlaces:
    """Raises sqlite3.Error where there is no room for it."""

    def __init__(self, packs: Iterable[Iterator[bytes]]) -> None:
        """The keys that each pack holds, pack by pack."""
        self._base = sqlite3.connect("", isolation_level=None)  # "": its file has no name
        self._base.executescript(_TABLE)
        self._base.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._base.execute("BEGIN")
        for number, keys in enumerate(packs):
            self._base.executemany(
                "INSERT OR IGNORE INTO places VALUES (?, ?)", ((key, number) for key in keys)
            )

    def get(self, key: bytes) -> int | None:
        """Which pack, as they were counted; None if it is none of them."""
        found = self._base.execute("SELECT pack FROM places WHERE key = ?", (key,)).fetchone()
        return None if found is None else int(found[0])

    def __del__(self) -> None:
        self._base.close()
