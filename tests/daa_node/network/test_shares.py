"""Strangers, however many, get the work of one, and no member waits for them."""

import tracemalloc
from contextlib import suppress
from typing import cast

import trio
import trio.testing

from daa_dag import canonical
from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.network.directory import Directory
from daa_node.network.requests import REQUESTS_BURST, REQUESTS_PER_S_MAX, Answer, Requests
from daa_node.network.shares import (
    OF_A_MEMBER,
    OF_ALL_STRANGERS,
    PIECE_COST_BYTES,
    UNTAKEN_BYTES_MAX,
)
from daa_node.network.untaken import ROOM_BYTES, Untaken
from daa_node.observability.events import EventLog
from daa_node.seams import PeerId, Transport
from daa_node.wire.limits import (
    LENGTH_PREFIX_BYTES,
    MIB,
    REQUESTS_PER_PEER_MAX,
    STREAMS_PER_PEER_MAX,
)

PAGE_BYTES = 58_000  # four validators, eight blocks
MEMBERS = {NodeId(bytes([i]) * 32): PeerId(f"member {i}") for i in range(2)}
STRANGERS = [PeerId(f"stranger {i}") for i in range(20)]


class Asking:
    """A stream of one request; what comes back is taken at once, or never."""

    def __init__(self, peer_id: PeerId, reads: bool = True) -> None:
        self.peer_id = peer_id
        self._reads = reads
        request = canonical.encode(["page", b""])
        self._left = len(request).to_bytes(LENGTH_PREFIX_BYTES) + request
        self.answer: list[object] = []
        self._came = b""

    async def receive_some(self, count_max: int) -> bytes:
        piece, self._left = self._left[:count_max], self._left[count_max:]
        return piece

    async def send_all(self, payload: bytes) -> None:
        if not self._reads:
            await trio.sleep_forever()
        self._came += payload
        whole_bytes = int.from_bytes(self._came[:LENGTH_PREFIX_BYTES])
        if len(self._came) == LENGTH_PREFIX_BYTES + whole_bytes:
            self.answer = canonical.decode(self._came[LENGTH_PREFIX_BYTES:], whole_bytes)

    async def aclose(self) -> None:
        pass


class Server:
    """Answers pages to members and strangers, and counts what they make it do."""

    def __init__(self, page_bytes: int = PAGE_BYTES) -> None:
        self.events = EventLog(lambda: 0)
        self.directory = Directory(trio.current_time, MEMBERS, self.events)
        self.untaken = Untaken()
        self.requests = Requests(cast(Transport, None), self.directory, self.events, self.untaken)
        self.page = bytes(page_bytes)
        self.made: dict[PeerId, int] = {}
        self.at_once = self.at_once_max = 0
        self.requests.register("page", self._make)

    async def _make(self, peer_id: PeerId, _body: bytes) -> bytes:
        self.made[peer_id] = self.made.get(peer_id, 0) + 1
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        await trio.sleep(0.005)
        self.at_once -= 1
        return self.page

    async def ask(self, peer_id: PeerId) -> bool:
        stream = Asking(peer_id)
        await self.requests.serve(stream)  # type: ignore[arg-type]
        return stream.answer[0] == "ok"


