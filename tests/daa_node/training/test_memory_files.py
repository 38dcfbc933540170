"""Moments in mapped files: the same bits as in memory, and what a crash leaves of them."""

import os
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
import torch

from daa_dag import canonical
from daa_node.errors import UserError
from daa_node.training import inner_state
from daa_node.training.core import Core, SealedTraining, open_core
from daa_node.training.inner_state import StateLost
from daa_node.training.memories import two_memories
from daa_node.training.memory_files import MemoryFile
from daa_node.training.orders import Inbox
from daa_node.training.torch_worker import Worker
from tests.daa_node.training.test_core import BASE_D, CPU, JOB, core, order

COUNT = BASE_D.size


def in_files(directory: Path) -> Core:
    return open_core(JOB, CPU, directory, perf_counter, memories=directory)


def save(one: Core, directory: Path) -> None:
    inner_state.save(directory / "inner_state", JOB.digest(), one.inner_state(), {})


def restarted(directory: Path) -> Core:
    """The core of the next worker, which takes up what it finds."""
    one = in_files(directory)
    state = inner_state.load(directory / "inner_state", JOB.digest(), COUNT)
    assert state is not None
    one.set_inner_state(state)
    return one


def train(one: Core, number: int, merged_round: int = -1) -> SealedTraining:
    return one.train_and_seal(order(number, merged_round), BASE_D)


def saved_after_one(directory: Path) -> Core:
    """One that has trained once, and whose state is on disk."""
    one = in_files(directory)
    one.forget()
    train(one, 1)
    save(one, directory)
    return one


def blob(one: Core, number: int, merged_round: int = -1) -> bytes:
    return train(one, number, merged_round).blob.tobytes()


def test_it_trains_bit_for_bit_as_in_memory(tmp_path: Path) -> None:
    mapped, plain = in_files(tmp_path), core(tmp_path)
    mapped.forget()
    for number, merged in ((1, -1), (2, 1), (3, 1), (4, 3), (5, 99)):  # 2 was left out, 99 is lost
        assert blob(mapped, number, merged) == blob(plain, number, merged)
    lies_in = {mapped.inner_state().settled.file, mapped.inner_state().tried.file}
    assert lies_in == {tmp_path / "memory-0", tmp_path / "memory-1"}


def test_a_restart_goes_on_from_the_files_without_a_copy_of_them(tmp_path: Path) -> None:
    alone, one = core(tmp_path), in_files(tmp_path)
    one.forget()
    train(alone, 1), train(one, 1)
    for number in (2, 3):
        save(one, tmp_path)
        one = restarted(tmp_path)
        assert blob(one, number, number - 1) == blob(alone, number, number - 1)
    assert (tmp_path / "inner_state").stat().st_size < 1000


def test_a_crash_in_training_loses_only_what_that_training_changed(tmp_path: Path) -> None:
    alone, one = core(tmp_path), in_files(tmp_path)
    one.forget()
    for each in (alone, one):
        train(each, 1)
        train(each, 2, merged_round=1)
    save(one, tmp_path)
    train(one, 3, merged_round=2)  # over what round 1 had left; killed before it was saved
    again = restarted(tmp_path)
    assert again.inner_state().settled_round == -1
    assert blob(again, 3, merged_round=2) == blob(alone, 3, merged_round=2)


def test_a_crash_after_an_update_that_was_not_merged_leaves_the_one_before(tmp_path: Path) -> None:
    alone, one = core(tmp_path), in_files(tmp_path)
    one.forget()
    for each in (alone, one):
        train(each, 1)
        train(each, 2, merged_round=1)
    save(one, tmp_path)
    train(one, 3, merged_round=1)  # over what round 2 had left
    again = restarted(tmp_path)
    assert again.inner_state().sealed_round == -1
    assert blob(again, 4, merged_round=1) == blob(alone, 4, merged_round=1)


