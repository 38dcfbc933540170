"""The voting rule, sentence by sentence; its consequences are explored exhaustively elsewhere."""

import pytest

from daa_consensus.bft.safety import Record, Seen, Vote, may_vote
from daa_consensus.votes import Kind
from daa_dag.ids import BlockId

G, P, X, Y = (BlockId(name) for name in (b"G", b"P", b"X", b"Y"))
SEEN = Seen({0: G, 3: P, 5: X}, {4})  # P notarized in view 3, view 4 nullified, X notarized in 5
HERE = (2, 5)


def notarize(block: BlockId = X, parent: BlockId = P, parent_view: int = 3) -> Vote:
    return Vote(Kind.NOTARIZE, HERE, block, parent, parent_view)


def finalize(block: BlockId = X) -> Vote:
    return Vote(Kind.FINALIZE, HERE, block)


NULLIFY = Vote(Kind.NULLIFY, HERE)


def allowed(record: Record, vote: Vote, seen: Seen = SEEN) -> bool:
    return may_vote(record, seen, vote).allowed


def test_a_fresh_slot_allows_every_vote() -> None:
    for vote in (notarize(), finalize(), NULLIFY, Vote(Kind.PROPOSAL, HERE, Y, P, 3)):
        assert allowed(Record(2, 4, nullified=True), vote)


def test_the_same_words_again_are_no_second_vote() -> None:
    assert allowed(Record(*HERE, notarized=X), notarize())
    assert allowed(Record(*HERE, notarized=X, finalized=X), finalize())
    assert allowed(Record(*HERE, nullified=True), NULLIFY)


def test_one_block_a_view_is_notarized_and_one_proposed() -> None:
    assert not allowed(Record(*HERE, notarized=Y), notarize())
    assert not allowed(Record(*HERE, finalized=Y), notarize())
    assert not allowed(Record(*HERE, proposed=Y), Vote(Kind.PROPOSAL, HERE, X, P, 3))


def test_finalize_and_nullify_exclude_each_other() -> None:
    assert not allowed(Record(*HERE, nullified=True), finalize())
    assert not allowed(Record(*HERE, finalized=X), NULLIFY)
    assert not allowed(Record(*HERE, nullified=True), notarize())
    assert allowed(Record(*HERE, notarized=X), NULLIFY)


def test_only_what_is_notarized_and_not_opposed_is_finalized() -> None:
    assert not allowed(Record(*HERE), finalize(Y))
    assert not allowed(Record(*HERE, notarized=Y), finalize())
    unknown = may_vote(Record(*HERE), Seen({0: G}, frozenset()), finalize())
    assert not unknown.allowed
    assert unknown.curable


@pytest.mark.parametrize("later", [(2, 6), (3, 0), (3, 5)])
def test_nothing_is_signed_below_the_newest_slot(later: tuple[int, int]) -> None:
    for vote in (notarize(), finalize(), NULLIFY):
        verdict = may_vote(Record(*later), SEEN, vote)
        assert not verdict.allowed
        assert not verdict.curable


def test_a_new_epoch_may_count_its_views_from_below() -> None:
    assert allowed(Record(1, 99, nullified=True), NULLIFY)


def test_a_block_stands_on_a_notarized_parent_over_nullified_views() -> None:
    assert allowed(Record(*HERE), notarize())
    cases = {
        "another parent there": (notarize(parent=Y), False),
        "nothing known there": (notarize(parent_view=2), True),
        "no earlier view": (notarize(parent_view=5), False),
        "a skipped view is open": (notarize(parent=G, parent_view=0), True),
    }
    for why, (vote, curable) in cases.items():
        verdict = may_vote(Record(*HERE), SEEN, vote)
        assert (verdict.allowed, verdict.curable) == (False, curable), why
        assert verdict.reason


def test_who_executed_or_saw_a_quorum_execute_notarizes_no_abort() -> None:
    abort = Vote(Kind.NOTARIZE, HERE, X, P, 3, aborts=4)
    for executed, certified, fine in [(3, 3, True), (4, 0, False), (0, 4, False), (5, 0, False)]:
        seen = Seen(SEEN.notarized, SEEN.nullified, executed, certified)
        assert allowed(Record(*HERE), abort, seen) == fine
        assert allowed(Record(*HERE), notarize(), seen)  # any other block is fine


def test_other_statements_are_no_votes_on_blocks() -> None:
    assert not allowed(Record(*HERE), Vote(Kind.EXEC, HERE))


def test_the_record_forgets_all_but_the_newest_slot() -> None:
    record = Record(0, 0)
    for vote in (Vote(Kind.PROPOSAL, HERE, X), notarize(), finalize()):
        record = record.after(vote)
    assert record == Record(*HERE, proposed=X, notarized=X, finalized=X)
    assert record.after(Vote(Kind.NULLIFY, (2, 6))) == Record(2, 6, nullified=True)
