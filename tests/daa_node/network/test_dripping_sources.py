"""A source that always brings the next bit in time, and never soon, costs a fetch seconds."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from daa_dag.chunking import CHUNK_BYTES_MAX, cut, manifest_of
from daa_node.network.blob_exchange import PATIENCE_S, Want
from daa_node.network.session_pool import Source
from daa_node.wire.blob_messages import ChunksRequest, encode_chunks
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
