"""Messages over streams that break, floods of streams, and readers that do not read."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest
import trio
import trio.testing

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.identity.keys import NodeKeys
from daa_node.network.mailbox import (
    MESSAGE_COST_BYTES,
    READ_A_DELTA_MAX,
    REOPEN_WAIT_S_MAX,
    SEND_TIMEOUT_S,
    SLOW_LOOK_S,
    Mailbox,
)
from daa_node.network.outbox import OUTBOX_MESSAGES_MAX, STATEMENT_MESSAGES_MAX, Outbox
from daa_node.seams import ByteStream, Transport
from daa_node.wire import limits, protocols
from daa_node.wire.framing import write_message
from daa_node.wire.limits import LENGTH_PREFIX_BYTES
from tests.daa_node.agreement.memory_wire import MemoryTransport, Wire

ALICE, BOB, CAROL, EVE = (NodeKeys.from_seed(name) for name in (b"alice", b"bob", b"carol", b"eve"))
MESSAGE_BYTES_MAX = 1_000
DELTA_S = 0.5


class Box:
    """A member's mailbox, what came out of it, and whom it blamed."""

    def __init__(
        self,
        wire: Wire,
        keys: NodeKeys,
        nursery: trio.Nursery,
        members: Sequence[NodeKeys] = (ALICE, BOB),
    ) -> None:
        self.transport = MemoryTransport(wire, keys, nursery)
        self.got: list[tuple[NodeId, bytes]] = []
        self.opened: list[NodeId] = []
        self.blamed: list[tuple[NodeId, str]] = []
        self.pause_s = 0.0
        self.let_go_at = b""  # the message that makes us follow nobody any more
        peers = {k.node_id: k.peer_id for k in members}
        self.mailbox = Mailbox(
            cast(Transport, self.transport),
            peers.get,
            {peer: node for node, peer in peers.items()}.get,
            [k.node_id for k in members if k is not keys],
            lambda: MESSAGE_BYTES_MAX,
            lambda node, fault: self.blamed.append((node, fault.reason)),
            DELTA_S,
        )
        nursery.start_soon(self.mailbox.run, self._take, self.opened.append)

    async def _take(self, sender: NodeId, message: bytes) -> None:
        if message == b"wrong":
            raise PeerFault("malformed")
        if self.pause_s:
            await trio.sleep(self.pause_s)
        self.got.append((sender, message))
        if message == self.let_go_at:
            self.mailbox.follow([])

    def messages(self) -> list[bytes]:
        return [message for _, message in self.got]


@asynccontextmanager
async def two_boxes() -> AsyncIterator[tuple[Wire, Box, Box, MemoryTransport]]:
    async with trio.open_nursery() as nursery:
        wire = Wire()
        alice, bob = Box(wire, ALICE, nursery), Box(wire, BOB, nursery)
        yield wire, alice, bob, MemoryTransport(wire, EVE, nursery)
        nursery.cancel_scope.cancel()


async def until(happened: Callable[[], bool]) -> None:
    with trio.fail_after(100):
        while not happened():
            await trio.sleep(0.05)


async def test_messages_arrive_in_order_and_a_broken_stream_is_opened_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_boxes() as (wire, alice, bob, _):
        for number in range(5):
            alice.mailbox.send(BOB.node_id, b"%d" % number)
        await until(lambda: len(bob.got) == 5)
        assert bob.messages() == [b"%d" % number for number in range(5)]
        wire.down.add(BOB.node_id)
        alice.mailbox.send(BOB.node_id, b"5")
        await trio.sleep(5)
        wire.down.clear()
        await until(lambda: len(bob.got) == 6)
        assert alice.opened == [BOB.node_id, BOB.node_id]
        assert bob.messages()[-1] == b"5"


async def test_who_joins_while_a_node_stops_is_written_to_no_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_boxes() as (_, alice, _, _):
        await trio.sleep(1)
    alice.mailbox.follow([BOB.node_id, EVE.node_id])


async def test_a_strangers_messages_go_unread(autojump_clock: trio.testing.MockClock) -> None:
    async with two_boxes() as (_, alice, bob, eve):
        await trio.sleep(1)
        stream = await eve.open_stream(BOB.peer_id, protocols.VOTES)
        await trio.sleep(1)  # closed meanwhile, unread
        with pytest.raises(trio.BrokenResourceError):
            await write_message(stream, b"hello")
        alice.mailbox.send(EVE.node_id, b"secret")
        assert bob.got == []
        assert bob.blamed == []


