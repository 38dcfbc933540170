"""Caps and a day's budget: what they hold up, what they never do, and who hears of it."""

from typing import cast

import pytest
import trio

from daa_dag import canonical
from daa_dag.chunking import CHUNK_BYTES_MAX
from daa_dag.ids import BlobRoot, NodeId
from daa_node.errors import NotHeld, Unavailable
from daa_node.network.answers import answer_of
from daa_node.network.config import NetworkConfig
from daa_node.network.link_limits import (
    BURST_S,
    FIRST_SHARE,
    GB_BYTES,
    LAST_SHARE,
    LOOK_EVERY_S,
    SAVE_EVERY_S,
    STRANGERS_SHARE,
    Budget,
)
from daa_node.network.session_pool import Lease
from daa_node.seams import IDLE_TIMEOUT_S, FrameStream
from daa_node.wire.blob_messages import (
    PIECE_BYTES,
    Chunks,
    ChunksRequest,
    FindRequest,
    Found,
    Refusal,
    Refused,
    decode_answer,
    encode_request,
)
from tests.daa_node.network.limited_link import Link
from tests.daa_node.network.swarm_stage import (
    CHUNK_COUNT,
    KIND,
    MANIFEST,
    PAYLOAD,
    Member,
    World,
    chunk,
    in_swarm,
)

MBIT_S = 8.0  # a megabyte a second
LEAST_S = (len(PAYLOAD) - CHUNK_BYTES_MAX) / 1e6  # a quarter of a second's worth goes at once


def author_of(world: World, link: Link) -> Member:
    """One more that has the blob whole, behind that link."""
    author = world.add("limited", 0.0, link.limits)
    author.shelf.writer.chunks = {index: chunk(index) for index in range(CHUNK_COUNT)}
    author.shelf.writer.committed = True
    return author


def test_an_upload_cap_holds_and_is_taken_over_while_it_runs() -> None:
    async def play(world: World) -> None:
        link = Link(upload_mbit_s=MBIT_S)
        author, (first, second) = author_of(world, link), world.receivers
        began_s = trio.current_time()
        await first.fetch([author.source])
        took_s = trio.current_time() - began_s
        assert LEAST_S < took_s < 1.3 * len(PAYLOAD) / 1e6
        link.settings = NetworkConfig()
        began_s = trio.current_time()
        await second.fetch([author.source])
        assert trio.current_time() - began_s < LEAST_S / 4

    in_swarm(play, receivers=2, chunk_s=0.0)


def test_another_cap_holds_from_the_next_byte_on_for_all_that_leaves() -> None:
    """Slower, quicker, or none: by nobody's fetch but what waits for the cap itself."""

    async def play(world: World) -> None:
        link, size_bytes = Link(upload_mbit_s=8.0), 2_000_000
        for mbit_s in (8.0, 2.0, 80.0, None):
            link.settings = NetworkConfig(upload_mbit_s=mbit_s)
            for take, share in ((link.limits.up.take, 1.0), (link.limits.up.take_first, 0.5)):
                began_s = trio.current_time()
                await take(size_bytes)
                least_s = 0.0 if mbit_s is None else size_bytes / (share * mbit_s * 1e6 / 8)
                took_s = trio.current_time() - began_s
                assert least_s - BURST_S - 0.001 < took_s < least_s + 0.001

    in_swarm(play, receivers=0)


def test_a_node_behind_a_low_cap_is_not_taken_for_a_dead_one() -> None:
    async def play(world: World) -> None:
        author = author_of(world, Link(upload_mbit_s=2.0))
        async with trio.open_nursery() as nursery:
            for member in world.receivers:
                nursery.start_soon(member.fetch, [author.source], 120.0, "boundaries")
        assert trio.current_time() > 60.0  # nobody passes those on
        assert not any(member.faults for member in world.receivers)
        assert author.ratio < 1.3 * len(world.receivers)

    in_swarm(play, receivers=3, chunk_s=0.0)


def test_a_download_cap_holds() -> None:
    async def play(world: World) -> None:
        slow = world.add("slow", 0.0, Link(download_mbit_s=MBIT_S).limits)
        await slow.fetch([world.author.source])
        assert trio.current_time() > LEAST_S

    in_swarm(play, receivers=0, chunk_s=0.0)


