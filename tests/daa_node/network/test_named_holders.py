"""A holder that names others for as long as it likes: whoever has chunks is found all the same."""

from collections import Counter
from functools import partial
from itertools import count
from typing import cast

import pytest
import trio

from daa_dag.spread import TOLD_MAX
from daa_node.errors import Unavailable
from daa_node.network.blob_exchange import Want
from daa_node.network.blob_server import SNAPSHOTS
from daa_node.network.hearsay import WRONG_MAX
from daa_node.network.session_pool import Source
from daa_node.seams import BlobStore, FrameStream
from daa_node.wire.blob_messages import (
    ChunksRequest,
    FindRequest,
    Found,
    Refusal,
    Shared,
    ShareRequest,
    decode_request,
    encode_chunks,
    encode_found,
    encode_refused,
    encode_shared,
)
from tests.daa_node.network.swarm_stage import (
    CHUNK_COUNT,
    KIND,
    MANIFEST,
    PAYLOAD,
    Member,
    World,
    fetch_from_all,
    in_swarm,
    one_uplink_each,
)

ALL = (1 << CHUNK_COUNT) - 1
IDLE = 70  # members that have nothing of the blob, in a network of some eighty


async def name(stream: FrameStream, idle: list[Member]) -> None:
    """It offers nothing, and names as many as an answer holds, others each time."""
    nodes = [member.source.node_id for member in idle]
    for news in count(1):
        frame = await stream.receive_frame()
        if frame is None:
            return
        request = decode_request(frame)
        if isinstance(request, FindRequest):
            await stream.send_frame(encode_found(Found(None, MANIFEST.encode())))
        elif isinstance(request, ShareRequest):
            first = news * TOLD_MAX % len(nodes)
            held = tuple((node, ALL) for node in (nodes * 2)[first : first + TOLD_MAX])
            await stream.send_frame(encode_shared(Shared(news, 0, held)))
        else:
            await stream.send_frame(encode_chunks([None] * len(request.indices)))


def add_liar(world: World, named: list[Member]) -> Member:
    liar = world.add("liar")

    async def lie(stream: FrameStream) -> None:
        await name(stream, [member for member in named if member.source.node_id != stream.node_id])

    liar.handler = lie
    return liar


def test_a_liar_that_names_many_who_have_nothing_keeps_nobody_from_those_who_have_it() -> None:
    """It took all places that a fetch had for others: each took the whole from the one holder."""

    async def play(world: World) -> None:
        one_uplink_each(world)
        liar = add_liar(world, [world.add(f"idle {number}") for number in range(IDLE)])
        took_s = await fetch_from_all(world, SNAPSHOTS, donors=[liar])
        assert world.author.ratio < 1.5
        assert took_s < 0.6 * len(world.receivers) * CHUNK_COUNT * world.author.chunk_s
        assert not any(member.faults for member in world.members.values())

    in_swarm(play, receivers=6, chunk_s=0.1)


@pytest.mark.parametrize("receivers", [6, 20])
def test_a_liar_that_names_fetchers_before_they_have_a_thing_keeps_none_from_the_others(
    receivers: int,
) -> None:
    """Whoever had been asked too early was asked no more: each took most from the author."""

    async def play(world: World) -> None:
        one_uplink_each(world)
        liar = add_liar(world, world.receivers)
        async with trio.open_nursery() as nursery:
            for member in world.receivers:
                nursery.start_soon(fetch_update, member, world, [liar.source])
        assert world.author.ratio <= 1.3
        assert not any(member.faults for member in world.members.values())

    in_swarm(play, receivers=receivers, chunk_s=0.1)


async def fetch_update(member: Member, world: World, more: list[Source]) -> None:
    """From its author, and from `more`, who have acknowledged it, as they say."""
    want, store = Want(KIND, MANIFEST.root, len(PAYLOAD)), cast(BlobStore, member.shelf)
    await member.fetcher.fetch_blob(want, [world.author.source], store, 60.0, lambda: more)


@pytest.mark.parametrize("kind", [KIND, SNAPSHOTS])
def test_what_fetchers_have_together_they_get_though_a_liar_names_them_and_the_holder_dies(
    kind: str,
) -> None:
    """The liar's word passed for the last news of each, and each gave up."""

    async def play(world: World) -> None:
        one_uplink_each(world)
        liar = add_liar(world, world.receivers)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(fetch_from_all, world, kind, donors=[liar]))
            held = set[int]()
            while len(held) < CHUNK_COUNT:
                await trio.sleep(0.02)
                held = held.union(*(member.shelf.writer.chunks for member in world.receivers))
            world.author.die()
        assert all(member.whole_s is not None for member in world.receivers)

    in_swarm(play, receivers=6, chunk_s=0.1)


def test_who_has_nothing_is_asked_a_few_times_however_much_a_liar_says_that_it_has() -> None:
    """A question for each chunk, and as much work here as there are chunks, for each of them."""
    asked = Counter[str]()

    async def play(world: World) -> None:
        idle = [world.add(f"idle {number}") for number in range(IDLE)]

        async def refuse(member: Member, stream: FrameStream) -> None:
            while (frame := await stream.receive_frame()) is not None:
                asked[member.source.peer_id] += isinstance(decode_request(frame), ChunksRequest)
                await stream.send_frame(encode_refused(Refusal.UNKNOWN))

        for member in idle:
            member.handler = partial(refuse, member)
        liar = add_liar(world, idle)
        with pytest.raises(Unavailable):
            await world.receivers[0].fetch([liar.source], 20.0)
        assert 0 < max(asked.values()) <= WRONG_MAX

    in_swarm(play, receivers=1)