def test_what_a_crash_has_left_of_the_settled_one_is_not_trained_on_from(tmp_path: Path) -> None:
    """Nothing was merged yet, so no round tells that it is another's."""
    alone, one = core(tmp_path), saved_after_one(tmp_path)
    train(alone, 1)
    settled = one.inner_state().settled.file
    assert settled is not None
    settled.write_bytes(np.ones(settled.stat().st_size // 4, np.float32).tobytes())
    assert blob(restarted(tmp_path), 2) == blob(alone, 2)


def test_where_both_are_damaged_all_is_lost_and_forgotten(tmp_path: Path) -> None:
    saved_after_one(tmp_path)
    for name in ("memory-0", "memory-1"):
        with (tmp_path / name).open("r+b") as file:
            file.write(b"torn")
    with pytest.raises(StateLost, match="damaged"):
        inner_state.load(tmp_path / "inner_state", JOB.digest(), COUNT)
    again = in_files(tmp_path)
    again.forget()
    assert blob(again, 1) == blob(core(tmp_path), 1)


def test_a_state_goes_from_memory_into_files_and_back(tmp_path: Path) -> None:
    alone, plain = core(tmp_path), core(tmp_path)
    train(alone, 1), train(plain, 1)
    save(plain, tmp_path)
    mapped = restarted(tmp_path)
    assert blob(mapped, 2, merged_round=1) == blob(alone, 2, merged_round=1)
    save(mapped, tmp_path)
    state = inner_state.load(tmp_path / "inner_state", JOB.digest(), COUNT)
    assert state is not None
    back = core(tmp_path)
    back.set_inner_state(state)
    assert blob(back, 3, merged_round=2) == blob(alone, 3, merged_round=2)
    save(back, tmp_path)
    assert sorted(path.name for path in tmp_path.glob("memory-*")) == []


@pytest.mark.parametrize("how", ["gone", "torn"])
def test_a_memory_file_that_is_not_whole_is_a_state_that_is_lost(tmp_path: Path, how: str) -> None:
    saved_after_one(tmp_path)
    os.truncate(tmp_path / "memory-1", 100)
    if how == "gone":
        (tmp_path / "memory-1").unlink()
    with pytest.raises(StateLost, match=how):
        inner_state.load(tmp_path / "inner_state", JOB.digest(), COUNT)


@pytest.mark.parametrize("files", [["memory-0"] * 2, ["..", ""], ["inner_state", "memory-1"], 7])
def test_other_files_than_the_two_are_not_read(tmp_path: Path, files: canonical.Value) -> None:
    saved_after_one(tmp_path)
    state = (tmp_path / "inner_state").read_bytes()
    length = int.from_bytes(state[:4], "big")
    header = canonical.decode(state[4 : 4 + length], inner_state.HEADER_BYTES_MAX)
    assert isinstance(header, dict)
    encoded = canonical.encode(header | {"files": files})
    (tmp_path / "inner_state").write_bytes(len(encoded).to_bytes(4, "big") + encoded)
    with pytest.raises(StateLost, match="another version"):
        inner_state.load(tmp_path / "inner_state", JOB.digest(), COUNT)


def test_where_one_file_is_gone_before_a_start_the_other_serves(tmp_path: Path) -> None:
    alone, one = core(tmp_path), in_files(tmp_path)
    one.forget()
    for each in (alone, one):
        train(each, 1)
        train(each, 2, merged_round=1)
    save(one, tmp_path)
    lost = one.inner_state().settled.file
    assert lost is not None
    lost.unlink()  # the start makes it again, of zeros
    assert blob(restarted(tmp_path), 3, merged_round=2) == blob(alone, 3, merged_round=2)


def room_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def with_holes(path: Path) -> None:
    size_bytes = path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size_bytes)


def test_a_file_with_holes_gets_its_room_before_a_training_writes_to_it(tmp_path: Path) -> None:
    size_bytes = 12 << 20
    two_memories(1 << 20, CPU, True, tmp_path)
    with_holes(tmp_path / "memory-1")
    settled, tried = two_memories(1 << 20, CPU, True, tmp_path)
    assert room_bytes(tmp_path / "memory-1") >= size_bytes
    for memory in (settled, tried):
        memory.forget()
    with_holes(tmp_path / "memory-1")  # as a disk that is full leaves what was cleared on it
    tried.go_on_from(settled)
    assert room_bytes(tmp_path / "memory-1") >= size_bytes


def test_what_memory_had_and_nobody_owes_takes_no_room_in_files(tmp_path: Path) -> None:
    plain, _ = two_memories(1 << 20, CPU, False, None)
    mapped, _ = two_memories(1 << 20, CPU, False, tmp_path)
    mapped.set(plain.carried())
    assert mapped.file is not None
    os.sync()
    assert room_bytes(mapped.file) < 9 << 20


@pytest.mark.parametrize("state", ["fresh", "lost, starts afresh"])
def test_a_worker_forgets_what_files_held_before_it(tmp_path: Path, state: str) -> None:
    before = in_files(tmp_path)
    before.forget()
    train(before, 1)
    train(before, 2, merged_round=1)  # so that both files have moments
    if state != "fresh":
        (tmp_path / "inner_state").write_bytes(b"no header")
    one = in_files(tmp_path)
    assert Worker(one, JOB, tmp_path / "inner_state", Inbox()).restore().startswith(state)
    assert blob(one, 1) == blob(core(tmp_path), 1)


def test_what_is_cleared_is_zeros_in_every_map(tmp_path: Path) -> None:
    one = MemoryFile(tmp_path / "memory", 5000, owes=True)
    other = MemoryFile(tmp_path / "memory", 5000, owes=True)
    one.second_D[:] = 7
    assert (other.second_D == 7).all()
    one.clear()
    assert not other.second_D.any()
    one.first_D[4999] = 1
    assert other.first_D[4999] == 1


def test_a_residual_that_nobody_owes_takes_no_room(tmp_path: Path) -> None:
    MemoryFile(tmp_path / "owed", 1 << 20, owes=True)
    MemoryFile(tmp_path / "none", 1 << 20, owes=False)
    taken = [(tmp_path / name).stat().st_blocks * 512 for name in ("owed", "none")]
    assert taken[0] >= 12 << 20
    assert taken[1] < 9 << 20


def test_a_disk_without_room_for_them_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="optimiser_in is files, which takes"):
        MemoryFile(tmp_path / "memory", 1 << 40, owes=True)


def test_a_gpu_keeps_its_own(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="to memory, or trainer.device to cpu"):
        two_memories(10, torch.device("meta"), True, tmp_path)
    one, _ = two_memories(10, CPU, True, None)
    assert one.file is None
    assert not replace(one.carried()).first_D.any()
    assert np.isfinite(one.residual_D).all()
