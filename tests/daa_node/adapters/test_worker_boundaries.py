"""Boundaries through a real worker: made while it trains, kept after the Offer, checked again."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import trio

from daa_dag.chunking import manifest_of
from daa_dag.ids import BlobRoot, Digest
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.checkpoints.publish import copy_blob
from daa_node.errors import TrainerFailed
from daa_node.seams import SealedClaim, SealedUpdate, SegmentOrder, TrainOrder
from daa_node.training.boundaries import BOUNDARIES, CLAIMED, boundary_chunks, open_boundary
from daa_node.training.boundary_files import file_of
from daa_node.training.core import open_core
from daa_node.training.genesis_state import genesis_weights
from tests.daa_node.adapters.test_trainer_process import (
    ALICE,
    BOB,
    JOB,
    PARAMETERS,
    eventually,
    order,
    running,
)

pytestmark = pytest.mark.usefixtures("warm")


async def test_boundaries_are_kept_when_the_offer_is_out(tmp_path: Path) -> None:
    async with running(tmp_path) as (trainer, store, events):
        base = await trainer.initial_state()
        sealed = await trainer.train_and_seal(order(base, steps_max=8, segment_steps=3))
        assert not store.directory.blob_roots(BOUNDARIES)
        await trainer.keep_boundaries(sealed.snapshot_roots)
        kept = [
            bytes(store.directory.view_blob(BOUNDARIES, BlobRoot(root)))
            for root in sealed.snapshot_roots
        ]
        assert len(store.directory.blob_roots(BOUNDARIES)) == len(kept) == 4
        seen = [open_boundary(np.frombuffer(b, np.uint8), PARAMETERS, True) for b in kept]
        assert [one.adam_steps for one in seen] == [0, 3, 6, 8]
        for one, root in zip(seen, sealed.snapshot_roots, strict=True):
            assert Digest(one.manifest().root) == root
        alone = open_core(JOB, torch.device("cpu"), tmp_path, time.perf_counter)
        end = alone.train_and_seal(order(base, steps_max=8), genesis_weights(JOB.model, JOB.seed))
        assert b"".join(end.end.parts()) == kept[-1]
        await trainer.keep_boundaries(sealed.snapshot_roots)  # once is enough
        assert not left_over(tmp_path)

        ends = {1: kept[-1]}
        for number, merged in ((2, 1), (3, 1), (4, 3)):
            following = order(base, round=number, merged_round=merged, segment_steps=3, steps_max=4)
            again = await trainer.train_and_seal(following)
            await trainer.keep_boundaries(again.snapshot_roots)
            blobs = [
                bytes(store.directory.view_blob(BOUNDARIES, BlobRoot(root)))
                for root in again.snapshot_roots
            ]
            ends[number] = blobs[-1]
            assert blobs[0][4 * PARAMETERS :] == ends[merged][4 * PARAMETERS :]
            assert blobs[0][: 4 * PARAMETERS] == kept[0][: 4 * PARAMETERS]
            for blob, root in zip(blobs, again.snapshot_roots, strict=True):
                made = manifest_of(blob, boundary_chunks(PARAMETERS, True))
                assert Digest(made.root) == root


async def test_boundaries_of_another_update_are_not_kept(tmp_path: Path) -> None:
    async with running(tmp_path) as (trainer, store, _events):
        base = await trainer.initial_state()
        first = await trainer.train_and_seal(order(base, segment_steps=2))
        second = await trainer.train_and_seal(order(base, round=2, segment_steps=2))
        with pytest.raises(TrainerFailed, match="of an update's 3 boundaries are lost"):
            await trainer.keep_boundaries(first.snapshot_roots)
        await trainer.keep_boundaries(second.snapshot_roots)
        assert not left_over(tmp_path)
        assert {Digest(root) for root in store.directory.blob_roots(BOUNDARIES)} == {
            *second.snapshot_roots,
            first.snapshot_roots[0],  # both began with nothing
        }


async def test_boundaries_outlive_the_worker_and_the_daemon_that_made_them(tmp_path: Path) -> None:
    async with running(tmp_path) as (trainer, store, _events):
        base = await trainer.initial_state()
        first = await trainer.train_and_seal(order(base, segment_steps=2))
        await trainer.evaluate(base)  # so that the last one is written, too
        pid = trainer.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: trainer.pid not in (None, pid))
        await trainer.keep_boundaries(first.snapshot_roots)
        assert all_kept(store, first)
        second = await trainer.train_and_seal(order(base, round=2, segment_steps=2))
        assert not all_kept(store, second)
        await trainer.evaluate(base)
    async with running(tmp_path) as (trainer, store, _events):
        await trainer.keep_boundaries(second.snapshot_roots)
        assert all_kept(store, second)
        third = await trainer.train_and_seal(order(base, round=3, segment_steps=2))
        await trainer.evaluate(base)
    (damaged,) = left_over(tmp_path)
    file_of(damaged, 1).write_bytes(b"too short")
    file_of(damaged, 2).unlink()
    async with running(tmp_path) as (trainer, store, _events):
        with pytest.raises(TrainerFailed, match="2 of an update's 3 boundaries"):
            await trainer.keep_boundaries(third.snapshot_roots)
        await trainer.train_and_seal(order(base, round=4))
        assert not left_over(tmp_path)


def left_over(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "trainer" / "unkept").iterdir())


def all_kept(store: DiskBlobStore, sealed: SealedUpdate) -> bool:
    kept = [
        store.directory.blob_manifest(BOUNDARIES, BlobRoot(root)) for root in sealed.snapshot_roots
    ]
    return None not in kept


def segment(made: TrainOrder, sealed: SealedUpdate, step: int, steps: int) -> SegmentOrder:
    """Of boundaries that lie two steps apart."""
    start, end = (BlobRoot(sealed.snapshot_roots[-(-at // 2)]) for at in (step, step + steps))
    last = BlobRoot(sealed.snapshot_roots[-1])
    claim = SealedClaim(made.base, last, sealed.blob_root, made.codec)
    return SegmentOrder(
        *(made.seed, made.round, made.author, made.first_step, step, steps, start, end, claim)
    )


async def claim_all(store: DiskBlobStore) -> None:
    """As if they had been fetched from somebody."""
    for root in store.directory.blob_roots(BOUNDARIES):
        manifest = store.directory.blob_manifest(BOUNDARIES, root)
        assert manifest is not None
        await copy_blob(store, BOUNDARIES, store, CLAIMED, manifest)


async def test_the_worker_checks_segments_and_its_own_training_goes_on_untouched(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (trainer, store, _events):
        base = await trainer.initial_state()
        made = order(base, author=BOB, segment_steps=2, steps_max=5)
        sealed = await trainer.train_and_seal(made)
        await trainer.keep_boundaries(sealed.snapshot_roots)
        await claim_all(store)
        whole = [segment(made, sealed, *place) for place in ((0, 2), (2, 2), (4, 1))]
        for each in whole:
            found = await trainer.check_segment(each)
            assert max(found.weights, found.first, found.second, found.residual) < 1e-4
            assert found.sealed is not None
            assert found.sealed < 1e-4
            assert found.steps_agree
        assert (await trainer.check_segment(replace(whole[1], author=ALICE))).weights > 1e-2
        canary = await trainer.canary(1)
        assert canary.repeats
        assert 0 < canary.distance < 1e-4
        again = await trainer.train_and_seal(order(base, round=2, merged_round=1))
        alone = open_core(JOB, torch.device("cpu"), tmp_path, time.perf_counter)
        base_D = genesis_weights(JOB.model, JOB.seed)
        alone.train_and_seal(order(base, author=BOB, steps_max=5), base_D)
        expected = alone.train_and_seal(order(base, round=2, merged_round=1), base_D)
        blob = store.directory.path_of("updates", again.blob_root).read_bytes()
        assert blob == expected.blob.tobytes()


async def test_a_check_makes_room_at_once_and_a_boundary_of_another_size_fails_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (trainer, store, _events):
        base = await trainer.initial_state()
        made = order(base, segment_steps=2)
        sealed = await trainer.train_and_seal(made)
        await trainer.keep_boundaries(sealed.snapshot_roots)
        await claim_all(store)
        each = segment(made, sealed, 0, 2)
        with trio.move_on_after(0.3) as scope:
            await trainer.check_segment(replace(each, steps=10**9))
        assert scope.cancelled_caught
        with trio.move_on_after(0.3) as scope:
            await trainer.canary(10**9)
        assert scope.cancelled_caught
        with trio.fail_after(180):
            assert await trainer.evaluate(base) > 0
        await put_small(store)
        with pytest.raises(TrainerFailed, match="a boundary of 3 bytes"):
            await trainer.check_segment(replace(each, end_root=SMALL.root))
        with pytest.raises(TrainerFailed, match="claimed/.* is not in the store"):
            await trainer.check_segment(replace(each, end_root=BlobRoot(bytes(32))))
        assert trainer.restarts == 0


SMALL = manifest_of(b"abc", [3])


async def put_small(store: DiskBlobStore) -> None:
    writer = await store.begin_blob(CLAIMED, SMALL)
    await writer.write_chunk(0, b"abc")
    await writer.commit()
