"""The history in its file: sums that stay exact, room that stays bounded, files of others."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from daa_dag.ids import NodeId
from daa_node.adapters import sqlite_history
from daa_node.adapters import sqlite_schema as schema
from daa_node.adapters.sqlite_history import SqliteHistory
from daa_node.chronicle.rows import Aborted, Batch, Decided
from daa_node.errors import StorageFailed
from tests.daa_node.chronicle.rows_at_hand import ALICE, BOB, CAROL, a_round, left_out, member

HOUR, DAY = 3600, 86_400


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history" / "rounds.sqlite"


def opened(path: Path | None) -> SqliteHistory:
    history = SqliteHistory(path)
    history.open()
    return history


def changed(path: Path, statement: str) -> None:
    """By another program."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(statement)


def test_what_was_written_is_read_again_by_another_process(path: Path) -> None:
    history = opened(path)
    told = a_round(1, member(ALICE), member(BOB, counts=False), left_out=(left_out(1, CAROL),))
    history.write(Batch((told,), decisions=(Decided(5.0, "train", "why"),), events_until_s=8.0))
    assert SqliteHistory(path).rounds(0, 10) == [told]  # while it is open, too
    history.close()
    assert SqliteHistory(path).rounds(0, 10) == [told]
    assert SqliteHistory(path).decisions(0, 10) == [Decided(5.0, "train", "why", 1)]
    again = SqliteHistory(path).open()
    assert (again.newest_height, again.events_until_s, again.set_aside) == (1, 8.0, None)


def test_a_backup_that_nobody_may_write_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = opened(path)
    history.write(Batch((a_round(1),)))
    history.close()
    monkeypatch.setattr("os.access", lambda *_: False)  # as on a medium that is read-only
    before = sorted(path.parent.iterdir())
    assert SqliteHistory(path).newest_height() == 1
    assert sorted(path.parent.iterdir()) == before  # nothing was written beside it


def test_pages_go_on_where_the_last_one_ended(path: Path) -> None:
    history = opened(path)
    history.write(Batch(tuple(a_round(height) for height in range(1, 6))))
    assert [row.height for row in history.rounds(0, 2)] == [1, 2]
    assert [row.height for row in history.rounds(2, 2)] == [3, 4]
    assert [row.height for row in history.rounds(4, 10**9)] == [5]
    assert history.rounds(5, 2) == []
    assert (history.newest_height(), history.height_since(1_000_000 + 121)) == (5, 3)
    assert history.height_since(2e9) is None


def test_an_answer_of_crowds_is_cut_and_the_next_page_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_history, "MEMBERS_MAX", 5)
    history = opened(path)
    crowd = [member(NodeId(bytes([n]) * 32)) for n in range(1, 8)]
    history.write(Batch((a_round(1), a_round(2), a_round(3), a_round(4, *crowd), a_round(5))))
    pages, after = [], 0
    while page := history.rounds(after, 10):
        pages.append([row.height for row in page])
        after = page[-1].height
    assert pages == [[1, 2], [3], [4], [5]]
    late = tuple(left_out(6, node.node_id) for node in crowd[:3])
    history.write(Batch((a_round(6, left_out=late), a_round(7))))
    assert [row.height for row in history.rounds(5, 10)] == [6]
    assert history.rounds(5, 10)[0].left_out == late


def test_a_round_that_comes_again_counts_once(path: Path) -> None:
    history = opened(path)
    for _ in range(2):
        history.write(
            Batch((a_round(1, left_out=(left_out(1, CAROL),)),), aborted=(Aborted(2, 5.0),))
        )
        history.write(Batch(left_out=(left_out(2, BOB, "aborted"),), aborted=(Aborted(2, 5.0),)))
    sums = history.sums()
    told = {host.node_id: (host.rounds, host.tokens, dict(host.left_out)) for host in sums.hosts}
    assert told == {ALICE: (1, 1000, {}), BOB: (1, 1000, {}), CAROL: (0, 0, {"late": 1})}


