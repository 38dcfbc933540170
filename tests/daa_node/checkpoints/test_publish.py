"""Publishing survives a failure at any write: what is left verifies, the next start mends it."""

import shutil
from pathlib import Path

import pytest
import trio

from daa_dag.ids import VertexId, digest_of
from daa_dag.retention import Retention
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import StorageFailed
from tests.daa_node.checkpoints.filling_disk import FillingDisk, filling
from tests.daa_node.checkpoints.little_chain import (
    EPOCH_ROUNDS,
    FACTS,
    ChainMaker,
    delta_of,
    files_under,
    make_chain,
    publish,
)


def test_a_crash_at_any_write_leaves_a_chain_that_verifies_and_is_mended(tmp_path: Path) -> None:
    async def run() -> int:
        maker = ChainMaker(tmp_path / "whole")
        await maker.open()
        await maker.publish(await maker.make_round())
        second = await maker.make_round()  # with a snapshot
        assert second.certified is not None
        crashes = 0
        while True:
            crashed = ChainMaker(tmp_path / f"crashed {crashes}")
            shutil.copytree(maker.directory, crashed.directory)
            chain = filling(crashed, crashes)
            try:
                await chain.open(maker.first, maker.genesis)
                await publish(chain, second.headers, second.certified)
                return crashes
            except StorageFailed:
                crashes += 1
            report = verify_chain(crashed.chain_directory, FACTS)
            assert report.ok, f"after {crashes - 1} writes: {report.problems}"
            await crashed.open()
            report = verify_chain(crashed.chain_directory, FACTS)
            assert report.ok, f"mended after {crashes - 1} writes: {report.problems}"
            assert report.unfinished == 0
            await publish(crashed.chain, second.headers, second.certified)
            assert verify_chain(crashed.chain_directory, FACTS).heights == 2
            assert contents(crashed.chain_directory) == published
            shutil.rmtree(crashed.directory)

    async def play_whole() -> None:
        maker = ChainMaker(tmp_path / "reference")
        await maker.open()
        await maker.publish(await maker.make_round())
        await maker.publish(await maker.make_round())
        published.update(contents(maker.chain_directory))

    published: set[str] = set()
    trio.run(play_whole)
    assert trio.run(run) > 12  # note, blocks, certificates, delta, vertex, chunks, manifests


def test_a_crash_at_any_write_of_the_first_start_leaves_what_verifies(tmp_path: Path) -> None:
    async def run() -> int:
        writes = 3  # of the note, and of the genesis block
        while True:
            maker = ChainMaker(tmp_path / f"crashed {writes}")
            chain = filling(maker, writes)
            try:
                await chain.open(maker.first, maker.genesis)
                return writes
            except StorageFailed:
                report = verify_chain(maker.chain_directory, FACTS)
                assert report.ok, report.problems
                writes += 1

    assert trio.run(run) == 5  # the genesis vertex comes fourth


def contents(chain: Path) -> set[str]:
    """Names, of which all but the certificates' follow from their bytes."""
    return {str(path.relative_to(chain)) for path in files_under(chain)}


def test_a_failed_write_is_mended_by_the_next_one_of_the_same_process(tmp_path: Path) -> None:
    async def run() -> None:
        maker = ChainMaker(tmp_path)
        await maker.open()
        first = await maker.make_round()
        left = [6]
        chain = ChainStore(
            FillingDisk(maker.store, left), FillingDisk(maker.work, left), FACTS.limits
        )
        left[0] = 100
        await chain.open(maker.first, maker.genesis)
        left[0] = 6
        with pytest.raises(StorageFailed):
            await publish(chain, first.headers, first.certified)
        left[0] = 100
        await publish(chain, first.headers, first.certified)
        report = verify_chain(maker.chain_directory, FACTS)
        assert report.ok, report.problems
        assert report.unfinished == 0

    trio.run(run)


def test_a_crash_while_pruning_is_finished_by_the_next_start(tmp_path: Path) -> None:
    make_chain(tmp_path / "whole", 5)

    async def run() -> int:
        crashes = 0
        while True:
            pruned = ChainMaker(tmp_path / f"pruned {crashes}")
            shutil.copytree(tmp_path / "whole", pruned.directory)
            chain = filling(pruned, crashes)
            try:
                await chain.open(pruned.first, pruned.genesis)
                await prune(chain, Retention(vertices_restorable=1))
                return crashes
            except StorageFailed:
                crashes += 1
            report = verify_chain(pruned.chain_directory, FACTS)
            assert report.ok, f"after {crashes - 1} deletions: {report.problems}"
            await pruned.open()
            report = verify_chain(pruned.chain_directory, FACTS)
            assert report.ok, f"mended after {crashes - 1} deletions: {report.problems}"

    assert trio.run(run) > 10  # the note, two deltas with manifests, a snapshot


@pytest.mark.parametrize(
    ("still_rounds", "files_deleted"),
    [
        # Every delta and every snapshot is the same file as one that stays.
        ({1, 2, 3, 4, 5}, 0),
        # The delta of round 1 is that of round 5 too; three others with manifests, and of the
        # snapshot two manifests and six chunks, go.
        ({1, 5}, 3 * 2 + 2 + 6),
        # Snapshots of heights 2 and 4 share their weights and momentum.
        ({1, 2, 3, 4}, 2),
    ],
)
def test_pruning_keeps_what_is_shared_with_what_stays(
    tmp_path: Path, still_rounds: set[int], files_deleted: int
) -> None:
    async def run() -> None:
        maker = ChainMaker(tmp_path)
        still = bytes(len(delta_of(1)))  # moves nothing, while there is no momentum
        maker.delta_of = lambda round_number: (
            still if round_number in still_rounds else delta_of(round_number)
        )
        await maker.open()
        for _ in range(5):
            await maker.publish(await maker.make_round())
        assert await prune(maker.chain, Retention(vertices_restorable=2)) == files_deleted
        report = verify_chain(maker.chain_directory, FACTS)
        assert report.ok, report.problems

    trio.run(run)


