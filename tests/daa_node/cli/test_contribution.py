"""What a machine has contributed is counted from its node's own events."""

from typing import Any

from daa_node.cli.contribution import ROUNDS_OPEN_MAX, Contribution, Progress
from daa_node.observability import events as names


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