def test_sums_are_of_what_counts_and_say_when_and_why(path: Path) -> None:
    history = opened(path)
    history.write(
        Batch(
            (
                a_round(1, member(ALICE, 3000), member(BOB, 1000)),
                a_round(2, member(ALICE, 9999, counts=False), member(BOB, 1000), ended_s=None),
                a_round(3, member(BOB, 1000), left_out=(left_out(3, ALICE),)),
            ),
            (left_out(4, ALICE, "aborted"), left_out(4, BOB, "aborted")),
            (Aborted(4, 1_000_500.0),),
        )
    )
    sums = history.sums()
    alice, bob = sums.hosts if sums.hosts[0].node_id == ALICE else reversed(sums.hosts)
    assert (sums.rounds, sums.tokens) == (3, 6000)
    assert (alice.rounds, alice.void, alice.tokens, alice.steps) == (1, 1, 3000, 10)
    assert (alice.size_bytes, sums.share(alice)) == (1000, 0.5)
    assert (alice.first_height, alice.last_height) == (1, 2)
    assert (alice.first_s, alice.last_s) == (1_000_060.0, 1_000_060.0)
    assert alice.left_out == {"aborted": 1, "late": 1}
    assert (bob.rounds, bob.last_height, bob.last_s) == (3, 3, 1_000_180.0)


def test_a_loss_that_was_not_measured_here_is_what_the_next_set_says(path: Path) -> None:
    history = opened(path)
    history.write(Batch((a_round(1, loss_nats=None), a_round(2, base_loss_nats=2.125))))
    history.write(Batch((a_round(3, base_loss_nats=9.0),)))
    assert [row.loss_nats for row in history.rounds(0, 9)] == [2.125, 2.98, 2.97]


def test_old_rounds_become_hours_and_old_hours_days_and_sums_stay(path: Path) -> None:
    history = opened(path)
    rounds = tuple(a_round(n, ended_s=n * HOUR / 2) for n in range(1, 97))  # two days
    history.write(Batch(rounds, aborted=(Aborted(200, 100.0), Aborted(201, 200.0 + DAY))))
    before = history.sums()
    history.trim(now_s=2.0 * DAY + 1, rounds_days=1)
    hours = history.spans()
    assert [row.height for row in history.rounds(0, 1000)] == list(range(49, 97))
    assert [(span.seconds, span.from_s, span.rounds) for span in hours[:2]] == [
        (HOUR, 0, 1),
        (HOUR, HOUR, 2),
    ]
    assert (hours[0].aborted, hours[1].contributions, hours[1].tokens) == (1, 4, 4000)
    assert hours[1].loss_nats == pytest.approx(2.97)  # of its last round
    assert hours[1].wall_s == pytest.approx(111.0)
    history.trim(now_s=500.0 * DAY, rounds_days=1)
    days = history.spans()
    assert [(span.seconds, span.from_s, span.rounds) for span in days] == [
        (DAY, 0, 47),
        (DAY, DAY, 48),
        (DAY, 2 * DAY, 1),
    ]
    assert sum(span.aborted for span in days) == 2
    assert history.sums() == before
    assert history.rounds(0, 10) == []
    history.close()
    assert SqliteHistory(path).open().newest_height == 96  # so nothing is counted again


def test_an_hour_that_is_folded_in_two_parts_is_one(path: Path) -> None:
    history = opened(path)
    first, second = 100 * HOUR + 60.0, 100 * HOUR + 120.0
    history.write(Batch((a_round(1, ended_s=first), a_round(2, ended_s=second))))
    for now_s in (second, second + 1):
        history.trim(now_s + DAY, rounds_days=1)
    (span,) = history.spans()
    assert (span.from_s, span.rounds, span.tokens, span.loss_nats) == (100 * HOUR, 2, 4000, 2.98)


def test_a_round_of_a_wrong_clock_takes_no_young_round_with_it(path: Path) -> None:
    history = opened(path)
    now_s = 100.0 * DAY
    ends = [60 * DAY, 99 * DAY, 5.0, now_s - 60, 9000 * DAY, now_s]  # it stood at 1970, and at 1994
    history.write(Batch(tuple(a_round(n, ended_s=end_s) for n, end_s in enumerate(ends, 1))))
    history.trim(now_s, rounds_days=28)
    assert [row.height for row in history.rounds(0, 10)] == [2, 3, 4, 5, 6]
    history.trim(now_s - 365 * DAY, rounds_days=28)
    assert [row.height for row in history.rounds(0, 10)] == [2, 3, 4, 5, 6]
    history.trim(now_s + 29 * DAY, rounds_days=28)
    assert history.rounds(0, 10) == []  # whatever the clock said then, all around it are old


