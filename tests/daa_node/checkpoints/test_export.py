"""What is exported loads in plain torch and is exactly what was certified; listings say what is."""

import errno
import os
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import trio
from safetensors import safe_open
from safetensors.torch import load_file

from daa_dag.chunking import decode_manifest
from daa_dag.retention import Retention
from daa_node.checkpoints.beside import room_beside, written_whole
from daa_node.checkpoints.certified import certified_chain
from daa_node.checkpoints.export import Room, export_safetensors, replayed_state
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.listing import view_chain
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.checkpoints.replay import WEIGHTS, ReplayedState
from daa_node.checkpoints.snapshots import prune
from daa_node.errors import UserError
from daa_node.tensors import ZEROS_BYTES, TensorSpec
from daa_node.updates.compression.delta import DENSE
from daa_node.updates.initial_weights import TensorInit, initial_pieces, initial_weights
from tests.daa_node.checkpoints.little_chain import (
    CHAIN_ID,
    COMMITTEE,
    EPOCH_ROUNDS,
    FACTS,
    KEYS,
    RULES,
    TENSORS,
    ChainMaker,
    delta_of,
    files_under,
    make_chain,
)

ROUNDS = 3  # one snapshot, of height 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ChainMaker:
    return make_chain(tmp_path_factory.mktemp("whole"), ROUNDS)


@pytest.fixture
def maker(whole: ChainMaker, tmp_path: Path) -> ChainMaker:
    shutil.copytree(whole.directory, tmp_path / "node")
    moved = ChainMaker(tmp_path / "node")
    trio.run(moved.open)
    moved.newest = whole.newest
    return moved


def expected_weights(height: int) -> dict[str, torch.Tensor]:
    """By a slow plain way: replay, then slice by hand."""
    state = ReplayedState(RULES)
    state.start()
    for round_number in range(1, height + 1):
        state.apply(delta_of(round_number))
    values_D, at, tensors = state.weights_D.astype(np.float64) / 2**24, 0, {}
    for spec in TENSORS:
        part = values_D[at : at + spec.size].astype(np.float32).reshape(spec.shape)
        tensors[spec.name], at = torch.from_numpy(part), at + spec.size
    return tensors


@pytest.mark.parametrize("height", range(ROUNDS + 1))
def test_an_export_loads_in_plain_torch_and_is_the_certified_state(
    maker: ChainMaker, tmp_path: Path, height: int
) -> None:
    certified = certified_chain(ChainFiles(maker.chain_directory), FACTS)
    vertex = certified.find(str(height))
    state = replayed_state(certified, vertex, RULES)
    target = tmp_path / "model.safetensors"
    export_safetensors(target, state, RULES, CHAIN_ID, vertex)
    loaded, expected = load_file(target), expected_weights(height)
    assert loaded.keys() == expected.keys()
    for name, tensor in expected.items():
        assert loaded[name].dtype == torch.float32
        assert torch.equal(loaded[name], tensor), name
    assert int.from_bytes(target.read_bytes()[:8], "little") % 8 == 0, "tensors can be mapped"
    with safe_open(target, "pt") as file:
        metadata = file.metadata()
    assert metadata["vertex_id"] == vertex.vertex_id.hex()
    assert metadata["chain_id"] == CHAIN_ID.hex()
    assert metadata["height"] == str(height)
    assert metadata["model_root"] == vertex.model_root.hex()
    assert metadata["format"] == "pt"
    assert metadata["training_round"] == str(vertex.training_round)
    assert metadata["tokens_total"] == str(vertex.tokens_total)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [target.name]


@pytest.mark.parametrize("height", range(ROUNDS + 1))
def test_a_state_in_files_is_the_one_in_memory(
    maker: ChainMaker, tmp_path: Path, height: int
) -> None:
    files = ChainFiles(maker.chain_directory)
    certified = certified_chain(files, FACTS)
    vertex = certified.find(str(height))
    with room_beside(tmp_path / "out") as room:
        state = replayed_state(certified, vertex, RULES, Room(room, files))
        expected = replayed_state(certified, vertex, RULES)
        assert (room / WEIGHTS).read_bytes() == expected.weights_D.tobytes()
        assert np.array_equal(state.momentum_D, expected.momentum_D)
    assert {path.name for path in tmp_path.iterdir()} == {"node"}


