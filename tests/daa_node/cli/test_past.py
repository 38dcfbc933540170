"""What a person reads of the past: rounds by day, and what each host has contributed, and mine."""

import csv
import json
from datetime import datetime
from pathlib import Path

import pytest

from daa_dag.ids import NodeId
from daa_node.adapters.key_files import load_keys
from daa_node.adapters.sqlite_history import SqliteHistory
from daa_node.chronicle.notes import Notes
from daa_node.chronicle.rows import Batch, HostSum, Sums
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.history_file import _rows
from daa_node.cli.past import _is_there, csv_lines, moment, own_line
from daa_node.errors import UserError
from daa_node.observability import events as names
from tests.daa_node.checkpoints.little_chain import KEYS, ChainMaker
from tests.daa_node.chronicle.rows_at_hand import ALICE, BOB, a_round, left_out, member
from tests.daa_node.cli.conftest import Command

DAY = 86_400.0
LATE = {"late": 6, "aborted": 2, "refused: bad_size": 1, "copy": 1}


def host(node: NodeId | None, tokens: int, **whys: int) -> HostSum:
    return HostSum(node, 3, 0, tokens, 24, 4_200_000, 1, 4, 60.0, 240.0, whys)


@pytest.fixture
def node(command: Command, tmp_path: Path) -> tuple[Path, NodeId]:
    """A node that does not run, with a history of twenty rounds."""
    root = tmp_path / "alice"
    assert command("init", "--dir", root).code == 0
    directory = DataDirectory(root)
    me = load_keys(directory.keys).node_id
    history = SqliteHistory(directory.history)
    history.open()
    rounds = [
        a_round(n, member(me, 3000), member(BOB), ended_s=n * DAY, left_out=(left_out(n, ALICE),))
        for n in range(1, 21)
    ]
    history.write(Batch(tuple(rounds)))
    history.trim(20 * DAY + 1, 10)
    history.close()
    return root, me


def test_without_a_daemon_rounds_are_those_of_the_history(
    command: Command, node: tuple[Path, NodeId]
) -> None:
    root, me = node
    done = command("rounds", "--dir", root, "--json")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert [row["height"] for row in told["rounds"]] == list(range(11, 21))
    assert told["rounds"][0]["contributors"] == sorted([me.hex(), BOB.hex()])
    assert told["rounds"][0]["ended_at"] == 11 * DAY
    lines = command("rounds", "--dir", root).out.splitlines()
    assert lines[0].split()[:3] == ["HEIGHT", "ENDED", "LOSS"]
    assert len(lines) == 11


def test_since_a_day_come_what_ended_then_and_hours_before_that(
    command: Command, node: tuple[Path, NodeId]
) -> None:
    root, _ = node
    day = datetime.fromtimestamp(9 * DAY).isoformat()
    told = json.loads(command("rounds", "--dir", root, "--since", day, "--json").out)
    assert [row["height"] for row in told["rounds"]] == list(range(11, 21))
    assert [span["from"] for span in told["spans"]] == [9 * DAY, 10 * DAY]
    assert command("rounds", "--dir", root, "--since", day).out.startswith("FROM")
    later = json.loads(command("rounds", "--dir", root, "--since", "1h", "--json").out)
    assert (later["rounds"], later["spans"]) == ([], [])


def test_a_round_that_ended_earlier_by_a_wrong_clock_is_not_among_those_since(
    command: Command, node: tuple[Path, NodeId]
) -> None:
    root, _ = node
    history = SqliteHistory(DataDirectory(root).history)
    history.open()
    history.write(Batch((a_round(21, ended_s=5.0), a_round(22, ended_s=22 * DAY))))
    history.close()
    day = datetime.fromtimestamp(20 * DAY).isoformat()
    told = json.loads(command("rounds", "--dir", root, "--since", day, "--json").out)
    assert [row["height"] for row in told["rounds"]] == [20, 22]