def test_a_clock_that_is_ten_years_ahead_for_an_hour_takes_the_oldest_alone(path: Path) -> None:
    history = opened(path)
    rounds = tuple(a_round(n, ended_s=4 * n * HOUR) for n in range(1, 101))
    decided = tuple(Decided(n * HOUR, "train", "time") for n in range(1, 101))
    history.write(Batch(rounds, decisions=decided))
    history.trim(3650.0 * DAY, rounds_days=28)
    assert [row.height for row in history.rounds(0, 100)] == list(range(66, 101))
    assert [one.number for one in history.decisions(0, 100)] == list(range(66, 101))
    assert sum(span.seconds == HOUR for span in history.spans()) == 23  # of those after a week
    history.trim(3650.0 * DAY, rounds_days=28)
    assert (history.rounds(0, 100), history.decisions(0, 100)) == ([], [])


def test_a_crowd_of_rounds_and_hosts_takes_no_more_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LAST_TO_FOLD", schema.LAST_TO_FOLD.replace("200000", "5"))
    monkeypatch.setattr(schema, "FORGOTTEN_HOSTS", schema.FORGOTTEN_HOSTS.replace("20000", "2"))
    history = opened(path)
    crowd = [bytes([n]) * 32 for n in range(1, 11)]
    rows = [a_round(n, member(type(ALICE)(node)), ended_s=None) for n, node in enumerate(crowd, 1)]
    history.write(Batch(tuple(rows), left_out=()))
    history.trim(now_s=0.0, rounds_days=1)
    assert [row.height for row in history.rounds(0, 100)] == [6, 7, 8, 9, 10]
    (span,) = history.spans()
    assert (span.from_s, span.rounds) == (0, 5)
    sums = history.sums()
    assert (sums.rounds, sums.tokens, len(sums.hosts)) == (10, 10_000, 3)
    (others,) = [host for host in sums.hosts if host.node_id is None]
    assert (others.rounds, others.first_height, others.last_height) == (8, 1, 8)
    members = [[each.node_id for each in row.contributors] for row in history.rounds(0, 100)]
    assert members == [[b""]] * 3 + [[crowd[8]], [crowd[9]]]


@pytest.mark.parametrize("rot", [b"no database at all " * 300, b""])
def test_a_damaged_file_is_set_aside_and_another_one_is_begun(path: Path, rot: bytes) -> None:
    history = opened(path)
    history.write(Batch(tuple(a_round(height) for height in range(1, 200))))
    history.close()
    whole = path.read_bytes()
    if rot:
        path.write_bytes(rot)
        with pytest.raises(StorageFailed, match="not a database. A daemon sets it aside"):
            history.sums()
    path.write_bytes(rot or whole[:4096] + bytes(len(whole) // 2) + whole[4096 + len(whole) // 2 :])
    again = history.open()
    assert again.newest_height == 0
    assert again.set_aside is not None
    assert again.set_aside.startswith("rounds.sqlite is damaged")
    assert path.with_name("rounds.sqlite.damaged").exists()
    history.write(Batch((a_round(1),)))
    assert len(history.rounds(0, 10)) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"CREATE TABLE hosts", b"CREATE TAB\xffE hosts"),
        (b"CREATE TABLE aborted", b"CREATE TABLE abor\xffed"),
        (b"CREATE TABLE notes (key TEXT", b"CREATE TABLE notes (k\xffy TEXT"),
        (b"height INTEGER PRIMARY KEY, round", b"height INTEGER PRIMARY KEY, bound"),
        ((1).to_bytes(4) + (0).to_bytes(4), (0).to_bytes(4) * 2),  # its version
    ],
)
def test_no_byte_that_rots_keeps_a_daemon_from_its_start(
    path: Path, old: bytes, new: bytes
) -> None:
    history = opened(path)
    history.write(Batch((a_round(1),)))
    history.close()
    whole = path.read_bytes()
    place = whole.index(old, 60)
    path.write_bytes(whole[:place] + new + whole[place + len(new) :])
    for read in (lambda: history.rounds(0, 10), history.sums, history.spans):
        with suppress(StorageFailed):  # and nothing else
            read()
    set_aside = history.open().set_aside
    assert set_aside is not None
    assert set_aside.startswith("rounds.sqlite is damaged")
    history.write(Batch((a_round(1),)))


