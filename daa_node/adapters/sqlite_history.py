"""The history of a node in one SQLite file: written by its daemon, read by it and by commands.

One writer at a time, on whatever thread it is called; each reading opens the file anew and sees
whole batches alone. WAL, so that neither waits for the other. A power cut may cost the newest
batches, never the file: the daemon reads them again, from its chain and its event log.
Source: sqlite.org/wal.html, sqlite.org/pragma.html.
"""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path

from daa_dag.ids import NodeId, VertexId
from daa_node.adapters import sqlite_schema as schema
from daa_node.adapters.sqlite_faults import BUSY_S, fault_of, is_damage, of_newer, storage
from daa_node.chronicle.rows import (
    Batch,
    Contributed,
    Decided,
    HostSum,
    LeftOut,
    RoundRow,
    Span,
    Sums,
)
from daa_node.chronicle.store import LACKING_MAX, MEMBERS_MAX, ROWS_MAX, Opened
from daa_node.errors import StorageFailed

WAL_BYTES_MAX = 4 * 1024 * 1024  # kept on disk between two writings
BEING_THERE = ("", "-wal", "-shm")  # of one database, behind its name
MICRO, MILLI = 1_000_000, 1000
# Heights have gaps between their rounds, where thousands may have been aborted.
_LEFT_OUT_OF = """
FROM left_out JOIN hosts USING (host)
WHERE round IN (SELECT round FROM rounds WHERE height BETWEEN ? AND ?)
"""
SCALED_MAX = 1e12  # a diverged loss has no end, and an integer here has 64 bits


