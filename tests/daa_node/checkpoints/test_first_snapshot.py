"""A chain whose first weights came from a file begins with their snapshot, and keeps it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trio

from daa_dag.retention import Retention
from daa_node.checkpoints.certified import certified_chain
from daa_node.checkpoints.export import replayed_state
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.layout import CHUNKS, MANIFESTS
from daa_node.checkpoints.publish import state_of
from daa_node.checkpoints.replay import ReplayedState
from daa_node.checkpoints.restore import restore
from daa_node.checkpoints.snapshot_files import snapshot_writes
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import UserError
from daa_node.tensors import Int32Array
from daa_node.updates.compression.codec import codec_named, encode
from tests.daa_node.checkpoints.little_chain import (
    FACTS,
    RULES,
    ChainMaker,
    Replays,
    delta_of,
    first_weights,
    put_blob,
)

ROUNDS = 4


def unknown() -> Iterator[Int32Array]:
    raise AssertionError("nobody can compute weights that came from a file")


FROM_FILE = replace(
    FACTS, states=replace(RULES, first_weights=unknown, first_root=RULES.first_state.model_root)
)


def late_change(round_number: int) -> bytes:
    """The snapshot of height 2 has the chunks of the first one, that of height 4 has not."""
    if round_number > 2:
        return delta_of(round_number)
    return encode(codec_named("int8"), np.zeros(RULES.parameter_count, np.float32)).tobytes()


def make(directory: Path, with_first: bool = True, shares: bool = False) -> ChainMaker:
    maker = ChainMaker(directory)
    if shares:
        maker.delta_of = late_change

    async def run() -> None:
        await maker.open()
        state = ReplayedState(RULES)
        state.start()
        for manifest, vector_D in zip(
            state.manifests(), (state.weights_D, state.momentum_D), strict=True
        ):
            await put_blob(maker.work, "states", manifest, vector_D.tobytes())
        if with_first:
            await maker.chain.groups.add([await snapshot_writes(maker.chain, maker.first)])
        for _ in range(ROUNDS):
            await maker.publish(await maker.make_round())

    trio.run(run)
    return maker


def test_the_genesis_vertex_is_named_without_the_weights() -> None:
    state = ReplayedState(RULES)
    state.start()
    assert FROM_FILE.states.first_state == RULES.first_state == state.ref()


def test_it_verifies_and_every_height_can_be_had(tmp_path: Path) -> None:
    maker = make(tmp_path)
    report = verify_chain(maker.chain_directory, FROM_FILE)
    assert (report.problems, report.replayed_from, report.heights) == ([], 0, ROUNDS)
    certified = certified_chain(ChainFiles(maker.chain_directory), FROM_FILE)
    for vertex in certified.chain:
        state = replayed_state(certified, vertex, FROM_FILE.states)
        assert state.ref() == state_of(vertex)
    first = replayed_state(certified, certified.chain[0], FROM_FILE.states)
    assert np.array_equal(first.weights_D, first_weights())


def test_a_restart_takes_them_from_the_chain(tmp_path: Path) -> None:
    maker, replays = make(tmp_path), list[Replays]()

    async def run() -> None:
        replays.append(Replays(maker))
        for root in (maker.first.model_root, maker.first.outer_state_root):
            await maker.work.delete_blob("states", root)
        await restore(maker.chain, maker.first, replays[0])

    trio.run(run)
    assert replays[0].asked == []


def test_without_them_the_problem_is_named(tmp_path: Path) -> None:
    maker = make(tmp_path, with_first=False)
    report = verify_chain(maker.chain_directory, FROM_FILE)
    root = FROM_FILE.states.first_state.model_root.hex()
    whats = {problem.where: problem.what for problem in report.problems}
    assert whats[f"{MANIFESTS}/{root}"] == "is missing: the first weights came from a file"
    certified = certified_chain(ChainFiles(maker.chain_directory), FROM_FILE)
    with pytest.raises(UserError, match="cannot be had from this directory"):
        replayed_state(certified, certified.chain[1], FROM_FILE.states)


def test_a_changed_byte_of_them_is_named(tmp_path: Path) -> None:
    maker = make(tmp_path)
    manifests = trio.run(maker.chain.snapshot, maker.first)
    assert manifests is not None
    file = maker.chain_directory / CHUNKS / manifests[0].digests[0].hex()
    payload = bytearray(file.read_bytes())
    payload[7] ^= 1
    file.chmod(0o600)
    file.write_bytes(payload)
    report = verify_chain(maker.chain_directory, FROM_FILE)
    assert f"{CHUNKS}/{file.name}" in {problem.where for problem in report.problems}


@pytest.mark.parametrize("shares", [False, True])
def test_pruning_leaves_them_whole(tmp_path: Path, shares: bool) -> None:
    maker = make(tmp_path, shares=shares)
    assert trio.run(prune, maker.chain, Retention(1)) > 0

    async def held() -> None:
        manifests = await maker.chain.first_snapshot()
        assert manifests is not None
        for digest in (*manifests[0].digests, *manifests[1].digests):
            await maker.chain.chunk(digest)

    trio.run(held)
    assert verify_chain(maker.chain_directory, FROM_FILE).problems == []