def test_damage_that_only_a_write_meets_is_set_aside_by_the_next_opening(path: Path) -> None:
    opened(path).close()
    named = "FROM sqlite_master WHERE name = 'rounds_by_end'"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA writable_schema = ON")
        index = database.execute(f"SELECT * {named}").fetchone()
        database.execute(f"DELETE {named}")
    changed(path, "INSERT INTO rounds VALUES (1, 1, x'', 3, 0, 0, 0, 5.0, NULL, NULL, NULL)")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", index)
    changed(path, "INSERT INTO rounds VALUES (2, 2, x'', 3, 0, 0, 0, 6.0, NULL, NULL, NULL)")
    history = SqliteHistory(path)
    assert history.open().set_aside is None
    with pytest.raises(StorageFailed, match="malformed"):
        history.trim(1e9, 1)
    assert history.open().set_aside is not None
    history.trim(1e9, 1)


def test_a_file_that_was_only_begun_takes_no_damaged_ones_place(path: Path) -> None:
    path.parent.mkdir()
    changed(path, "PRAGMA journal_mode = WAL")
    assert path.stat().st_size > 0
    assert SqliteHistory(path).open().set_aside is None


def test_a_file_of_a_newer_program_stays_as_it_is_and_is_named(
    path: Path,
) -> None:
    opened(path).close()
    changed(path, f"PRAGMA user_version = {schema.VERSION + 1}")
    there = path.read_bytes()
    for use in (SqliteHistory(path).sums, SqliteHistory(path).open):
        with pytest.raises(StorageFailed, match="newer daa-node: .* format 2.* update the program"):
            use()
    assert path.read_bytes() == there
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_number_that_no_program_will_have_is_damage(path: Path) -> None:
    opened(path).close()
    changed(path, f"PRAGMA user_version = {schema.VERSIONS_MAX + 1}")
    set_aside = SqliteHistory(path).open().set_aside
    assert set_aside is not None
    assert f"is damaged (version {schema.VERSIONS_MAX + 1}, " in set_aside


def test_a_file_that_a_daemon_has_only_begun_says_so(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"")
    with pytest.raises(StorageFailed, match="only being begun"):
        SqliteHistory(path).sums()
    assert SqliteHistory(path).open().set_aside is None


def test_another_programs_database_is_left_as_it_is(path: Path) -> None:
    path.parent.mkdir()
    changed(path, "CREATE TABLE letters (text)")
    set_aside = SqliteHistory(path).open().set_aside
    assert set_aside is not None
    assert "is no history of a node" in set_aside


def test_a_disk_that_refuses_is_a_storage_fault_and_half_a_batch_is_not_there(path: Path) -> None:
    history = opened(path)
    history.write(Batch((a_round(1),)))
    changed(path, "ALTER TABLE decisions RENAME TO elsewhere")
    with pytest.raises(StorageFailed, match="no such table"):
        history.write(Batch((a_round(2, member(CAROL)),), decisions=(Decided(1.0, "a", "b"),)))
    changed(path, "ALTER TABLE elsewhere RENAME TO decisions")
    assert [row.height for row in history.rounds(0, 9)] == [1]
    history.write(Batch((a_round(2, member(CAROL)),)))
    assert history.rounds(1, 9)[0].contributors == (member(CAROL),)
    history.close()
    with pytest.raises(StorageFailed, match="is not open"):
        history.write(Batch((a_round(3),)))
    path.parent.joinpath("file").write_bytes(b"")
    with pytest.raises(StorageFailed):
        SqliteHistory(path.parent / "file" / "rounds.sqlite").open()


def test_numbers_beyond_all_measure_are_cut_and_not_refused(path: Path) -> None:
    history = opened(path)
    history.write(Batch((a_round(1, loss_nats=1e300, wall_s=1e300),)))
    (row,) = history.rounds(0, 1)
    assert row.loss_nats == pytest.approx(1e12)
