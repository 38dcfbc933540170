"""When a committee goes on to another version of the protocol, and when it does not."""

import random
from collections.abc import Iterable

import pytest

from daa_consensus.committee import VERSION_MAX, Committee
from daa_consensus.errors import BadMessage
from daa_consensus.membership import Membership
from daa_consensus.operations import Join, Leave, Operation, Rotate, Speak, decode_operation
from daa_consensus.operations import encode_operation as encoded
from tests.daa_consensus.bft.simulation import committee_of, node_id
from tests.daa_consensus.test_membership import approvals, operation

FOUR = committee_of([1] * 4)
SEVEN = committee_of([1] * 7)


def words(now: Membership, who: Iterable[int], version: int = 2) -> list[Operation]:
    """Said in the epoch that it is."""
    return [operation(Speak(node_id(i), version), now.epoch + 1) for i in who]


def told(now: Membership, who: Iterable[int], version: int = 2) -> Membership:
    return now.decided(words(now, who, version))


def versions(now: Membership, epochs: int) -> list[int]:
    """Of the next epochs."""
    found = list[int]()
    for _ in range(epochs):
        now = now.next_epoch()
        found.append(now.committee.version)
    return found


@pytest.mark.parametrize(
    ("committee", "quorum"),
    [(committee_of([1]), 1), (committee_of([1] * 3), 3), (FOUR, 3), (SEVEN, 5)],
)
def test_a_quorum_of_words_is_announced_for_an_epoch_and_then_used_for_good(
    committee: Committee, quorum: int
) -> None:
    now = told(Membership(committee), range(quorum))
    assert now.committee.version == 1
    announced = now.next_epoch()
    assert (announced.committee, announced.words.announced) == (committee, True)
    used = announced.next_epoch()
    assert (used.committee.version, used.words.announced) == (2, False)
    assert versions(used, 3) == [2, 2, 2]
    one_short = told(Membership(committee), range(quorum - 1))
    assert versions(one_short, 4) == [1, 1, 1, 1]
    assert not one_short.next_epoch().words.announced


def test_weight_counts_and_not_heads() -> None:
    uneven = committee_of([4, 1, 1, 1])  # a quorum is 5 of 7
    assert versions(told(Membership(uneven), (1, 2, 3)), 3) == [1, 1, 1]
    assert versions(told(Membership(uneven), (0, 1)), 3) == [1, 2, 2]


def test_the_version_is_in_the_root_from_2_on() -> None:
    used = told(Membership(FOUR), range(3)).next_epoch().next_epoch()
    assert used.committee.stake_of == FOUR.stake_of
    assert used.committee != FOUR
    assert used.committee.root != FOUR.root
    assert Committee(FOUR.validators, 1).root == FOUR.root
    roots = {Committee(FOUR.validators, version).root for version in range(1, 9)}
    assert len(roots) == 8


def test_one_liar_of_four_can_neither_force_it_nor_stand_in_its_way() -> None:
    forced = told(Membership(FOUR), (0,), 7)
    assert versions(forced, 5) == [1] * 5
    with_one = told(told(Membership(FOUR), (0,), 7), (1,))
    assert versions(with_one, 5) == [1] * 5
    # It stays silent, or takes its word back: the three others are a quorum.
    assert versions(told(told(Membership(FOUR), (1, 2, 3)), (0,), 1), 3) == [1, 2, 2]


def test_a_word_of_a_later_version_counts_for_the_next_one_and_no_version_is_left_out() -> None:
    now = told(Membership(SEVEN), range(5), 7)
    assert versions(now, 5) == [1, 2, 2, 3, 3]
    mixed = told(told(Membership(SEVEN), range(4), 2), (4,), VERSION_MAX)
    assert versions(mixed, 6) == [1, 2, 2, 2, 2, 2]


def test_who_is_convicted_speaks_for_nobody() -> None:
    now = told(Membership(SEVEN), range(5))
    by_evidence = now.decided([], [(node_id(0), 0)])
    assert versions(by_evidence, 3) == [1, 1, 1]
    late = now.next_epoch().decided([], [(node_id(0), 1)])  # in the epoch after the announcement
    assert versions(late, 2) == [1, 1]
    convicted = Membership(FOUR).decided([], [(node_id(0), 0)])
    assert not convicted.admits(words(convicted, (0,))[0].request)
    assert not told(convicted, (0,)).words.said


def test_who_comes_has_not_spoken_and_who_goes_speaks_no_more() -> None:
    """A quorum of the ended committee and of the next one, at both boundaries."""
    join = operation(Join(node_id(8), 2, b"k"))
    now = Membership(SEVEN).decided([join, *approvals(join.request, range(5))])
    joined = told(now, range(5))  # 5 of 7, and then 5 of 9, where a quorum is 7
    assert versions(joined, 3) == [1, 1, 1]
    announced = told(Membership(SEVEN), range(5)).next_epoch()
    leaves = announced.decided([operation(Leave(node_id(0)), 4)])  # 4 of 6, where it is 5
    assert versions(leaves, 3) == [1, 1, 1]
    then = leaves.next_epoch()
    assert node_id(0) not in then.words.said
    assert versions(told(then, (5,)), 2) == [1, 2]


