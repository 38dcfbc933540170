"""Who gives most is killed among a state's chunks: the rest comes from others."""

import shutil
from pathlib import Path

import pytest
import trio

from daa_dag.ids import NodeId
from daa_dag.retention import Retention
from daa_node.checkpoints.publish import state_of
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import Unavailable
from daa_node.seams import IDLE_TIMEOUT_S, FrameStream
from daa_node.wire.blob_messages import ChunksRequest, decode_request
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker, make_chain
from tests.daa_node.network.bulk_stage import source
from tests.daa_node.rounds.test_state_sync import MEMBER, sync_state

AWAY_SINCE, ROUNDS = 3, 9
OTHER = source("other")


class Giving:
    """A member's sessions: chunks that were asked for, until it has answered so many times."""

    def __init__(self, answers_max: int | None = None) -> None:
        self.answers_max = answers_max
        self.given: list[int] = []  # chunks of each answer

    def __call__(self, stream: FrameStream) -> FrameStream:
        return _Session(stream, self)

    @property
    def is_dead(self) -> bool:
        return len(self.given) == self.answers_max


class _Session:
    def __init__(self, inner: FrameStream, giving: Giving) -> None:
        self._inner, self._giving = inner, giving
        self._due = 0

    @property
    def node_id(self) -> NodeId:
        return self._inner.node_id

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        self._check()
        if self._due:
            self._giving.given.append(self._due)
            self._due = 0
        await self._inner.send_frame(payload)

    async def receive_frame(self, within_s: float = IDLE_TIMEOUT_S) -> bytes | None:
        frame = await self._inner.receive_frame(within_s)
        self._check()
        if frame is not None and isinstance(asked := decode_request(frame), ChunksRequest):
            self._due = len(asked.indices)
        return frame

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _check(self) -> None:
        if self._giving.is_dead:
            raise Unavailable("killed")


@pytest.mark.parametrize("answers", [0, 1])
def test_a_donor_that_is_killed_among_chunks_costs_what_it_had_yet_to_give(
    tmp_path: Path, answers: int
) -> None:
    others = make_chain(tmp_path / "others", AWAY_SINCE)
    shutil.copytree(others.directory, tmp_path / "laggard")
    laggard = ChainMaker(tmp_path / "laggard")
    donor, other = Giving(answers), Giving()

    async def run() -> None:
        for _ in range(ROUNDS - AWAY_SINCE):
            await others.publish(await others.make_round())
        assert await prune(others.chain, Retention(vertices_restorable=1)) > 0
        await laggard.open()
        helpers = {MEMBER: donor, OTHER: other}
        landed = await sync_state(others, laggard, laggard.chain, others=helpers)
        assert landed.newest == others.newest
        assert landed.state == state_of(others.newest)

    trio.run(run)
    assert len(donor.given) == answers
    chunks = sum(len(manifest.sizes) for manifest in others.state.manifests())
    assert sum(other.given) >= chunks - sum(donor.given) > 0
    report = verify_chain(laggard.chain_directory, FACTS)
    assert report.ok, report.problems
    assert report.heights == others.newest.height
