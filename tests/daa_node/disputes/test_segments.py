"""An author that does not open its segment, or not all of it: all its steps are replayed."""

import pytest
import trio

from daa_dag.ids import BlobRoot, NodeId
from daa_node.disputes.accuser import OPENED_WITHIN_ROUNDS
from daa_node.disputes.charge import Charge, Part, accusation_statement
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS, HALVED_WITHIN_ROUNDS
from daa_node.training.boundaries import DISPUTED
from tests.daa_node.disputes.little_court import NAMES, STEPS, World, ends_of
from tests.daa_node.disputes.test_disputes import (
    LONG_S,
    checkers_of,
    drawn_of,
    signed,
    told,
    verdict_on,
)

LIAR, CHECKER, THIRD, FOURTH = NAMES


def walk(world: World, after: int, rounds: int) -> None:
    """All contribute to so many rounds more."""
    for round_ in range(after + 1, after + rounds + 1):
        world.decide(*NAMES, round_=round_)


async def doubted(
    world: World, author: NodeId = LIAR, rounds: int = OPENED_WITHIN_ROUNDS
) -> NodeId:
    """So many rounds go by after a checker, which is returned, has come to doubt the author."""
    world.decide(*NAMES)
    accuser = checkers_of(world, author)[0]
    async with world.at_work():
        world.doubt(accuser, author)
        await trio.sleep(10)
        walk(world, 1, rounds)
        await trio.sleep(LONG_S)
    for member in world.members.values():  # whoever looks for itself keeps ends for others
        assert member.shelf <= {BlobRoot(root) for root in ends_of(author)}
        assert member.claimed == set()
    return accuser


@pytest.mark.parametrize("step", [1, 5, STEPS])
async def test_who_opens_nothing_is_convicted_by_the_whole_segment(
    step: int, autojump_clock: object
) -> None:
    world = World(wrong_steps={LIAR: {step}}, lies={LIAR: False}, opens_nothing={LIAR})
    accuser = await doubted(world)
    told = world.members[accuser].told("doubt_ended")
    assert [e["why"] for e in told if e["outcome"] == "accused"] == ["segment"]
    assert all(by == {LIAR} for name, by in world.convicted().items() if name != LIAR)
    orders = [o for o in world.members[accuser].orders if o.exact and o.sealed is None]
    walked, last = orders[:-1], orders[-1]
    assert [(order.step, order.steps) for order in walked] == [(n, 2) for n in range(STEPS - 1)]
    assert (last.step, last.steps) == (STEPS - 1, 1)
    first, end = map(BlobRoot, ends_of(LIAR))
    assert (walked[0].start_root, last.origin_root, last.end_root) == (first, first, end)
    assert {order.shelf for order in orders} == {DISPUTED}


async def test_who_shows_nothing_of_what_it_opens_is_convicted_by_the_whole_segment(
    autojump_clock: object,
) -> None:
    world = World(wrong_steps={LIAR: {3}}, lies={LIAR: False}, hides_opened={LIAR})
    accuser = await doubted(world, rounds=HALVED_WITHIN_ROUNDS)
    assert world.convicted()[accuser] == {LIAR}


async def test_who_drips_what_it_opens_is_convicted_by_the_whole_segment_in_time(
    autojump_clock: object,
) -> None:
    """Its minutes are more rounds than a dispute has, where rounds are short."""
    world = World(wrong_steps={LIAR: {3}}, lies={LIAR: False}, hides_opened={LIAR}, drips={LIAR})
    world.decide(*NAMES)
    accuser = checkers_of(world, LIAR)[0]
    async with world.at_work():
        world.doubt(accuser, LIAR)
        for round_ in range(2, DISPUTE_ROUNDS + 1):
            await trio.sleep(2)
            world.decide(*NAMES, round_=round_)
        assert world.convicted()[accuser] == {LIAR}


async def test_a_segment_that_leads_to_no_numbers_convicts_its_author(
    autojump_clock: object,
) -> None:
    world = World(
        wrong_steps={LIAR: {3}}, lies={LIAR: False}, opens_nothing={LIAR}, explodes={LIAR}
    )
    accuser = await doubted(world)
    assert world.convicted()[accuser] == {LIAR}


async def test_who_has_trained_and_opens_nothing_is_convicted_of_nothing(
    autojump_clock: object,
) -> None:
    """Its checker's device leads elsewhere, or it is slow, or has forgotten after a restart."""
    world = World(opens_nothing={THIRD})
    accuser = await doubted(world, THIRD)
    told = world.members[accuser].told("doubt_ended")
    assert {ended["outcome"] for ended in told} == {"cleared"}
    assert all(by == set() for by in world.convicted().values())


async def test_who_accuses_falsely_of_a_segment_is_convicted_instead(
    autojump_clock: object,
) -> None:
    world = World(opens_nothing={THIRD}, lies={CHECKER: True})
    for round_ in range(1, 9):  # until the lot gives it to that one
        world.decide(*NAMES, round_=round_)
    round_ = next(r for r in range(1, 9) if CHECKER in drawn_of(world, THIRD, r).draw.checkers)
    async with world.at_work():
        world.doubt(CHECKER, THIRD, round_)
        await trio.sleep(10)
        walk(world, 8, OPENED_WITHIN_ROUNDS)
        await trio.sleep(LONG_S)
    assert all(by == {CHECKER} for name, by in world.convicted().items() if name != CHECKER)


async def test_a_segment_is_replayed_no_longer_than_its_dispute_lasts(
    autojump_clock: object,
) -> None:
    """Nobody judges any more, neither who had begun with it."""
    world = World(wrong_steps={LIAR: {3}}, opens_nothing={LIAR})
    world.decide(*NAMES)
    accuser = checkers_of(world, LIAR)[0]
    async with world.at_work():
        world.doubt(accuser, LIAR)
        await trio.sleep(10)
        walk(world, 1, OPENED_WITHIN_ROUNDS)
        judges = [name for name in NAMES if name not in (LIAR, accuser)]
        while not all(any(o.exact for o in world.members[name].orders) for name in judges):
            await trio.sleep(0.1)
        world.decide(*NAMES, round_=1 + DISPUTE_ROUNDS)
        await trio.sleep(LONG_S)
    assert all(world.members[name].told("verdict_given") == [] for name in judges)


async def test_only_steps_are_shown_with_an_opening() -> None:
    world = World()
    world.decide(*NAMES)
    accuser, drawn = checkers_of(world, LIAR)[0], drawn_of(world, LIAR)
    domain = world.members[LIAR].validators.domain(0)
    accusation = signed(accusation_statement(domain, drawn, Part.SEGMENT), accuser)
    charge = Charge(accusation, Part.SEGMENT, None, drawn, 0)
    assert await told(world, THIRD, charge, verdict_on(charge, accuser, LIAR)) == b""
    order = charge.order
    assert order is not None
    assert (order.step, order.steps, order.exact, order.sealed) == (0, STEPS, True, None)
    assert (order.start_root, order.end_root) == tuple(map(BlobRoot, ends_of(LIAR)))