def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        maker = ChainMaker(tmp_path)
        await maker.open()
        made = await maker.make_round()
        await maker.publish(made)
        before = {path: path.read_bytes() for path in files_under(maker.chain_directory)}
        await maker.publish(made)
        assert {p: p.read_bytes() for p in files_under(maker.chain_directory)} == before

    trio.run(run)


def test_a_restarted_store_knows_its_tips(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 4, aborted=[4])

    async def run() -> None:
        again = ChainStore(maker.store, maker.work, FACTS.limits)
        await again.open(maker.first, maker.genesis)
        assert (await again.newest()).height == 3
        assert again.final_tip == maker.chain.final_tip
        block, certificate = again.final_tip
        assert certificate is not None
        assert certificate == await again.final_certificate(block.id)
        path = [step async for step in again.path_down(block.id)]
        assert path[-1] == maker.genesis
        assert [b.view for b in path] == sorted((b.view for b in path), reverse=True)

    trio.run(run)


def test_a_node_follows_from_where_no_vertex_is_missing(tmp_path: Path) -> None:
    async def run() -> None:
        maker = ChainMaker(tmp_path)
        chain = maker.chain
        await maker.open()
        assert await chain.resume_point() == maker.genesis
        aborted = await maker.make_round(abort=True)
        await maker.publish(aborted)
        assert await chain.resume_point() == aborted.headers.blocks[-1]
        first = await maker.make_round()
        await maker.publish(first)
        assert await chain.resume_point() == first.headers.blocks[-1]
        second, third = await maker.make_round(), await maker.make_round()  # 3 ends an epoch
        again_aborted = await maker.make_round(abort=True)
        for behind in (second, third, again_aborted):
            await publish(chain, behind.headers)
            assert chain.final_tip[0] == behind.headers.blocks[-1] or behind.headers.trailing
            assert await chain.resume_point() == first.headers.blocks[-1]
        assert second.certified is not None
        assert third.certified is not None
        both = [second.certified, third.certified]
        await publish(chain, again_aborted.headers, *both)
        assert await chain.resume_point() == again_aborted.headers.blocks[-1]
        assert verify_chain(maker.chain_directory, FACTS).heights == 3

    trio.run(run)


def test_trailing_blocks_are_no_place_to_follow_from(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, EPOCH_ROUNDS)

    async def run() -> None:
        tip, _ = maker.chain.final_tip
        assert (tip.epoch, tip.id != maker.tip.id) == (0, True)
        assert await maker.chain.resume_point() == maker.tip

    trio.run(run)


def test_damage_that_the_daemon_reads_is_a_storage_failure(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 2)
    vertex = maker.newest
    for name in (
        f"vertices/{vertex.vertex_id.hex()}",
        f"certificates/{vertex.vertex_id.hex()}.exec",
        f"blocks/{vertex.decided_block.hex()}",
        f"manifests/{vertex.model_root.hex()}",
    ):
        path = maker.chain_directory / name
        payload = bytearray(path.read_bytes())
        payload[payload.find(b"\xc4\x20") + 5] ^= 0xFF  # inside the first digest
        path.write_bytes(payload[:-1] if name.startswith("certificates/") else payload)

    async def run() -> None:
        with pytest.raises(StorageFailed, match="vertices/"):
            await maker.chain.vertex(vertex.vertex_id)
        with pytest.raises(StorageFailed, match="certificates/"):
            await maker.chain.exec_certificate(vertex.vertex_id)
        with pytest.raises(StorageFailed, match="blocks/"):
            await maker.chain.block(vertex.decided_block)
        with pytest.raises(StorageFailed, match="manifests/"):
            await maker.chain.snapshot(vertex)
        certificates = maker.chain_directory / "certificates"
        stranger = certificates / ("ab" * 32 + ".exec")
        stranger.write_bytes(next(certificates.glob("*.final")).read_bytes())
        with pytest.raises(StorageFailed, match="something else"):
            await maker.chain.exec_certificate(VertexId(b"\xab" * 32))
        with pytest.raises(StorageFailed, match="is missing"):
            await maker.chain.chunk(digest_of(b"nothing"))

    trio.run(run)


def test_a_stranger_among_the_vertices_stops_the_start_with_its_name(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 1)
    (maker.chain_directory / "vertices" / "readme").write_bytes(b"hello")
    with pytest.raises(StorageFailed, match="vertices/readme does not belong"):
        trio.run(ChainMaker(tmp_path).open)


def test_a_vertex_without_its_delta_is_not_published(tmp_path: Path) -> None:
    async def run() -> None:
        maker = ChainMaker(tmp_path)
        await maker.open()
        made = await maker.make_round()
        assert made.certified is not None
        await maker.work.delete_blob("updates", made.certified[0].delta_root)
        with pytest.raises(StorageFailed, match="the delta"):
            await maker.publish(made)
        assert verify_chain(maker.chain_directory, FACTS).heights == 0

    trio.run(run)
