"""Every order in which four validators, one of them silent or worse, can close a round.

What `safety.may_vote` says of aborts is asked of the real rule; the views around it are reduced to
what matters here: an abort gathers votes in one view, and a view that is given up starts again
with no votes. From every state in which the network may find itself, the honest three alone must be
able to close the round, or the network stands still for ever.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from daa_consensus.bft.safety import Record, Seen, Vote, may_vote
from daa_consensus.votes import Kind
from daa_dag.ids import BlockId

ROUND = 1
HONEST = 3
G = BlockId(b"G")
ABORT = Vote(Kind.NOTARIZE, (0, 1), BlockId(b"abort"), G, 0, aborts=ROUND)


class Node(NamedTuple):
    executed: bool = False
    abort_now: bool = False  # notarized the abort of the current view
    abort_ever: bool = False


class State(NamedTuple):
    nodes: tuple[Node, ...] = (Node(),) * HONEST
    traitor_helps: bool = True  # its Exec and its abort vote are there, or not

    @property
    def executions(self) -> int:
        return sum(node.executed for node in self.nodes) + self.traitor_helps

    @property
    def aborts(self) -> int:
        return sum(node.abort_now for node in self.nodes) + self.traitor_helps

    @property
    def closed(self) -> bool:
        """An Exec quorum is proposed and notarized by all who hold it; or an abort is notarized."""
        return self.executions >= 3 or self.aborts >= 3


MayExecute = Callable[[Node], bool]


def while_the_round_is_open(node: Node) -> bool:
    """The rule: `Chain.may_execute`, whatever this node notarized before."""
    return True


def never_after_an_abort_vote(node: Node) -> bool:
    """The stricter rule, which does not work."""
    return not node.abort_ever


def successors(state: State, may_execute: MayExecute) -> Iterator[State]:
    for index, node in enumerate(state.nodes):
        seen = Seen({0: G}, frozenset(), executed=ROUND if node.executed else 0)
        changed = []
        if may_vote(Record(0, 0), seen, ABORT).allowed:
            changed.append(node._replace(abort_now=True, abort_ever=True))
        if may_execute(node):
            changed.append(node._replace(executed=True))
        for made in changed:
            nodes = [*state.nodes[:index], made, *state.nodes[index + 1 :]]
            yield State(tuple(sorted(nodes)), state.traitor_helps)
    given_up = tuple(sorted(node._replace(abort_now=False) for node in state.nodes))
    yield State(given_up, state.traitor_helps)


def reachable(start: State, may_execute: MayExecute) -> set[State]:
    reached, frontier = {start}, [start]
    while frontier:
        state = frontier.pop()
        for after in successors(state, may_execute):
            if not state.closed and after not in reached:
                reached.add(after)
                frontier.append(after)
    return reached


def dead_ends(may_execute: MayExecute) -> list[State]:
    """States from which the honest three can never close the round without the traitor."""
    found = []
    for state in reachable(State(), may_execute) | reachable(
        State(traitor_helps=False), may_execute
    ):
        alone = state._replace(traitor_helps=False)
        if not any(after.closed for after in reachable(alone, may_execute)):
            found.append(alone)
    return found


def test_the_honest_can_close_the_round_from_wherever_they_are() -> None:
    assert dead_ends(while_the_round_is_open) == []


def test_a_vote_for_an_abort_that_forbade_exec_for_ever_could_halt_the_network() -> None:
    stuck = dead_ends(never_after_an_abort_vote)
    assert any(sum(n.executed for n in state.nodes) in (1, 2) for state in stuck)


@pytest.mark.parametrize("executed", range(HONEST + 1))
def test_nobody_who_executed_votes_for_the_abort(executed: int) -> None:
    nodes = (Node(executed=True),) * executed + (Node(),) * (HONEST - executed)
    for state in reachable(State(nodes, traitor_helps=False), while_the_round_is_open):
        ever = sum(node.abort_ever for node in state.nodes)
        assert ever <= HONEST - executed
