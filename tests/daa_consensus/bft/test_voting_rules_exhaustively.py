"""Every reachable state of the voting rules, for four validators, one of them a traitor.

See voting_model for what is modelled and voting_exploration for how it is walked through. In each
of three scopes, of three views and more, the leaders propose at once whatever fits:

    sets      from genesis: two sets and an empty block, then aborts and empty blocks on them
    closings  from an open round: result, abort, false result and empty block in every view
    epochs    the same, but the round is the last of its epoch; two views of the next follow

A final set is where closings begin in any case: everything below it is settled. Rules broken on
purpose must be found out. DAA_VOTING_MORE_VIEWS=1 adds a view to each scope: 31
million states, six minutes.
"""

import os
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import combinations

import pytest

from daa_consensus.bft.agenda import Agenda
from daa_consensus.bft.chain import Chain, Fit, Place
from daa_consensus.bft.evidence import conflict
from daa_consensus.bft.messages import AbortPayload, Block, EmptyPayload, Payload, ResultPayload
from daa_consensus.bft.safety import ALLOWED, Record, Seen, Verdict, Vote, may_vote
from daa_consensus.committee import Domain
from daa_consensus.votes import Kind, Signed, Statement
from tests.daa_consensus.bft.simulation import (
    CHAIN,
    committee_of,
    empty_set,
    node_id,
    result_of,
    sign,
)
from tests.daa_consensus.bft.voting_exploration import Explorer, Walk
from tests.daa_consensus.bft.voting_model import Broken, Node, Rules, State
from tests.daa_consensus.bft.voting_universe import LIE, ROOT, Slot, Universe, Word

Explore = Callable[[Rules], Explorer]
VotingRule = Callable[[Record, Seen, Vote], Verdict]

MORE_VIEWS = int(os.environ.get("DAA_VOTING_MORE_VIEWS", "0"))
EMPTY, ABORT = EmptyPayload(), AbortPayload(1)


def views(epoch: int, first: int, last: int) -> list[Slot]:
    return [(epoch, view) for view in range(first, last + 1)]


def explore_sets(rules: Rules, last_view: int = 3 + MORE_VIEWS) -> Explorer:
    explorer = Explorer(rules, Universe(epoch_rounds=100, rival_sets=2))
    explorer.by_slot(State(), views(0, 1, last_view))
    return explorer


def explore_closings(rules: Rules) -> Explorer:
    explorer = Explorer(rules, Universe(epoch_rounds=100, rival_sets=1))
    explorer.by_slot(with_open_round(explorer.universe), views(0, 2, 4 + MORE_VIEWS))
    return explorer


def explore_epochs(rules: Rules) -> Explorer:
    explorer = Explorer(rules, Universe(epoch_rounds=1, rival_sets=1))
    slots = views(0, 2, 3 + MORE_VIEWS) + views(1, 3, 4)
    explorer.by_slot(with_open_round(explorer.universe), slots)
    return explorer


def with_open_round(universe: Universe) -> State:
    """The set of round 1 is final in view 1."""
    decided = universe.add(ROOT, (0, 1), empty_set(1))
    return State(certified=certificates(universe, decided))


def certificates(universe: Universe, block: int) -> int:
    """The block is notarized and final."""
    return universe.word(Kind.NOTARIZE, block).bit | universe.word(Kind.FINALIZE, block).bit


class Sample:
    """A few blocks, so few that every order of all votes for them can be walked through."""

    def __init__(self, rules: Rules, epoch_rounds: int) -> None:
        self.explorer = Explorer(rules, Universe(epoch_rounds))
        self.universe = self.explorer.universe
        self.start = State()
        self.slots: set[Slot] = set()
        self._blocks: list[int] = []

    def add(self, parent: int, slot: Slot, payload: Payload) -> int:
        block = self.universe.add(parent, slot, payload)
        self._blocks.append(block)
        self.slots.add(slot)
        return block

    def words(self, slot: Slot) -> list[Word]:
        kinds = Kind.NOTARIZE, Kind.FINALIZE
        blocks = [b for b in self._blocks if self.universe.slot(b) == slot]
        votes = [self.universe.word(kind, block) for block in blocks for kind in kinds]
        return [self.universe.nullify(slot), *votes]

    def all_words(self) -> list[Word]:
        return [word for slot in sorted(self.slots) for word in self.words(slot)]

    def every_order(self) -> set[State]:
        return self.explorer.every_order(self.start, self.all_words())

    def walk(self) -> Walk:
        return Walk(self.explorer, self.start, self.all_words(), None)

    def by_slot(self) -> set[State]:
        return self.explorer.by_slot(
            self.start, sorted(self.slots), lambda _, slot: self.words(slot)
        )


