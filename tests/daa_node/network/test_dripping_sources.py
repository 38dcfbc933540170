"""A source that always brings the next bit in time, and never soon, costs a fetch seconds."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from daa_dag.chunking import CHUNK_BYTES_MAX, cut, manifest_of
from daa_node.network.blob_exchange import PATIENCE_S, Want
from daa_node.network.session_pool import Source
from daa_node.seams import FrameHandler, FrameStream
from daa_node.wire.blob_messages import (
    ChunksRequest,
    FindRequest,
    Found,
    decode_request,
    encode_chunks,
    encode_found,
)
from tests.daa_node.network.bulk_stage import (
    KIND,
    MemoryWriter,
    Scene,
    on_stage,
    scripted,
)

CHUNKS = 100
BLOB = random.Random(1).randbytes(CHUNKS * CHUNK_BYTES_MAX)
LONG = manifest_of(BLOB, cut([len(BLOB)]))
WANT = Want(KIND, LONG.root, len(BLOB))
DRIP_S = 0.95 * PATIENCE_S


async def true(request: ChunksRequest) -> bytes:
    at = LONG.offsets
    return encode_chunks([BLOB[at[i] : at[i] + LONG.sizes[i]] for i in request.indices])


async def drip(request: ChunksRequest) -> bytes:
    await trio.sleep(DRIP_S)
    return await true(request)


def test_who_has_come_to_hold_a_blob_is_asked_when_its_author_drips(tmp_path: Path) -> None:
    """The author gives it to a quorum at once; the round needs who gets it drop by drop."""

    async def play(scene: Scene) -> None:
        holders: list[Source] = []
        author = scene.bulk.add("author", scripted(drip, LONG))
        holder = scene.bulk.add("holder", scripted(true, LONG))
        more: Callable[[], Sequence[Source]] = lambda: [author, *holders]  # noqa: E731
        holders.append(holder)
        writer = MemoryWriter(count=CHUNKS)
        await scene.fetcher.fetch(WANT, [author], writer.begin, 600, more)
        assert writer.committed
        assert scene.faults == []

    # What the author owes by then comes at its pace: three answers.
    assert on_stage(tmp_path, play, virtual=True) < 5 * PATIENCE_S


def test_who_answers_late_each_time_is_asked_last(tmp_path: Path) -> None:
    """A laggard fetches one little delta after the other, first from whoever brought the page."""
    little = [bytes([number]) * 1000 for number in range(20)]
    manifests = [manifest_of(blob, cut([len(blob)])) for blob in little]

    def serving(wait_s: float) -> FrameHandler:
        async def serve(stream: FrameStream) -> None:
            while (frame := await stream.receive_frame()) is not None:
                request = decode_request(frame)
                place = [manifest.root for manifest in manifests].index(request.root)
                if isinstance(request, FindRequest):
                    await stream.send_frame(encode_found(Found(None, manifests[place].encode())))
                else:
                    await trio.sleep(wait_s)
                    await stream.send_frame(encode_chunks([little[place]]))

        return serve

    async def play(scene: Scene) -> None:
        late = scene.bulk.add("a", serving(DRIP_S))
        sources = [late, *(scene.bulk.add(name, serving(0.01)) for name in "bc")]
        for manifest in manifests:
            writer = MemoryWriter(count=1)
            want = Want(KIND, manifest.root, 1000)
            await scene.fetcher.fetch(want, sources, writer.begin, 60)

    assert on_stage(tmp_path, play, virtual=True) < 3 * PATIENCE_S
