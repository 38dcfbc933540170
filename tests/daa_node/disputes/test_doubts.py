"""What an author may do about a doubt of its work: nothing ends it but the replay, or time."""

from dataclasses import replace

import pytest
import trio

from daa_consensus.bft.messages import encode_signed
from daa_node.disputes import openings
from daa_node.disputes.accuser import OPENED_WITHIN_ROUNDS
from daa_node.disputes.charge import decode_opening, opening_statement
from daa_node.network.requests import Answer
from daa_node.seams import PeerId
from tests.daa_node.disputes.little_court import NAMES, World
from tests.daa_node.disputes.test_disputes import LONG_S, checkers_of, drawn_of, signed

LIAR, CHECKER, THIRD, FOURTH = NAMES


async def test_an_author_that_opens_nothing_holds_up_no_other_doubt(
    autojump_clock: object,
) -> None:
    """However many of its segments its checker doubts."""
    world = World(wrong_steps={LIAR: {3}, FOURTH: {5}}, hides={LIAR}, lies={FOURTH: False})
    rounds = range(1, 25)
    for round_ in rounds:
        world.decide(*NAMES, round_=round_)
    of_liar, of_fourth = (
        [r for r in rounds if CHECKER in drawn_of(world, author, r).draw.checkers]
        for author in (LIAR, FOURTH)
    )
    assert len(of_liar) > 8
    async with world.at_work():
        for round_ in of_liar:
            world.doubt(CHECKER, LIAR, round_)
            await trio.sleep(5)
        world.doubt(CHECKER, FOURTH, of_fourth[0])
        await trio.sleep(LONG_S)
    assert world.convicted()[THIRD] == {FOURTH}


async def test_one_bad_opening_ends_no_doubt(autojump_clock: object) -> None:
    world = World(wrong_steps={LIAR: {3}}, lies={LIAR: False})
    world.decide(*NAMES)
    member, accuser = world.members[LIAR], checkers_of(world, LIAR)[0]
    opens, drawn = member.handlers[openings.REQUEST], drawn_of(world, LIAR)
    domain = member.validators.domain(0)
    of_other = signed(opening_statement(domain, drawn_of(world, FOURTH), ()), LIAR)
    bad = [b"nothing", encode_signed(of_other)]

    async def answer(peer_id: PeerId, body: bytes) -> bytes | Answer:
        return bad.pop() if bad else await opens(peer_id, body)

    member.handlers[openings.REQUEST] = answer
    async with world.at_work():
        world.doubt(accuser, drawn.author)
        await trio.sleep(LONG_S)
    assert not bad
    assert world.convicted()[accuser] == {LIAR}


@pytest.mark.parametrize("hides_after_s", [8, 12, 16, 20, 24, 28])
async def test_a_doubt_outlasts_an_author_that_shows_nothing_for_a_while(
    hides_after_s: int, autojump_clock: object
) -> None:
    world = World(wrong_steps={LIAR: {3}}, lies={LIAR: False})
    world.decide(*NAMES)
    accuser = checkers_of(world, LIAR)[0]
    async with world.at_work():
        world.doubt(accuser, LIAR)
        await trio.sleep(hides_after_s)
        world.hides.add(LIAR)
        await trio.sleep(60)
        world.hides.clear()
        await trio.sleep(LONG_S)
    assert world.convicted()[accuser] == {LIAR}


@pytest.mark.parametrize("epochs_later", [1, 1000])
async def test_an_opening_of_another_epoch_opens_nothing_and_makes_nobody_a_liar(
    epochs_later: int, autojump_clock: object
) -> None:
    """No judge hears of it: who accused by it would be at fault before all, and the author free."""
    world = World(wrong_steps={LIAR: {3}}, lies={LIAR: False}, epoch_rounds=1)
    world.decide(*NAMES)
    member, accuser = world.members[LIAR], checkers_of(world, LIAR)[0]
    opens = member.handlers[openings.REQUEST]

    async def answer(peer_id: PeerId, body: bytes) -> bytes | Answer:
        opened = await opens(peer_id, body)
        if not opened:
            return opened
        assert isinstance(opened, bytes)
        said = decode_opening(opened).statement
        moved = replace(said.domain, epoch=said.domain.epoch + epochs_later)
        return encode_signed(signed(replace(said, domain=moved), LIAR))

    member.handlers[openings.REQUEST] = answer
    async with world.at_work():
        world.doubt(accuser, LIAR)
        await trio.sleep(10)
        for round_ in range(2, OPENED_WITHIN_ROUNDS + 3):
            world.decide(*NAMES, round_=round_)
        await trio.sleep(LONG_S)
    assert all(each.faults == [] for each in world.members.values())
    assert world.convicted()[accuser] == {LIAR}