def two_views(rules: Rules) -> Sample:
    """A leader that leads both ways, then children of all that there is."""
    sample = Sample(rules, epoch_rounds=100)
    one, other = (sample.add(ROOT, (0, 1), empty_set(1, weight)) for weight in (0, 1))
    for parent, payload in ((one, EMPTY), (one, ABORT), (other, EMPTY), (ROOT, EMPTY)):
        sample.add(parent, (0, 2), payload)
    return sample


def three_views(rules: Rules) -> Sample:
    """A set, which the blocks of the later views extend or leave out."""
    sample = Sample(rules, epoch_rounds=100)
    decided = sample.add(ROOT, (0, 1), empty_set(1))
    sample.add(ROOT, (0, 2), EMPTY)
    sample.add(decided, (0, 3), EMPTY)
    sample.add(ROOT, (0, 3), EMPTY)
    return sample


def two_closings(rules: Rules) -> Sample:
    """A result on the abort of its round."""
    sample = Sample(rules, epoch_rounds=100)
    universe = sample.universe
    decided = universe.add(ROOT, (0, 1), empty_set(1))
    sample.start = State(certificates(universe, decided))
    closing = sample.add(decided, (0, 2), ABORT)
    sample.add(closing, (0, 3), result_of(universe.blocks[decided]))
    return sample


def two_epochs(rules: Rules) -> Sample:
    """An abort ended an epoch, although all have executed since; view 3 is of both epochs."""
    sample = Sample(rules, epoch_rounds=1)
    universe = sample.universe
    decided = universe.add(ROOT, (0, 1), empty_set(1))
    closing = universe.add(decided, (0, 2), ABORT)
    done = Node(executed=(decided,), holds=decided)
    final = certificates(universe, decided) | certificates(universe, closing)
    sample.start = State(final, (done, done, done))
    sample.add(closing, (0, 3), EMPTY)
    for payload in (EMPTY, empty_set(2)):
        sample.add(closing, (1, 3), payload)
    return sample


def explore_two_views(rules: Rules) -> Explorer:
    sample = two_views(rules)
    sample.every_order()
    return sample.explorer


def explore_two_closings(rules: Rules) -> Explorer:
    sample = two_closings(rules)
    sample.every_order()
    return sample.explorer


def explore_two_epochs(rules: Rules) -> Explorer:
    sample = two_epochs(rules)
    sample.every_order()
    return sample.explorer


# Broken rules of voting.


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
    return may_vote(record, replace(seen, nullified=frozenset(range(9))), vote)


def look_at_the_newest_skipped_view_only(record: Record, seen: Seen, vote: Vote) -> Verdict:
    older = frozenset(range(vote.slot[1] - 1))
    return may_vote(record, replace(seen, nullified=seen.nullified | older), vote)


def look_at_the_oldest_skipped_view_only(record: Record, seen: Seen, vote: Vote) -> Verdict:
    newer = frozenset(range(vote.parent_view + 2, vote.slot[1]))
    return may_vote(record, replace(seen, nullified=seen.nullified | newer), vote)


def any_parent(record: Record, seen: Seen, vote: Vote) -> Verdict:
    if vote.kind == Kind.NOTARIZE and vote.parent_id is not None:
        seen = replace(seen, notarized={vote.parent_view: vote.parent_id})
    return may_vote(record, seen, vote)


def vote_below_the_record(record: Record, seen: Seen, vote: Vote) -> Verdict:
    if vote.slot < record.slot:
        record = Record(*vote.slot)
    return may_vote(record, seen, vote)


