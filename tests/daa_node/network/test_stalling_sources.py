"""A source that stalls for as long as it may costs a fetch seconds, and nobody its way back."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from daa_node.network.blob_exchange import PATIENCE_S, Want
from daa_node.network.session_pool import Source
from daa_node.seams import FrameHandler, FrameStream
from tests.daa_node.network.bulk_stage import (
    KIND,
    MANIFEST,
    PAYLOAD,
    MemoryWriter,
    Scene,
    on_stage,
    scripted,
    silence,
    truth,
)

WANT = Want(KIND, MANIFEST.root, len(PAYLOAD))


async def mute(stream: FrameStream) -> None:
    """Takes every request, and answers none."""
    while await stream.receive_frame() is not None:
        pass


@pytest.mark.parametrize("stalls", [scripted(silence), mute])
def test_who_has_come_to_hold_a_blob_is_asked_when_its_author_stalls(
    tmp_path: Path, stalls: FrameHandler
) -> None:
    """The author gives it to a quorum, lets one member wait, and the round needs that one."""
    holders: list[Source] = []

    async def play(scene: Scene) -> None:
        author, holder = scene.bulk.add("author", stalls), scene.bulk.add("holder", scripted(truth))
        more: Callable[[], Sequence[Source]] = lambda: [author, *holders]  # noqa: E731
        holders.append(holder)
        writer = MemoryWriter()
        await scene.fetcher.fetch(WANT, [author], writer.begin, 60, more)
        assert writer.committed
        assert scene.faults == []

    assert on_stage(tmp_path, play, virtual=True) < 3 * PATIENCE_S


def test_nobody_else_is_asked_while_the_first_source_delivers(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        author, holder = scene.bulk.add("author", scripted(truth)), scene.bulk.add("holder", mute)
        await scene.fetcher.fetch(WANT, [author], MemoryWriter().begin, 60, lambda: [holder])
        assert scene.bulk.opened == [author.peer_id]

    on_stage(tmp_path, play, virtual=True)
