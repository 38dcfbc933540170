"""First weights that came from a file: from the operator's, else from whichever member has them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest
import trio

from daa_dag.ids import BlobRoot, NodeId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.replay import ReplayedState
from daa_node.errors import NotHeld, PeerFault, UserError
from daa_node.observability.events import FIRST_WEIGHTS_AWAITED, EventLog
from daa_node.rounds.first_weights import TOLD_EACH_S, FirstWeights
from daa_node.rounds.peers import Peers
from daa_node.tensors import GRID_ITEM_BYTES, Int32Array
from tests.daa_node.checkpoints.little_chain import RULES, ChainMaker, first_weights, put_blob
from tests.daa_node.inline import Inline

STATES = replace(RULES, first_root=RULES.first_state.model_root)
MEMBERS = [NodeId(b"1" * 32), NodeId(b"2" * 32)]


@dataclass
class Members:
    """Who is connected, and from when on they have the weights."""

    maker: ChainMaker
    connected_s: float = 0.0
    hold_s: float = 0.0
    asked: list[BlobRoot] = field(default_factory=list)

    def reachable(self) -> set[NodeId]:
        return {*MEMBERS} if trio.current_time() >= self.connected_s else set()

    async def fetch_state(
        self, root: BlobRoot, size_bytes: int, _node: NodeId, _: object = None
    ) -> None:
        await trio.lowlevel.checkpoint()
        assert size_bytes == RULES.parameter_count * GRID_ITEM_BYTES
        self.asked.append(root)
        if trio.current_time() < self.hold_s:
            raise NotHeld("nobody has it") if len(self.asked) % 2 else PeerFault("bad_chunk")
        state = ReplayedState(RULES)
        state.start()
        vectors = (state.weights_D, state.momentum_D)
        for manifest, vector_D in zip(state.manifests(), vectors, strict=True):
            if manifest.root == root:
                await put_blob(self.maker.work, "states", manifest, vector_D.tobytes())


async def first(
    directory: Path, members: Members, read_file: Callable[[], Int32Array | None]
) -> tuple[FirstWeights, EventLog, ChainStore]:
    maker, log = members.maker, EventLog(lambda: 0)
    await maker.open()
    weights = FirstWeights(
        *(maker.first, STATES, maker.chain, cast(Peers, members), Inline(), log, read_file)
    )
    return weights, log, maker.chain


def no_file() -> Int32Array | None:
    return None


async def test_the_operators_file_is_stored_and_nobody_is_asked(tmp_path: Path) -> None:
    members = Members(ChainMaker(tmp_path))
    weights, _, chain = await first(tmp_path, members, first_weights)
    await weights.bring()
    assert await chain.first_snapshot() is not None
    assert members.asked == []
    again = replace(weights, read_file=lambda: pytest.fail("it is here"))
    await again.bring()


async def test_a_file_of_other_weights_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    members = Members(ChainMaker(tmp_path))
    weights, _, chain = await first(tmp_path, members, lambda: first_weights() + 1)
    with pytest.raises(UserError, match="not that of this network: its weights have the root"):
        await weights.bring()
    assert await chain.first_snapshot() is None


async def test_without_a_file_members_are_asked_until_one_has_them(
    tmp_path: Path, autojump_clock: object
) -> None:
    started_s = trio.current_time()
    members = Members(ChainMaker(tmp_path), started_s + 100, started_s + 200)
    weights, log, chain = await first(tmp_path, members, no_file)
    await weights.bring()
    manifests = await chain.first_snapshot()
    assert manifests is not None
    assert manifests[0].root == STATES.first_root
    told = [each for each in log.tail() if each["name"] == FIRST_WEIGHTS_AWAITED]
    assert len(told) == 1 + 200 // TOLD_EACH_S
    assert told[0]["why"] == "no member is connected"
    assert 200 <= trio.current_time() - started_s < 205


async def test_weights_that_follow_from_the_seed_need_nothing(tmp_path: Path) -> None:
    members = Members(ChainMaker(tmp_path))
    weights, _, chain = await first(tmp_path, members, no_file)
    await replace(weights, rules=RULES).bring()
    assert await chain.first_snapshot() is None
