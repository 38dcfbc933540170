"""Four members agree on sets, results and aborts over a wire that loses, slows and cuts."""

import random

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import Block, SetPayload
from daa_consensus.votes import Kind
from daa_dag.ids import Digest, NodeId
from daa_node.agreement.messages import (
    Greeting,
    Message,
    Position,
    Proposed,
    Stated,
    WantStatements,
    decode_message,
)
from daa_node.agreement.recovery import BLOCKS, CERTIFICATES
from daa_node.agreement.showing import LATECOMER_ASKS
from daa_node.checkpoints.layout import CHUNKS
from tests.daa_node.agreement.memory_disk import LOG, TRAIN_S
from tests.daa_node.agreement.message_world import STALL_S, Member, Puppet, open_world, until

Clock = trio.testing.MockClock


def chains_agree(members: list[Member]) -> bool:
    """No two members hold different vertices at one height."""
    chains = [m.chain() for m in members]
    longest = max(chains, key=len)
    return all(chain == longest[: len(chain)] for chain in chains)


def decided(member: Member, round_number: int) -> SetPayload:
    resolution = next(h.resolution for h in member.happened if h.round == round_number)
    assert resolution is not None
    payload = resolution.set_block.payload
    assert isinstance(payload, SetPayload)
    return payload


async def until_round(members: list[Member], round_number: int, within_s: float) -> None:
    await until(lambda: all(m.resolved >= round_number for m in members), within_s)


async def test_four_members_decide_execute_and_certify_rounds(autojump_clock: Clock) -> None:
    async with open_world() as world:
        for member in world.members:
            await world.start(member)
        await until(lambda: all(m.height >= 3 for m in world.members), 30)
        assert chains_agree(world.members)
        assert all(len(v.contributors) == 4 for v in world.members[0].chain()[1:])
        assert world.faults == []


@pytest.mark.parametrize(("members", "times"), [(4, 3), (30, 2), (100, 1)])
async def test_what_many_have_said_they_say_again_more_seldom(
    members: int, times: int, autojump_clock: Clock
) -> None:
    offered_s: list[float] = []
    async with open_world(members) as world:
        alone = world.members[0]
        await world.start(alone)

        def note(message: bytes) -> None:
            match decode_message(message, world.limits).body:
                case Stated(signed) if signed.statement.kind is Kind.OFFER:
                    offered_s.append(trio.current_time())

        alone.now.agreement._parts.mailbox.broadcast = note  # type: ignore[method-assign]
        await until(lambda: bool(offered_s), 30)
        await trio.sleep(12.5)
        assert len(offered_s) - 1 == times, offered_s


async def test_one_of_many_asks_to_rejoin_as_often_as_one_of_few(autojump_clock: Clock) -> None:
    asked = 0
    async with open_world(30) as world:
        alone = world.members[0]
        await world.start(alone)
        await until(lambda: bool(alone.told("statement_sent")), 30)
        world.kill(alone)
        alone.disk.guard = None
        await world.start(alone)
        assert alone.now.signer.quarantine is not None

        def note(message: bytes) -> None:
            nonlocal asked
            match decode_message(message, world.limits).body:
                case Stated(signed) if signed.statement.kind is Kind.REJOIN:
                    asked += 1

        alone.now.agreement._parts.mailbox.broadcast = note  # type: ignore[method-assign]
        await trio.sleep(8.5)
        assert asked >= 8


@pytest.mark.parametrize("seed", range(3))
async def test_messages_that_are_lost_cost_time_and_nothing_else(
    seed: int, autojump_clock: Clock
) -> None:
    chance = random.Random(seed)
    async with open_world() as world:
        world.wire.lose = lambda *_: chance.random() < 0.3
        for member in world.members:
            await world.start(member)
        await until(lambda: all(m.height >= 3 for m in world.members), 300)
        assert chains_agree(world.members)
        assert {reason for _, _, reason in world.faults} <= {"late_offer"}


