"""A member that brings false accusations, as it is told by one who means harm."""

from dataclasses import replace

import pytest
import trio

from daa_consensus.votes import Certificate
from daa_dag.ids import NodeId
from daa_node.disputes.court import CASES_EACH_MAX, TELL_S
from daa_node.errors import Unavailable
from daa_node.spot_checks.findings import Part as Differing
from tests.daa_node.disputes.little_court import NAMES, SEGMENT_STEPS, World
from tests.daa_node.disputes.test_disputes import charge_in, drawn_of, told, verdict_on

LIAR, *HONEST = NAMES


async def test_who_accuses_falsely_before_each_judge_of_something_else_is_convicted(
    autojump_clock: object,
) -> None:
    """All of its places are taken at everybody's, by no case that two have heard of from it."""
    world = World()
    for round_ in range(1, 9):
        world.decide(*NAMES, round_=round_)
    false = [
        charge_in(world, LIAR, author, step, round_)
        for author in HONEST
        for round_ in range(1, 9)
        if LIAR in drawn_of(world, author, round_).draw.checkers
        for step in range(SEGMENT_STEPS)
    ]
    for judge in HONEST:
        for charge in [false.pop() for _ in range(CASES_EACH_MAX)]:
            await told(world, judge, charge, verdict_on(charge, LIAR, charge.drawn.author))
    async with world.at_work():
        await trio.sleep(120)
    assert all(world.convicted()[name] == {LIAR} for name in HONEST)


async def test_cases_of_who_stands_convicted_take_no_places() -> None:
    """Else whoever is caught first would keep its accuser from catching others."""
    world = World()
    for round_ in range(1, 17):
        world.decide(*NAMES, round_=round_)
    accuser, judge, other = HONEST
    drawn = [
        charge_in(world, accuser, author, round_=round_)
        for author in (LIAR, other)
        for round_ in range(1, 17)
        if accuser in drawn_of(world, author, round_).draw.checkers
    ]
    of_liar = [charge for charge in drawn if charge.drawn.author == LIAR][:CASES_EACH_MAX]
    (next_one, *_) = (charge for charge in drawn if charge.drawn.author == other)
    for charge in of_liar:
        await told(world, judge, charge, verdict_on(charge, accuser, LIAR))
    with pytest.raises(Unavailable, match="undecided"):
        await told(world, judge, next_one, verdict_on(next_one, accuser, other))
    validators = world.members[judge].validators
    validators.now = replace(validators.now, convicted=(LIAR,))
    await told(world, judge, next_one, verdict_on(next_one, accuser, other))


async def test_who_never_answers_delays_no_verdict(autojump_clock: object) -> None:
    """Rounds may be as short as an answer may be late, and a dispute lasts for 32 of them."""
    took_s = []
    for stalling in (set[NodeId](), {LIAR}):
        world = World(seals_wrongly={LIAR}, stalls=stalling)
        for round_ in range(1, 9):
            world.decide(*NAMES, round_=round_)
        drawn = [(r, drawn_of(world, LIAR, r).draw.checkers) for r in range(1, 9)]
        began_s = trio.current_time()
        async with world.at_work():
            for accuser in HONEST:
                round_ = next(r for r, checkers in drawn if accuser in checkers)
                drawn = [each for each in drawn if each[0] != round_]
                world.doubt(accuser, LIAR, round_, Differing.UPDATE)
                await trio.sleep(5)
            while any(len(world.members[name].evidence) < len(HONEST) for name in HONEST):
                await trio.sleep(0.5)
        took_s.append(trio.current_time() - began_s)
    assert took_s[1] <= took_s[0] + 2 * TELL_S


async def test_who_stands_convicted_fills_no_memory_with_cases() -> None:
    """Nor does who accuses it: nothing of that is decided any more; who tells it is done."""
    world = World()
    for round_ in range(1, 17):
        world.decide(*NAMES, round_=round_)
    judge, other, _ = HONEST
    validators = world.members[judge].validators
    validators.now = replace(validators.now, convicted=(LIAR,))
    charges = [
        charge_in(world, accuser, author, step, round_)
        for accuser, author in ((LIAR, other), (other, LIAR))
        for round_ in range(1, 17)
        if accuser in drawn_of(world, author, round_).draw.checkers
        for step in range(SEGMENT_STEPS)
    ]
    for charge in charges:
        verdict = verdict_on(charge, charge.accuser, charge.drawn.author)
        assert await told(world, judge, charge, verdict) == b""
    assert len(charges) > 4 * CASES_EACH_MAX
    assert not world.members[judge].disputes._court._cases


async def test_a_trainer_brings_its_accusation_and_its_verdict_weighs_nothing(
    autojump_clock: object,
) -> None:
    """Else what proves it would name somebody who does not vote, and no set could carry it."""
    world = World(trainers={LIAR, HONEST[0]}, wrong_steps={LIAR: {3}}, lies={LIAR: False})
    round_ = next(number for number in range(1, 65) if _draws(number))
    world.decide(*NAMES, round_=round_)
    async with world.at_work():
        world.doubt(HONEST[0], LIAR, round_)
        await trio.sleep(60)
    judges = HONEST[1:]
    assert all(world.convicted()[name] == {LIAR} for name in judges)
    for name in judges:
        (verdict,) = (evidence.parts[0] for evidence in world.members[name].evidence)
        assert isinstance(verdict, Certificate)
        assert {signer for signer, _ in verdict.signatures} == {*judges}


async def test_who_cannot_replay_fetches_ever_more_seldom_and_judges_once_it_can(
    autojump_clock: object,
) -> None:
    """As a node that never trains and has not the data: a dispute lasts for 32 rounds."""
    judges = HONEST[1:]
    world = World(wrong_steps={LIAR: {3}}, tired={*judges})
    round_ = next(number for number in range(1, 65) if _draws(number))
    world.decide(*NAMES, round_=round_)
    async with world.at_work():
        world.doubt(HONEST[0], LIAR, round_)
        await trio.sleep(500)
        for name in judges:
            member = world.members[name]
            assert 3 <= len(member.told("verdict_failed")) <= 10
            assert len(member.fetched) <= 20
        world.tired.clear()
        await trio.sleep(1000)
    assert all(world.convicted()[name] == {LIAR} for name in HONEST)


def _draws(round_: int) -> bool:
    """Whether the lot gives the first honest one a check of the liar in this round."""
    world = World()
    world.decide(*NAMES, round_=round_)
    return HONEST[0] in drawn_of(world, LIAR, round_).draw.checkers
