"""Calls come in the order of their time, and of their asking where times are equal."""

import random

import pytest

from simnet.nodes.heap.engine import Engine

MS = 1_000_000


def test_calls_come_by_time_and_then_by_the_order_of_asking() -> None:
    engine, said = Engine(), list[tuple[int, str]]()

    def say(word: str) -> None:
        said.append((engine.now_ns, word))

    engine.at(5, say, "b")
    engine.at(7 * MS, say, "d")
    engine.at(5, say, "c")
    engine.at(3, say, "a")
    engine.run(100 * MS)
    assert said == [(3, "a"), (5, "b"), (5, "c"), (7 * MS, "d")]


def test_a_run_ends_at_its_limit_and_the_next_goes_on_from_there() -> None:
    engine, said = Engine(), list[int]()
    for when_ns in (10, 20, 21, 5 * MS):
        engine.at(when_ns, said.append, when_ns)
    engine.run(20)
    assert (said, engine.now_ns, engine.events) == ([10, 20], 20, 2)
    engine.run(20)
    assert said == [10, 20]
    engine.at(20, said.append, 0)  # the present is not the past
    engine.run(5 * MS)
    assert said == [10, 20, 0, 21, 5 * MS]


def test_the_past_is_refused() -> None:
    engine = Engine()
    engine.run(10)
    with pytest.raises(AssertionError, match="9 ns is over"):
        engine.at(9, print)


def test_a_call_for_now_from_within_a_call_is_made_before_time_goes_on() -> None:
    engine, said = Engine(), list[str]()
    engine.at(4, lambda: engine.at(4, said.append, "child"))
    engine.at(5, said.append, "later")
    engine.run(5)
    assert said == ["child", "later"]


@pytest.mark.parametrize("seed", range(20))
def test_random_worlds_agree_with_a_sorted_list(seed: int) -> None:
    """The plain twin: everything that was ever asked for, sorted by time and order of asking."""
    chance, engine = random.Random(seed), Engine()
    asked: list[tuple[int, int]] = []
    made: list[tuple[int, int]] = []

    def work(when_ns: int, order: int) -> None:
        assert engine.now_ns == when_ns
        made.append((when_ns, order))
        for _ in range(chance.choice([0, 0, 1, 2])):
            ask(when_ns + chance.choice([0, 1, 1 << 10, MS, 3 * MS]))

    def ask(when_ns: int) -> None:
        if len(asked) < 2000:
            asked.append((when_ns, len(asked)))
            engine.at(when_ns, work, *asked[-1])

    for _ in range(50):
        ask(chance.randrange(10 * MS))
    until_ns = 0
    while len(made) < len(asked):
        until_ns += chance.randrange(4 * MS)
        engine.run(until_ns)
        assert made == sorted(pair for pair in asked if pair[0] <= until_ns)
    assert made == sorted(asked)
