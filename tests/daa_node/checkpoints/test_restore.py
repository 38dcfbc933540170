"""A restore reaches the exact roots from whatever lies nearest, or says what is missing."""

import shutil
from pathlib import Path

import pytest
import trio

from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, digest_of
from daa_dag.retention import Retention
from daa_node.checkpoints.publish import state_of
from daa_node.checkpoints.restore import restore
from daa_node.checkpoints.snapshots import prune
from daa_node.errors import StorageFailed
from daa_node.seams import StateRef
from tests.daa_node.checkpoints.little_chain import (
    ChainMaker,
    Replays,
    make_chain,
)

ROUNDS = 5  # snapshots of heights 2 and 4


async def forget_work(maker: ChainMaker) -> None:
    for kind in ("states", "updates"):
        for root in await maker.work.blob_roots(kind):
            await maker.work.delete_blob(kind, root)


async def at_height(maker: ChainMaker, height: int) -> Vertex:
    vertex_id = await maker.chain.heights.at(height)
    assert vertex_id is not None
    vertex = await maker.chain.vertex(vertex_id)
    assert vertex is not None
    return vertex


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ChainMaker:
    return make_chain(tmp_path_factory.mktemp("whole"), ROUNDS)


@pytest.fixture
def maker(whole: ChainMaker, tmp_path: Path) -> ChainMaker:
    """A chain on disk and an empty work store, as after a move to a new disk."""
    shutil.copytree(whole.chain_directory, tmp_path / "node" / "chain")
    moved = ChainMaker(tmp_path / "node")
    trio.run(moved.open)
    return moved


@pytest.mark.parametrize(
    ("height", "asked"),
    [
        (0, ["initial"]),
        (1, ["initial", "delta"]),
        (2, []),
        (3, ["delta"]),
        (4, []),
        (5, ["delta"]),
    ],
)
def test_every_height_is_reached_from_the_nearest_start(
    maker: ChainMaker, height: int, asked: list[str]
) -> None:
    async def run() -> None:
        vertex, replays = await at_height(maker, height), Replays(maker)
        assert await restore(maker.chain, vertex, replays) == state_of(vertex)
        assert replays.asked == asked
        for root in (vertex.model_root, vertex.outer_state_root):
            manifest = await maker.work.blob_manifest("states", root)
            assert manifest is not None
            payload = bytes(await maker.work.view_blob("states", root))
            assert digest_of(payload[: manifest.sizes[0]]) == manifest.digests[0]
        assert await restore(maker.chain, vertex, replays) == state_of(vertex)
        assert replays.asked == asked, "a state that is held is not made again"

    trio.run(run)


def test_states_in_between_are_deleted_again(maker: ChainMaker) -> None:
    async def run() -> None:
        for height in (2, 4):
            vertex = await at_height(maker, height)
            await maker.chain.groups.drop([f"manifests/{vertex.model_root.hex()}"])
        newest, replays = await at_height(maker, ROUNDS), Replays(maker)
        await restore(maker.chain, newest, replays)
        assert replays.asked == ["initial"] + ["delta"] * ROUNDS
        first, last = state_of(maker.first), state_of(newest)
        kept = {first.model_root, first.outer_root, last.model_root, last.outer_root}
        assert set(await maker.work.blob_roots("states")) == kept

    trio.run(run)


def test_a_cached_state_that_a_power_cut_damaged_is_made_again(maker: ChainMaker) -> None:
    async def run() -> None:
        vertex = await at_height(maker, 3)
        await restore(maker.chain, vertex, Replays(maker))
        path = maker.work.directory.path_of("states", vertex.model_root)
        right = path.read_bytes()
        wrong_bit = right[:-1] + bytes([right[-1] ^ 1])  # as long as it was
        for damage in (b"\0" * 100, b"", b"\0" * len(right), wrong_bit):
            path.write_bytes(damage)
            replays = Replays(maker)
            assert await restore(maker.chain, vertex, replays) == state_of(vertex)
            assert replays.asked == ["delta"]

    trio.run(run)


@pytest.mark.parametrize("kind", ["updates", "manifests"])
@pytest.mark.parametrize("damage", [b"\0" * 100, b""])
def test_a_cached_delta_that_a_power_cut_damaged_is_copied_again(
    maker: ChainMaker, kind: str, damage: bytes
) -> None:
    """It was written without a sync: replayed as it is, it would keep the node from starting."""

    async def run() -> None:
        vertex = await at_height(maker, 3)
        await restore(maker.chain, vertex, Replays(maker))
        for root in await maker.work.blob_roots("states"):
            await maker.work.delete_blob("states", root)
        maker.work.directory.path_of(kind, vertex.delta_root).write_bytes(damage)
        maker.work.directory.__init__(maker.work.directory.records.root)  # type: ignore[misc]
        assert await restore(maker.chain, vertex, Replays(maker)) == state_of(vertex)

    trio.run(run)


def test_a_pruned_chain_restores_what_it_promises_and_names_what_is_gone(
    maker: ChainMaker,
) -> None:
    async def run() -> None:
        await prune(maker.chain, Retention(vertices_restorable=2))
        for height in (4, 5):
            vertex = await at_height(maker, height)
            assert await restore(maker.chain, vertex, Replays(maker)) == state_of(vertex)
        await forget_work(maker)
        with pytest.raises(StorageFailed, match="the step to height 1, is missing"):
            await restore(maker.chain, await at_height(maker, 1), Replays(maker))

    trio.run(run)


def test_a_damaged_snapshot_chunk_is_refused_before_it_is_used(maker: ChainMaker) -> None:
    async def run() -> None:
        vertex = await at_height(maker, 4)
        snapshot = await maker.chain.snapshot(vertex)
        assert snapshot is not None
        name = snapshot[0].digests[0].hex()
        await maker.store.put_record("chunks", name, b"x" * snapshot[0].sizes[0])
        with pytest.raises(StorageFailed, match=f"chunks/{name} is damaged"):
            await restore(maker.chain, vertex, Replays(maker))

    trio.run(run)


def test_a_replay_that_ends_elsewhere_is_refused(maker: ChainMaker) -> None:
    class Careless(Replays):
        async def apply_delta(self, base: StateRef, delta_root: BlobRoot) -> StateRef:
            return base

    async def run() -> None:
        with pytest.raises(StorageFailed, match="the replay to height 3 reached"):
            await restore(maker.chain, await at_height(maker, 3), Careless(maker))

    trio.run(run)