class SqliteHistory:
    """The history at `path`; None is one in memory, for a command that makes it as it runs."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._writer: sqlite3.Connection | None = None
        self._host_of: dict[bytes, int] = {}
        self._rot: str | None = None  # that only a write has found: what opens it looks at less

    # Writing

    def open(self) -> Opened:
        """See HistoryStore. Raises StorageFailed."""
        self.close()
        why = None
        with storage(self._path):
            if self._path is not None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                why = self._set_aside_unless_good(self._path)
            self._writer = self._connect()
            (version,) = self._writer.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._writer.executescript(f"BEGIN IMMEDIATE; {schema.TABLES} COMMIT;")
            (height,) = self._writer.execute("SELECT max(height) FROM rounds").fetchone()
            (span,) = self._writer.execute("SELECT max(height) FROM spans").fetchone()
            (until_s,) = self._writer.execute("SELECT value FROM notes").fetchone()
            gaps = self._writer.execute(schema.GAPS, {"count": LACKING_MAX}).fetchall()
        lacking = (at for before, behind in gaps for at in range(before + 1, behind))
        newest = max(height or 0, span or 0)
        return Opened(newest, until_s, why, tuple(islice(lacking, LACKING_MAX)))

    def write(self, batch: Batch) -> None:
        """See HistoryStore. Raises StorageFailed."""
        with self._writing() as database:
            for row in batch.rounds:
                self._add_round(database, row)
            new = [
                each.round
                for each in batch.aborted
                if database.execute(
                    "INSERT OR IGNORE INTO aborted VALUES (?, ?)", (each.round, each.at_s)
                ).rowcount
            ]
            self._add_left_out(database, [one for one in batch.left_out if one.round in new])
            database.executemany(
                "INSERT INTO decisions (at_s, decision, reason) VALUES (?, ?, ?)",
                [(each.at_s, each.decision, each.reason) for each in batch.decisions],
            )
            database.execute("UPDATE notes SET value = max(value, ?)", (batch.events_until_s,))

    def trim(self, now_s: float, rounds_days: int) -> None:
        """See HistoryStore. Raises StorageFailed."""
        old_s = now_s - rounds_days * schema.DAY_S
        with self._writing() as database:
            (height,) = database.execute(
                schema.LAST_TO_FOLD, {"at_s": old_s, "now_s": now_s}
            ).fetchone()
            gone = {"height": height}
            database.execute(schema.FOLD_ROUNDS, gone)
            database.execute(
                "DELETE FROM left_out WHERE round <= "
                "(SELECT coalesce(max(round), 0) FROM rounds WHERE height <= :height)",
                gone,
            )
            database.execute("DELETE FROM contributions WHERE height <= :height", gone)
            database.execute("DELETE FROM rounds WHERE height <= :height", gone)
            over = _nth(database, "aborted", "at_s", schema.ROUNDS_MAX)
            old = {"at_s": max(old_s, over)}
            database.execute(schema.FOLD_ABORTED, old)
            database.execute("DELETE FROM aborted WHERE at_s < :at_s", old)
            over = _nth(database, "left_out", "round", schema.LEFT_OUT_MAX)
            database.execute("DELETE FROM left_out WHERE round <= ?", (over,))
            over = _nth(database, "decisions", "number", schema.DECISIONS_MAX)
            database.execute(schema.OLD_DECISIONS, {"over": over, "at_s": old_s})
            (oldest_s,) = database.execute(
                f"SELECT coalesce(min(from_s), 0) FROM spans WHERE seconds = {schema.HOUR_S}"
            ).fetchone()
            until_s = min(int(now_s) - schema.HOURS_KEPT_S, oldest_s + schema.HOURS_AT_ONCE_S)
            hours = {"from_s": until_s}
            database.execute(schema.FOLD_HOURS, hours)
            database.execute(
                f"DELETE FROM spans WHERE seconds = {schema.HOUR_S} AND from_s < :from_s", hours
            )
            self._forget_hosts(database)

    def close(self) -> None:
        """See HistoryStore."""
        if self._writer is not None:
            with suppress(sqlite3.Error):
                self._writer.close()
        self._writer = None
        self._host_of.clear()

    def _add_round(self, database: sqlite3.Connection, row: RoundRow) -> None:
        is_new = database.execute(
            "INSERT OR IGNORE INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(row.height, row.round, row.vertex_id, row.signers, row.tokens),
                *(len(row.contributors), sum(not each.counts for each in row.contributors)),
                *(row.ended_s, _scaled(row.loss_nats, MICRO), _scaled(row.wall_s, MILLI)),
                row.sent_bytes,
            ),
        ).rowcount
        if not is_new:
            return
        database.execute(
            "UPDATE rounds SET loss = ? WHERE height = ? AND loss IS NULL",
            (_scaled(row.base_loss_nats, MICRO), row.height - 1),
        )
        for each in row.contributors:
            told = {
                "host": self._host(database, each.node_id),
                "height": row.height,
                "ended_s": row.ended_s,
                "tokens": each.tokens,
                "steps": each.steps,
                "bytes": each.size_bytes,
                "counts": int(each.counts),
            }
            database.execute(
                "INSERT INTO contributions VALUES "
                "(:height, :host, :tokens, :steps, :bytes, :counts)",
                told,
            )
            database.execute(schema.ADD_CONTRIBUTED, told)
        self._add_left_out(database, row.left_out)

    def _add_left_out(
        self, database: sqlite3.Connection, left_out: list[LeftOut] | tuple[LeftOut, ...]
    ) -> None:
        for one in left_out:
            host = self._host(database, one.node_id)
            is_new = database.execute(
                "INSERT OR IGNORE INTO left_out VALUES (?, ?, ?)", (one.round, host, one.why)
            ).rowcount
            if is_new:
                _add_why(database, host, one.why, 1)

    def _host(self, database: sqlite3.Connection, node_id: bytes) -> int:
        """Its number here, a new one for a new host."""
        if node_id not in self._host_of:
            database.execute("INSERT OR IGNORE INTO hosts (node_id) VALUES (?)", (node_id,))
            found = database.execute("SELECT host FROM hosts WHERE node_id = ?", (node_id,))
            self._host_of[node_id] = int(found.fetchone()[0])
        return self._host_of[node_id]

    def _forget_hosts(self, database: sqlite3.Connection) -> None:
        """Those beyond HOSTS_MAX become one row, so that no crowd fills the disk."""
        gone = [host for (host,) in database.execute(schema.FORGOTTEN_HOSTS)]
        if not gone:
            return
        kept = self._host(database, schema.EVERYBODY_ELSE)
        for host in gone:
            row = database.execute("SELECT * FROM hosts WHERE host = ?", (host,)).fetchone()
            database.execute(schema.ADD_FORGOTTEN, dict(row))
            whys = database.execute("SELECT why, count FROM host_whys WHERE host = ?", (host,))
            for why, count in whys.fetchall():
                _add_why(database, kept, why, count)
        # tables of a million rows are walked through once, and not once a host
        database.execute("CREATE TEMP TABLE IF NOT EXISTS gone (host INTEGER PRIMARY KEY)")
        database.execute("DELETE FROM gone")
        database.executemany("INSERT INTO gone VALUES (?)", [(host,) for host in gone])
        which = "WHERE host IN (SELECT host FROM gone)"
        database.execute(f"UPDATE OR IGNORE contributions SET host = ? {which}", (kept,))
        for table in ("contributions", "left_out", "host_whys", "hosts"):
            database.execute(f"DELETE FROM {table} {which}")
        self._host_of.clear()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction. Raises StorageFailed, and nothing of it is there then."""
        database = self._writer
        if database is None:
            raise StorageFailed(f"the history at {self._path} is not open")
        with storage(self._path):
            try:
                database.execute("BEGIN IMMEDIATE")
                yield database
                database.execute("COMMIT")
            except BaseException as fault:
                if isinstance(fault, sqlite3.Error) and is_damage(fault):
                    self._rot = str(fault)
                self._host_of.clear()  # numbers that it has given are taken back
                with suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._path or ":memory:",
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,  # calls come one after another, each from any thread
        )
        database.row_factory = sqlite3.Row
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")
        return database

    def _set_aside_unless_good(self, path: Path) -> str | None:
        """Why, and where to; None if all is well.

        Raises OSError, sqlite3.Error, and StorageFailed for one of a newer program.
        """
        if not path.exists():
            for behind in BEING_THERE[1:]:  # of a file that is gone: they fit no other one
                path.with_name(path.name + behind).unlink(missing_ok=True)
            return None
        why = fault_of(path)
        if why is None and self._rot is not None:
            why = f"is damaged ({self._rot})"
        self._rot = None
        if why is None:
            return None
        aside = path.with_name(f"{path.name}.damaged")
        for behind in BEING_THERE:  # one stays: the newest
            source = path.with_name(path.name + behind)
            target = aside.with_name(aside.name + behind)
            target.unlink(missing_ok=True)
            if source.exists():
                source.rename(target)
        return f"{path.name} {why}; it lies as {aside.name} beside it, and another one is begun"

    # Reading

    def rounds(self, after: int, limit: int) -> list[RoundRow]:
        """See HistoryStore. Raises StorageFailed."""
        with self._reading() as database:
            rows = database.execute(
                "SELECT * FROM rounds WHERE height > ? ORDER BY height LIMIT ?",
                (after, _bounded(limit)),
            ).fetchall()
            if not rows:
                return []
            rows = _of_few_members(rows, _late(database, rows[0]["height"], rows[-1]["height"]))
            members = _members(database, rows[0]["height"], rows[-1]["height"])
            left_out = _left_out(database, rows[0]["height"], rows[-1]["height"])
            return [
                RoundRow(
                    height=row["height"],
                    round=row["round"],
                    vertex_id=VertexId(row["vertex_id"]),
                    signers=row["signers"],
                    contributors=tuple(members.get(row["height"], ())),
                    ended_s=row["ended_s"],
                    loss_nats=_unscaled(row["loss"], MICRO),
                    wall_s=_unscaled(row["wall_ms"], MILLI),
                    sent_bytes=row["sent_bytes"],
                    left_out=tuple(left_out.get(row["round"], ())),
                )
                for row in rows
            ]

    def newest_height(self) -> int:
        """0: there is no round by itself. Raises StorageFailed."""
        with self._reading() as database:
            (height,) = database.execute("SELECT max(height) FROM rounds").fetchone()
        return int(height or 0)

    def height_since(self, since_s: float) -> int | None:
        """The lowest of a round that ended then or later. Raises StorageFailed."""
        with self._reading() as database:
            asked = "SELECT min(height) FROM rounds WHERE ended_s >= ?"
            (height,) = database.execute(asked, (since_s,)).fetchone()
        return None if height is None else int(height)

    def decisions(self, after: int, limit: int) -> list[Decided]:
        """See HistoryStore. Raises StorageFailed."""
        with self._reading() as database:
            rows = database.execute(
                "SELECT * FROM decisions WHERE number > ? ORDER BY number LIMIT ?",
                (after, _bounded(limit)),
            ).fetchall()
            return [
                Decided(row["at_s"], row["decision"], row["reason"], row["number"]) for row in rows
            ]

    def spans(self) -> list[Span]:
        """See HistoryStore. Raises StorageFailed."""
        with self._reading() as database:
            rows = database.execute("SELECT * FROM spans ORDER BY from_s, seconds").fetchall()
            return [
                Span(
                    seconds=row["seconds"],
                    from_s=row["from_s"],
                    rounds=row["rounds"],
                    aborted=row["aborted"],
                    tokens=row["tokens"],
                    contributions=row["members"],
                    void=row["void"],
                    wall_s=row["wall_ms"] / MILLI,
                    sent_bytes=row["sent_bytes"],
                    loss_nats=_unscaled(row["loss"], MICRO),
                )
                for row in rows
            ]

    def sums(self) -> Sums:
        """See HistoryStore. Raises StorageFailed."""
        with self._reading() as database:
            (rounds,) = database.execute(
                "SELECT (SELECT count(*) FROM rounds) + "
                "(SELECT coalesce(sum(rounds), 0) FROM spans)"
            ).fetchone()
            whys: dict[int, dict[str, int]] = {}
            for host, why, count in database.execute(
                "SELECT host, why, count FROM host_whys ORDER BY count DESC, why"
            ):
                whys.setdefault(host, {})[why] = count
            rows = database.execute(
                "SELECT * FROM hosts ORDER BY tokens DESC, rounds DESC, node_id"
            ).fetchall()
            hosts = tuple(_host_sum(row, whys.get(row["host"], {})) for row in rows)
            return Sums(rounds, sum(host.tokens for host in hosts), hosts)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A view that stands still. Raises StorageFailed."""
        with storage(self._path):
            if self._path is None:
                assert self._writer is not None, "open() comes first"
                yield self._writer
                return
            with closing(_opened_to_read(self._path)) as database:
                database.execute("BEGIN")
                (version,) = database.execute("PRAGMA user_version").fetchone()
                if version == 0:
                    raise StorageFailed(f"{self._path} is only being begun: ask again in a moment")
                if version > schema.VERSION:
                    raise of_newer(self._path, version)
                yield database


def _opened_to_read(path: Path) -> sqlite3.Connection:
    """SQLite writes beside a file that it reads, but for one of which it is told that it rests."""
    rests = not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    how = "immutable=1" if rests else "mode=ro"  # a backup on a medium that takes no writes
    database = sqlite3.connect(
        f"{path.resolve().as_uri()}?{how}", uri=True, timeout=BUSY_S, isolation_level=None
    )
    database.row_factory = sqlite3.Row
    return database


def _of_few_members(rows: list[sqlite3.Row], late: Mapping[int, int]) -> list[sqlite3.Row]:
    """The first of them, one at least, with MEMBERS_MAX contributions at most, `late` ones too."""
    count = 0
    for place, row in enumerate(rows):
        count += row["members"] + late.get(row["round"], 0)
        if place and count > MEMBERS_MAX:
            return rows[:place]
    return rows


def _members(
    database: sqlite3.Connection, lowest: int, highest: int
) -> dict[int, list[Contributed]]:
    found: dict[int, list[Contributed]] = {}
    for row in database.execute(
        "SELECT c.height, h.node_id, c.tokens, c.steps, c.bytes, c.counts "
        "FROM contributions AS c JOIN hosts AS h USING (host) "
        "WHERE c.height BETWEEN ? AND ? ORDER BY c.height, h.node_id",
        (lowest, highest),
    ):
        height, node_id, tokens, steps, size_bytes, counts = row
        one = Contributed(NodeId(node_id), tokens, steps, size_bytes, bool(counts))
        found.setdefault(height, []).append(one)
    return found


def _late(database: sqlite3.Connection, lowest: int, highest: int) -> dict[int, int]:
    """Round -> how many were left out of it."""
    return dict(
        database.execute(
            f"SELECT round, count(*) {_LEFT_OUT_OF} GROUP BY round", (lowest, highest)
        ).fetchall()
    )


def _left_out(database: sqlite3.Connection, lowest: int, highest: int) -> dict[int, list[LeftOut]]:
    found: dict[int, list[LeftOut]] = {}
    for row in database.execute(
        f"SELECT round, node_id, why {_LEFT_OUT_OF} ORDER BY round, node_id", (lowest, highest)
    ):
        one = LeftOut(row["round"], NodeId(row["node_id"]), row["why"])
        found.setdefault(one.round, []).append(one)
    return found


def _host_sum(row: sqlite3.Row, whys: dict[str, int]) -> HostSum:
    return HostSum(
        node_id=NodeId(row["node_id"]) if row["node_id"] else None,
        rounds=row["rounds"],
        void=row["void"],
        tokens=row["tokens"],
        steps=row["steps"],
        size_bytes=row["bytes"],
        first_height=row["first_height"],
        last_height=row["last_height"],
        first_s=row["first_s"],
        last_s=row["last_s"],
        left_out=whys,
    )


def _add_why(database: sqlite3.Connection, host: int, why: str, count: int) -> None:
    known = database.execute("SELECT why FROM host_whys WHERE host = ?", (host,)).fetchall()
    names = {row["why"] for row in known}
    kept = why if why in names or len(names) < schema.WHYS_MAX else schema.OTHER_WHY
    database.execute(schema.ADD_WHY, {"host": host, "why": kept, "count": count})


def _nth(database: sqlite3.Connection, table: str, column: str, place: int) -> float:
    """What the newest row but `place` has there; 0 if there are no more."""
    asked = f"SELECT {column} FROM {table} ORDER BY {column} DESC LIMIT 1 OFFSET {place}"
    found = database.execute(asked).fetchone()
    return 0 if found is None else found[0]


def _bounded(limit: int) -> int:
    return max(0, min(limit, ROWS_MAX))


def _scaled(value: float | None, by: int) -> int | None:
    return None if value is None else round(min(value, SCALED_MAX) * by)


def _unscaled(value: int | None, by: int) -> float | None:
    return None if value is None else value / by
