"""Who fetch one blob finish it without the one that had it, if they have all of it together."""

from collections.abc import Sequence

import pytest
import trio

from daa_dag.spread import mask_of
from daa_node.errors import NotHeld, Unavailable
from daa_node.network.blob_server import SNAPSHOTS
from daa_node.network.stall import STALL_S
from daa_node.seams import FrameStream
from daa_node.wire.blob_messages import (
    Refused,
    Shared,
    ShareRequest,
    decode_request,
    encode_chunks,
    encode_request,
    encode_shared,
)
from tests.daa_node.network.swarm_stage import (
    CHUNK_COUNT,
    KIND,
    MANIFEST,
    Member,
    World,
    chunk,
    fetch_from_all,
    in_swarm,
    one_uplink_each,
)
from tests.daa_node.network.test_upload_once import asked


def have_all(receivers: Sequence[Member]) -> bool:
    """Together."""
    return len(set[int]().union(*(each.shelf.writer.chunks for each in receivers))) == CHUNK_COUNT


@pytest.mark.parametrize("kind", [KIND, SNAPSHOTS])
@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.parametrize("receivers", [2, 4, 8, 20])
def test_those_who_together_have_it_all_finish_without_their_donor(
    receivers: int, is_silent: bool, kind: str
) -> None:
    async def play(world: World) -> None:
        one_uplink_each(world)

        async def kill() -> None:
            while not have_all(world.receivers):
                await trio.sleep(0.01)
            assert not any(member.shelf.writer.committed for member in world.receivers)
            if is_silent:
                world.author.chunk_s = 1e6  # nor does it hang up
            else:
                world.author.die()

        world.nursery.start_soon(kill)
        took_s = await fetch_from_all(world, kind)
        assert took_s < 3 * STALL_S

    in_swarm(play, receivers, chunk_s=0.1)


def test_where_something_is_lost_with_the_donor_that_is_said_soon() -> None:
    async def play(world: World) -> None:
        one_uplink_each(world)
        world.receivers[0].shelf.writer.chunks = {0: chunk(0), 1: chunk(1)}

        async def kill() -> None:
            await trio.sleep(0.5)
            assert not have_all(world.receivers)
            world.author.die()

        world.nursery.start_soon(kill)
        failed_s: list[float] = []

        async def fetch(member: Member) -> None:
            with pytest.raises((Unavailable, NotHeld)):
                await member.fetch([each.source for each in world.members.values()], kind=SNAPSHOTS)
            failed_s.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            for member in world.receivers:
                nursery.start_soon(fetch, member)
        assert max(failed_s) < 4 * STALL_S
        # and each has what any of them has
        assert len({frozenset(each.shelf.writer.chunks) for each in world.receivers}) == 1

    in_swarm(play, receivers=4, chunk_s=0.1)


def claims(have: int) -> bytes:
    return encode_request(ShareRequest(SNAPSHOTS, MANIFEST.root, 0, (), have))


@pytest.mark.parametrize("gives", [None, b"?"])
def test_who_claims_all_of_it_and_gives_none_holds_nobody_up(gives: bytes | None) -> None:
    """Also when it is asked itself, as the donor is gone by then."""

    async def play(world: World) -> None:
        one_uplink_each(world)
        liar, others = world.receivers[0], world.receivers[1:]
        mask = mask_of(range(CHUNK_COUNT))

        async def lie(stream: FrameStream) -> None:
            while (frame := await stream.receive_frame()) is not None:
                request = decode_request(frame)
                if isinstance(request, ShareRequest):
                    await stream.send_frame(encode_shared(Shared(9, mask, ())))
                elif hasattr(request, "indices"):
                    wrong = [gives and gives * MANIFEST.sizes[i] for i in request.indices]
                    await stream.send_frame(encode_chunks(wrong))
                else:
                    return

        liar.handler = lie

        async def claim() -> None:
            stream = await liar.bulk.open(world.author.source.peer_id)
            while True:
                await stream.send_frame(claims(mask))
                await stream.receive_frame()

        async def kill() -> None:
            while not have_all(others):
                await trio.sleep(0.01)
            world.author.die()

        with trio.CancelScope() as claiming:

            async def play_on() -> None:
                world.nursery.start_soon(kill)
                took_s = await fetch_from_all(world, SNAPSHOTS, askers=others)
                assert took_s < 4 * STALL_S
                assert world.author.ratio <= 1.6
                claiming.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(play_on)
                with pytest.raises(Unavailable):
                    await claim()
        faults = {node for each in others for node, _ in each.faults}
        assert faults <= {liar.source.node_id}

    in_swarm(play, receivers=5, chunk_s=0.1)


def test_what_is_kept_for_others_is_shown_to_none_who_may_not_see_it() -> None:
    async def play(world: World) -> None:
        first, second = world.receivers
        first.shelf.is_published = False
        await first.fetch([world.author.source], kind=SNAPSHOTS)
        answer = await asked(first, world, claims(0))
        assert isinstance(answer, Shared)
        assert answer.offered == mask_of(range(CHUNK_COUNT))
        first.server.may_show = lambda _kind, _root: False
        assert isinstance(await asked(first, world, claims(0)), Refused)
        assert second.shelf.writer.chunks == {}

    in_swarm(play, receivers=2)
