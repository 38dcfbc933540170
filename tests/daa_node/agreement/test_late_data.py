"""A bad hour: one member is gone, another one's data is late, and empty blocks pile up.

Nobody lies. Patience is kept at one delta here, so that hundreds come in two minutes; daemons take
hours for as many.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio.testing

from daa_consensus.bft.ballots import VIEWS_BEHIND_MAX
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import EmptyPayload, SetPayload, decode_block
from daa_consensus.votes import Kind
from daa_node.agreement.effects_host import BLOCKS_KEPT
from daa_node.agreement.messages import Stated, decode_message
from daa_node.agreement.recovery import CERTIFICATES
from daa_node.checkpoints.layout import BLOCKS
from tests.daa_node.agreement.message_world import Member, World, open_world, until

Clock = trio.testing.MockClock
STRETCH = BLOCKS_KEPT + 20  # blocks: more than any memory of the host's


def silent_on_finality(world: World, member: Member) -> None:
    """From now on it sends no Finalize: nobody else has a quorum without the late one."""
    mailbox = member.now.agreement._parts.mailbox
    say = mailbox.broadcast

    def broadcast(message: bytes) -> None:
        body = decode_message(message, world.limits).body
        if not isinstance(body, Stated) or body.signed.statement.kind is not Kind.FINALIZE:
            say(message)

    mailbox.broadcast = broadcast  # type: ignore[method-assign]


@asynccontextmanager
async def stuck_world(epoch_rounds: int = 100) -> AsyncIterator[World]:
    """Three are up, and STRETCH blocks lie above the newest final one: a set, and empty ones."""
    async with open_world(epoch_rounds=epoch_rounds) as world:
        world.doublings_max = 0
        for member in world.members:
            await world.start(member)
        first, _, late, gone = world.members
        await until(lambda: min(m.height for m in world.members) >= 1, 60)
        silent_on_finality(world, gone)
        world.late.add(late.me)
        await until(lambda: has_set(first), 60)
        world.kill(gone)
        await until(lambda: stretch_of(first) >= STRETCH, 400)
        yield world


def stretch_of(member: Member) -> int:
    """Blocks above the newest final one, up to the newest notarized."""
    known = member.now.machine.known
    path = known.chain.path(known.ballots.notarized[known.ballots.highest_notarized()])
    return 0 if path is None else len(path)


def has_set(member: Member) -> bool:
    """Whether a set is notarized and not final."""
    known = member.now.machine.known
    newest = known.ballots.notarized[known.ballots.highest_notarized()]
    above = known.chain.decisions(newest) or ()
    return any(isinstance(block.payload, SetPayload) for block in above)


def longest_run(member: Member) -> int:
    """The most empty blocks in a row that lie in what it has published."""
    longest = run = 0
    stored = [v for (kind, _), v in member.disk.chain.records.items() if kind == BLOCKS]
    blocks = [decode_block(payload, Limits(4, 4)) for payload in stored]
    for block in sorted(blocks, key=lambda block: block.view):
        run = run + 1 if isinstance(block.payload, EmptyPayload) else 0
        longest = max(longest, run)
    return longest


@pytest.mark.long
async def test_a_round_with_hundreds_of_empty_blocks_is_published_by_all_who_were_there(
    autojump_clock: Clock,
) -> None:
    async with stuck_world() as world:
        up = world.members[:3]
        stuck_at = up[0].resolved
        world.late.clear()
        await until(lambda: min(m.resolved for m in up) >= stuck_at + 3, 120)
        assert all(longest_run(m) >= STRETCH - 1 for m in up)
        assert all(m.told("checkpoint_published") for m in up)


async def test_who_is_killed_in_the_middle_of_it_restarts_and_publishes(
    autojump_clock: Clock,
) -> None:
    async with stuck_world() as world:
        up = world.members[:3]
        stuck_at = up[0].resolved
        for member in up:
            world.kill(member)
        for member in up:
            await world.start(member)
        await until(lambda: min(stretch_of(m) for m in up) >= STRETCH, 60)
        for member in up:  # what they started from: blocks, and few signatures
            kept = [kind for kind, _ in member.disk.work.records if kind == CERTIFICATES]
            assert len(kept) <= 4 * VIEWS_BEHIND_MAX
        world.late.clear()
        await until(lambda: min(m.resolved for m in up) >= stuck_at + 3, 120)
        assert all(longest_run(m) >= STRETCH - 1 for m in up)


@pytest.mark.long
async def test_who_was_away_for_all_of_it_catches_up(autojump_clock: Clock) -> None:
    async with stuck_world() as world:
        up, gone = world.members[:3], world.members[3]
        stuck_at = up[0].resolved
        world.late.clear()
        await until(lambda: min(m.resolved for m in up) >= stuck_at + 3, 120)
        await world.start(gone)
        await until(lambda: gone.resolved >= stuck_at + 4, 120)
        assert longest_run(gone) >= STRETCH - 1
        assert world.blamed(gone) == []
