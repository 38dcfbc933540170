"""How long a copy is looked for among members of whom most say that they have none."""

from collections.abc import Set

from daa_dag.ids import NodeId
from daa_node.history_wiring import is_hopeless

FOUR = {NodeId(bytes([n]) * 32) for n in range(4)}
ONE, TWO, *_ = sorted(FOUR)


def two_are(nodes: Set[NodeId]) -> bool:
    """Of four members one may lie."""
    return len(nodes) >= 2


def test_as_long_as_an_honest_one_may_have_it_it_is_not_hopeless() -> None:
    assert not is_hopeless(FOUR, (), two_are)
    assert not is_hopeless({ONE, TWO}, (), two_are)  # two have declined, one of them honest
    assert is_hopeless({ONE}, (), two_are)
    assert is_hopeless(set(), (), two_are)


def test_whoever_says_that_it_holds_it_is_waited_for() -> None:
    assert not is_hopeless({ONE}, (ONE,), two_are)
    assert is_hopeless({ONE}, (TWO,), two_are)
