"""RecoveryStore sessions: used again while clean and young, a few a peer."""

from pathlib import Path

import trio
import trio.testing

from daa_dag.ids import NodeId
from daa_dag.spread import PATIENCE_S_MIN, PATIENCE_TIMES, WAITS_KEPT
from daa_node.network.session_pool import (
    CLOSE_TIMEOUT_S,
    IDLE_REUSE_S,
    IDLE_SESSIONS_MAX,
    SESSIONS_PER_SOURCE_MAX,
    SessionPool,
)
from daa_node.seams import FrameStream, PeerId
from daa_node.wire.blob_messages import ChunksRequest
from tests.daa_node.network.bulk_stage import (
    MemoryBulk,
    MemoryWriter,
    Scene,
    on_stage,
    scripted,
    truth,
)


class DrawnOut(MemoryBulk):
    """A session with a liar takes long to open."""

    async def open(self, peer_id: PeerId) -> FrameStream:
        await trio.sleep(3.0 if peer_id == "liar" else 0.01)
        return await super().open(peer_id)


async def test_a_peer_is_held_to_a_few_sessions_and_the_rest_wait(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        alice = bulk.add("alice", scripted(truth))
        pool = SessionPool(bulk)
        most = 0

        async def use() -> None:
            nonlocal most
            async with pool.lease(alice):
                most = max(most, len(bulk.opened))
                await trio.sleep(0.01)

        async with trio.open_nursery() as users:
            for _ in range(20):
                users.start_soon(use)
        assert len(bulk.opened) == most == SESSIONS_PER_SOURCE_MAX
        assert not pool._turns
        await pool.aclose()


async def test_who_draws_out_each_session_that_it_lets_be_opened_stretches_nobody_s_patience(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It closes each: ours with others stay, so of the newest openings most would be with it.

    Then it lets none be opened, and who believes that it has a chunk waits eight seconds for it.
    """
    async with trio.open_nursery() as nursery:
        bulk = DrawnOut(nursery)
        sources = [bulk.add(name, scripted(truth)) for name in ("alice", "bob", "liar")]
        pool = SessionPool(bulk)
        for source in [*sources, *sources[2:] * WAITS_KEPT]:
            async with pool.lease(source) as lease:
                lease.clean = source is not sources[2]
        assert pool.opening_limit_s == PATIENCE_S_MIN
        await pool.aclose()


async def test_where_sessions_with_most_take_long_to_open_any_may() -> None:
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        pool = SessionPool(bulk)
        assert pool.opening_limit_s == PATIENCE_S_MIN
        for name, took_s in (("alice", 0.1), ("bob", 1.0), ("carol", 1.5)):
            pool._note_opening(bulk.add(name, scripted(truth)).node_id, took_s)
        assert pool.opening_limit_s == PATIENCE_TIMES * 1.0
        for name in ("dave", "eve"):
            pool._note_opening(bulk.add(name, scripted(truth)).node_id, 9.0)
        assert pool.opening_limit_s == PATIENCE_TIMES * 1.5


async def test_how_long_sessions_take_to_open_is_learnt_from_those_that_are_opened(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        bulk = DrawnOut(nursery)
        pool = SessionPool(bulk)
        async with pool.lease(bulk.add("liar", scripted(truth))):
            assert pool.opening_limit_s > PATIENCE_S_MIN
        await pool.aclose()


async def test_one_of_two_stretches_nobody_s_patience_whichever_of_them_was_first() -> None:
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        quick, slow = (bulk.add(name, scripted(truth)).node_id for name in ("alice", "bob"))
        for order in ((quick, slow), (slow, quick)):
            pool = SessionPool(bulk)
            for node_id in order:
                pool._note_opening(node_id, 9.0 if node_id == slow else 0.1)
            assert pool.opening_limit_s == PATIENCE_S_MIN


async def test_what_counts_of_openings_are_the_newest_with_so_many() -> None:
    def name(number: int) -> NodeId:
        return NodeId(number.to_bytes(32))

    async with trio.open_nursery() as nursery:
        pool, most = SessionPool(MemoryBulk(nursery)), IDLE_SESSIONS_MAX // 2 + 1
        for number in range(IDLE_SESSIONS_MAX):
            pool._note_opening(name(number), 1.0 if number < most else 0.1)
        assert pool.opening_limit_s == PATIENCE_TIMES * 1.0
        for number in range(most):  # opened again, so that those are older which took little
            pool._note_opening(name(number), 1.0)
        for number in range(IDLE_SESSIONS_MAX, 2 * IDLE_SESSIONS_MAX - most):
            pool._note_opening(name(number), 0.1)
        assert pool.opening_limit_s == PATIENCE_TIMES * 1.0
        pool._note_opening(name(2 * IDLE_SESSIONS_MAX), 0.1)
        pool._note_opening(name(2 * IDLE_SESSIONS_MAX + 1), 0.1)
        assert pool.opening_limit_s == PATIENCE_S_MIN


async def test_an_old_idle_session_is_not_trusted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        alice = bulk.add("alice", scripted(truth))
        pool = SessionPool(bulk)
        for wait_s, opened in ((0.0, 1), (IDLE_REUSE_S - 1, 1), (IDLE_REUSE_S + 1, 2)):
            await trio.sleep(wait_s)
            async with pool.lease(alice):
                assert len(bulk.opened) == opened
        await pool.aclose()


async def test_a_session_with_an_answer_under_way_is_not_used_again() -> None:
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        alice = bulk.add("alice", scripted(truth))
        pool = SessionPool(bulk)
        async with pool.lease(alice) as lease:
            lease.clean = False
        async with pool.lease(alice) as lease:
            assert not lease.reused
        await pool.aclose()


async def test_a_session_with_each_of_a_hundred_is_kept_for_the_next_round() -> None:
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        sources = [bulk.add(f"member {number}", scripted(truth)) for number in range(100)]
        pool = SessionPool(bulk)
        for _ in range(2):
            for source in sources:
                async with pool.lease(source):
                    pass
        assert len(bulk.opened) == len(sources)
        await pool.aclose()


async def test_an_answer_that_nobody_read_is_dropped_before_the_next_is() -> None:
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)

        async def echo(stream: FrameStream) -> None:
            while (frame := await stream.receive_frame()) is not None:
                await stream.send_frame(frame)

        alice = bulk.add("alice", echo)
        pool = SessionPool(bulk)
        async with pool.lease(alice) as lease:
            await lease.stream.send_frame(b"unread")
            lease.unread = 1
        async with pool.lease(alice) as lease:
            assert lease.reused
            await lease.stream.send_frame(b"mine")
            assert await lease.stream.receive_frame() == b"mine"
        await pool.aclose()


async def test_a_session_whose_unread_answer_never_comes_is_closed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)

        async def silent(stream: FrameStream) -> None:
            while await stream.receive_frame() is not None:
                pass

        alice = bulk.add("alice", silent)
        pool = SessionPool(bulk)
        async with pool.lease(alice) as lease:
            lease.unread = 1
        async with pool.lease(alice) as lease:
            assert not lease.reused
        assert trio.current_time() <= 2 * CLOSE_TIMEOUT_S
        await pool.aclose()


def test_what_has_come_is_counted_while_the_rest_of_a_blob_is_on_its_way(tmp_path: Path) -> None:
    """A snapshot may take hours, and a person who looks meanwhile wants to see that it comes."""
    answered, rest = 0, trio.Event()

    async def first_of_all(request: ChunksRequest) -> bytes:
        nonlocal answered
        answered += 1
        if answered > 1:
            await rest.wait()
        return await truth(request)

    async def play(scene: Scene) -> None:
        writer, alice = MemoryWriter(), scene.bulk.add("alice", scripted(first_of_all))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.fetch_into, writer, [alice], 60)
            await trio.sleep(0.1)
            written = sum(map(len, writer.chunks.values()))
            assert 0 < written <= scene.fetcher.received_bytes
            assert writer.missing()
            rest.set()

    on_stage(tmp_path, play, virtual=True)