async def asked(world: World, author: Member, kind: str) -> list[object]:
    """What a search and a request for a chunk are answered."""
    answers: list[object] = []
    for request in (
        FindRequest(kind, MANIFEST.root, False),
        ChunksRequest(kind, MANIFEST.root, (0,)),
    ):
        stream = await world.receivers[0].bulk.open(author.source.peer_id)
        await stream.send_frame(encode_request(request))
        answers.append(decode_answer(await answer_of(Lease(stream, reused=False))))
        await stream.aclose()
    return answers


def test_when_the_day_s_data_run_out_others_go_first_and_our_contribution_last() -> None:
    async def play(world: World) -> None:
        link = Link(data_gb_a_day=1.0)
        author = author_of(world, link)
        kinds = (KIND, "deltas", "boundaries")
        spent = [Refused(Refusal.SPENT)] * 2

        async def served() -> list[str]:
            found = {kind: await asked(world, author, kind) for kind in kinds}
            for answers in found.values():
                if answers != spent:
                    assert isinstance(answers[0], Found)
                    assert isinstance(answers[1], Chunks)
            return [kind for kind, answers in found.items() if answers != spent]

        assert await served() == list(kinds)
        link.limits.count(int(GB_BYTES * (1 - LAST_SHARE)))
        assert await served() == ["boundaries"]  # what shows that our work is sound
        link.limits.note_own(MANIFEST.root)
        assert KIND in await served()
        link.limits.count(int(GB_BYTES * LAST_SHARE))
        assert await served() == []
        assert link.budgets_told == ["saving", "spent"]
        link.day += 1
        assert await served() == list(kinds)
        assert link.budgets_told == ["saving", "spent", "open"]

    in_swarm(play, receivers=1, chunk_s=0.0)


def test_whose_data_are_spent_fetches_nothing_more_until_midnight() -> None:
    async def play(world: World) -> None:
        link = Link(data_gb_a_day=0.001)
        link.limits.count(10**6)
        member = world.add("spent", 0.0, link.limits)
        with pytest.raises(Unavailable):
            await member.fetch([world.author.source], deadline_s=5.0)
        assert link.limits.spent_bytes == 10**6
        link.day += 1
        await member.fetch([world.author.source])
        assert link.limits.spent_bytes > len(PAYLOAD)
        assert link.limits.budget is Budget.SPENT  # what was under way has come to its end

    in_swarm(play, receivers=0, chunk_s=0.0)


def test_that_a_holder_s_data_are_spent_is_no_word_that_the_blob_is_gone() -> None:
    async def play(world: World) -> None:
        link = Link(data_gb_a_day=0.001)
        link.limits.count(10**6)
        author = author_of(world, link)
        with pytest.raises(Unavailable, match="spent") as caught:
            await world.receivers[0].fetch([author.source], deadline_s=10.0)
        assert not isinstance(caught.value, NotHeld)
        await world.receivers[0].fetch([author.source, world.author.source])

    in_swarm(play, receivers=1)


def test_strangers_spend_a_quarter_of_the_day_and_nothing_of_what_is_saved() -> None:
    async def play(world: World) -> None:
        link = Link(data_gb_a_day=0.01)
        author, limits = author_of(world, link), link.limits
        author.server._is_member = lambda _node: False
        limits.note_own(MANIFEST.root)
        spent = [Refused(Refusal.SPENT)] * 2
        answers = 0
        while await asked(world, author, KIND) != spent:
            answers += 1
        assert answers * CHUNK_BYTES_MAX == pytest.approx(STRANGERS_SHARE * 10**7, rel=0.1)
        assert limits.budget is Budget.OPEN
        assert limits.may_serve("deltas", MANIFEST.root)
        link.day += 1
        assert await asked(world, author, KIND) != spent
        limits.count(int(10**7 * (1 - LAST_SHARE)))
        assert limits.may_serve(KIND, MANIFEST.root)
        assert await asked(world, author, KIND) == spent

    in_swarm(play, receivers=1, chunk_s=0.0)