def test_the_ended_committee_must_speak_it_where_the_others_go() -> None:
    leaves = [operation(Leave(node_id(i)), 4) for i in (5, 6)]
    now = told(Membership(SEVEN).decided(leaves), range(4))  # 4 of 7, and then 4 of 5: a quorum
    assert versions(now, 4) == [1, 1, 2, 2]


def test_a_convicted_one_that_is_too_heavy_to_go_does_not_count() -> None:
    heavy = committee_of([3, 1, 1, 1, 1])  # a quorum is 5 of 7
    now = told(Membership(heavy), range(3))
    assert versions(now, 2) == [1, 2]
    convicted = now.decided([], [(node_id(0), 0)])
    assert node_id(0) in convicted.next_epoch().committee.stake_of
    assert versions(convicted, 3) == [1, 1, 1]


def test_a_new_key_says_for_itself_what_it_speaks() -> None:
    rotate = operation(Rotate(node_id(0), node_id(9), b"k"))
    now = Membership(FOUR, objection_epochs=1)
    now = told(now.decided([rotate, *approvals(rotate.request, (1, 2, 3))]), range(3))
    then = now.next_epoch().next_epoch()
    assert node_id(9) in then.committee.stake_of
    assert then.committee.version == 1
    assert versions(told(then, (9,)), 2) == [1, 2]


def test_a_word_can_be_taken_back_until_the_version_is_used() -> None:
    announced = told(Membership(FOUR), range(3)).next_epoch()
    back = told(announced, (0,), 1)
    assert versions(back, 3) == [1, 1, 1]
    assert not back.next_epoch().words.announced
    again = told(back.next_epoch(), (0,), 2)
    assert versions(again, 3) == [1, 2, 2]
    used = told(Membership(FOUR), range(3)).next_epoch().next_epoch()
    assert not used.admits(words(used, (0,), 1)[0].request)
    assert versions(told(used, range(4), 1), 3) == [2, 2, 2]


def test_no_word_is_heard_twice_or_in_another_epoch_than_it_was_said_in() -> None:
    first = Membership(FOUR)
    (word,) = words(first, (0,))
    assert first.admits(word.request)
    said = first.decided([word])
    assert not said.admits(word.request)
    for version in (1, 2, 3):  # one an epoch
        assert not said.admits(words(said, (0,), version)[0].request)
    taken_back = told(said.next_epoch(), (0,), 1)
    assert not taken_back.words.said
    for epoch in (taken_back, taken_back.next_epoch(), taken_back.next_epoch().next_epoch()):
        assert not epoch.admits(word.request)
        assert not epoch.decided([word]).words.said
    for expires in (0, 2, 3, 4000):  # nor one that would lie about for long
        assert not first.admits(operation(Speak(node_id(0), 2), expires).request)
    assert not first.admits(words(first, (8,))[0].request)  # no member
    assert not first.admits(words(first, (0,), 1)[0].request)  # nothing new


def test_of_two_words_in_one_set_the_first_counts() -> None:
    now = Membership(FOUR)
    assert now.decided([*words(now, (0,), 2), *words(now, (0,), 9)]).words.said == {node_id(0): 2}


@pytest.mark.parametrize("version", [0, -1, VERSION_MAX + 1, True, "2", None, 2.0])
def test_what_is_no_version_is_refused(version: object) -> None:
    good = encoded(operation(Speak(node_id(0), 2)))
    assert decode_operation(good) == operation(Speak(node_id(0), 2))
    if isinstance(version, float):
        return  # no canonical bytes hold one
    with pytest.raises(BadMessage):
        decode_operation(encoded(operation(Speak(node_id(0), version))))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_no_history_goes_back_skips_a_version_or_uses_one_below_a_quorum(seed: int) -> None:
    rng = random.Random(seed)
    now = Membership(committee_of([rng.choice((1, 2)) for _ in range(rng.randint(1, 9))]))
    for _ in range(40):
        chosen = [v.node_id for v in now.committee.validators if rng.random() < 0.6]
        said = [operation(Speak(name, rng.choice((1, 2, 3, 9))), now.epoch + 1) for name in chosen]
        now = now.decided(said)
        before, words_then = now, now.words
        now = now.next_epoch()
        step = now.committee.version - before.committee.version
        assert step in (0, 1)
        if step:
            most = words_then.said
            speakers = {n for n, version in most.items() if version >= now.committee.version}
            assert words_then.announced
            assert now.committee.weight(speakers) >= now.committee.quorum
        assert all(version > now.committee.version for version in now.words.said.values())
        assert len(now.words.said) <= len(now.committee.validators)
