"""Windows say of a whole chain what the memory-holding judge says, and yes to nothing else."""

import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daa_consensus.bft.messages import genesis_block
from daa_consensus.roll import RollRules, fixed
from daa_dag.ids import VertexId
from daa_dag.retention import Retention
from daa_node.checkpoints import verify_windows
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.layout import KINDS
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.verify import Anchor, verify_chain, verify_files
from daa_node.checkpoints.verify_windows import Windows
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker, files_under, make_chain


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_windows, "WINDOW_BLOCKS", 4)


def windows_of(chain: Path) -> Windows:
    return Windows(ChainFiles(chain), FACTS, lambda _: None)


def is_whole(chain: Path) -> bool:
    """As the judge says who holds it all: without a proof that a later one covers it is."""
    return verify_files(ChainFiles(chain), FACTS).ok


@pytest.mark.parametrize("keeps", [None, 3])
def test_they_report_what_the_whole_in_memory_does(tmp_path: Path, keeps: int | None) -> None:
    maker = make_chain(tmp_path, 10, aborted=(4, 6))
    if keeps is not None:
        assert trio.run(prune, maker.chain, Retention(keeps))
    for packs in (False, True):
        if packs:
            assert trio.run(maker.chain.pack, KINDS, 1)
        windows = windows_of(maker.chain_directory)
        assert windows.run(None)
        report = verify_chain(maker.chain_directory, FACTS)
        whole = verify_files(ChainFiles(maker.chain_directory), FACTS)
        report.bytes_read = 0
        assert report == whole
        assert report.ok
        assert (report.heights, report.replayed_from) == (8, 0 if keeps is None else 6)


def test_a_trusted_vertex_must_be_one_of_them(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 4)
    third = trio.run(maker.chain.heights.at, 3)
    assert third is not None
    assert windows_of(maker.chain_directory).run(third)
    assert not windows_of(maker.chain_directory).run(VertexId(bytes(32)))
    report = verify_chain(maker.chain_directory, FACTS, anchor=Anchor(VertexId(bytes(32))))
    assert [problem.where for problem in report.problems] == [f"vertices/{bytes(32).hex()}"]


def test_no_file_may_change_be_missing_or_be_there_besides(tmp_path: Path) -> None:
    maker = make_chain(tmp_path / "made", 4)
    chain = maker.chain_directory
    for path in files_under(chain):
        payload = path.read_bytes()
        path.write_bytes(payload[:-1] + bytes([payload[-1] ^ 1]))
        assert not windows_of(chain).run(None), f"{path} was changed"
        path.unlink()
        assert not windows_of(chain).run(None) or is_whole(chain), f"{path} is missing"
        path.write_bytes(payload)
    assert windows_of(chain).run(None)
    for kind in KINDS:
        name = bytes(32).hex() + (".exec" if kind == "certificates" else "")
        (chain / kind / name).write_bytes(b"more")
        assert not windows_of(chain).run(None), f"there is one of {kind} more"
        (chain / kind / name).unlink()
    (chain / "blocks" / "link").symlink_to(files_under(chain / "blocks")[0])
    assert not windows_of(chain).run(None)


def test_a_byte_of_a_pack_that_changed_is_no_plain_chain(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 4)
    trio.run(maker.chain.pack, KINDS, 1)
    (pack,) = files_under(maker.chain_directory / "packs")
    payload = pack.read_bytes()
    for at in range(0, len(payload), len(payload) // 25):
        pack.write_bytes(payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :])
        assert not windows_of(maker.chain_directory).run(None), at
    pack.write_bytes(payload)
    copied = maker.chain_directory / "packs" / ("0" * 64)
    shutil.copy(pack, copied)
    assert not windows_of(maker.chain_directory).run(None)


def test_a_chain_of_a_node_that_has_just_begun_is_whole(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)
    trio.run(maker.open)
    assert windows_of(maker.chain_directory).run(None)


def test_a_network_that_begins_with_trainers_is_read_in_windows_too(tmp_path: Path) -> None:
    """Its first vertex names who stands on the roll."""
    trainer = NodeKeys.from_seed(b"t" * 32)
    roll = fixed(RollRules(), {trainer.node_id: MemberKeys.of(trainer).encode()})
    facts = replace(FACTS, first=replace(FACTS.first, roll=roll))
    maker = ChainMaker(tmp_path)
    maker.first = facts.first_vertex
    maker.genesis = genesis_block(facts.chain_id, maker.first.vertex_id)
    trio.run(maker.open)
    assert verify_chain(maker.chain_directory, facts).ok
    assert Windows(ChainFiles(maker.chain_directory), facts, lambda _: None).run(None)
    assert not windows_of(maker.chain_directory).run(None), "of another network"


def test_memory_does_not_grow_with_the_chain(tmp_path: Path) -> None:
    peaks = []
    for rounds in (6, 36):
        maker = make_chain(tmp_path / str(rounds), rounds)
        trio.run(maker.chain.pack, KINDS, 1)
        assert windows_of(maker.chain_directory).run(None)  # what is made once
        tracemalloc.start()
        assert windows_of(maker.chain_directory).run(None)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 100_000