class CutOff:
    """A session that asks for a mebibyte, and is gone when so many frames of it have come."""

    def __init__(self, frames: int) -> None:
        self.node_id = NodeId(b"c" * 32)
        self.got_bytes = 0
        self._frames = frames

    async def receive_frame(self, within_s: float = IDLE_TIMEOUT_S) -> bytes:
        await trio.lowlevel.checkpoint()
        return encode_request(ChunksRequest(KIND, MANIFEST.root, (0, 1, 2, 3)))

    async def send_frame(self, payload: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.got_bytes += len(payload)
        self._frames -= 1
        if not self._frames:
            raise Unavailable("session cut")


@pytest.mark.parametrize(("is_member", "frames"), [(False, 15), (True, 1)])
def test_who_breaks_off_an_answer_has_spent_what_came_of_it(is_member: bool, frames: int) -> None:
    async def play(world: World) -> None:
        link = Link(data_gb_a_day=1.0)
        author, session = author_of(world, link), CutOff(frames)
        author.server._is_member = lambda _node: is_member
        with pytest.raises(Unavailable, match="session cut"):
            await author.server.serve(cast(FrameStream, session))
        assert session.got_bytes >= 15 * PIECE_BYTES
        assert link.limits.spent_bytes == session.got_bytes
        # what has left whole, for those who look; of the piece that was cut off nobody knows
        whole = session.got_bytes - PIECE_BYTES if frames > 1 else 0
        assert author.server.sent_bytes == whole
        link.limits.count(int(STRANGERS_SHARE * GB_BYTES) - session.got_bytes, of_stranger=True)
        assert link.limits.may_answer(of_history=False, to_stranger=True) == is_member

    in_swarm(play, receivers=0, chunk_s=0.0)


def test_what_streams_carry_counts_and_a_new_day_forgets_it() -> None:
    async def play(world: World) -> None:
        link = Link(data_gb_a_day=1.0)
        link.limits.carried.note(700, is_member=True)
        link.limits.carried.note(20, is_member=False)
        link.limits.count(300)
        assert link.limits.spent_bytes == 1020
        link.day += 1
        assert link.limits.spent_bytes == 0
        link.limits.carried.note(50, is_member=True)
        link.limits.carried.note(4, is_member=False)
        assert link.limits.spent_bytes == 54

    in_swarm(play, receivers=0)


def test_no_stranger_makes_a_node_sit_out_by_what_it_sends_unasked() -> None:
    async def play(world: World) -> None:
        link = Link(data_gb_a_day=1.0)
        limits, share = link.limits, int(STRANGERS_SHARE * GB_BYTES)
        limits.count(share // 2, of_stranger=True)
        assert limits.may_serve(KIND, MANIFEST.root, to_stranger=True)
        limits.carried.note(10 * GB_BYTES, is_member=False)
        assert limits.spent_bytes == share
        assert limits.budget is Budget.OPEN
        assert not limits.may_serve(KIND, MANIFEST.root, to_stranger=True)
        assert limits.may_serve("deltas", MANIFEST.root)
        limits.carried.note(GB_BYTES, is_member=True)
        assert not limits.may_serve("deltas", MANIFEST.root)

    in_swarm(play, receivers=0)


def test_who_goes_first_has_half_of_a_cap_and_bulk_has_the_rest() -> None:
    """However much either asks for; each takes what is there as soon as it comes."""

    async def play(world: World) -> None:
        up, taken = Link(upload_mbit_s=MBIT_S).limits.up, {"first": 0, "bulk": 0}

        async def first() -> None:
            while True:
                await up.take_first(10_000)
                taken["first"] += 10_000

        async def bulk() -> None:
            while True:
                await up.take(500_000)
                taken["bulk"] += 500_000

        with trio.move_on_after(100):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first)
                nursery.start_soon(bulk)
        allowed = (100 + BURST_S) * 1e6
        assert 0.97 * allowed < sum(taken.values()) < 1.03 * allowed
        assert taken["first"] == pytest.approx(FIRST_SHARE * allowed, rel=0.02)

    in_swarm(play, receivers=0)


def test_a_restart_gives_nothing_back_and_a_new_day_does() -> None:
    async def play(world: World) -> None:
        before = Link(data_gb_a_day=1.0)
        before.limits.count(GB_BYTES)
        before.limits.carried.note(77, is_member=True)
        await before.limits.save()
        after = Link(before.records, data_gb_a_day=1.0)
        await after.limits.load()
        assert after.limits.spent_bytes == GB_BYTES + 77
        assert after.limits.budget is Budget.SPENT
        later = Link(before.records, data_gb_a_day=1.0)
        later.limits._day = later.day = before.day + 1
        await later.limits.load()
        assert later.limits.spent_bytes == 0

    in_swarm(play, receivers=0)


def test_a_clock_that_is_wrong_for_a_while_gives_nothing_back() -> None:
    """As of a host without a battery, until it has heard what time it is."""

    async def play(world: World) -> None:
        before = Link(data_gb_a_day=1.0)
        before.limits.count(GB_BYTES)
        await before.limits.save()
        after = Link(before.records, data_gb_a_day=1.0)
        today, after.limits._day, after.day = before.day, 0, 0
        await after.limits.load()
        assert after.limits.spent_bytes == 0
        after.limits.count(5)
        await after.limits.save()
        for after.day, spent in ((today, GB_BYTES), (today + 1, 0), (today, GB_BYTES)):
            assert after.limits.spent_bytes == spent
        assert after.limits.budget is Budget.SPENT
        await after.limits.save()
        again = Link(before.records, data_gb_a_day=1.0)
        await again.limits.load()
        assert again.limits.spent_bytes == GB_BYTES

    in_swarm(play, receivers=0)


def test_a_crash_gives_back_half_a_minute_and_a_full_disk_no_more_once_it_has_room() -> None:
    async def play(world: World) -> None:
        link = Link(data_gb_a_day=1.0)

        async def known_after_a_crash() -> int:
            after = Link(link.records, data_gb_a_day=1.0)
            await after.limits.load()
            return after.limits.spent_bytes

        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.limits.run)
            link.limits.count(300)
            await trio.sleep(SAVE_EVERY_S + 1)
            assert await known_after_a_crash() == 300
            link.limits.count(500)
            link.records.are_full = True
            await trio.sleep(SAVE_EVERY_S)
            assert await known_after_a_crash() == 300
            link.records.are_full = False
            await trio.sleep(SAVE_EVERY_S)
            assert await known_after_a_crash() == 800
            assert [event["name"] for event in link.told] == ["storage_failed"]
            link.day += 1
            link.limits.count(7)
            await trio.sleep(SAVE_EVERY_S)
            assert link.records.held["link/day"] == canonical.encode([link.day, 7])
            nursery.cancel_scope.cancel()

    in_swarm(play, receivers=0)


