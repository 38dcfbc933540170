"""What lies here of states is looked up for all who ask, in a share of the time."""

from typing import cast

import pytest
import trio
import trio.testing

from daa_dag.chunking import manifest_of
from daa_node.network.chunk_looks import LOOK_HOLDS_S, LOOK_SHARE, ChunkLooks
from daa_node.seams import BlobStore

MINUTE_S = 60.0
# As deltas that are asked for as states: their manifests lie there, and none of their chunks.
NEVER_WHOLE = [manifest_of(b"delta %d" % number, [7]) for number in range(10)]


class Names:
    """A directory that takes its time to be read."""

    def __init__(self, look_s: float) -> None:
        self.look_s, self.looks = look_s, 0

    async def record_names(self, _kind: str) -> list[str]:
        self.looks += 1
        await trio.sleep(self.look_s)
        return []


@pytest.mark.parametrize("look_s", [0.01, 0.2])
async def test_what_is_never_whole_is_looked_for_in_a_share_of_the_time(
    look_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Each that was asked for had the directory read: one member kept a core of another busy."""
    store = Names(look_s)
    looks, began_s = ChunkLooks(cast(BlobStore, store)), trio.current_time()
    while trio.current_time() < began_s + MINUTE_S:
        for manifest in NEVER_WHOLE:
            assert await looks.mask(manifest, trio.current_time()) == 0
            await trio.sleep(0.01)
    least, most = MINUTE_S / (LOOK_HOLDS_S + look_s), MINUTE_S / (LOOK_SHARE * look_s)
    assert least - 1 <= store.looks <= most + 1