async def test_twenty_strangers_get_together_what_one_may_have(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server, seconds, refused = Server(), 10.0, 0

    async def flood(peer_id: PeerId) -> None:
        while True:
            await server.ask(peer_id)
            await trio.sleep(1 / REQUESTS_PER_S_MAX)

    member = next(iter(MEMBERS.values()))
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for peer_id in STRANGERS:
                nursery.start_soon(flood, peer_id)
            while True:
                await trio.sleep(0.5)
                refused += not await server.ask(member)
    allowed = OF_ALL_STRANGERS.burst_bytes + seconds * OF_ALL_STRANGERS.bytes_per_s
    pieces = sum(server.made[peer_id] for peer_id in STRANGERS)
    assert pieces <= 1 + allowed / (PAGE_BYTES + PIECE_COST_BYTES)
    assert min(server.made[peer_id] for peer_id in STRANGERS) > 0
    assert (refused, server.at_once_max) == (0, 2)  # one of theirs and one of the member's
    assert pieces < len(STRANGERS) * REQUESTS_BURST / 10


async def test_a_stranger_that_floods_is_not_even_read_and_others_get_their_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server, read = Server(), 0

    async def flood(peer_id: PeerId) -> None:
        nonlocal read
        while True:
            stream = Asking(peer_id)
            await server.requests.serve(stream)  # type: ignore[arg-type]
            read += not stream._left
            await trio.sleep(0.1)

    with trio.move_on_after(20.0):
        async with trio.open_nursery() as nursery:
            for _ in range(STREAMS_PER_PEER_MAX):
                nursery.start_soon(flood, STRANGERS[0])
            for _ in range(5):  # of whom it does not even have to wait long
                await trio.sleep(2.0)
                assert await server.ask(STRANGERS[1])
            await trio.sleep_forever()
    # As many as all strangers may have done for them, and no stream more than one in ten seconds.
    allowed = OF_ALL_STRANGERS.burst_bytes + 20 * OF_ALL_STRANGERS.bytes_per_s
    assert read <= 2 + allowed / (PAGE_BYTES + PIECE_COST_BYTES)
    assert server.made[STRANGERS[1]] == 5


async def test_work_that_an_answer_does_not_show_counts_as_well(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server, seconds = Server(), 10.0
    made = 0

    async def make(_peer_id: PeerId, _body: bytes) -> Answer:
        nonlocal made
        made += 1
        return Answer(b"", MIB)

    server.requests._handlers["page"] = make
    with trio.move_on_after(seconds):
        while True:
            await server.ask(STRANGERS[0])
            await trio.sleep(0.05)
    assert made <= 1 + (OF_ALL_STRANGERS.burst_bytes + seconds * OF_ALL_STRANGERS.bytes_per_s) / MIB


async def test_a_member_has_its_own_share_whatever_another_one_asks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server(page_bytes=2 * MIB)
    greedy, modest = MEMBERS.values()
    given = [await server.ask(greedy) for _ in range(30)]
    assert given.count(True) <= 1 + OF_A_MEMBER.burst_bytes / (2 * MIB) + 1
    assert await server.ask(modest)
    await trio.sleep(2.0)
    assert await server.ask(greedy)


async def test_answers_that_nobody_takes_hold_a_bounded_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server(page_bytes=3 * MIB)

    async def hoard(peer_id: PeerId) -> None:
        with trio.move_on_after(20):
            await server.requests.serve(Asking(peer_id, reads=False))  # type: ignore[arg-type]

    member = next(iter(MEMBERS.values()))
    async with trio.open_nursery() as nursery:
        for _ in range(REQUESTS_PER_PEER_MAX):
            nursery.start_soon(hoard, member)
        for peer_id in STRANGERS:
            for _ in range(REQUESTS_PER_PEER_MAX):
                nursery.start_soon(hoard, peer_id)
        await trio.sleep(10)
        of_member = server.made[member] * 3 * MIB
        of_strangers = server.untaken.held_bytes
    assert 0 < of_member <= UNTAKEN_BYTES_MAX + 3 * MIB
    assert 0 < of_strangers <= ROOM_BYTES


async def test_pages_of_who_reads_nothing_give_way_and_no_page_is_held_twice(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server(page_bytes=3 * MIB)
    server.untaken = Untaken(room_bytes=7 * MIB)
    server.requests = Requests(
        cast(Transport, None), server.directory, server.events, server.untaken
    )
    server.requests.register("page", make_new_pages)

    async def hoard(peer_id: PeerId) -> None:
        with suppress(PeerFault, trio.TooSlowError):
            await server.requests.serve(Asking(peer_id, reads=False))  # type: ignore[arg-type]

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        async with trio.open_nursery() as nursery:
            for peer_id in STRANGERS[:6]:
                nursery.start_soon(hoard, peer_id)
            await trio.sleep(4.0)
            held = tracemalloc.get_traced_memory()[0] - before
            assert await server.ask(STRANGERS[-1])  # within the time of an answer
            nursery.cancel_scope.cancel()
    finally:
        tracemalloc.stop()
    assert 6 * MIB <= held <= 7 * MIB + 3.5 * MIB  # one waits until there is room for it
    unread = [server.directory.standing(peer_id) for peer_id in STRANGERS[:6]]
    assert sum(standing.reputation.faults["unread"] for standing in unread if standing) > 0
    assert server.directory.standing(STRANGERS[-1]) is None


async def make_new_pages(_peer_id: PeerId, _body: bytes) -> bytes:
    return bytes(3 * MIB)


async def test_who_has_left_is_forgotten_when_others_come(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A member sponsors one Join after the other; each name is served as a member meanwhile."""
    server = Server()
    for number in range(500):
        newcomer = NodeId(number.to_bytes(32)), PeerId(f"newcomer {number}")
        server.directory.enlist(MEMBERS | dict([newcomer]))
        assert await server.ask(newcomer[1])
    assert len(server.requests._shares._members) <= len(MEMBERS) + 1
