"""Whoever claims chunks and says late that it has none of them teaches nobody to wait longer."""

import trio

from daa_node.network.stall import STALL_S
from daa_node.seams import FrameStream
from daa_node.wire.blob_messages import (
    ChunksRequest,
    Shared,
    ShareRequest,
    decode_request,
    encode_chunks,
    encode_shared,
)
from tests.daa_node.network.swarm_stage import CHUNK_COUNT, World, in_swarm, one_uplink_each
from tests.daa_node.network.test_upload_once import RATIO_MAX, claim_everything

LATE_S = (0.95, 3.7, 7.6)  # each just within what a fetcher would have learnt to wait for


async def refuse_late(stream: FrameStream) -> None:
    refused = 0
    while (frame := await stream.receive_frame()) is not None:
        request = decode_request(frame)
        if isinstance(request, ShareRequest):
            await stream.send_frame(encode_shared(Shared(0, (1 << CHUNK_COUNT) - 1, ())))
            continue
        assert isinstance(request, ChunksRequest)
        await trio.sleep(LATE_S[min(refused, len(LATE_S) - 1)])
        refused += 1
        await stream.send_frame(encode_chunks([None] * len(request.indices)))


def test_a_third_that_refuses_late_what_it_claims_delays_others_by_a_stall_and_no_more() -> None:
    """Each answer was taken for what answers take, and four times as long was waited for the next.

    With six of twenty that lie a fetch of a second took fifteen, and cost its author 2.5 copies.
    """

    async def play(world: World) -> None:
        one_uplink_each(world)
        liars, honest = world.receivers[:6], world.receivers[6:]
        for liar in liars:
            liar.handler = refuse_late
            world.nursery.start_soon(claim_everything, world, liar)
        await trio.sleep(0.1)
        assert await world.fetch_all(honest) < 2 * STALL_S
        assert world.author.ratio <= RATIO_MAX

    in_swarm(play, receivers=20, chunk_s=0.02)