@pytest.mark.parametrize("wrong", [b"wrong", b"x" * (limits.MESSAGE_BYTES_MAX + 1)])
async def test_a_wrong_message_costs_its_sender_a_fault_and_the_stream(
    wrong: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    async with two_boxes() as (_, alice, bob, _):
        await trio.sleep(1)
        stream = await alice.transport.open_stream(BOB.peer_id, protocols.VOTES)
        await write_message(stream, wrong)
        await until(lambda: bool(bob.blamed))
        assert bob.blamed[0][0] == ALICE.node_id
        with pytest.raises(trio.BrokenResourceError):
            await write_message(stream, b"more")
        alice.mailbox.send(BOB.node_id, b"right")
        await until(lambda: bob.messages() == [b"right"])


async def test_who_is_stopped_amid_a_message_is_not_blamed_and_owes_for_what_came(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """So ends whoever stops, and the stream of a reader that took too long, by its writer."""
    async with two_boxes() as (_, alice, bob, _eve):
        await trio.sleep(1)
        cut_off = MESSAGE_BYTES_MAX.to_bytes(LENGTH_PREFIX_BYTES) + bytes(MESSAGE_BYTES_MAX - 1)
        for _ in range(50):
            stream = await bob.transport.open_stream(ALICE.peer_id, protocols.VOTES)
            await stream.send_all(cut_off)
            await trio.sleep(0.01)
            await stream.aclose()
        await trio.sleep(0.01)
        assert alice.blamed == []
        assert alice.mailbox._paces.of(BOB.node_id).debt_s > 0
        bob.mailbox.send(ALICE.node_id, b"word")
        await until(lambda: alice.messages() == [b"word"])


async def test_a_message_larger_than_ours_may_be_is_read_and_held_against_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Who wrote it may be one of a larger committee, of which we have yet to hear."""
    async with two_boxes() as (_, alice, bob, _):
        await trio.sleep(1)
        stream = await alice.transport.open_stream(BOB.peer_id, protocols.VOTES)
        for _ in range(12):
            await write_message(stream, bytes(3 * MESSAGE_BYTES_MAX))
        await until(lambda: len(bob.got) == 12)
        assert bob.blamed == []


async def test_a_member_with_many_streams_is_read_as_slowly_as_with_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_boxes() as (_, alice, bob, _):
        await trio.sleep(1)
        bob.pause_s = 1.0  # what a message costs him
        streams = []
        for _ in range(40):
            streams.append(await alice.transport.open_stream(BOB.peer_id, protocols.VOTES))
            await write_message(streams[-1], b"flood")
        await trio.sleep(0.01)
        for stream in streams[:-1]:
            with pytest.raises(trio.BrokenResourceError):
                await write_message(stream, b"flood")
        for _ in range(20):
            await write_message(streams[-1], b"flood")
        await trio.sleep(5.5)
        assert 4 <= len(bob.got) <= 6


async def test_a_member_is_read_at_a_pace_of_its_own_through_however_many_streams(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_boxes() as (_, alice, bob, _):
        await trio.sleep(1)
        for _ in range(3):
            stream = await alice.transport.open_stream(BOB.peer_id, protocols.VOTES)
            for _ in range(500):
                await write_message(stream, bytes(MESSAGE_BYTES_MAX))
            await trio.sleep(5 * DELTA_S)
        most = READ_A_DELTA_MAX * MESSAGE_BYTES_MAX
        allowed = (2 + 15) * most / (MESSAGE_BYTES_MAX + MESSAGE_COST_BYTES)
        assert 0.8 * allowed <= len(bob.got) <= allowed + 3
        before = len(bob.got)
        await trio.sleep(DELTA_S)
        assert len(bob.got) > before  # nothing is lost: it waits


async def test_a_stream_for_each_message_buys_no_more_of_our_time_than_one_for_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_boxes() as (_, alice, bob, _):
        await trio.sleep(1)
        for _ in range(200):
            stream = await alice.transport.open_stream(BOB.peer_id, protocols.VOTES)
            await write_message(stream, bytes(MESSAGE_BYTES_MAX))
            await trio.sleep(DELTA_S / 100)
        most = READ_A_DELTA_MAX * MESSAGE_BYTES_MAX
        allowed = (2 + 2) * most / (MESSAGE_BYTES_MAX + MESSAGE_COST_BYTES)
        assert len(bob.got) <= allowed + 1


async def test_a_reader_that_stops_reading_costs_a_bounded_outbox_and_gets_the_newest(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_boxes() as (wire, alice, bob, _):
        await trio.sleep(1)
        wire.down.add(BOB.node_id)
        for number in range(3 * OUTBOX_MESSAGES_MAX):
            alice.mailbox.send(BOB.node_id, b"%d" % number)
        await trio.sleep(2 * SEND_TIMEOUT_S)
        wire.down.clear()
        await until(lambda: len(bob.got) >= OUTBOX_MESSAGES_MAX)
        assert bob.messages()[-1] == b"%d" % (3 * OUTBOX_MESSAGES_MAX - 1)
        assert len(bob.got) <= OUTBOX_MESSAGES_MAX + 1


async def test_readers_that_take_nothing_are_cut_off_and_the_message_goes_to_their_next_stream(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        wire, all_three = Wire(), (ALICE, BOB, CAROL)
        alice, bob, carol = (Box(wire, keys, nursery, all_three) for keys in all_three)
        await trio.sleep(1)
        alice.opened.clear()
        wire.full |= {BOB.node_id, CAROL.node_id}
        alice.mailbox.broadcast(b"word")
        await trio.sleep(SEND_TIMEOUT_S - SLOW_LOOK_S)
        assert alice.opened == []
        await trio.sleep(3 * SLOW_LOOK_S)
        assert set(alice.opened) == {BOB.node_id, CAROL.node_id}
        wire.full.clear()
        await trio.sleep(1)
        assert bob.messages() == carol.messages() == [b"word"]
        alice.opened.clear()
        await trio.sleep(10 * SEND_TIMEOUT_S)  # who says nothing has nobody to wait for
        assert alice.opened == []
        nursery.cancel_scope.cancel()


async def test_an_answer_goes_out_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with two_boxes() as (_, alice, bob, _):
        await trio.sleep(1)
        assert alice.mailbox.answer(BOB.node_id, b"what you asked for")
        await trio.sleep(1)
        assert bob.messages() == [b"what you asked for"]


async def test_who_has_missed_something_is_told_where_we_stand_once_it_has_read_the_rest(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_boxes() as (_, alice, bob, _):
        await trio.sleep(1)
        assert alice.opened == [BOB.node_id]
        for number in range(10):
            alice.mailbox.send(BOB.node_id, bytes([number]) * (MESSAGE_BYTES_MAX // 2))
        await trio.sleep(1)
        assert bob.messages()[-1] == bytes([9]) * (MESSAGE_BYTES_MAX // 2)
        assert len(bob.got) < 10
        assert alice.opened == [BOB.node_id] * 2
        alice.mailbox.send(BOB.node_id, b"more")
        await trio.sleep(1)
        assert alice.opened == [BOB.node_id] * 2


def test_a_member_that_never_reads_costs_three_largest_messages() -> None:
    outbox, size = Outbox(), MESSAGE_BYTES_MAX
    for number in range(1_000):
        outbox.put(b"%03d" % number * (size // 3), size)
        outbox.put_answer(b"%03d" % number * (size // 9), size)
        assert outbox.size_bytes <= (STATEMENT_MESSAGES_MAX + 1) * size
    assert outbox.size_bytes == sum(len(message) for message, _ in outbox._messages)


def test_the_newest_words_and_the_oldest_answers_stay() -> None:
    outbox, size = Outbox(), 100
    assert [outbox.put_answer(b"answer %d" % n + bytes(32), size) for n in range(3)] == [
        True, True, False,
    ]  # fmt: skip
    for number in range(9):
        outbox.put(b"word %d" % number + bytes(34), size)
    assert outbox.has_gap
    read = []
    while outbox:
        read.append(outbox.first().rstrip(b"\0"))
        outbox.sent(outbox.first())
    assert read == [b"answer 0", b"answer 1", *(b"word %d" % n for n in range(4, 9))]
    assert outbox.size_bytes == 0
    assert outbox.put_answer(bytes(size), size)


def test_a_word_that_is_under_way_may_be_dropped_and_counts_once() -> None:
    outbox, size = Outbox(), 100
    outbox.put(bytes(size), size)
    under_way = outbox.first()
    for _ in range(3):
        outbox.put(b"x" * size, size)
    outbox.sent(under_way)
    assert (len(outbox), outbox.size_bytes) == (2, 2 * size)


async def test_a_reader_that_hangs_up_on_every_stream_is_written_to_every_two_seconds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """All that we have said is composed anew for every stream: ten messages and more, each time."""
    async with two_boxes() as (_, alice, bob, _eve):
        await trio.sleep(1)

        async def hang_up(stream: ByteStream) -> None:
            await stream.aclose()

        bob.transport.set_handler(protocols.VOTES, hang_up)
        bob.transport.cut()
        alice.opened.clear()
        for _ in range(600):
            alice.mailbox.send(BOB.node_id, b"word")
            await trio.sleep(0.1)
        assert 20 < len(alice.opened) < 60 / REOPEN_WAIT_S_MAX + 10


async def test_a_member_that_hangs_up_makes_who_looks_on_write_every_two_seconds_at_most(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Who looks on writes to whom it hears from, as long as it does: each stream is a new start."""
    async with two_boxes() as (_, alice, bob, _eve):
        alice.mailbox.follow([BOB.node_id], is_one=False)
        bob.mailbox.follow([])
        await trio.sleep(10)
        alice.opened.clear()
        for _ in range(1200):
            stream = await bob.transport.open_stream(ALICE.peer_id, protocols.VOTES)
            await trio.sleep(0.025)
            await stream.aclose()
            await trio.sleep(0.025)
        assert len(alice.opened) <= 60 / REOPEN_WAIT_S_MAX
        await bob.transport.open_stream(ALICE.peer_id, protocols.VOTES)
        alice.opened.clear()
        await trio.sleep(2 * REOPEN_WAIT_S_MAX)
        assert alice.opened  # who stays is written to


async def test_who_is_no_member_any_more_costs_nothing_and_is_not_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Seats that are handed on and on leave neither tasks nor messages behind."""
    async with two_boxes() as (wire, alice, bob, _):
        await trio.sleep(1)
        before = trio.lowlevel.current_statistics().tasks_living
        for seat in range(50):
            alice.mailbox.follow([BOB.node_id, NodeId(b"%032d" % seat)])
            alice.mailbox.broadcast(b"word")
            await trio.sleep(1)
        assert trio.lowlevel.current_statistics().tasks_living <= before + 1
        assert bob.messages() == [b"word"] * 50
        alice.mailbox.follow([])
        alice.mailbox.broadcast(b"secret")
        bob.mailbox.send(ALICE.node_id, b"late")
        await trio.sleep(1)
        assert (bob.messages(), alice.got) == ([b"word"] * 50, [])
        alice.mailbox.follow([BOB.node_id])
        bob.mailbox.send(ALICE.node_id, b"again")
        alice.mailbox.send(BOB.node_id, b"again")
        await until(lambda: alice.messages()[-1:] == [b"again"] == bob.messages()[-1:])
        assert wire.down == set()


async def test_who_is_let_go_of_while_its_message_is_taken_leaves_nothing_behind(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_boxes() as (_, alice, bob, _):
        await trio.sleep(1)
        alice.let_go_at = b"last"
        bob.mailbox.send(ALICE.node_id, b"last")
        await until(lambda: alice.messages() == [b"last"])
        await trio.sleep(1)
        assert (alice.mailbox._paces._paces, alice.mailbox._reading) == ({}, {})


@pytest.mark.parametrize("goes", ["stops", "is cut off"])
async def test_who_looks_on_writes_to_those_alone_who_write_to_it(
    goes: str, autojump_clock: trio.testing.MockClock
) -> None:
    """To whom it is a member before it knows so itself, it can say where it stands."""
    async with two_boxes() as (_, alice, bob, _):
        alice.mailbox.follow([BOB.node_id], is_one=False)
        bob.mailbox.follow([], is_one=True)
        await trio.sleep(10)
        alice.opened.clear()
        alice.mailbox.broadcast(b"unread")
        await trio.sleep(60)
        assert (alice.opened, bob.got) == ([], [])
        bob.mailbox.follow([ALICE.node_id])
        await until(lambda: alice.opened == [BOB.node_id])
        alice.mailbox.broadcast(b"read")
        await until(lambda: bob.messages() == [b"read"])
        if goes == "is cut off":
            alice.transport.cut()
        bob.mailbox.follow([])
        await trio.sleep(10)
        alice.opened.clear()
        alice.mailbox.broadcast(b"unread")
        await trio.sleep(60)
        assert alice.opened == []


def test_an_outbox_forgets_what_waits_but_for_the_message_that_was_begun() -> None:
    outbox, size = Outbox(), 100
    for message in (b"begun", b"waits"):
        outbox.put(message, size)
    assert outbox.put_answer(b"answer", size)
    assert outbox.first() == b"begun"
    outbox.clear()
    assert (len(outbox), outbox.size_bytes) == (1, len(b"begun"))
    outbox.sent(outbox.first())
    outbox.put(b"waits", size)
    outbox.clear()
    assert (len(outbox), outbox.size_bytes) == (0, 0)
