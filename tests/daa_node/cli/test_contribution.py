"""What a machine has contributed is counted from its node's own events."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from daa_node.cli.contribution import (
    LINE_EACH_S,
    ROUNDS_OPEN_MAX,
    Contribution,
    Progress,
    Standing,
    is_told,
    tell_standing,
)
from daa_node.observability import events as names
from daa_node.observability.config import LogConfig
from daa_node.observability.events import EventLog
from daa_node.training.config import TrainerConfig


def a_round(number: int, ours: bool, among: int = 4, sealed: bool = True) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {"name": names.SET_DECIDED, "round": number, "ours": ours, "contributors": among},
        {"name": names.ROUND_FINALIZED, "round": number},
    ]
    update = {"name": names.UPDATE_SEALED, "round": number, "tokens": 500, "loss_nats": 2.5}
    return [update, *events] if sealed else events


def counted(*rounds: list[dict[str, Any]]) -> Contribution:
    made = Contribution()
    for event in [event for events in rounds for event in events]:
        made.note(event)
    return made


def test_a_round_counts_once_its_set_is_certified_with_our_update() -> None:
    made = counted(a_round(1, True), a_round(2, False), a_round(3, True, among=8))
    assert (made.rounds, made.counted, made.tokens) == (3, 2, 1000)
    assert made.line() == (
        "contributed: 2 of 3 rounds, 1000 tokens, 12 % of all contributions; last loss 2.5000 nats"
    )


def test_what_was_sealed_and_never_certified_counts_nothing() -> None:
    events = a_round(1, True)[:2]
    made = counted(events, a_round(2, False, sealed=False))
    assert (made.rounds, made.counted, made.tokens) == (1, 0, 0)


def test_before_anything_has_happened_there_is_a_line_all_the_same() -> None:
    assert Contribution().line().startswith("contributed: 0 of 0 rounds, 0 tokens, 0 %")


def test_rounds_that_never_end_take_no_room() -> None:
    made = counted(*[a_round(number, True)[:2] for number in range(1000)])
    assert len(made._sealed) == len(made._decided) == ROUNDS_OPEN_MAX


def test_a_terminal_sees_a_bar_and_a_log_sees_lines_now_and_then() -> None:
    shown: list[str] = []
    drawn: list[str] = []
    bar, lines = Progress(drawn.append, shown.append), Progress(None, shown.append)

    def coming(here: int) -> dict[str, Any]:
        return {"name": names.STATE_COMING, "height": 304, "bytes": here, "bytes_due": 4000}

    bar.note(coming(2000), 0.0)
    assert drawn == ["state    304 [############............] 2.0 kB of 4.0 kB"]
    assert shown == []
    bar.note(coming(4000), 0.1)
    assert shown == ["state    304 [########################] 4.0 kB of 4.0 kB"]
    shown.clear()
    for tenth in range(100):
        lines.note(coming(tenth), tenth / 10)
    assert len(shown) == 2  # ten seconds
    lines.note(coming(4000), 10.0)
    assert shown[-1].endswith("4.0 kB of 4.0 kB")


async def test_a_running_node_says_each_minute_how_it_stands_and_what_it_contributes(
    autojump_clock: MockClock,
) -> None:
    log, lines = EventLog(lambda: 0), list[str]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_standing, log, TrainerConfig(), lines.append)
        await trio.sleep(LINE_EACH_S / 2)
        log.emit(names.PEER_JOINED, node_id="aa", peer_id="12D3", role="cloud", network="10.0.0.1")
        log.emit(names.UPDATE_SEALED, round=1, tokens=500, loss_nats=2.5)
        log.emit(names.SET_DECIDED, round=1, contributors=4, left_out=0, ours=True)
        log.emit(names.ROUND_FINALIZED, round=1, height=1, loss_nats=2.25)
        log.emit(names.ROUND_ABORTED, round=2)
        await trio.sleep(LINE_EACH_S)
        log.emit(names.PEER_LEFT, node_id="aa", peer_id="12D3", reason="gone")
        log.emit(names.QUORUM_WAIT, reachable=1, total=4, quorum=3, waiting=True)
        await trio.sleep(LINE_EACH_S)
        nursery.cancel_scope.cancel()
    own = "contributed: 1 of 1 rounds, 500 tokens, 25 % of all contributions; last loss 2.5000 nats"
    assert lines == [
        f"height 1 (+1), loss 2.2500 nats, 1 aborted, 1 peer; {own}",
        "height 1 (+0), loss 2.2500 nats, 0 peers, no quorum: 1 of 4 within reach, it takes 3; "
        + own,
    ]


async def test_a_node_that_never_trains_says_that_instead_of_what_it_contributes(
    autojump_clock: MockClock,
) -> None:
    log, lines = EventLog(lambda: 0), list[str]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_standing, log, TrainerConfig(contribute=False), lines.append)
        await trio.sleep(LINE_EACH_S / 2)
        log.emit(names.ROUND_FINALIZED, round=1, height=1, loss_nats=None)
        await trio.sleep(LINE_EACH_S)
        nursery.cancel_scope.cancel()
    assert lines == ["height 1 (+1), 0 peers; never trains"]


def test_before_the_first_round_the_line_says_so() -> None:
    assert Standing().line() == "no round since the start, 0 peers"


def test_the_line_is_for_whoever_watches_or_has_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_told(LogConfig())  # a test has no terminal
    assert is_told(LogConfig(each_minute=True))
    with monkeypatch.context() as closed:
        closed.setattr("sys.stderr", None)  # as Python has it after `2>&-`
        assert not is_told(LogConfig())
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert is_told(LogConfig())
