"""What `top` makes of a daemon's answers and events."""

from collections.abc import Mapping
from typing import Any

from daa_node.cli.top.board import NEWS_MAX, Board

ME, ANN, BOB, EVE = "11" * 32, "aa" * 32, "bb" * 32, "ee" * 32
PEERS: list[Mapping[str, Any]] = [
    {"node_id": ANN, "connected": True, "part": "validator"},
    {"node_id": BOB, "connected": True, "part": "trainer"},
    {"node_id": EVE, "connected": True, "part": "observer"},
    {"node_id": "ff" * 32, "connected": False, "part": "validator"},
]


def board() -> Board:
    return Board("n", status={"node_id": ME, "part": "validator"}, peers=PEERS)


def event(name: str, **fields: object) -> dict[str, Any]:
    return {"ts": 5.0, "name": name, **fields}


def test_whoever_is_here_and_contributes_is_awaited_until_a_quorum_holds_its_update() -> None:
    seen = board()
    assert seen.awaited() == []  # no round is open
    seen.note(event("round_started", round=7))
    assert (seen.open_round, seen.opened_ts) == (7, 5.0)
    assert seen.awaited() == [ME, ANN, BOB]
    seen.note(event("offer_eligible", round=7, author=ANN))
    seen.note(event("offer_eligible", round=6, author=BOB))
    assert seen.awaited() == [ME, BOB]
    seen.note(event("round_finalized", round=7))
    assert (seen.open_round, seen.awaited()) == (None, [])
    seen.note(event("round_started", round=8))
    assert seen.awaited() == [ME, ANN, BOB]


def test_who_only_follows_is_not_awaited() -> None:
    seen = Board("n", status={"node_id": ME, "part": "observer"}, peers=PEERS)
    seen.note(event("round_started", round=7))
    assert seen.awaited() == [ANN, BOB]


def test_who_never_trains_is_not_awaited_nor_is_this_node_while_it_only_serves() -> None:
    seen = board()
    seen.note(event("round_started", round=7))
    seen.peers = [{**PEERS[0], "never_trains": True}, *PEERS[1:]]
    assert seen.awaited() == [ME, BOB]
    for standing in ({"phase": "serving"}, {"phase": "publishing", "never_trains": True}):
        seen.status = {"node_id": ME, "part": "validator", **standing}
        assert seen.awaited() == [BOB]


def test_decisions_and_troubles_are_news_and_the_same_twice_is_one() -> None:
    seen = board()
    for _ in range(2):
        seen.note(event("decision", decision="wait", reason="a quorum lacks"))
    seen.note(event("trainer_lost", why="killed by signal 9"))
    seen.note(event("blob_fetched", root="ab"))
    assert [(one.what, one.why) for one in seen.news] == [
        ("wait", "a quorum lacks"),
        ("trainer_lost", "killed by signal 9"),
    ]
    for number in range(2 * NEWS_MAX):
        seen.note(event("decision", decision=f"{number}", reason=""))
    assert len(seen.news) == NEWS_MAX
    seen.begin()
    assert not seen.news


def test_contributions_are_counted_where_the_daemon_knows_who_contributed() -> None:
    seen = board()
    seen.rounds = [
        {"height": 0, "contributors": [], "loss_nats": 5.0},
        {"height": 1, "contributors": [ME, ANN], "loss_nats": 4.0},
        {"height": 2, "contributors": [ANN], "loss_nats": None},
        {"height": 3, "contributors": 2, "loss_nats": 3.0},
        {"height": 4, "contributors": 2, "loss_nats": float("nan")},  # of a spoilt model
        {"height": 5, "contributors": 2, "loss_nats": float("inf")},
    ]
    assert seen.contributed() == (1, 2)
    assert seen.losses() == [5.0, 4.0, 3.0]


def test_when_the_daemon_is_gone_nothing_of_it_is_shown_as_if_it_held() -> None:
    seen = board()
    seen.note(event("round_started", round=7))
    seen.gone("no daemon is running")
    assert (seen.status, list(seen.peers), seen.awaited()) == (None, [], [])
    assert seen.down == "no daemon is running"


def test_no_event_of_another_version_stops_it() -> None:
    seen = board()
    for odd in ({}, {"name": 5}, {"name": "decision"}, {"name": "round_started", "ts": "x"}):
        seen.note(odd)
    assert seen.opened_ts == 0.0
