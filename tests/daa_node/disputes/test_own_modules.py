"""Where no canonical kernels take the model's steps, nobody is convicted of steps, only shunned."""

import pytest
import trio

from daa_node.disputes.charge import Part, accusation_statement, charge_of
from daa_node.disputes.decided_sets import DecidedSets
from daa_node.disputes.openings import encode_question
from daa_node.errors import PeerFault
from daa_node.seams import PeerId
from daa_node.spot_checks.checks import CheckRules
from daa_node.spot_checks.findings import Part as Differing
from daa_node.spot_checks.lot import Lot
from tests.daa_node.disputes.little_court import BASIS, NAMES, SEGMENT_STEPS, World, set_of
from tests.daa_node.disputes.test_disputes import charge_in, checkers_of, signed
from tests.daa_node.disputes.test_second_looks import HONEST, LIAR, shunned_by, walk

LONG_S = 400.0


async def test_who_did_not_take_its_steps_is_shunned_by_all_and_convicted_by_none(
    autojump_clock: object,
) -> None:
    world = World(wrong_steps={LIAR: {3}}, lies={LIAR: False}, steps_convict=False)
    world.decide(*NAMES)
    accuser = checkers_of(world, LIAR)[0]
    async with world.at_work():
        world.doubt(accuser, LIAR)
        await trio.sleep(LONG_S)
        await walk(world, range(2, 4))
        assert shunned_by(world, *HONEST) == {LIAR}
    assert all(not by for by in world.convicted().values())
    orders = [order for member in world.members.values() for order in member.orders]
    assert not [order for order in orders if order.exact and order.sealed is None]
    told = world.members[accuser].told("doubt_ended")
    assert told[0]["outcome"] == "complained"


async def test_honest_steps_that_a_checker_doubts_cost_nobody_anything(
    autojump_clock: object,
) -> None:
    world = World(steps_convict=False)
    world.decide(*NAMES)
    async with world.at_work():
        world.doubt(checkers_of(world, NAMES[1])[0], NAMES[1])
        await trio.sleep(LONG_S)
        assert shunned_by(world, *NAMES) == set()
    assert all(not by for by in world.convicted().values())


async def test_a_seal_convicts_as_ever(autojump_clock: object) -> None:
    world = World(seals_wrongly={LIAR}, lies={LIAR: False}, steps_convict=False)
    world.decide(*NAMES)
    async with world.at_work():
        world.doubt(checkers_of(world, LIAR)[0], LIAR, part=Differing.UPDATE)
        await trio.sleep(LONG_S)
    assert all(LIAR in world.convicted()[name] for name in HONEST)


async def test_no_segment_is_opened_and_no_accusation_of_steps_is_heard(
    autojump_clock: object,
) -> None:
    world = World(steps_convict=False)
    world.decide(*NAMES)
    author = NAMES[1]
    checker = checkers_of(world, author)[0]
    charge = charge_in(world, checker, author)
    handlers = world.members[author].handlers
    with pytest.raises(PeerFault, match="convict nobody"):
        await handlers["opening"](PeerId(checker.hex()), encode_question(charge.drawn))
    domain = charge.accusation.statement.domain
    of_segment = signed(accusation_statement(domain, charge.drawn, Part.SEGMENT), checker)
    for convicts in (True, False):
        rules = CheckRules(Lot((1, 1), 2), SEGMENT_STEPS, (1, 1000), (), convicts)
        sets = DecidedSets(rules)
        sets.note(BASIS, set_of(*NAMES))
        for accusation, opening, part in (
            (charge.accusation, charge.opening, Part.STEP),
            (of_segment, None, Part.SEGMENT),
        ):
            if convicts:
                assert charge_of(accusation, opening, sets).part is part
                continue
            with pytest.raises(PeerFault, match="convict nobody"):
                charge_of(accusation, opening, sets)
