"""A member that forgets what it signed is let vote again by the others, or told that nobody can."""

import pytest
import trio
from trio.abc import Clock

from daa_consensus.committee import Committee, Validator
from daa_consensus.votes import Kind, Statement
from daa_dag.ids import NodeId
from daa_node.agreement.signer import NONCE_BYTES, is_for_good, outlook
from daa_node.identity import envelope
from daa_node.observability.events import TEXT_CHARS_MAX
from tests.daa_node.agreement.message_world import Member, World, open_world, until
from tests.daa_node.agreement.test_wan_bft import chains_agree


async def forgotten(world: World, victim: Member) -> bytes:
    """All have gone a few rounds, the victim starts again without its guard; what that held."""
    for member in world.members:
        await world.start(member)
    await until(lambda: all(m.resolved >= 2 for m in world.members), 60)
    world.kill(victim)
    guard, victim.disk.guard = victim.disk.guard, None
    assert guard is not None
    await trio.sleep(0.5)
    await world.start(victim)
    await trio.sleep(0.5)
    return guard


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_of_three_or_fewer_nobody_lets_it_vote_again_and_its_own_memory_does(
    count: int, autojump_clock: Clock
) -> None:
    async with open_world(count) as world:
        victim = world.members[0]
        guard = await forgotten(world, victim)
        (told,) = victim.told("quarantined")
        assert "nobody can let it vote again" in told["why"]
        before = [member.resolved for member in world.members]
        await trio.sleep(60)
        assert victim.now.signer.quarantine is not None
        assert {word["kind"] for word in victim.told("statement_sent")} <= {"ack"}
        assert all(m.resolved <= b + 1 for m, b in zip(world.members, before, strict=True))
        world.kill(victim)
        victim.disk.guard = guard  # the remedy that it was told
        await world.start(victim)
        await until(lambda: all(m.resolved >= max(before) + 3 for m in world.members), 200)
        assert chains_agree(world.members)
        assert not [reason for _, _, reason in world.faults if reason != "late_offer"]


async def test_of_four_it_waits_for_one_that_is_away_and_is_let_vote_again(
    autojump_clock: Clock,
) -> None:
    async with open_world(4) as world:
        victim, away = world.members[:2]
        await forgotten(world, victim)
        (told,) = victim.told("quarantined")
        assert "they let it vote again" in told["why"]
        world.wire.down.add(away.me)
        await trio.sleep(30)
        assert victim.now.signer.quarantine is not None
        world.wire.down.clear()
        await until(lambda: victim.now.signer.quarantine is None, 200)
        before = victim.resolved
        await until(lambda: all(m.resolved >= before + 2 for m in world.members), 200)
        assert chains_agree(world.members)


async def test_who_votes_is_told_when_another_process_with_its_key_may_vote_too(
    autojump_clock: Clock,
) -> None:
    async with open_world(4) as world:
        for member in world.members:
            await world.start(member)
        await until(lambda: all(m.resolved >= 1 for m in world.members), 60)
        twin = Statement(world.domain(), Kind.REJOIN, 0, 0, b"t" * NONCE_BYTES)
        victim, *others = world.members
        for member in others:
            agreement = member.now.agreement
            word = envelope.sign(twin, victim.keys)
            agreement.facts.note_rejoin(word, agreement.validators.now)
        await until(lambda: bool(victim.told("key_elsewhere")), 60)
        assert "Stop one of them" in victim.told("key_elsewhere")[0]["why"]
        assert not any(member.told("key_elsewhere") for member in others)


async def test_a_rejoin_of_an_earlier_life_is_no_other_process(autojump_clock: Clock) -> None:
    async with open_world(4) as world:
        victim = world.members[0]
        await forgotten(world, victim)
        await until(lambda: victim.now.signer.quarantine is None, 120)
        before = victim.resolved
        await until(lambda: victim.resolved >= before + 2, 60)
        assert not victim.told("key_elsewhere")
        world.kill(victim)
        victim.disk.chain.records.clear()  # it sees the block with its Rejoin once more
        await world.start(victim)
        assert victim.now.signer.quarantine is None
        await until(lambda: victim.resolved >= before + 4, 200)
        assert not victim.told("key_elsewhere")


WHY_CHARACTERS = 120  # the longest is of a guard ahead of its log, with two numbers of 8 digits
NAMES = [NodeId(bytes([i]) * 32) for i in range(5)]


@pytest.mark.parametrize(
    ("stakes", "for_good"),
    [
        ([1], True),
        ([1, 1], True),
        ([1, 5, 5], True),
        ([1, 1, 1, 1], False),
        ([2, 1, 1, 1], True),
        ([2, 2, 2, 1], False),
        ([3, 2, 2, 2, 2], False),
    ],
)
def test_a_member_without_which_nothing_is_final_is_for_good(
    stakes: list[int], for_good: bool
) -> None:
    members = zip(NAMES, stakes, strict=False)
    committee = Committee(tuple(Validator(name, stake) for name, stake in members))
    assert is_for_good(committee, NAMES[0]) is for_good
    said = outlook("its guard is lost", committee, NAMES[0])
    assert said is not None
    assert ("stands for good" in said) is for_good
    assert said.startswith("its guard is lost; ")
    longest = outlook("w" * WHY_CHARACTERS, committee, NAMES[0])
    assert len(longest or "") <= TEXT_CHARS_MAX  # an event says all of it
    assert outlook(None, committee, NAMES[0]) is None
    stranger = NodeId(b"s" * 32)
    assert "it looks on" in (outlook("its guard is lost", committee, stranger) or "")
