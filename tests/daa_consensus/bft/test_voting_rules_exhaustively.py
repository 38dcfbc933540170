"""Every reachable state of the voting rules, for four validators, one of them a traitor, two views.

The honest three sign whatever `safety.may_vote` allows, in any order, on certificates known the
moment they exist: seeing more only ever allows more, so this covers all delays. The traitor's
every vote is always there, hence two honest votes make a quorum of three. Blocks: A and B in view 1
by a leader that leads both ways; in view 2 children of A (two), of B, and of the genesis.

States are equal up to the order of the honest nodes. A rule broken on purpose must be found out.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from daa_consensus.bft.safety import ALLOWED, Record, Seen, Verdict, Vote, may_vote
from daa_consensus.votes import Kind
from daa_dag.ids import BlockId

Rule = Callable[[Record, Seen, Vote], Verdict]

G, A, B, AA, AC, BA, GA = (BlockId(name) for name in (b"G", b"A", b"B", b"AA", b"AC", b"BA", b"GA"))
PARENT = {A: (G, 0), B: (G, 0), AA: (A, 1), AC: (A, 1), BA: (B, 1), GA: (G, 0)}
VIEW = {G: 0, A: 1, B: 1, AA: 2, AC: 2, BA: 2, GA: 2}

VOTES = [
    Vote(kind, (0, VIEW[block]), block, *PARENT[block])
    for kind in (Kind.NOTARIZE, Kind.FINALIZE)
    for block in PARENT
] + [Vote(Kind.NULLIFY, (0, view)) for view in (1, 2)]


def ancestors(block: BlockId) -> set[BlockId]:
    found = {block}
    while block != G:
        block = PARENT[block][0]
        found.add(block)
    return found


CONFLICTS = [
    (one, other) for one in PARENT for other in PARENT
    if one not in ancestors(other) and other not in ancestors(one)
]  # fmt: skip


@dataclass(frozen=True)
class Found:
    states: int
    violation: str | None


class Model:
    """A local state is a record and the set of votes ever sent, as a bit mask; both interned."""

    def __init__(self, rule: Rule, honest_quorum: int) -> None:
        self._rule = rule
        self._honest_quorum = honest_quorum
        self._locals: list[tuple[Record, int]] = [(Record(0, 0), 0)]
        self._index = {self._locals[0]: 0}
        self._next: dict[tuple[int, int], list[int]] = {}
        self._seen: dict[int, Seen] = {}

    def explore(self) -> Found:
        start = (0, 0, 0)
        reached, frontier = {start}, [start]
        while frontier:
            later = []
            for state in frontier:
                first, second, third = state
                certified = self._certified(*(self._locals[i][1] for i in state))
                violation = self._violation(certified)
                if violation is not None:
                    return Found(len(reached), violation)
                moves = [(i, second, third) for i in self._successors(first, certified)]
                moves += [(first, i, third) for i in self._successors(second, certified)]
                moves += [(first, second, i) for i in self._successors(third, certified)]
                for move in moves:
                    low, middle, high = sorted(move)
                    if (low, middle, high) not in reached:
                        reached.add((low, middle, high))
                        later.append((low, middle, high))
            frontier = later
        return Found(len(reached), None)

    def _certified(self, one: int, two: int, three: int) -> int:
        """The votes that make a quorum together with the traitor."""
        if self._honest_quorum == 1:
            return one | two | three
        return one & two | one & three | two & three

    def _violation(self, certified: int) -> str | None:
        final = {
            vote.block_id
            for bit, vote in enumerate(VOTES)
            if certified >> bit & 1 and vote.kind == Kind.FINALIZE
        }
        for one, other in CONFLICTS:
            if one in final and other in final:
                return f"{one.decode()} and {other.decode()} are both final"
        return None

    def _seen_of(self, certified: int) -> Seen:
        if certified not in self._seen:
            held = [vote for bit, vote in enumerate(VOTES) if certified >> bit & 1]
            notarized = {0: G}
            for vote in held:
                if vote.kind == Kind.NOTARIZE and vote.block_id is not None:
                    notarized[vote.slot[1]] = vote.block_id
            nullified = {vote.slot[1] for vote in held if vote.kind == Kind.NULLIFY}
            self._seen[certified] = Seen(notarized, nullified)
        return self._seen[certified]

    def _successors(self, local: int, certified: int) -> list[int]:
        known = self._next.get((local, certified))
        if known is not None:
            return known
        record, sent = self._locals[local]
        found = []
        for bit, vote in enumerate(VOTES):
            if sent >> bit & 1 or not self._rule(record, self._seen_of(certified), vote).allowed:
                continue
            made = (record.after(vote), sent | 1 << bit)
            if made not in self._index:
                self._index[made] = len(self._locals)
                self._locals.append(made)
            found.append(self._index[made])
        self._next[local, certified] = found
        return found


def finalize_after_nullify(record: Record, seen: Seen, vote: Vote) -> Verdict:
    if vote.kind == Kind.FINALIZE:
        record = replace(record, nullified=False)
    return may_vote(record, seen, vote)


def nullify_after_finalize(record: Record, seen: Seen, vote: Vote) -> Verdict:
    if vote.kind == Kind.NULLIFY:
        record = replace(record, finalized=None)
    return may_vote(record, seen, vote)


def notarize_twice(record: Record, seen: Seen, vote: Vote) -> Verdict:
    if vote.kind in (Kind.NOTARIZE, Kind.FINALIZE):
        record = replace(record, notarized=None)
    return may_vote(record, seen, vote)


def skip_views_without_nullification(record: Record, seen: Seen, vote: Vote) -> Verdict:
    return may_vote(record, replace(seen, nullified=frozenset({1, 2})), vote)


def any_parent(record: Record, seen: Seen, vote: Vote) -> Verdict:
    if vote.kind == Kind.NOTARIZE and vote.parent_id is not None:
        seen = replace(seen, notarized={vote.parent_view: vote.parent_id})
    return may_vote(record, seen, vote)


def vote_below_the_record(record: Record, seen: Seen, vote: Vote) -> Verdict:
    if vote.slot < record.slot:
        record = Record(*vote.slot)
    return may_vote(record, seen, vote)


def finalize_unnotarized(record: Record, seen: Seen, vote: Vote) -> Verdict:
    verdict = may_vote(record, seen, vote)
    return ALLOWED if verdict.reason.startswith("holds no notarization") else verdict


def test_no_order_of_votes_makes_two_conflicting_blocks_final() -> None:
    found = Model(may_vote, honest_quorum=2).explore()
    assert found.violation is None
    assert found.states > 10_000  # the exploration went somewhere


@pytest.mark.parametrize(
    "broken",
    [
        finalize_after_nullify,
        nullify_after_finalize,
        notarize_twice,
        skip_views_without_nullification,
        any_parent,
        vote_below_the_record,
        finalize_unnotarized,
    ],
)
def test_a_broken_rule_is_found_out(broken: Rule) -> None:
    assert Model(broken, honest_quorum=2).explore().violation is not None


def test_a_quorum_of_one_vote_less_is_found_out() -> None:
    assert Model(may_vote, honest_quorum=1).explore().violation is not None