def test_what_is_exported_is_never_whole_in_memory(tmp_path: Path) -> None:
    """Neither the first weights, nor the state, nor the delta, nor the tensors."""
    tensors = (TensorSpec("a", (1 << 22,)), TensorSpec("b", (1 << 22,)))
    inits = [TensorInit(spec, std=1 << 18) for spec in tensors]
    rules = replace(RULES, tensors=tensors, first_weights=lambda: initial_pieces(b"seed", inits))
    delta = tmp_path / "delta"
    zeros = np.zeros(DENSE.size_bytes_max(rules.parameter_count), np.uint8)
    zeros.tofile(delta)
    del zeros
    vertex = genesis_vertex(RULES.first_state, COMMITTEE.root)
    tracemalloc.start()
    try:
        before = rules.first_state
        state = ReplayedState(rules, tmp_path)
        state.start()
        assert state.ref() == before
        state.apply(np.memmap(delta, np.uint8, mode="r"))
        export_safetensors(tmp_path / "out", state, rules, CHAIN_ID, vertex)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < ZEROS_BYTES + rules.parameter_count  # a vector has four bytes for each
    loaded = load_file(tmp_path / "out")
    expected = initial_weights(b"seed", inits).astype(np.float64) / 2**24
    assert np.array_equal(torch.cat([loaded["a"], loaded["b"]]).numpy(), expected.astype("<f4"))


def test_a_file_that_is_there_is_nobodys_but_the_users(maker: ChainMaker, tmp_path: Path) -> None:
    certified = certified_chain(ChainFiles(maker.chain_directory), FACTS)
    state = replayed_state(certified, maker.newest, RULES)
    mine = tmp_path / "model.safetensors.part"
    mine.write_text("mine")
    export_safetensors(tmp_path / "model.safetensors", state, RULES, CHAIN_ID, maker.newest)
    assert mine.read_text() == "mine"
    modes = {oct(path.stat().st_mode) for path in (mine, tmp_path / "model.safetensors")}
    assert len(modes) == 1, "the rights that are usual here"


def test_a_delta_that_grew_is_read_no_further(maker: ChainMaker, tmp_path: Path) -> None:
    files = ChainFiles(maker.chain_directory)
    certified = certified_chain(files, FACTS)
    vertex = certified.find("1")
    with (maker.chain_directory / "deltas" / vertex.delta_root.hex()).open("ab") as file:
        file.write(bytes(1))
    with pytest.raises(UserError, match="is longer than"):
        replayed_state(certified, vertex, RULES, Room(tmp_path, files))


def test_a_damaged_chain_exports_nothing(maker: ChainMaker, tmp_path: Path) -> None:
    certified = certified_chain(ChainFiles(maker.chain_directory), FACTS)
    vertex = certified.find("1")
    path = maker.chain_directory / "deltas" / vertex.delta_root.hex()
    payload = bytearray(path.read_bytes())
    payload[0] ^= 1
    path.write_bytes(payload)
    with pytest.raises(UserError, match="ends at other roots"):
        replayed_state(certified, vertex, RULES)
    path.write_bytes(bytes(payload[:-3]))
    with pytest.raises(UserError, match="height 1 cannot be had"):
        replayed_state(certified, vertex, RULES)
    path.unlink()
    with pytest.raises(UserError, match="is missing"):
        replayed_state(certified, vertex, RULES)


def test_a_damaged_chunk_of_a_snapshot_is_named(maker: ChainMaker) -> None:
    certified = certified_chain(ChainFiles(maker.chain_directory), FACTS)
    root = certified.find("2").model_root
    manifest = decode_manifest((maker.chain_directory / "manifests" / root.hex()).read_bytes())
    chunk = maker.chain_directory / "chunks" / manifest.digests[0].hex()
    chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
    with pytest.raises(UserError, match=f"{chunk.name} does not hash to its name"):
        replayed_state(certified, certified.find("3"), RULES)


