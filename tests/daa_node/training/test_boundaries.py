"""What a boundary's blob looks like, and where boundaries lie."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from daa_dag.chunking import CHUNK_BYTES_MAX, CHUNKS_MAX, cut, manifest_of
from daa_node.tensors import TensorSpec, grid_sizes_bytes
from daa_node.training.boundaries import (
    Boundary,
    Ends,
    boundary_chunks,
    boundary_steps,
    open_boundary,
)
from daa_node.training.boundary_files import BoundaryFiles, file_of
from daa_node.training.messages import MESSAGE_BYTES_MAX
from daa_node.training.model_config import PARAMETERS_MAX, ModelConfig

COUNT = CHUNK_BYTES_MAX // 4 + 10  # a chunk and a little


def boundary(error_feedback: bool = True, seed: int = 1) -> Boundary:
    chance = np.random.default_rng(seed)
    w, m, v, r = (chance.standard_normal(COUNT, np.float32) for _ in range(4))
    return Boundary(w, m, v, r if error_feedback else None, adam_steps=2**40 + 3)


def test_a_blob_is_the_vectors_one_after_another_and_the_steps() -> None:
    one = boundary()
    assert one.residual_D is not None
    vectors = (one.weights_D, one.first_D, one.second_D, one.residual_D)
    whole = b"".join(vector.astype("<f4").tobytes() for vector in vectors)
    assert b"".join(one.parts()) == whole + struct.pack("<q", 2**40 + 3)
    assert b"".join(boundary(error_feedback=False).parts()) == (
        whole[: -4 * COUNT] + struct.pack("<q", 2**40 + 3)
    )


@pytest.mark.parametrize("error_feedback", [True, False])
def test_it_is_cut_at_each_vector_and_reads_back(error_feedback: bool) -> None:
    one = boundary(error_feedback)
    blob = b"".join(one.parts())
    chunks = boundary_chunks(COUNT, error_feedback)
    assert chunks == (CHUNK_BYTES_MAX, 40) * (4 if error_feedback else 3) + (8,)
    assert one.manifest() == manifest_of(blob, chunks)
    again = open_boundary(np.frombuffer(blob, np.uint8), COUNT, error_feedback)
    assert b"".join(again.parts()) == blob
    for size in (0, len(blob) - 1, len(blob) + 1):
        with pytest.raises(ValueError, match=f"{len(blob)}"):
            open_boundary(np.zeros(size, np.uint8), COUNT, error_feedback)


def test_digests_tell_which_vectors_of_two_boundaries_are_the_same() -> None:
    one = boundary()
    other = replace(one, weights_D=boundary(seed=2).weights_D).manifest()
    same = [a == b for a, b in zip(one.manifest().digests, other.digests, strict=True)]
    assert same == [False, False, True, True, True, True, True, True, True]


def test_boundaries_lie_at_the_start_after_each_segment_and_at_the_end() -> None:
    assert boundary_steps(8, 4) == (0, 4, 8)
    assert boundary_steps(9, 4) == (0, 4, 8, 9)
    assert boundary_steps(1, 4) == (0, 1)
    assert boundary_steps(9, 0) == ()


def test_files_are_what_was_passed_and_the_last_is_named_before_it_is_written(
    tmp_path: Path,
) -> None:
    file_of(tmp_path, 0).write_bytes(bytes(20 * COUNT))  # a retired one, and too long
    files, passed = BoundaryFiles(tmp_path), [boundary(seed=seed) for seed in range(3)]
    for one in passed[:2]:
        files.add(one)
    files.end_with(passed[2])
    assert files.manifests == [one.manifest() for one in passed]
    assert not file_of(tmp_path, 2).exists()
    assert files.is_last_due
    files.write_last()
    assert not files.is_last_due
    written = [file_of(tmp_path, index).read_bytes() for index in range(3)]
    assert written == [b"".join(one.parts()) for one in passed]


def test_what_a_round_has_left_is_not_hashed_again(tmp_path: Path) -> None:
    ends: Ends = {}
    left = replace(boundary(seed=1), memory_id=1)
    BoundaryFiles(tmp_path, ends).end_with(left)
    start = replace(left, weights_D=boundary(seed=2).weights_D)
    forged = replace(start, first_D=boundary(seed=3).first_D)  # by nobody but a test
    middle = replace(boundary(seed=4), residual_D=start.residual_D)
    end = replace(boundary(seed=5), memory_id=2)
    files = BoundaryFiles(tmp_path, ends)
    files.add(forged)
    files.add(middle)
    files.end_with(end)
    assert files.manifests == [one.manifest() for one in (start, middle, end)]
    assert ends.keys() == {1, 2}  # of which one is where the next round begins

    files = BoundaryFiles(tmp_path, ends)
    files.add(replace(end, weights_D=start.weights_D))
    files.end_with(replace(boundary(seed=6), memory_id=3))
    assert ends.keys() == {2, 3}


def test_the_largest_model_fits_into_what_manifests_and_frames_can_say() -> None:
    """A state of as many tensors as there may be, and a boundary with what it reveals."""
    revealed_bytes = 64 * 2**20
    assert len(boundary_chunks(PARAMETERS_MAX, True, revealed_bytes)) <= CHUNKS_MAX
    assert len(cut(grid_sizes_bytes([TensorSpec("all", (PARAMETERS_MAX,))]))) + 16_384 <= CHUNKS_MAX
    assert MESSAGE_BYTES_MAX < 2**32  # the length of a frame to the worker


def test_a_model_of_one_parameter_more_is_refused() -> None:
    fits = ModelConfig(width=2048, depth=20, heads=16, context=8)
    assert 10**9 <= fits.parameter_count() <= PARAMETERS_MAX
    with pytest.raises(ValidationError, match="parameters, at most 1073741824"):
        ModelConfig(width=2048, depth=22, heads=16, context=8)
