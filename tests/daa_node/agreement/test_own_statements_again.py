"""A member's own statements count at once, in this life and the next: nobody else need be there."""

import pytest
import trio
import trio.testing

from daa_consensus.bft.events import RoundReady, Tick, VoteArrived
from daa_consensus.bft.messages import SetPayload
from daa_consensus.committee import Domain
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import ChainId, NodeId, ValidatorSetRoot
from daa_node.agreement.inbox import INBOX_EVENTS_MAX, Delivery, Inbox
from daa_node.agreement.messages import Message, Stated
from tests.daa_node.agreement.memory_disk import Disk
from tests.daa_node.agreement.message_world import EXEC_S, Member, open_world, until

Clock = trio.testing.MockClock


class DiesAfterExec(Disk):
    """In the member's first life nothing goes on once a record with an Exec is on the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.wrote = False
        self.dead = trio.Event()

    async def append(self, record: bytes) -> None:
        await super().append(record)
        if not self.wrote and b"exec" in record:
            self.wrote = True
            await self.dead.wait()


@pytest.mark.parametrize("count", [1, 4])
async def test_an_exec_that_was_signed_and_never_sent_still_ends_its_round(
    count: int, autojump_clock: Clock
) -> None:
    async with open_world(count) as world:
        disks = [DiesAfterExec() for _ in world.members]
        world.members = [Member(m.keys, disk) for m, disk in zip(world.members, disks, strict=True)]
        for member in world.members:
            await world.start(member)
        await until(lambda: all(disk.wrote for disk in disks), 60)
        for member, disk in zip(world.members, disks, strict=True):
            world.kill(member)
            disk.dead.set()
        await trio.sleep(0.1)
        for member in world.members:
            # What was executed once cannot be again before the round would be aborted.
            member.trainer.blocked_until_s = trio.current_time() + 10 * EXEC_S
            await world.start(member)
        outcomes = [member.now.agreement.outcomes for member in world.members]
        await until(lambda: all(each.resolved_round >= 1 for each in outcomes), 5 * EXEC_S)
        for each in outcomes:
            outcome = each.resolution(1)
            assert outcome is not None
            assert outcome.result is not None, "an executed round was aborted"
        await until(lambda: all(m.height >= 2 for m in world.members), 20 * EXEC_S)


async def test_whoever_is_a_round_ahead_still_has_what_the_others_have_to_execute(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        for member in world.members:
            await world.start(member)
        for member in world.members:
            await until(lambda member=member: member.resolved == 1, 60)  # type: ignore[misc]
            resolution = member.now.agreement.outcomes.resolution(1)
            assert resolution is not None
            assert isinstance(resolution.set_block.payload, SetPayload)
            roots = [offer.blob_root for offer in resolution.set_block.payload.offers]
            assert len(roots) == len(world.members)
            held = await member.disk.work.blob_roots("updates")
            assert set(roots) <= set(held)


async def test_who_has_nothing_new_to_say_says_it_ever_more_seldom(autojump_clock: Clock) -> None:
    """Two of four have offered, and wait for a quorum that does not come."""
    async with open_world() as world:
        offers: list[NodeId] = []

        def count(sender: NodeId, _receiver: NodeId, message: Message) -> bool:
            match message.body:
                case Stated(signed) if signed.statement.kind is Kind.OFFER:
                    offers.append(sender)
            return False

        world.wire.lose = count
        first, second = world.members[:2]
        for member in (first, second):
            await world.start(member)
        await trio.sleep(400)
        offers.clear()
        await trio.sleep(80)
        assert 8 <= offers.count(first.me) <= 12


DOMAIN = Domain(ChainId(b"c" * 32), 0, ValidatorSetRoot(b"v" * 32))
A_VOTE = VoteArrived(
    Signed(Statement(DOMAIN, Kind.NULLIFY, 1, 0, None), NodeId(b"n" * 32), b"signature")
)


async def test_our_own_word_wakes_who_waits_for_others(autojump_clock: Clock) -> None:
    inbox, own = Inbox(), RoundReady(1)
    taken: list[Delivery] = []

    async def take() -> None:
        while len(taken) < 2:
            taken.append(await inbox.next(None))

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            await trio.testing.wait_all_tasks_blocked()
            inbox.step_with(own)
            await trio.testing.wait_all_tasks_blocked()
            assert taken == [(None, own)]
            await inbox.answer(Tick())


async def test_own_words_come_before_messages_and_no_message_is_lost_to_them(
    autojump_clock: Clock,
) -> None:
    inbox, sender = Inbox(), NodeId(b"s" * 32)
    await inbox.deliver(sender, A_VOTE)
    for round_number in (1, 2):
        inbox.step_with(RoundReady(round_number))
    found = [await inbox.next(None) for _ in range(3)]
    assert found == [(None, RoundReady(1)), (None, RoundReady(2)), (sender, A_VOTE)]
    for turn in range(20):  # both at once, whichever is first

        async def take() -> None:
            while (None, RoundReady(9)) not in found or (sender, A_VOTE) not in found:
                found.append(await inbox.next(None))

        found.clear()
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take)
                await trio.testing.wait_all_tasks_blocked()
                if turn % 2:
                    inbox.step_with(RoundReady(9))
                    await inbox.deliver(sender, A_VOTE)
                else:
                    await inbox.deliver(sender, A_VOTE)
                    inbox.step_with(RoundReady(9))


async def test_the_inbox_stays_bounded_where_each_message_brings_more_than_is_taken(
    autojump_clock: Clock,
) -> None:
    inbox, sender, most = Inbox(), NodeId(b"s" * 32), 0

    async def write() -> None:
        while True:
            await inbox.deliver(sender, A_VOTE, A_VOTE)

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(write)
            for _ in range(2_000):
                await inbox.next(None)
                await trio.lowlevel.checkpoint()  # as a step that awaits the disk
                most = max(most, len(inbox._arrived))
            nursery.cancel_scope.cancel()
    assert INBOX_EVENTS_MAX <= most <= INBOX_EVENTS_MAX + 2 * 4


async def test_who_waits_with_a_deadline_gets_a_tick_then(autojump_clock: Clock) -> None:
    inbox = Inbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox.run)
        with trio.move_on_after(1):
            await inbox.next(5_000_000_000)  # and the next deadline is nearer, then past
        for deadline_s, at_s in ((2, 2.0), (1, 2.0), (4, 4.0)):
            assert await inbox.next(deadline_s * 1_000_000_000) == (None, Tick())
            assert trio.current_time() == pytest.approx(at_s)
        nursery.cancel_scope.cancel()


async def test_a_deadline_that_has_moved_away_rings_for_nobody(autojump_clock: Clock) -> None:
    inbox, sender = Inbox(), NodeId(b"s" * 32)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox.run)
        nursery.start_soon(deliver_at, inbox, 1.0, sender)
        assert await inbox.next(2_000_000_000) == (sender, A_VOTE)
        assert await inbox.next(6_000_000_000) == (None, Tick())
        assert trio.current_time() == pytest.approx(6.0)
        nursery.cancel_scope.cancel()


async def deliver_at(inbox: Inbox, at_s: float, sender: NodeId) -> None:
    await trio.sleep_until(at_s)
    await inbox.deliver(sender, A_VOTE)


async def test_who_comes_while_others_wait_for_room_overtakes_nobody(
    autojump_clock: Clock,
) -> None:
    inbox, early, late = Inbox(), NodeId(b"e" * 32), NodeId(b"l" * 32)
    async with trio.open_nursery() as nursery:
        for _ in range(INBOX_EVENTS_MAX):
            await inbox.deliver(early, A_VOTE)
        for _ in range(2):
            nursery.start_soon(inbox.deliver, early, A_VOTE)
        await trio.testing.wait_all_tasks_blocked()
        await inbox.next(None)  # room for one of them
        with trio.move_on_after(1):
            await inbox.deliver(late, A_VOTE)
        taken = [await inbox.next(None) for _ in range(INBOX_EVENTS_MAX + 1)]
    assert taken == [(early, A_VOTE)] * (INBOX_EVENTS_MAX + 1)


async def test_who_is_stopped_takes_no_step_more(autojump_clock: Clock) -> None:
    inbox, taken = Inbox(), []
    for number in range(3):
        inbox.step_with(RoundReady(number))
    with trio.CancelScope() as life:
        while True:
            taken.append(await inbox.next(None))
            life.cancel()
    assert taken == [(None, RoundReady(0))]