def test_only_what_is_certified_is_exported(maker: ChainMaker) -> None:
    newest = maker.newest
    forged = replace(
        newest, parents=(newest.vertex_id,), height=newest.height + 1, training_round=ROUNDS + 1
    )
    path = maker.chain_directory / "vertices" / forged.vertex_id.hex()
    path.write_bytes(forged.encode())
    assert view_chain(maker.chain_directory).find("tip").vertex == forged
    certified = certified_chain(ChainFiles(maker.chain_directory), FACTS)
    assert certified.find("tip") == maker.newest
    for text in (str(forged.height), forged.vertex_id.hex()):
        with pytest.raises(UserError, match="no certified vertex"):
            certified.find(text)
    (maker.chain_directory / "vertices" / maker.newest.vertex_id.hex()).unlink()
    (maker.chain_directory / "certificates" / f"{maker.newest.vertex_id.hex()}.exec").unlink()
    with pytest.raises(UserError, match="final, and it is not here: name a height up to 2"):
        certified_chain(ChainFiles(maker.chain_directory), FACTS).find("tip")


def test_a_vertex_whose_execution_nobody_certifies_is_not_exported(tmp_path: Path) -> None:
    """Its file is there, and a final block names it; its epoch is open."""
    maker = make_chain(tmp_path, EPOCH_ROUNDS + 1)
    name = maker.newest.vertex_id.hex()
    (maker.chain_directory / "certificates" / f"{name}.exec").unlink()
    certified = certified_chain(ChainFiles(maker.chain_directory), FACTS)
    assert certified.chain[-1].height == maker.newest.height - 1
    with pytest.raises(UserError, match="no certified vertex"):
        certified.find(name)


def test_an_export_that_cannot_be_written_leaves_nothing(maker: ChainMaker, tmp_path: Path) -> None:
    certified = certified_chain(ChainFiles(maker.chain_directory), FACTS)
    vertex = certified.find("tip")
    state = replayed_state(certified, vertex, RULES)
    target = tmp_path / "is a directory"
    target.mkdir()
    with pytest.raises(UserError, match="is a directory"):
        export_safetensors(target, state, RULES, CHAIN_ID, vertex)
    assert files_under(tmp_path / "is a directory") == []
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".daa-")]
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "missing" / "model", tmp_path / "file" / "model"):
        with pytest.raises(UserError, match=f"{wrong.parent} is no directory: make it"):
            export_safetensors(wrong, state, RULES, CHAIN_ID, vertex)


def test_what_is_cut_off_has_no_name(tmp_path: Path) -> None:
    target = tmp_path / "model"

    def write() -> None:
        with written_whole(target) as partial:
            partial.write_text("a half")
            assert not target.exists()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UserError, match="No space"):
        write()
    assert files_under(tmp_path) == []


def test_a_listing_names_every_vertex_with_its_signers_and_what_is_held(maker: ChainMaker) -> None:
    view = view_chain(maker.chain_directory)
    assert [row.vertex.height for row in view.rows] == [0, 1, 2, 3]
    signers = tuple(keys.node_id for keys in KEYS[:3])
    assert [row.certified_by for row in view.rows] == [(), signers, signers, signers]
    assert [row.has_delta for row in view.rows] == [False, True, True, True]
    assert [row.has_snapshot for row in view.rows] == [False, False, True, False]
    newest = view.rows[-1]
    assert view.graph.tips() == [newest.vertex_id]
    for text in ("3", "tip", newest.vertex_id.hex(), newest.vertex_id.hex()[:8].upper()):
        assert view.find(text) == newest
    for text in ("4", "ffffffff", "abc", ""):
        with pytest.raises(UserError):
            view.find(text)


def test_a_pruned_listing_says_what_is_gone(maker: ChainMaker) -> None:
    trio.run(prune, maker.chain, Retention(vertices_restorable=2))
    view = view_chain(maker.chain_directory)
    assert [row.has_delta for row in view.rows] == [False, False, False, True]
    assert [row.has_snapshot for row in view.rows] == [False, False, True, False]


def test_no_chain_and_a_damaged_one_are_said_in_one_message(
    maker: ChainMaker, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="holds no chain"):
        view_chain(tmp_path / "nowhere")
    path = maker.chain_directory / "vertices" / maker.newest.vertex_id.hex()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"vertices/[0-9a-f]{64}: .*checkpoint verify"):
        view_chain(maker.chain_directory)
