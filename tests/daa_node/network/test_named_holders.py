"""A holder that names others for as long as it likes: whoever has chunks is found all the same."""

from itertools import count

from daa_dag.spread import TOLD_MAX
from daa_node.network.blob_server import SNAPSHOTS
from daa_node.seams import FrameStream
from daa_node.wire.blob_messages import (
    FindRequest,
    Found,
    Shared,
    ShareRequest,
    decode_request,
    encode_chunks,
    encode_found,
    encode_shared,
)
from tests.daa_node.network.swarm_stage import (
    CHUNK_COUNT,
    MANIFEST,
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


def test_a_liar_that_names_many_who_have_nothing_keeps_nobody_from_those_who_have_it() -> None:
    """It took all places that a fetch had for others: each took the whole from the one holder."""

    async def play(world: World) -> None:
        one_uplink_each(world)
        idle = [world.add(f"idle {number}") for number in range(IDLE)]
        liar = world.add("liar")

        async def lie(stream: FrameStream) -> None:
            await name(stream, idle)

        liar.handler = lie
        took_s = await fetch_from_all(world, SNAPSHOTS, donors=[liar])
        assert world.author.ratio < 1.5
        assert took_s < 0.6 * len(world.receivers) * CHUNK_COUNT * world.author.chunk_s
        assert not any(member.faults for member in world.members.values())

    in_swarm(play, receivers=6, chunk_s=0.1)
