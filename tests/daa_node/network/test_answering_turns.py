"""Who waits for its turn hears so, and gives up nobody that is busy; silence is still the end."""

import pytest
import trio

from daa_node.errors import Unavailable
from daa_node.network.answering_turns import IN_TURN_EVERY_S
from daa_node.network.answers import IN_TURN_MAX, answer_of
from daa_node.network.session_pool import BULK_ANSWER_TIMEOUT_S, Lease
from daa_node.seams import FrameStream
from daa_node.wire.blob_messages import (
    IN_TURN,
    Chunks,
    ChunksRequest,
    decode_answer,
    encode_request,
)
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
