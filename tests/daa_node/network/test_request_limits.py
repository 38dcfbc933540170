"""Answers count, keep to the caps, and end with the day's data; what members agree by does not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
import trio
from trio.testing import memory_stream_pair

from daa_node.checkpoints import epochs, pages, records
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.page_server import Pages
from daa_node.checkpoints.records import Records
from daa_node.errors import Unavailable
from daa_node.network.directory import Directory
from daa_node.network.link_limits import (
    BURST_S,
    FIRST_SHARE,
    GB_BYTES,
    LAST_SHARE,
    STRANGERS_SHARE,
)
from daa_node.network.requests import Requests
from daa_node.observability.events import EventLog
from daa_node.seams import PeerId, Transport
from daa_node.wire.blob_messages import PIECE_BYTES
from tests.daa_node.network.limited_link import Link
from tests.daa_node.network.neighbours import KEYS, Neighbour, running, until

PAGE_BYTES = 22_000
BUDGET_BYTES = 10**6


async def page(_peer_id: PeerId, body: bytes) -> bytes:
    return bytes(PAGE_BYTES)


async def echo(_peer_id: PeerId, body: bytes) -> bytes:
    return body


@asynccontextmanager
async def asking(
    link: Link, members: tuple[int, ...] = ()
) -> AsyncIterator[tuple[Neighbour, Neighbour]]:
    """(the one behind the link, who asks it)"""
    server, asker = Neighbour(0, members), Neighbour(1)
    link.limits.carried = server.transport.carried
    server.requests.limits = link.limits
    server.requests.register("page", page, of_history=True)
    server.requests.register("echo", echo)
    async with running(server), running(asker):
        await asker.transport.dial(server.address)
        await until(lambda: asker.welcomed(server) and server.welcomed(asker))
        yield server, asker


async def served(server: Neighbour, asker: Neighbour, asks: int) -> int:
    """Bytes, until it is refused."""
    total_bytes = 0
    for _ in range(asks):
        try:
            total_bytes += len(await asker.requests.ask(server.peer_id, "page", b"", PAGE_BYTES))
        except Unavailable:
            break
    return total_bytes


async def test_a_stranger_is_answered_out_of_a_quarter_of_the_day_and_all_of_it_counts() -> None:
    link = Link(data_gb_a_day=BUDGET_BYTES / GB_BYTES)
    async with asking(link) as (server, asker):
        got = await served(server, asker, 150)
        share = STRANGERS_SHARE * BUDGET_BYTES
        assert share - 30_000 < got < share + PAGE_BYTES  # less its hello, and questions
        assert link.limits.spent_bytes == share
        assert await served(server, asker, 5) == 0
        with pytest.raises(Unavailable, match="today's data"):
            await asker.requests.ask(server.peer_id, "echo", b"a word", 100)
        link.day += 1
        assert await served(server, asker, 1) == PAGE_BYTES


async def test_members_get_no_history_of_the_last_tenth_and_all_else_to_the_end() -> None:
    link = Link(data_gb_a_day=1.0)
    async with asking(link, members=(1,)) as (server, asker):
        before = link.limits.spent_bytes
        assert await served(server, asker, 3) == 3 * PAGE_BYTES
        assert 3 * PAGE_BYTES < link.limits.spent_bytes - before < 3.1 * PAGE_BYTES
        for part in (1 - LAST_SHARE, LAST_SHARE):
            link.limits.count(int(part * GB_BYTES))
            assert await served(server, asker, 1) == 0
            said = await asker.requests.ask(server.peer_id, "echo", b"a vote", 100)
            assert said == b"a vote"


async def test_pages_epochs_and_records_are_history() -> None:
    link = Link(data_gb_a_day=1.0)
    async with asking(link, members=(1,)) as (server, asker):
        chain = cast(ChainStore, None)  # which nobody looks at
        Pages(chain).serve(server.requests)
        Records(chain).serve(server.requests)
        link.limits.count(int((1 - LAST_SHARE) * GB_BYTES))
        for name in (pages.REQUEST, epochs.REQUEST, records.REQUEST):
            with pytest.raises(Unavailable, match="today's data"):
                await asker.requests.ask(server.peer_id, name, b"", 100)


class Line:
    """One end of a stream to `peer_id`, in memory."""

    def __init__(self, end: trio.StapledStream, peer_id: PeerId) -> None:  # type: ignore[type-arg]
        self._end = end
        self.peer_id = peer_id
        self.send_all = end.send_all
        self.aclose = end.aclose

    async def receive_some(self, size_bytes_max: int = 65_536) -> bytes:
        return bytes(await self._end.receive_some(size_bytes_max))


class Calls:
    """What Requests uses of a transport to ask: whoever is asked serves it here."""

    def __init__(self, nursery: trio.Nursery, asker: PeerId, asked: Requests | None = None) -> None:
        self._nursery, self._asker = nursery, asker
        self.asked = asked

    async def open_stream(self, _peer_id: PeerId, _protocol: str) -> Line:
        assert self.asked is not None
        ours, theirs = memory_stream_pair()
        self._nursery.start_soon(self.asked.serve, Line(theirs, self._asker))
        return Line(ours, KEYS[0].peer_id)


@pytest.mark.parametrize("way", ["upload_mbit_s", "download_mbit_s"])
async def test_what_is_relayed_waits_for_one_piece_of_a_member_s_long_answers(
    way: str, autojump_clock: object
) -> None:
    """However long they are, and of however many at once: letters are in what is relayed."""
    link, asker, asks, long_bytes = Link(None, **{way: 2.0}), KEYS[1], 8, 250_000

    async def long_answer(_peer_id: PeerId, body: bytes) -> bytes:
        return bytes(long_bytes)

    async with trio.open_nursery() as nursery:
        directory = Directory(
            trio.current_time, {asker.node_id: asker.peer_id}, EventLog(lambda: 0)
        )
        calls = Calls(nursery, asker.peer_id)
        server, client = (
            Requests(cast(Transport, calls), directory, EventLog(lambda: 0)) for _ in range(2)
        )
        calls.asked = server
        server.register("long", long_answer)
        (server if way == "upload_mbit_s" else client).limits = link.limits
        answered_s: list[float] = []

        async def ask() -> None:
            answer = await client.ask(KEYS[0].peer_id, "long", b"", long_bytes)
            assert len(answer) == long_bytes
            answered_s.append(trio.current_time())

        began_s = trio.current_time()
        for _ in range(asks):
            nursery.start_soon(ask)
        cap, first_bytes_s = getattr(link.limits, way.split("load")[0]), FIRST_SHARE * 250_000
        waits_s = []
        for _ in range(10):
            await trio.sleep(1.0)
            asked_s = trio.current_time()
            await cap.take_first(1000)
            waits_s.append(trio.current_time() - asked_s)
        assert not answered_s  # they were under way all the time
        assert max(waits_s) < 2 * (PIECE_BYTES + 1000) / first_bytes_s
    least_s = asks * long_bytes / first_bytes_s - 2 * BURST_S
    assert least_s < answered_s[-1] - began_s < 1.2 * least_s


@pytest.mark.parametrize("is_member", [False, True])
@pytest.mark.parametrize("way", ["upload_mbit_s", "download_mbit_s"])
async def test_long_answers_keep_to_the_caps_both_ways(way: str, is_member: bool) -> None:
    """Two megabits a second are a second for a quarter of a megabyte, or half of that."""
    link, answers = Link(None, **{way: 2.0}), 250_000 // PAGE_BYTES
    async with asking(link, members=(1,) if is_member else ()) as (server, asker):
        if way == "download_mbit_s":
            asker.requests.register("page", page)
            server, asker = asker, server
        began_s = trio.current_time()
        assert await served(server, asker, answers) == answers * PAGE_BYTES
        assert trio.current_time() - began_s > 0.7  # but for what goes at once
