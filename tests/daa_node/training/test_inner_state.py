"""The optimiser's file: whole, or recognised as lost."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daa_dag.ids import Digest
from daa_node.training.boundaries import Boundary, Carried, Ends
from daa_node.training.inner_state import InnerState, StateLost, load, save

JOB = Digest(b"j" * 32)
COUNT = 1000


def state() -> InnerState:
    rng = np.random.default_rng(4)
    a_D, b_D, c_D, d_D, e_D, f_D = (rng.normal(size=COUNT).astype(np.float32) for _ in range(6))
    settled, tried = Carried(a_D, b_D, c_D, adam_steps=12), Carried(d_D, e_D, f_D, adam_steps=17)
    return InnerState(settled, tried, settled_round=4, sealed_round=6)


def test_what_was_saved_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    saved = state()
    save(tmp_path / "inner_state", JOB, saved, {})
    loaded = load(tmp_path / "inner_state", JOB, COUNT)
    assert loaded is not None
    assert (loaded.settled_round, loaded.sealed_round) == (4, 6)
    assert (loaded.settled.adam_steps, loaded.tried.adam_steps) == (12, 17)
    for name in ("first_D", "second_D", "residual_D"):
        assert (getattr(loaded.settled, name) == getattr(saved.settled, name)).all()
        assert (getattr(loaded.tried, name) == getattr(saved.tried, name)).all()
    assert [path.name for path in tmp_path.iterdir()] == ["inner_state"]


def test_each_save_goes_over_the_file_before_last_and_never_over_the_last(tmp_path: Path) -> None:
    path = tmp_path / "inner_state"
    inodes = []
    for steps in (1, 1_000_000, 3, 4):  # headers of different lengths: nothing of the longer stays
        tried = replace(state().tried, adam_steps=steps)
        save(path, JOB, replace(state(), tried=tried), {})
        loaded = load(path, JOB, COUNT)
        assert loaded is not None
        assert loaded.adam_steps == steps
        assert replace(loaded, sealed_round=-1).adam_steps == 12
        inodes.append(path.stat().st_ino)
    assert inodes[0] == inodes[2] != inodes[1] == inodes[3]
    assert {other.name for other in tmp_path.iterdir()} == {"inner_state", "inner_state.tmp"}


def test_nothing_saved_is_no_fault(tmp_path: Path) -> None:
    assert load(tmp_path / "inner_state", JOB, COUNT) is None


def test_a_state_of_another_job_or_size_is_not_used(tmp_path: Path) -> None:
    save(tmp_path / "inner_state", JOB, state(), {})
    with pytest.raises(StateLost, match="another model or configuration"):
        load(tmp_path / "inner_state", Digest(b"k" * 32), COUNT)
    with pytest.raises(StateLost, match="another model or configuration"):
        load(tmp_path / "inner_state", JOB, COUNT + 1)


def test_any_cut_and_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "inner_state"
    save(path, JOB, state(), {})
    whole = path.read_bytes()
    for size in (0, 3, 4, 60, 200, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(StateLost):
            load(path, JOB, COUNT)
    for at in (0, 5, 60, 150, 300, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        with pytest.raises(StateLost):
            load(path, JOB, COUNT)


@pytest.mark.parametrize("error_feedback", [True, False])
def test_what_a_boundary_has_named_is_not_hashed_again(
    tmp_path: Path, error_feedback: bool
) -> None:
    path, saved = tmp_path / "inner_state", state()
    left = replace(saved.tried, memory_id=7)
    residual_D = left.residual_D if error_feedback else None
    end = Boundary(left.first_D, left.first_D, left.second_D, residual_D, left.adam_steps)
    ends: Ends = {7: end.part_manifests({})}
    save(path, JOB, replace(saved, tried=left), ends)
    loaded = load(path, JOB, COUNT)
    assert loaded is not None
    assert (loaded.tried.residual_D == left.residual_D).all()
    forged = replace(left, second_D=left.first_D)  # by nobody but a test
    save(path, JOB, replace(saved, tried=forged), ends)
    with pytest.raises(StateLost, match="damaged"):
        load(path, JOB, COUNT)