async def test_a_member_that_is_slow_to_be_heard_still_follows_and_is_not_blamed(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        slow = world.members[2]
        world.wire.delay_s[slow.me] = 0.9
        for member in world.members:
            await world.start(member)
        await until(lambda: all(m.height >= 4 for m in world.members), 120)
        assert chains_agree(world.members)
        assert world.faults == []


async def test_three_go_on_without_the_fourth_which_follows_once_it_is_started(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        *early, late = world.members
        for member in early:
            await world.start(member)
        await until(lambda: all(m.resolved >= 3 for m in early), 120)
        await world.start(late)
        await until(lambda: late.resolved >= 6 and late.height >= 6, 200)
        assert chains_agree(world.members)
        assert late.me in {c.author for c in late.now.runner.newest.contributors}
        assert {reason for _, _, reason in world.faults} <= {"late_offer"}


async def test_who_has_followed_a_page_goes_on_once_the_agreement_stands_there(
    autojump_clock: Clock,
) -> None:
    """Else the next page is judged by a committee of before, and who brought it is blamed."""
    async with open_world() as world:
        *early, late = world.members
        for member in early:
            await world.start(member)
        await until(lambda: all(m.resolved >= 1 for m in early), 120)
        first = early[0].happened[0].resolution
        assert first is not None
        world.wire.lose = lambda _, receiver, *__: receiver == late.me  # pages alone reach it
        await world.start(late)
        agreement = late.now.agreement
        assert agreement.outcomes.resolved_round == 0
        await agreement.caught_up(first.certificate, first.blocks)
        assert agreement.outcomes.resolved_round == 1


async def test_who_comes_back_is_told_what_a_member_said_that_is_gone(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        here, gone, late = world.members[:2], world.members[2], world.members[3]
        # Round 2 is offered for and acknowledged, and then nobody hears a leader.
        world.wire.lose = lambda _sender, _receiver, message: (
            isinstance(message.body, Proposed) and message.body.block.height == 2
        )
        for member in world.members:
            await world.start(member)

        def acked(member: Member) -> int:
            return sum(event["round"] == 2 for event in member.told("offer_acked"))

        await until(lambda: all(acked(member) == 4 for member in world.members), 60)
        await trio.sleep(world.members[0].now.agreement.delta_s)
        assert all(m.resolved == 1 for m in world.members)
        # One is gone for good, one forgets all it has heard of the round: with the two that are
        # left it is a quorum, and must judge a set that relies on statements of who is gone.
        world.kill(gone)
        world.kill(late)
        await world.start(late)
        world.wire.lose = lambda *_: False
        await until_round([*here, late], 3, 60)
        assert gone.me in {offer.author for offer in decided(here[0], 2).offers}
        assert chains_agree([*here, late])


@pytest.mark.parametrize("how", ["killed", "cut off", "killed before it published"])
async def test_who_comes_into_the_middle_of_a_round_asks_two_what_was_said(
    how: str, autojump_clock: Clock
) -> None:
    """Once, of the round that it comes into; not of one that is over, which it only executes."""
    asked: list[tuple[NodeId, NodeId, int]] = []

    def note(sender: NodeId, receiver: NodeId, message: Message) -> bool:
        if isinstance(message.body, WantStatements) and not message.body.roots:
            asked.append((sender, receiver, message.body.round))
        return False

    async with open_world() as world:
        world.wire.lose = note
        *here, late = world.members
        for member in world.members:
            await world.start(member)
        await until_round(world.members, 1, 60)
        asked.clear()
        match how:
            case "killed":
                world.kill(late)
                await world.start(late)
            case "cut off":
                world.wire.down.add(late.me)
                await until_round(here, 3, 60)
                world.wire.down.clear()
            case _:
                await until(lambda: late.now.agreement.outcomes.resolved_round == 2, 60)
                world.kill(late)
                await world.start(late)
        came_back_at = max(member.resolved for member in here)
        await until_round([late], came_back_at + 3, 60)
        assert {sender for sender, _, _ in asked} == {late.me}
        (round_number,) = {round_number for _, _, round_number in asked}
        assert round_number > came_back_at
        assert len({receiver for _, receiver, _ in asked}) == len(asked) == LATECOMER_ASKS


async def test_a_partition_halts_both_halves_and_heals(autojump_clock: Clock) -> None:
    async with open_world() as world:
        for member in world.members:
            await world.start(member)
        await until(lambda: all(m.resolved >= 1 for m in world.members), 60)
        world.wire.down |= {m.me for m in world.members[:2]}
        before = max(m.resolved for m in world.members)
        await trio.sleep(60)
        assert max(m.resolved for m in world.members) <= before + 1
        world.wire.down.clear()
        await until(lambda: all(m.resolved >= before + 3 for m in world.members), 200)
        assert chains_agree(world.members)
        assert {reason for _, _, reason in world.faults} <= {"late_offer"}


async def test_who_comes_back_is_told_how_old_the_round_is_and_no_liar_makes_it_older(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        liar, back = Puppet(world, 2), world.members[3]
        for member in [*world.members[:2], back]:
            await world.start(member)
        began_s = trio.current_time()
        await trio.sleep(0.2)
        world.kill(back)
        await trio.sleep(1.0)  # the others wait for four contributions, or four seconds
        await world.start(back)
        await trio.sleep(0.05)
        liar.position = Position(0, 1, 0, 0, 3_600_000)
        await liar.send([back], Greeting())
        honest = [member.me for member in world.members[:2]]
        await until(lambda: all(map(back.now.agreement.position_of, honest)), 2.0)
        assert back.now.agreement.position_of(liar.me) == liar.position
        age_s = trio.current_time() - began_s
        assert back.now.agreement.round_age_s(1) == pytest.approx(age_s, abs=0.1)
        assert back.now.agreement.round_age_s(2) == 0.0
        listener = back.now.agreement._questions._listener
        assert listener is not None
        back.now.agreement.open_round(1, listener)  # as if it had heard of it before
        assert back.now.agreement._position().round_age_ms == pytest.approx(1e3 * age_s, abs=100)
        told_ms = [
            message.position.round_age_ms
            for sender, message in liar.heard
            if sender == world.members[0].me
        ]
        assert told_ms == sorted(told_ms)
        assert told_ms[-1] == pytest.approx(1e3 * age_s, abs=1_100)
        await until(lambda: world.members[0].resolved == 1, 10)
        assert back.now.agreement.round_age_s(1) == 0.0  # they are in the next one


async def test_a_killed_member_starts_again_and_never_contradicts_itself(
    autojump_clock: Clock,
) -> None:
    async with open_world(epoch_rounds=3) as world:
        for member in world.members:
            await world.start(member)
        for turn in range(8):
            victim = world.members[turn % 4]
            await trio.sleep(0.13 * (turn + 1))
            world.kill(victim)
            await trio.sleep(0.4)
            await world.start(victim)
            before = max(m.resolved for m in world.members)
            await until(lambda: all(m.resolved > before for m in world.members), 300)  # noqa: B023
        assert chains_agree(world.members)
        assert not [reason for _, _, reason in world.faults if reason != "late_offer"]


async def test_all_members_killed_at_once_go_on_from_what_their_disks_hold(
    autojump_clock: Clock,
) -> None:
    for moment_s in (0.55, 0.6, 0.65, 0.7):
        async with open_world() as world:
            for member in world.members:
                await world.start(member)
            await trio.sleep(moment_s)
            for member in world.members:
                world.kill(member)
            await trio.sleep(1)
            for member in world.members:
                await world.start(member)
            await until(lambda: all(m.height >= 2 for m in world.members), 200)
            assert chains_agree(world.members)
            assert not [reason for _, _, reason in world.faults if reason != "late_offer"]


async def test_a_round_that_nobody_can_execute_is_aborted_and_the_next_one_goes_through(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        for member in world.members:
            member.trainer.blocked_until_s = trio.current_time() + 10
            await world.start(member)
        await until(lambda: all(m.resolved >= 3 for m in world.members), 200)
        first = [m.happened[0].resolution for m in world.members]
        assert all(r is not None and r.result is None for r in first)
        assert all(m.height >= 1 for m in world.members)
        assert chains_agree(world.members)


async def test_a_leader_that_proposes_two_blocks_is_found_out_and_decides_nothing_twice(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        index = world.leader(1)
        puppet = Puppet(world, index)
        honest = [m for m in world.members if m.me != puppet.me]
        for member in honest:
            await world.start(member)
        await trio.sleep(0.1)
        blocks = [
            Block(
                world.genesis.chain_id, 0, 1, 1, world.genesis.id, 0,
                SetPayload(1, (), (), "trimmed_mean", 0, (), (), (ack,)),
            )
            for ack in (Digest(b"a" * 32), Digest(b"b" * 32))
        ]  # fmt: skip
        for to, block in ((honest[:2], blocks[0]), (honest[1:], blocks[1])):
            signed = puppet.sign(Kind.PROPOSAL, block.id, height=1, view=1)
            await puppet.send(to, Proposed(signed, block, None))
        await until(lambda: all(m.resolved >= 3 for m in honest), 200)
        assert chains_agree(honest)
        assert "equivocation" in {r for _, node, r in world.faults if node == puppet.me}
        assert {node for _, node, _ in world.faults} == {puppet.me}
        evidence = [e for m in honest for e in m.told("evidence_found")]
        assert {e["offence"] for e in evidence} == {"two proposal in one slot"}
        assert all(puppet.me in m.now.runner.newest.excluded for m in honest)


async def test_a_leader_that_shows_its_block_to_a_bare_quorum_leaves_nobody_behind(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        leader = world.members[world.leader(1)]
        left_out = world.members[(world.leader(1) + 1) % 4]

        def lose(sender: NodeId, receiver: NodeId, message: Message) -> bool:
            hidden = isinstance(message.body, Proposed) and sender == leader.me
            return hidden and receiver == left_out.me

        world.wire.lose = lose
        for member in world.members:
            await world.start(member)
        await until(lambda: all(m.resolved >= 4 for m in world.members), 120)
        assert chains_agree(world.members)
        assert world.faults == []


async def test_epochs_end_and_begin_while_members_come_and_go(autojump_clock: Clock) -> None:
    async with open_world(epoch_rounds=2) as world:
        for member in world.members:
            await world.start(member)
        await until(lambda: all(m.resolved >= 3 for m in world.members), 60)
        away = world.members[1]
        world.wire.down.add(away.me)
        rest = [m for m in world.members if m is not away]
        await until(lambda: all(m.resolved >= 9 for m in rest), 200)
        world.wire.down.clear()
        await until(lambda: all(m.resolved >= 11 for m in world.members), 200)
        assert chains_agree(world.members)
        assert not [reason for _, _, reason in world.faults if reason != "late_offer"]


async def test_a_member_that_lost_its_guard_is_silent_until_its_rejoin_is_final(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        for member in world.members:
            await world.start(member)
        await until(lambda: all(m.resolved >= 2 for m in world.members), 60)
        victim = world.members[0]
        world.kill(victim)
        victim.disk.guard = None
        await trio.sleep(0.5)
        await world.start(victim)
        signer = victim.now.signer
        assert signer.quarantine is not None
        await until(lambda: signer.quarantine is None, 120)
        before = victim.resolved
        await until(lambda: all(m.resolved >= before + 3 for m in world.members), 120)
        assert victim.told("rejoined")
        assert victim.told("statement_sent")
        assert chains_agree(world.members)
        assert not [reason for _, _, reason in world.faults if reason != "late_offer"]


@pytest.mark.parametrize("kinds", [{LOG}, {CERTIFICATES, BLOCKS}], ids=["log", "kept"])
async def test_a_disk_that_was_full_for_a_while_mutes_its_member_for_that_while_only(
    kinds: set[str], autojump_clock: Clock
) -> None:
    async with open_world() as world:
        # With one member gone every vote of the others is needed: one left out for good is a halt.
        three = world.members[:3]
        for member in three:
            await world.start(member)
        await until(lambda: all(m.resolved >= 1 for m in three), 60)
        for pause_s in (0.0, 1.1, 2.3, 3.1):
            three[0].disk.refuses |= kinds
            await trio.sleep(8)
            assert three[0].told("storage_failed")
            three[0].disk.refuses.clear()
            await until_round(three, 1 + max(m.resolved for m in three), 120)
            await trio.sleep(pause_s)
        assert chains_agree(three)
        assert {reason for _, _, reason in world.faults} <= {"late_offer"}


async def test_who_could_not_execute_tries_on_while_the_round_is_open(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        # One member is gone and one has executed: neither a result nor an abort has a quorum until
        # the other two have executed as well.
        three = world.members[:3]
        for member in three[1:]:
            member.trainer.fails = 5
        for member in three:
            await world.start(member)
        await until_round(three, 2, 120)
        assert all(m.height >= 1 for m in three)
        assert chains_agree(three)


async def test_nobody_waits_for_a_snapshot_to_be_stored(autojump_clock: Clock) -> None:
    async with open_world() as world:
        world.snapshot_every = 2
        for member in world.members:
            member.disk.slow_s[CHUNKS] = TRAIN_S + 0.1  # while the next round trains, and longer
            await world.start(member)
        await until_round(world.members, 5, 60)
        for member in world.members:
            told = [
                (event["name"], event.get("round", event.get("height")))
                for event in member.now.events.tail()
            ]
            for height in (2, 4):
                stored = told.index(("snapshot_stored", height))
                assert told.index(("update_sealed", height + 1)) < stored
            chain = member.now.chain
            vertex = await chain.newest()
            while vertex.height > 4:
                below = await chain.vertex(vertex.parents[0])
                assert below is not None
                vertex = below
            assert await chain.snapshot(vertex) is not None


async def test_a_latecomer_catches_up_past_a_member_that_stalls(autojump_clock: Clock) -> None:
    async with open_world() as world:
        stalling, *rest, late = world.members
        world.stalls.add(stalling.me)
        for member in (stalling, *rest):
            await world.start(member)
        await until_round([stalling, *rest], 8, 200)
        await world.start(late)
        # One stalled question takes as long as seven rounds, and a page holds four.
        await until(lambda: late.resolved >= stalling.resolved - 1, 1.7 * STALL_S)