def finalize_below_the_record(record: Record, seen: Seen, vote: Vote) -> Verdict:
    """Simplex alone would allow it; who remembers one slot cannot."""
    if vote.kind == Kind.FINALIZE and vote.slot < record.slot:
        record = Record(*vote.slot)
    return may_vote(record, seen, vote)


def nullify_below_the_record(record: Record, seen: Seen, vote: Vote) -> Verdict:
    if vote.kind == Kind.NULLIFY and vote.slot < record.slot:
        record = Record(*vote.slot)
    return may_vote(record, seen, vote)


def finalize_unnotarized(record: Record, seen: Seen, vote: Vote) -> Verdict:
    verdict = may_vote(record, seen, vote)
    return ALLOWED if verdict.reason.startswith("holds no notarization") else verdict


def never_nullify_after_notarize(record: Record, seen: Seen, vote: Vote) -> Verdict:
    verdict = may_vote(record, seen, vote)
    if vote.kind == Kind.NULLIFY and record.at(vote.slot).notarized is not None:
        return replace(verdict, allowed=False)
    return verdict


def compare_slots_by_view_alone(record: Record, seen: Seen, vote: Vote) -> Verdict:
    if vote.slot[1] < record.view:
        return Verdict(False, "below the record")
    record = record if vote.slot == record.slot else Record(*vote.slot)
    return may_vote(record, seen, vote)


def abort_after_exec(record: Record, seen: Seen, vote: Vote) -> Verdict:
    return may_vote(record, replace(seen, executed=0), vote)


def abort_while_holding_an_exec_quorum(record: Record, seen: Seen, vote: Vote) -> Verdict:
    return may_vote(record, replace(seen, certified=0), vote)


# Broken rules of what stands where, of Execs and results, and of where an epoch ends.


def set_on_a_closing_that_is_not_final(chain: Chain, block: Block) -> Place:
    place = chain.place(block)
    return Place(Fit.FITS) if place.reason.endswith("is not final") else place


def close_a_closed_round(chain: Chain, block: Block) -> Place:
    place = chain.place(block)
    return Place(Fit.FITS) if place.reason.endswith("that is not open") else place


def execute_what_is_not_final(chain: Chain, round_: int, node: Node) -> bool:
    return True


def never_execute_after_an_abort_vote(chain: Chain, round_: int, node: Node) -> bool:
    return chain.may_execute(round_) and not node.aborted


def any_root_of_a_certified_round(agenda: Agenda, payload: ResultPayload) -> Place:
    certified = agenda.certified >= payload.round
    return Place(Fit.FITS) if certified else agenda.assess_result(payload)


def result_before_the_exec_quorum(agenda: Agenda, payload: ResultPayload) -> Place:
    place = agenda.assess_result(payload)
    early = place.fit == Fit.WAIT and payload.result_root != LIE
    return Place(Fit.FITS) if early else place


def stand_on_the_trailing_block(chain: Chain, path: list[Block]) -> tuple[list[Block], list[Block]]:
    return path, []


BROKEN: list[tuple[Rules, Explore, str]] = [
    (Rules(may_vote=finalize_after_nullify), explore_two_views, "is nullified"),
    (Rules(may_vote=nullify_after_finalize), explore_two_views, "is nullified"),
    (Rules(may_vote=notarize_twice), explore_two_views, "two blocks are notarized"),
    (Rules(may_vote=skip_views_without_nullification), explore_two_views, "conflicts with"),
    (Rules(may_vote=any_parent), explore_two_views, "conflicts with"),
    (Rules(may_vote=vote_below_the_record), explore_two_views, "is nullified"),
    (Rules(may_vote=finalize_below_the_record), explore_two_views, "is nullified"),
    (Rules(may_vote=nullify_below_the_record), explore_two_views, "is nullified"),
    (Rules(may_vote=finalize_unnotarized), explore_two_views, "conflict"),
    (Rules(honest_quorum=1), explore_two_views, "is nullified"),
    (Rules(may_vote=never_nullify_after_notarize), explore_sets, "a dead end"),
    (Rules(may_vote=look_at_the_newest_skipped_view_only), explore_sets, "conflicts with"),
    (Rules(may_vote=look_at_the_oldest_skipped_view_only), explore_sets, "conflicts with"),
    (Rules(may_vote=abort_after_exec), explore_closings, "by who has executed"),
    (Rules(may_vote=abort_while_holding_an_exec_quorum), explore_closings, "by who holds"),
    (Rules(place=close_a_closed_round), explore_two_closings, "closed twice"),
    (Rules(may_execute=execute_what_is_not_final), explore_sets, "that is not final"),
    (
        Rules(may_execute=never_execute_after_an_abort_vote, notes_aborts=True),
        explore_closings,
        "a dead end",
    ),
    (Rules(assess_result=any_root_of_a_certified_round), explore_closings, "nobody honest"),
    (Rules(assess_result=result_before_the_exec_quorum), explore_closings, "without an Exec"),
    (Rules(may_vote=compare_slots_by_view_alone), explore_two_epochs, "two blocks are notarized"),
    (Rules(place=set_on_a_closing_that_is_not_final), explore_epochs, "the next epoch does not"),
    (Rules(split_trailing=stand_on_the_trailing_block), explore_epochs, "the next epoch does not"),
]


