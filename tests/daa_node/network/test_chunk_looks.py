"""One look at a directory of chunks serves all who ask, as long as it may be believed."""

from typing import cast

import pytest
import trio
import trio.testing

from daa_dag.chunking import Manifest, manifest_of
from daa_node.network.chunk_looks import CHUNKS, LOOK_HOLDS_S, LOOK_SHARE, ChunkLooks
from daa_node.seams import BlobStore

MINUTE_S, LOOK_S = 60.0, 0.1
FIRST, OTHER = manifest_of(b"abc", [1, 1, 1]), manifest_of(b"xyz", [1, 1, 1])


# As deltas that are asked for as states: their manifests lie there, and none of their chunks.
NEVER_WHOLE = [manifest_of(b"delta %d" % number, [7]) for number in range(10)]


class Directory:
    """A store that notes when it is looked through, which takes a moment."""

    look_s = LOOK_S

    def __init__(self, *whole: Manifest) -> None:
        self.names = {digest.hex() for manifest in whole for digest in manifest.digests}
        self.looked_s = list[float]()

    async def record_names(self, kind: str) -> list[str]:
        assert kind == CHUNKS
        self.looked_s.append(trio.current_time())
        await trio.sleep(self.look_s)
        return sorted(self.names)


@pytest.fixture
def directory() -> Directory:
    return Directory(FIRST, OTHER)


@pytest.fixture
def looks(directory: Directory) -> ChunkLooks:
    return ChunkLooks(cast(BlobStore, directory))


async def test_states_that_are_whole_cost_one_look_until_it_is_old(
    directory: Directory, looks: ChunkLooks, autojump_clock: trio.testing.MockClock
) -> None:
    for manifest in (FIRST, OTHER, FIRST):
        assert await looks.mask(manifest, trio.current_time()) == 0b111
        await trio.sleep(LOOK_HOLDS_S / 4)
    assert len(directory.looked_s) == 1
    await trio.sleep(LOOK_HOLDS_S)
    directory.names.remove(FIRST.digests[1].hex())
    assert await looks.mask(FIRST, trio.current_time()) == 0b101
    assert len(directory.looked_s) == 2


async def test_what_may_have_come_since_is_looked_for_and_what_cannot_is_not(
    directory: Directory, looks: ChunkLooks, autojump_clock: trio.testing.MockClock
) -> None:
    late = FIRST.digests[2].hex()
    directory.names.remove(late)
    began_s = trio.current_time()
    assert await looks.mask(FIRST, began_s) == 0b011
    directory.names.add(late)
    assert await looks.mask(FIRST, began_s) == 0b011
    assert await looks.mask(FIRST, trio.current_time()) == 0b011  # the last look was just now
    assert len(directory.looked_s) == 1
    await trio.sleep(LOOK_SHARE * LOOK_S)
    assert await looks.mask(FIRST, trio.current_time()) == 0b111
    assert len(directory.looked_s) == 2


async def test_two_that_ask_at_once_share_a_look(
    directory: Directory, looks: ChunkLooks, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        for manifest in (FIRST, OTHER):
            nursery.start_soon(looks.mask, manifest, trio.current_time())
    assert len(directory.looked_s) == 1


async def test_names_are_held_no_longer_than_they_may_be_believed(
    looks: ChunkLooks, autojump_clock: trio.testing.MockClock
) -> None:
    await looks.mask(FIRST, trio.current_time())
    looks.forget_stale()
    assert looks._names
    await trio.sleep(LOOK_HOLDS_S + 0.1)
    looks.forget_stale()
    assert not looks._names


@pytest.mark.parametrize("look_s", [0.01, 0.2])
async def test_what_is_never_whole_is_looked_for_in_a_share_of_the_time(
    directory: Directory, looks: ChunkLooks, look_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Each that was asked for had the directory read: one member kept a core of another busy."""
    directory.look_s, began_s = look_s, trio.current_time()
    while trio.current_time() < began_s + MINUTE_S:
        for manifest in NEVER_WHOLE:
            assert await looks.mask(manifest, trio.current_time()) == 0
            await trio.sleep(0.01)
    least, most = MINUTE_S / (LOOK_HOLDS_S + look_s), MINUTE_S / (LOOK_SHARE * look_s)
    assert least - 1 <= len(directory.looked_s) <= most + 1
