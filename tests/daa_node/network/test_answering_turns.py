"""Who waits for its turn hears so, and gives up nobody that is busy; silence is still the end."""

import pytest
import trio

from daa_node.errors import Unavailable
from daa_node.network.answering_turns import IN_TURN_EVERY_S, in_turn
from daa_node.network.answers import IN_TURN_MAX, IN_TURN_TIMEOUTS, answer_of
from daa_node.network.session_pool import BULK_ANSWER_TIMEOUT_S, Lease, SessionPool
from daa_node.prompt_lock import PromptLock
from daa_node.seams import FrameStream
from daa_node.wire.blob_messages import (
    IN_TURN,
    Chunks,
    ChunksRequest,
    Found,
    Refusal,
    decode_answer,
    encode_found,
    encode_refused,
    encode_request,
)
from tests.daa_node.network.bulk_stage import MemoryFrames, source
from tests.daa_node.network.swarm_stage import KIND, MANIFEST, World, in_swarm

FOUR = encode_request(ChunksRequest(KIND, MANIFEST.root, (0, 1, 2, 3)))
SLOW_CHUNK_S = 3.5  # four of them come in time, and behind four others they would not
SESSIONS = 4


async def ask(world: World) -> float:
    """On a session of its own, which lasts; when the answer is there."""
    stream = await world.receivers[0].bulk.open(world.author.source.peer_id)
    await stream.send_frame(FOUR)
    answer = decode_answer(await answer_of(Lease(stream, reused=False)))
    assert isinstance(answer, Chunks)
    await stream.send_frame(FOUR)
    answer = decode_answer(await answer_of(Lease(stream, reused=False)))
    assert isinstance(answer, Chunks)
    return trio.current_time()


def test_what_waits_behind_other_answers_on_a_slow_link_is_not_given_up() -> None:
    async def play(world: World) -> None:
        done_s = []

        async def note() -> None:
            done_s.append(await ask(world))

        async with trio.open_nursery() as nursery:
            for _ in range(SESSIONS):
                nursery.start_soon(note)
        assert max(done_s) == pytest.approx(2 * SESSIONS * 4 * SLOW_CHUNK_S, rel=0.01)
        assert max(done_s) > 3 * BULK_ANSWER_TIMEOUT_S

    assert 2 * 4 * SLOW_CHUNK_S > BULK_ANSWER_TIMEOUT_S  # else it shows nothing
    in_swarm(play, receivers=1, chunk_s=SLOW_CHUNK_S)


def test_who_says_for_ever_that_the_turn_will_come_is_given_up() -> None:
    async def play(world: World) -> None:
        async def putting_off(stream: FrameStream) -> None:
            while True:
                await stream.send_frame(IN_TURN)

        world.author.handler = putting_off
        with pytest.raises(Unavailable, match="turn"):
            await ask(world)

    in_swarm(play, receivers=1)
    assert IN_TURN_MAX * IN_TURN_EVERY_S <= 20 * 60


def test_who_hangs_up_while_it_waits_leaves_its_turn_to_others() -> None:
    async def play(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, world)
            await trio.sleep(1.0)
            impatient = await world.receivers[0].bulk.open(world.author.source.peer_id)
            await impatient.send_frame(FOUR)
            await trio.sleep(IN_TURN_EVERY_S / 2)
            await impatient.aclose()

    in_swarm(play, receivers=1, chunk_s=SLOW_CHUNK_S)


def test_who_says_so_as_seldom_as_it_can_is_given_up_in_the_same_time() -> None:
    timeout_s = 2.0

    async def play(world: World) -> None:
        async def dripping(stream: FrameStream) -> None:
            while True:
                await trio.sleep(0.9 * timeout_s)
                await stream.send_frame(IN_TURN)

        world.author.handler = dripping
        stream = await world.receivers[0].bulk.open(world.author.source.peer_id)
        with pytest.raises(Unavailable, match="turn"):
            await answer_of(Lease(stream, reused=False, answer_timeout_s=timeout_s))
        assert trio.current_time() < (IN_TURN_TIMEOUTS + 1) * timeout_s

    in_swarm(play, receivers=1)


def test_who_is_cut_off_behind_a_last_word_gives_its_turn_back() -> None:
    async def play(_world: World) -> None:
        to_peer, _unread = trio.open_memory_channel[bytes](0)
        _unsent, from_peer = trio.open_memory_channel[bytes](0)
        stream = MemoryFrames(source("peer").node_id, to_peer, from_peer)
        turn = PromptLock()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def wait() -> None:
                    async with in_turn(stream, turn):
                        raise AssertionError("its word never leaves")

                await turn.acquire()
                nursery.start_soon(wait)
                await trio.sleep(IN_TURN_EVERY_S + 1)
                turn.release()
                await trio.sleep(1)
                assert not turn.is_free
                scope.cancel()
        assert turn.is_free

    in_swarm(play, receivers=0)


def test_the_word_may_come_before_each_part_of_a_manifest() -> None:
    async def play(world: World) -> None:
        encoded = MANIFEST.encode()

        async def capped(stream: FrameStream) -> None:
            await stream.receive_frame()
            await stream.send_frame(encode_found(Found(None, encoded[:100], len(encoded) - 100)))
            for part in (encoded[100:300], encoded[300:]):
                await stream.send_frame(IN_TURN)
                await stream.send_frame(part)
            await world.author.server.serve(stream)

        world.author.handler = capped
        await world.receivers[0].fetch([world.author.source])
        assert not world.receivers[0].faults

    in_swarm(play, receivers=1)


def test_the_word_is_none_of_the_answers_that_nobody_needs() -> None:
    async def play(world: World) -> None:
        needed = encode_refused(Refusal.UNKNOWN)

        async def capped(stream: FrameStream) -> None:
            for frame in (IN_TURN, encode_refused(Refusal.SPENT), needed):
                await stream.send_frame(frame)

        world.author.handler = capped
        pool = SessionPool(world.receivers[0].bulk)
        async with pool.lease(world.author.source) as lease:
            lease.unread = 1
        async with pool.lease(world.author.source) as lease:
            assert lease.reused
            assert await answer_of(lease) == needed

    in_swarm(play, receivers=1)


def test_where_a_chunk_stands_for_many_an_answer_may_take_as_much_longer() -> None:
    async def play(world: World) -> None:
        pool = SessionPool(world.receivers[0].bulk, slowness=225.0)
        for _ in range(2):  # a new session, and one that was kept
            async with pool.lease(world.author.source) as lease:
                assert lease.answer_timeout_s == 225.0 * BULK_ANSWER_TIMEOUT_S

    in_swarm(play, receivers=1)