def name(value: object) -> str | None:
    """The rule that stands in for a real one."""
    if not isinstance(value, Rules):
        return None
    given = [getattr(value, field.name) for field in fields(Rules)]
    return next((r.__name__ for r in given if getattr(r, "__module__", "") == __name__), None)


@pytest.mark.parametrize(("broken", "explore", "why"), BROKEN, ids=name)
def test_a_broken_rule_is_found_out(broken: Rules, explore: Explore, why: str) -> None:
    with pytest.raises(Broken, match=why):
        explore(broken)


@pytest.mark.parametrize(
    ("explore", "states_min"),
    [
        (explore_sets, 300_000),
        pytest.param(explore_closings, 800_000, marks=pytest.mark.long),
        pytest.param(explore_epochs, 1_900_000, marks=pytest.mark.long),
    ],
)
def test_every_reachable_state_is_safe_and_no_dead_end(
    explore: Explore, states_min: int, record_property: Callable[[str, object], None]
) -> None:
    states = explore(Rules()).states
    record_property("states", states)
    assert states >= states_min  # the exploration went somewhere


@pytest.mark.parametrize("sample_of", [two_views, three_views, two_closings, two_epochs])
def test_slot_by_slot_finds_what_every_order_finds(sample_of: Callable[[Rules], Sample]) -> None:
    sample = sample_of(Rules())
    assert sample.by_slot() == sample.every_order()


def convicted(sample: Sample, walk: Walk) -> bool:
    """Whether a node could say, in some order of its votes, what proves an offence."""
    root = committee_of([1] * 4).root

    def signed(word: Word) -> Signed:
        domain = Domain(CHAIN, word.vote.slot[0], root)
        height = 0 if word.vote.block_id is None else sample.universe.blocks[word.block].height
        words = Statement(domain, word.vote.kind, word.vote.slot[1], height, word.vote.block_id)
        return sign(words, node_id(0))

    sent = {local.sent for local in walk.locals}
    said = ([signed(word) for word in sample.universe.in_mask(mask)] for mask in sent)
    return any(conflict(*pair) for words in said for pair in combinations(words, 2))


@pytest.mark.parametrize("sample_of", [two_views, two_epochs])
def test_nothing_that_the_rules_allow_can_be_held_against_a_node(
    sample_of: Callable[[Rules], Sample],
) -> None:
    sample = sample_of(Rules())
    walk = sample.walk()
    walk.run(Record(0, 0))
    assert not convicted(sample, walk)


@pytest.mark.parametrize(
    "rule", [finalize_after_nullify, nullify_after_finalize, notarize_twice, vote_below_the_record]
)
def test_what_a_broken_rule_allows_is_evidence(rule: VotingRule) -> None:
    sample = two_views(Rules(may_vote=rule))
    walk = sample.walk()
    with pytest.raises(Broken):
        walk.run(Record(0, 0))
    assert convicted(sample, walk)


@pytest.mark.parametrize(
    "rule", [look_at_the_newest_skipped_view_only, look_at_the_oldest_skipped_view_only]
)
def test_two_views_do_not_show_what_three_do(rule: VotingRule) -> None:
    explore_sets(Rules(may_vote=rule), last_view=2)