def test_contributions_name_each_host_with_this_one_marked(
    command: Command, node: tuple[Path, NodeId]
) -> None:
    root, me = node
    lines = command("contributions", "--dir", root).out.splitlines()
    assert lines[0] == (
        "This node has contributed to 20 of 20 rounds: 60000 tokens, 75.0 % of all, in updates of "
        "10.0 kB."
    )
    assert lines[3].split()[:6] == ["*", me.hex()[:16], "20", "60000", "75.0", "%"]
    assert lines[5].endswith("20 times: late 20")
    assert lines[-1].endswith("all else is what sets certify, up to height 20.")
    told = json.loads(command("contributions", "--dir", root, "--json").out)
    assert [row["mine"] for row in told["contributions"]] == [True, False, False]
    rows = list(csv.DictReader(command("contributions", "--dir", root, "--csv").out.splitlines()))
    assert [(row["node_id"], row["tokens"], row["left_out"]) for row in rows] == [
        (me.hex(), "60000", "0"),
        (BOB.hex(), "20000", "0"),
        (ALICE.hex(), "0", "20"),
    ]
    assert rows[0]["first_at"] == "1970-01-02T00:00:00Z"
    assert command("contributions", "--dir", root, "--csv", "--json").code == 2


def test_a_node_that_has_never_run_is_told_so(command: Command, tmp_path: Path) -> None:
    assert command("contributions", "--dir", tmp_path / "none").code == 2
    assert command("init", "--dir", tmp_path / "new").code == 0
    done = command("contributions", "--dir", tmp_path / "new")
    assert (done.code, done.out) == (2, "")
    assert "genesis.json" in done.err


async def test_without_a_history_rounds_come_from_the_chain_and_times_from_the_log(
    tmp_path: Path,
) -> None:
    maker = ChainMaker(tmp_path)
    await maker.open()
    await maker.publish(await maker.make_round())
    await maker.publish(await maker.make_round())
    notes = Notes(KEYS[0].node_id)
    notes.note({"ts": 5.0, "name": names.OFFER_ACKED, "round": 2, "author": "dd" * 32})
    notes.note({"ts": 6.0, "name": names.ROUND_FINALIZED, "round": 2, "height": 2, "wall_s": 9.5})
    first, second = _rows(maker.chain_directory, notes)
    assert [one.node_id for one in first.contributors] == [keys.node_id for keys in KEYS[:3]]
    assert (first.signers, first.tokens, first.contributors[0].size_bytes) == (3, 3000, 100)
    assert (first.ended_s, second.ended_s, second.wall_s) == (None, 6.0, 9.5)
    assert [one.why for one in second.left_out] == ["late"]
    assert second.base_loss_nats == 3.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 94_600.0), ("12h", 56_800.0), ("1970-01-02T00:00+00:00", DAY)]
)
def test_a_moment_is_so_long_ago_or_a_date(text: str, seconds: float) -> None:
    assert moment(text, 100_000.0) == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "0h", "7", "12 h", "9999-99-99", "1" * 99])
def test_no_moment_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(UserError, match="90m, 12h, 7d or 2w, or a date"):
        moment(text, 0.0)


def test_what_did_i_contribute_is_one_sentence() -> None:
    sums = Sums(5, 4000, (host(ALICE, 3000, **LATE), host(BOB, 1000)))
    assert own_line(sums, ALICE) == (
        "This node has contributed to 3 of 5 rounds: 3000 tokens, 75.0 % of all, in updates of "
        "4.2 MB; left out 10 times: late 6, aborted 2, refused: bad_size 1, and more."
    )
    assert own_line(sums, NodeId(bytes(32))) == "This node has contributed to none of 5 rounds."


def test_a_table_for_a_spreadsheet_has_one_line_a_host_whatever_a_reason_holds() -> None:
    sums = Sums(5, 1000, (host(None, 1000, **{'say "no", please': 1}),))
    heads, line = csv.reader(csv_lines(sums, ALICE))
    assert dict(zip(heads, line, strict=True))["reasons"] == 'say "no", please 1'
    assert line[:2] == ["", "no"]


def test_a_folder_of_another_user_is_left_to_whoever_reads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not _is_there(tmp_path / "none")

    def refuses(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refuses)
    assert _is_there(tmp_path)
