"""What a node believes of its own link does not hang on the one peer that takes longest."""

import pytest
import trio

from daa_dag.ids import NodeId
from daa_node.network.upload_meter import UploadMeter

PEERS = [NodeId(bytes([n]) * 32) for n in range(3)]
STALLER = NodeId(b"s" * 32)
FRAME_BYTES, FRAME_S, ROUND_S = 1_000, 0.1, 10.0


async def measured(stalls: bool) -> float:
    """A frame to each peer in every round; the staller's is on its way throughout."""
    meter = UploadMeter()

    async def stall() -> None:
        while True:
            with meter.sends(STALLER, FRAME_BYTES):
                await trio.sleep(5 * ROUND_S)

    async with trio.open_nursery() as nursery:
        if stalls:
            nursery.start_soon(stall)
        for _ in range(20):
            for peer in PEERS:
                with meter.sends(peer, FRAME_BYTES):
                    await trio.sleep(FRAME_S)
            await trio.sleep(ROUND_S)
        nursery.cancel_scope.cancel()
    assert meter.bytes_per_s is not None
    return meter.bytes_per_s


async def test_a_peer_that_never_reads_makes_nobody_believe_in_a_thin_link(
    autojump_clock: object,
) -> None:
    honest = FRAME_BYTES / FRAME_S
    assert await measured(stalls=False) == pytest.approx(honest)
    assert await measured(stalls=True) == pytest.approx(honest)


async def test_a_link_with_one_peer_is_measured_by_that_one(autojump_clock: object) -> None:
    meter = UploadMeter()
    assert meter.bytes_per_s is None
    with meter.sends(STALLER, FRAME_BYTES):
        await trio.sleep(2.0)
    assert meter.bytes_per_s == FRAME_BYTES / 2.0
