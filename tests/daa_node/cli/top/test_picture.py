"""The picture of `top`: what matters, in the room there is, and nothing that moves a cursor."""

from typing import Any

import pytest

from daa_node.cli.top.board import Board, Job, News
from daa_node.cli.top.picture import Room, lines, sparkline
from tests.daa_node.cli.top.test_board import ANN, BOB, ME

HEALTH = {
    "level": "priority",
    "score": 0.9,
    "weakest": "speed",
    "components": {"speed": {"value": 0.4}},
}
STATUS: dict[str, Any] = {
    "node_id": ME,
    "chain_id": "cc" * 32,
    "pid": 17,
    "part": "validator",
    "phase": "training",
    "height": 7,
    "loss_nats": 2.5,
    "validators": {"reachable": 3, "total": 4, "quorum": 3},
    "trainers": {"reachable": 0, "total": 0},
    "reachability": {"reach": "direct", "relays": []},
    "waiting": None,
    "decisions": [{"decision": "train", "reason": "the state is here"}],
    "bytes_sent": 2000,
    "bytes_received": 3000,
}


def peer(node: str, **changed: object) -> dict[str, Any]:
    return {
        "node_id": node,
        "connected": True,
        "part": "validator",
        "way": "direct",
        "rtt_ms": 12.4,
        "height": 7,
        "health": HEALTH,
        "sees_us": {"level": "priority", "score": 0.8, "weakest": "speed"},
        **changed,
    }


def full_board(peers: int = 2) -> Board:
    board = Board("alice", Job(20.0, 10), STATUS)
    board.peers = [peer(ANN), peer(BOB, connected=False), *[peer("dd" * 32)] * (peers - 2)]
    board.rounds = [
        {"height": n, "loss_nats": 4.0 - n / 4, "contributors": [ME] * (n % 2)} for n in range(8)
    ]
    board.open_round, board.opened_ts, board.held = 8, 95.0, {ANN}
    board.news.extend(News(90.0 + n, f"decision {n}", "for a reason") for n in range(9))
    return board


def drawn(board: Board, columns: int, rows: int | None, has_blocks: bool = True) -> list[str]:
    return lines(board, Room(columns, rows, has_blocks), 100.0)


def test_all_that_matters_stands_in_80_by_24() -> None:
    told = "\n".join(drawn(full_board(), 80, 24))
    for words in (
        "phase    training: the state is here",
        "round    8 of 10, height 7, open 5 s [#####...............] of 20 s",
        "loss     2.5000 nats  █",
        "updates  1 held; awaited: this node",
        "quorum   3 of 4 here, it takes 3",
        "reach    direct",
        "bytes    2.0 kB sent, 3.0 kB received",
        "mine     in 4 of the last 7 rounds",
        "health   priority with 2 of 2 peers; lowest score 0.80, by speed",
        "aaaaaaaa  direct  12      7       priority  0.90    speed 0.40",
        "bbbbbbbb  away",
        "decision 8: for a reason",
    ):
        assert words in told


@pytest.mark.parametrize("columns", [200, 80, 40, 20])
@pytest.mark.parametrize("rows", [50, 24, 12, 5, 1])
@pytest.mark.parametrize("peers", [2, 40])
def test_it_fits_into_every_terminal(columns: int, rows: int, peers: int) -> None:
    told = drawn(full_board(peers), columns, rows)
    assert 0 < len(told) <= rows
    assert max(map(len, told)) <= columns


def test_many_peers_leave_room_for_the_newest_decisions() -> None:
    told = drawn(full_board(40), 80, 24)
    assert len(told) == 24
    assert any(line.startswith("and ") and line.endswith("more: daa-node peers") for line in told)
    assert sum("for a reason" in line for line in told) == 3
    assert "decision 8" in told[-3]


def test_a_narrow_terminal_has_fewer_columns_and_no_cut_ones() -> None:
    told = drawn(full_board(), 40, 40)
    assert "NODE      REACH   RTT MS  HEIGHT" in told


def test_without_a_daemon_it_says_why_and_draws_nothing_of_it() -> None:
    board = full_board()
    board.gone("no daemon is running in alice (start one: daa-node run --dir alice)")
    told = drawn(board, 80, 24)
    assert told[1].startswith("phase    no answer: no daemon is running in alice")
    assert not any(line.startswith(("loss", "NODE")) for line in told)
    assert any("decision 8" in line for line in told)


def test_guests_that_have_left_take_no_line_and_contributors_do() -> None:
    board = full_board()
    board.peers = [*board.peers, peer("ee" * 32, connected=False, part="observer")]
    told = "\n".join(drawn(board, 80, 40))
    assert "bbbbbbbb  away" in told
    assert "eeeeeeee" not in told


def test_guests_take_no_line_of_a_contributor_and_judge_nobody() -> None:
    board = full_board()
    low = {"level": "excluded", "score": 0.0, "weakest": "speed"}
    guests = [peer("ee" * 32, part="observer", sees_us=low)] * 40
    board.peers = [*guests, *board.peers]
    told = "\n".join(drawn(board, 80, 24))
    assert "aaaaaaaa  direct" in told
    assert "bbbbbbbb  away" in told
    assert "priority with 2 of 2 peers; lowest score 0.80" in told


def test_a_daemon_that_does_not_answer_is_told_as_silent() -> None:
    board = full_board()
    board.asked_ts = 99.0
    assert "SILENT" not in drawn(board, 80, 24)[0]
    board.asked_ts = 90.0
    assert "SILENT for 10 s" in drawn(board, 80, 24)[0]


def test_what_others_say_moves_no_cursor_and_rings_no_bell() -> None:
    board = full_board()
    board.news.append(News(99.0, "peer\x1b[2J\x07", "line\nline\u202e"))
    board.status = {**STATUS, "waiting": "for \x1b]0;title\x07 one"}
    told = "".join(drawn(board, 80, 24))
    assert told.isprintable()


def test_without_the_characters_it_is_ascii_alone() -> None:
    board = full_board()
    board.news.append(News(99.0, "café", "\N{SNOWMAN}" * 100))
    told = "".join(drawn(board, 80, 24, has_blocks=False))
    assert told.isascii()
    assert "caf?" in told


def test_who_is_paused_is_told_so_unless_nobody_goes_on() -> None:
    board = full_board()
    board.status = {**STATUS, "paused": True}
    assert "phase    training: paused by its operator, it" in "\n".join(drawn(board, 80, 24))
    board.status = {**board.status, "waiting": "for a quorum"}
    assert "phase    training: for a quorum" in "\n".join(drawn(board, 80, 24))


def test_a_daemon_of_another_version_may_lack_anything() -> None:
    board = Board("alice", Job(), {})
    board.peers = [{}]
    assert drawn(board, 80, 24)


def test_a_sparkline_is_higher_where_the_loss_is() -> None:
    assert sparkline([1.0, 2.0, 3.0], has_blocks=True) == "▁▅█"
    assert sparkline([3.0, 3.0], has_blocks=True) == "▁▁"
    assert sparkline([], has_blocks=True) == ""
    assert sparkline([0.0, 9.0], has_blocks=False) == "_@"
