"""The table of tensors in a flat vector, and vectors in files."""

import shutil
from pathlib import Path

import pytest

from daa_node.tensors import (
    TensorSpec,
    create_grid_vector,
    grid_sizes_bytes,
    open_grid_vector,
    parameter_count_of,
    reserve,
    slots_of,
)

SPECS = [TensorSpec("embedding", (5, 3)), TensorSpec("scale", ()), TensorSpec("bias", (4,))]


def test_tensors_lie_one_after_another_with_nothing_between() -> None:
    slots = slots_of(SPECS)
    assert [(slot.start, slot.stop) for slot in slots] == [(0, 15), (15, 16), (16, 20)]
    assert parameter_count_of(SPECS) == 20
    assert grid_sizes_bytes(SPECS) == [60, 4, 16]


def test_a_vector_written_through_its_map_is_read_back_little_endian(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    vector_D = create_grid_vector(path, 3)
    vector_D[:] = [1, -2, 2**31 - 1]
    del vector_D
    assert path.read_bytes() == bytes.fromhex("01000000feffffffffffff7f")
    assert open_grid_vector(path, 3).tolist() == [1, -2, 2**31 - 1]


def test_a_vector_too_large_for_memory_is_zeros_whose_room_is_reserved(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    path.write_bytes(b"\xff" * 3_000_000)
    reserve(path, 3_000_000, 2_000_000)
    assert path.read_bytes() == bytes(3_000_000)
    assert 2_000_000 <= path.stat().st_blocks * 512 < 2_100_000


def test_a_disk_without_room_is_not_filled_to_find_out(tmp_path: Path) -> None:
    free_bytes = shutil.disk_usage(tmp_path).free
    with pytest.raises(OSError, match="No space left"):
        reserve(tmp_path / "vector", 100 * free_bytes)
    assert not list(tmp_path.iterdir())
    assert shutil.disk_usage(tmp_path).free > free_bytes // 2


def test_a_file_of_another_size_is_not_a_vector(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(13))
    with pytest.raises(ValueError, match="13 bytes; 3 int32 parameters take 12"):
        open_grid_vector(path, 3)


def test_a_mapped_vector_cannot_be_changed_by_its_readers(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(12))
    with pytest.raises(ValueError, match="read-only"):
        open_grid_vector(path, 3)[0] = 1
