"""Who shows nothing, or opens nothing, is worth nothing for a while, and nobody else is."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
import trio

from daa_consensus.committee import Committee, Validator
from daa_dag.ids import BlobRoot, NodeId
from daa_node.disputes import second_looks
from daa_node.disputes.accuser import OPENED_WITHIN_ROUNDS
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS
from daa_node.disputes.openings import encode_question
from daa_node.disputes.second_looks import HELD_ROUNDS, SHOWN_WITHIN_ROUNDS
from daa_node.disputes.shunning import SHUNNED_ROUNDS
from daa_node.errors import PeerFault
from daa_node.seams import PeerId
from tests.daa_node.disputes.little_court import NAMES, World, ends_of, offer_of
from tests.daa_node.disputes.test_disputes import checkers_of, drawn_of, not_drawn

LIAR, *HONEST = NAMES
ROUND_S = 20.0


async def complained(world: World, checker: NodeId, author: NodeId, round_: int = 1) -> None:
    """Of what was decided just now; all hear it before the next round."""
    world.members[checker].disputes.unshown(offer_of(author, round_))
    await trio.sleep(ROUND_S)


async def walk(world: World, rounds: Iterable[int], *authors: NodeId) -> None:
    """Rounds that these contribute to; all, if nobody is named."""
    for round_ in rounds:
        world.decide(*(authors or NAMES), round_=round_)
        await trio.sleep(ROUND_S)


def shunned_by(world: World, *names: NodeId) -> set[NodeId]:
    """By all of these."""
    found = [world.members[name].disputes.shunned() for name in names]
    return set(found[0].intersection(*found[1:]))


def checker_of(world: World, author: NodeId, round_: int = 1) -> NodeId:
    return next(n for n in drawn_of(world, author, round_).draw.checkers if n != LIAR)


async def test_who_shows_nothing_is_shunned_by_all_and_for_longer_each_time(
    autojump_clock: object,
) -> None:
    world = World(hides={LIAR})
    world.decide(*NAMES)
    async with world.at_work():
        await complained(world, checker_of(world, LIAR), LIAR)
        await walk(world, range(2, SHOWN_WITHIN_ROUNDS + 1))
        assert shunned_by(world, HONEST[0]) == set()
        await walk(world, [SHOWN_WITHIN_ROUNDS + 1])
        since = SHOWN_WITHIN_ROUNDS + 1
        assert shunned_by(world, *HONEST) == {LIAR}
        await complained(
            world, checker_of(world, LIAR, 2), LIAR, 2
        )  # of the same time: it counts once
        await walk(world, range(since + 1, since + SHUNNED_ROUNDS + 1), *HONEST)
        assert shunned_by(world, *HONEST) == set()
        again = since + SHUNNED_ROUNDS + 1
        await walk(world, [again])
        await complained(world, checker_of(world, LIAR, again), LIAR, again)
        await walk(world, range(again + 1, again + SHOWN_WITHIN_ROUNDS + 1))
        assert shunned_by(world, *HONEST) == {LIAR}
    told = world.members[HONEST[0]].told("author_shunned")
    assert [each["rounds"] for each in told] == [SHUNNED_ROUNDS, 2 * SHUNNED_ROUNDS]
    assert all(by == set() for by in world.convicted().values())


async def test_one_lost_disk_counts_once_however_many_complain(autojump_clock: object) -> None:
    world = World(hides={LIAR})
    world.decide(*NAMES)
    async with world.at_work():
        one = checker_of(world, LIAR)
        await complained(world, one, LIAR)
        await walk(world, [2])
        drawn = drawn_of(world, LIAR, 2).draw.checkers
        other = next(name for name in drawn if name not in (LIAR, one))
        await complained(world, other, LIAR, 2)
        await walk(world, range(3, SHOWN_WITHIN_ROUNDS + 6))
        judge = world.members[next(name for name in HONEST if name not in (one, other))]
        assert [each["rounds"] for each in judge.told("author_shunned")] == [SHUNNED_ROUNDS]


async def test_a_restart_forgets_neither_whom_it_shuns_nor_for_how_long(
    autojump_clock: object,
) -> None:
    world, restarted = World(hides={LIAR}), HONEST[0]
    world.decide(*NAMES)
    async with world.at_work():
        await complained(world, checker_of(world, LIAR), LIAR)
        await walk(world, range(2, SHOWN_WITHIN_ROUNDS + 2))
        assert shunned_by(world, restarted) == {LIAR}
    world.restart(restarted)
    now = SHOWN_WITHIN_ROUNDS + 2
    async with world.at_work():
        await walk(world, range(now, now + SHUNNED_ROUNDS - 1), *HONEST)
        assert shunned_by(world, restarted) == {LIAR}
        since = SHOWN_WITHIN_ROUNDS + 1
        assert world.members[restarted].disputes.shunned_until(LIAR) == since + SHUNNED_ROUNDS
        again = now + SHUNNED_ROUNDS - 1
        await walk(world, [again])
        assert shunned_by(world, restarted) == set()
        assert world.members[restarted].disputes.shunned_until(LIAR) is None
        await complained(world, checker_of(world, LIAR, again), LIAR, again)
        await walk(world, range(again + 1, again + SHOWN_WITHIN_ROUNDS + 1))
    (told,) = world.members[restarted].told("author_shunned")
    assert told["rounds"] == 2 * SHUNNED_ROUNDS


@pytest.mark.parametrize("dies", [True, False])
async def test_who_has_shown_it_is_not_shunned_because_our_own_worker_had_no_time(
    dies: bool, autojump_clock: object
) -> None:
    """Neither if it is gone when that has time, nor by whoever complained."""
    world, author = World(tired={*HONEST}), LIAR
    world.decide(*NAMES)
    async with world.at_work():
        await complained(world, checker_of(world, author), author)
        late = SHOWN_WITHIN_ROUNDS + 4
        await walk(world, range(2, late))
        if dies:
            world.silent.add(author)
        else:
            world.tired.clear()
        await walk(world, range(late, DISPUTE_ROUNDS + 4), *HONEST)
        for member in (world.members[name] for name in HONEST):
            assert member.told("author_shunned") == []
            assert not member.shelf


@pytest.mark.parametrize("hides_all", [True, False])
async def test_who_shows_late_is_accused_of_what_is_wrong(
    hides_all: bool, autojump_clock: object
) -> None:
    world = World(seals_wrongly={LIAR}, lies={LIAR: False})
    hidden = world.hides if hides_all else world.hides_its_past
    hidden.add(LIAR)
    world.decide(*NAMES)
    async with world.at_work():
        await complained(world, checker_of(world, LIAR), LIAR)
        await walk(world, range(2, 5))
        assert BlobRoot(LIAR) in world.members[checker_of(world, LIAR)].disputes.updates()
        hidden.clear()
        await walk(world, range(5, 9))
    assert all(by == {LIAR} for name, by in world.convicted().items() if name != LIAR)


async def test_who_does_not_show_what_it_goes_on_from_is_shunned(autojump_clock: object) -> None:
    world = World(hides_its_past={LIAR})
    world.decide(*NAMES)
    async with world.at_work():
        await complained(world, checker_of(world, LIAR), LIAR)
        await walk(world, range(2, SHOWN_WITHIN_ROUNDS + 3))
        assert shunned_by(world, *HONEST) == {LIAR}
    for member in (world.members[name] for name in HONEST):
        # once: states are dear to others
        assert sorted(member.fetched) == [BlobRoot(root) for root in sorted(ends_of(LIAR))]
        assert not member.shelf


async def test_whose_work_follows_is_not_shunned_whoever_complains(autojump_clock: object) -> None:
    """And who has complained in vain of two of four is not heard: one of them is honest."""
    world, rounds = World(), range(1, 25)
    for round_ in rounds:
        world.decide(*NAMES, round_=round_)
    drawn = {
        author: [r for r in rounds if LIAR in drawn_of(world, author, r).draw.checkers]
        for author in HONEST
    }
    judge, framed, other = HONEST
    async with world.at_work():
        looks = []
        now = rounds[-1]
        for author in (framed, framed, other, other, framed):
            await complained(world, LIAR, author, drawn[author].pop())
            await walk(world, range(now + 1, now + HELD_ROUNDS + 2))
            now += HELD_ROUNDS + 1
            looks.append(len(world.members[judge].orders))
        assert all(member.disputes.shunned() == set() for member in world.members.values())
    assert looks == [1, 2, 3, 3, 3]
    assert all(member.shelf == set() for member in world.members.values())


async def test_an_honest_checker_is_heard_whatever_small_seats_have_it_complain_in_vain(
    autojump_clock: object,
) -> None:
    """Of four, two that weigh three of ten may lie: they show late what it has complained of."""
    world, rounds = World(), range(1, 25)
    small, other_small, checker, judge = NAMES
    committee = Committee(tuple(Validator(n, 1 if n in NAMES[:2] else 4) for n in NAMES))
    for member in world.members.values():
        now = member.validators.now
        member.validators.now = replace(now, committee=committee)
    for round_ in rounds:
        world.decide(*NAMES, round_=round_)
    drawn = {
        author: [r for r in rounds if checker in drawn_of(world, author, r).draw.checkers]
        for author in (small, other_small)
    }
    async with world.at_work():
        now_round = rounds[-1]
        looks = []
        for author in (small, other_small, small):
            await complained(world, checker, author, drawn[author].pop())
            await walk(world, range(now_round + 1, now_round + HELD_ROUNDS + 2))
            now_round += HELD_ROUNDS + 1
            looks.append(len(world.members[judge].orders))
    assert looks == [1, 2, 3]


async def test_who_has_its_checkers_complain_in_vain_first_is_shunned_all_the_same(
    autojump_clock: object,
) -> None:
    world, rounds = World(), range(1, 9)
    for round_ in rounds:
        world.decide(*NAMES, round_=round_)
    checker = HONEST[0]
    first, second = [r for r in rounds if checker in drawn_of(world, LIAR, r).draw.checkers][:2]
    async with world.at_work():
        await complained(world, checker, LIAR, first)
        await walk(world, range(9, 10 + HELD_ROUNDS))
        world.hides.add(LIAR)
        await complained(world, checker, LIAR, second)
        now = 10 + HELD_ROUNDS
        await walk(world, range(now, now + SHOWN_WITHIN_ROUNDS + 1))
        assert shunned_by(world, *HONEST) == {LIAR}


async def test_who_was_cut_off_has_contributed_nothing_and_is_not_shunned(
    autojump_clock: object,
) -> None:
    world = World()
    world.decide(*NAMES)
    away, others = HONEST[0], [name for name in NAMES if name != HONEST[0]]
    world.silent.add(away)
    async with world.at_work():
        await complained(world, next(n for n in checkers_of(world, away) if n != away), away)
        await walk(world, range(2, SHOWN_WITHIN_ROUNDS + 6), *others)
        world.silent.clear()
        await walk(world, range(SHOWN_WITHIN_ROUNDS + 6, DISPUTE_ROUNDS + 4))
    assert all(member.told("author_shunned") == [] for member in world.members.values())


async def test_who_was_away_itself_shuns_nobody_for_the_rounds_that_it_missed(
    autojump_clock: object,
) -> None:
    """It comes back to some first, and what it asks the others for comes a little later."""
    world, author = World(), HONEST[0]
    world.decide(*NAMES)
    away = checker_of(world, author)
    missed = range(2, SHOWN_WITHIN_ROUNDS + 4)
    async with world.at_work():
        world.silent.add(away)
        await complained(world, away, author)
        for round_ in missed:
            world.decide(*NAMES, round_=round_, away=away)
            await trio.sleep(ROUND_S)
        world.silent.clear()
        world.hides.add(author)
        for round_ in missed:
            world.recall(away, *NAMES, round_=round_)
        await trio.sleep(ROUND_S)
        world.hides.clear()
        await walk(world, range(missed.stop, missed.stop + 2))
        assert world.members[away].told("author_shunned") == []
        assert {BlobRoot(root) for root in ends_of(author)} <= {*world.members[away].fetched}


async def test_what_is_kept_from_its_checker_alone_it_gets_from_the_others(
    autojump_clock: object,
) -> None:
    world = World(wrong_steps={LIAR: {3}}, lies={LIAR: False})
    world.decide(*NAMES)
    checker = checker_of(world, LIAR)
    world.hides_from[LIAR] = {checker}
    async with world.at_work():
        await complained(world, checker, LIAR)
        await walk(world, range(2, 5))
        assert shunned_by(world, checker) == {LIAR}
        (told,) = world.members[checker].told("author_shunned")
        assert told["why"] == "it differs"


async def test_whose_work_differs_and_who_does_not_open_it_is_shunned(
    autojump_clock: object,
) -> None:
    world = World(wrong_steps={LIAR: {3}}, lies={LIAR: False}, opens_nothing={LIAR})
    world.decide(*NAMES)
    async with world.at_work():
        world.doubt(checker_of(world, LIAR), LIAR)
        await walk(world, range(2, OPENED_WITHIN_ROUNDS + 4))
        assert shunned_by(world, *HONEST) == {LIAR}
    assert all(by <= {LIAR} for by in world.convicted().values())  # in the end by its segment


async def test_only_who_was_drawn_is_heard_and_only_in_time(autojump_clock: object) -> None:
    world = World(hides={LIAR})
    world.decide(*NAMES)
    judge, question = HONEST[0], encode_question(drawn_of(world, LIAR))
    hear = world.members[judge].handlers[second_looks.REQUEST]
    with pytest.raises(PeerFault, match="has drawn no such check"):
        await hear(PeerId(not_drawn(world, LIAR).hex()), question)
    with pytest.raises(PeerFault, match="malformed"):
        await hear(PeerId(LIAR.hex()), b"nothing")
    checker = checker_of(world, LIAR)
    async with world.at_work():
        world.silent.add(LIAR)
        await complained(world, checker, LIAR)
        await walk(world, range(2, DISPUTE_ROUNDS + 4), *HONEST)
        assert world.members[judge].disputes._looks._looks == {}
