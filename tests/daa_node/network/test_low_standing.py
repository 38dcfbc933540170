"""Whoever stands low with a node is asked and served after all others, though always served."""

from typing import cast

import pytest
import trio
import trio.testing

from daa_dag.chunking import cut, manifest_of
from daa_dag.ids import NodeId
from daa_node.network.blob_server import LAST_WAITS_S, BlobServer
from daa_node.network.waits import SAME_S, Waits
from daa_node.seams import IDLE_TIMEOUT_S, BlobStore, FrameStream
from daa_node.wire.blob_messages import FindRequest, encode_request
from tests.daa_node.agreement.memory_disk import Disk, MemoryStore

BLOB = bytes(1000)
MANIFEST = manifest_of(BLOB, cut([len(BLOB)]))
FIRST, LOW, OTHER_LOW = (NodeId(bytes([i]) * 32) for i in range(3))


class Session:
    """A member that asks so many times, and takes so long to read an answer."""

    def __init__(self, node_id: NodeId, asks: int, reads_s: float = 0.0) -> None:
        self.node_id = node_id
        self._left = asks
        self._reads_s = reads_s
        self.answered_s: list[float] = []

    async def receive_frame(self, within_s: float = IDLE_TIMEOUT_S) -> bytes | None:
        await trio.sleep(0.001 if self.node_id == LOW else 0)  # the others come before it
        self._left -= 1
        request = encode_request(FindRequest("updates", MANIFEST.root, True))
        return request if self._left >= 0 else None

    async def send_frame(self, payload: bytes) -> None:
        await trio.sleep(self._reads_s)
        self.answered_s.append(trio.current_time())


async def served(*sessions: Session) -> None:
    store = MemoryStore(Disk())
    writer = await store.begin_blob("updates", MANIFEST)
    await writer.write_chunk(0, BLOB)
    await writer.commit()
    server = BlobServer({"updates": cast(BlobStore, store)}, None, lambda _node: True)
    server.is_last = lambda node: node in (LOW, OTHER_LOW)
    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(server.serve, cast(FrameStream, session))


async def test_who_stands_low_is_served_when_the_others_have_their_answers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    low, first = Session(LOW, 1), Session(FIRST, 1, LAST_WAITS_S / 2)
    await served(first, low)
    assert low.answered_s == first.answered_s


async def test_it_waits_for_a_moment_and_no_longer_however_much_others_ask(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began_s = trio.current_time()
    low, first = Session(LOW, 3), Session(FIRST, 10, reads_s=10)
    await served(first, low)
    assert low.answered_s[-1] - began_s == pytest.approx(3 * (LAST_WAITS_S + 0.001))


async def test_who_stands_low_does_not_wait_for_others_that_do(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began_s = trio.current_time()
    low, other = Session(LOW, 3), Session(OTHER_LOW, 10, reads_s=0.3)
    await served(other, low)
    assert low.answered_s[-1] - began_s == pytest.approx(3 * 0.001)


async def test_who_stands_low_is_asked_last_however_quick_and_who_stands_high_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    slow, quick, high, low = (NodeId(bytes([i]) * 32) for i in range(4))
    waits, places = Waits(), {low: (True, 2), quick: (False, 1), slow: (False, 1), high: (False, 0)}
    waits.place_of = places.__getitem__
    assert sorted([low, quick, high], key=waits.rank) == [high, quick, low]
    with waits.waiting(slow):
        await trio.sleep(2 * SAME_S)
    assert sorted([low, slow, quick], key=waits.rank) == [quick, slow, low]