def test_our_last_contributions_leave_as_long_as_any_may() -> None:
    """Others may still want those of the rounds before: a set is not final at once."""

    async def play(world: World) -> None:
        limits = Link(data_gb_a_day=1.0).limits
        limits.count(int(GB_BYTES * (1 - LAST_SHARE)))
        assert limits.budget is Budget.SAVING
        roots = [BlobRoot(bytes([number]) * 32) for number in range(5)]
        for root in roots:
            limits.note_own(root)
        assert [limits.may_serve(KIND, root) for root in roots] == [False, True, True, True, True]

    in_swarm(play, receivers=0)


def test_who_looks_at_events_alone_sees_why_nothing_is_fetched() -> None:
    """Also after a restart, and where the operator has made the budget smaller."""

    async def play(world: World) -> None:
        before = Link(data_gb_a_day=1.0)
        before.limits.count(GB_BYTES)
        await before.limits.save()
        after = Link(before.records, data_gb_a_day=1.0)
        await after.limits.load()
        assert after.budgets_told == ["spent"]
        lowered = Link(data_gb_a_day=1.0)
        lowered.limits.count(GB_BYTES // 2)
        lowered.settings = NetworkConfig(data_gb_a_day=0.4)
        with trio.move_on_after(LOOK_EVERY_S):
            await lowered.limits.until_may_fetch()
        assert lowered.budgets_told == ["spent"]

    in_swarm(play, receivers=0)


def test_a_damaged_record_is_told_of_and_costs_nothing_else() -> None:
    async def play(world: World) -> None:
        link = Link(data_gb_a_day=1.0)
        link.records.held["link/day"] = b"\xff\xff"
        await link.limits.load()
        assert link.limits.spent_bytes == 0
        assert [event["name"] for event in link.told] == ["storage_failed"]

    in_swarm(play, receivers=0)


def test_status_says_what_is_limited_and_nothing_where_nothing_is() -> None:
    async def play(world: World) -> None:
        assert Link().limits.standing() is None
        link = Link(upload_mbit_s=20.0, data_gb_a_day=0.5)
        link.limits.count(100)
        assert link.limits.standing() == {
            "upload_mbit_s": 20.0,
            "download_mbit_s": None,
            "budget": "open",
            "spent_bytes_today": 100,
            "budget_bytes_a_day": GB_BYTES // 2,
        }

    in_swarm(play, receivers=0)
