"""What a worker must not forget between rounds, in one file that a crash cannot half-write.

AdamW's two moments, the steps in them, and the error-feedback residual: as the newest merged update
left them, and as the newest sealed one did, whose fate is not known yet. The file is written beside
its name and renamed without a sync: after a power cut it may be torn, its digests say so, and the
worker starts afresh and reports it. Layout: 4-byte header length, canonical header, zeros, fp32
vectors, which are mapped. What a boundary has named is not hashed again for it.

Where the vectors are memory files already (see memory_files), the header names them, and nothing
comes after it. A training changes one of the two: after a crash in it that one is another than its
digests say, and counts as forgotten, while the other is as it was.
"""

import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from daa_dag import canonical
from daa_dag.chunking import cut, manifest_of
from daa_dag.errors import NotCanonical
from daa_dag.ids import BlobRoot, Digest
from daa_node.tensors import Float32Array
from daa_node.training.boundaries import FP32, Carried, Ends
from daa_node.training.memory_files import NAMES, map_memory

SCHEMA = 4
ALIGNMENT = 64  # of the vectors, so that they can be mapped as numbers
HEADER_BYTES_MAX = 1024
LENGTH = struct.Struct(">I")
VECTORS = 6  # two moments and a residual, twice
NONE_YET = -1  # of rounds


@dataclass(frozen=True, slots=True)
class InnerState:
    """What training goes on from."""

    settled: Carried  # from the newest merged update
    tried: Carried  # what takes its place if the newest sealed update is merged
    settled_round: int  # of the newest merged update when `settled` was settled; -1 before that
    sealed_round: int  # of the newest sealed update; -1 if there is none

    @property
    def adam_steps(self) -> int:
        """In the newest moments."""
        return (self.settled if self.sealed_round < 0 else self.tried).adam_steps


class StateLost(Exception):
    """The file is there but cannot be used; the text says why."""


def save(path: Path, job: Digest, state: InnerState, ends: Ends) -> None:
    """Replaces the file atomically. `job` names the configuration that the state belongs to.

    Vectors that are no memory files replace such files, too. Raises OSError.
    """
    both = state.settled, state.tried
    vectors = [vector for carried in both for vector in _vectors(carried)]
    files = [carried.file.name for carried in both if carried.file is not None]
    header = canonical.encode(
        {
            "schema": SCHEMA,
            **({"files": list[canonical.Value](files)} if files else {}),
            "job": job,
            "parameters": len(vectors[0]),
            "settled_steps": state.settled.adam_steps,
            "settled_round": state.settled_round,
            "tried_steps": state.tried.adam_steps,
            "sealed_round": state.sealed_round,
            "roots": [root for carried in both for root in _roots(carried, ends)],
        }
    )
    scratch = path.with_name(path.name + ".tmp")
    # Over the file before last: pages that the kernel has at hand cost a tenth of fresh ones.
    with scratch.open("r+b" if scratch.exists() else "wb") as file:
        file.write((LENGTH.pack(len(header)) + header).ljust(_body_start(len(header)), b"\0"))
        for vector in [] if files else vectors:
            file.write(vector.data)
        file.truncate()
    before = path.with_name(path.name + ".old")
    with suppress(OSError):  # not every file system has links; the next save then starts a file
        before.unlink(missing_ok=True)
        os.link(path, before)
    os.replace(scratch, path)
    with suppress(OSError):
        os.replace(before, scratch)
    if not files:  # nor are there any more, if the vectors were in some
        for name in NAMES:
            path.with_name(name).unlink(missing_ok=True)


def load(path: Path, job: Digest, parameter_count: int) -> InnerState | None:
    """The saved state; None if none was saved. Raises StateLost if what is there cannot be used."""
    try:
        with path.open("rb") as file:
            return _read(path, file, job, parameter_count)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise StateLost(f"{path}: {fault.strerror}") from None


def _read(path: Path, file: BinaryIO, job: Digest, parameter_count: int) -> InnerState:
    """In maps of the file, good until the next save but one. Raises StateLost, OSError."""
    try:
        (length,) = LENGTH.unpack(file.read(LENGTH.size))
        encoded = file.read(min(length, HEADER_BYTES_MAX + 1))
        header = canonical.decode(encoded, HEADER_BYTES_MAX)
    except (struct.error, NotCanonical) as fault:
        raise StateLost(f"{path}: unreadable header: {fault}") from None
    match header:
        case {
            "schema": int(schema),
            "job": bytes(found),
            "settled_steps": int(settled_steps),
            "settled_round": int(settled_round),
            "tried_steps": int(tried_steps),
            "sealed_round": int(sealed_round),
        } if schema == SCHEMA:
            pass
        case _:
            raise StateLost(f"{path}: written by another version")
    if found != job or header.get("parameters") != parameter_count:
        raise StateLost(f"{path}: belongs to another model or configuration")
    steps, rounds = (settled_steps, tried_steps), (settled_round, sealed_round)
    if "files" in header:
        return _from_files(path, header, parameter_count, steps, rounds)
    start = _body_start(length)
    size_bytes = VECTORS * FP32.itemsize * parameter_count
    if os.fstat(file.fileno()).st_size != start + size_bytes:
        raise StateLost(f"{path}: torn")
    # ours to write, for torch takes no array that is read-only; nothing of it comes to the file
    vectors_D = np.memmap(file, FP32, "c", start, (VECTORS, parameter_count)).view(np.ndarray)
    if [_root(vector_D) for vector_D in vectors_D] != header.get("roots"):
        raise StateLost(f"{path}: damaged")
    first_D, second_D, residual_D, tried_first_D, tried_second_D, tried_residual_D = vectors_D
    settled = Carried(first_D, second_D, residual_D, settled_steps)
    tried = Carried(tried_first_D, tried_second_D, tried_residual_D, tried_steps)
    return InnerState(settled, tried, settled_round, sealed_round)


def _from_files(
    path: Path,
    header: Mapping[str, canonical.Value],
    parameter_count: int,
    steps: tuple[int, int],
    rounds: tuple[int, int],
) -> InnerState:
    """In maps of them; the damaged one of two counts as forgotten. Raises StateLost, OSError."""
    files, roots = header["files"], header.get("roots")
    if files not in (list(NAMES), list(NAMES[::-1])) or not isinstance(roots, list):
        raise StateLost(f"{path}: written by another version")
    found: list[Carried] = []
    for number, (name, adam_steps) in enumerate(zip(files, steps, strict=True)):
        file = path.with_name(str(name))
        try:
            vectors = map_memory(file, parameter_count)
        except FileNotFoundError:
            raise StateLost(f"{file}: is gone") from None
        except ValueError:
            raise StateLost(f"{file}: torn") from None
        wanted = roots[number * len(vectors) : (number + 1) * len(vectors)]
        is_whole = [_root(vector_D) for vector_D in vectors] == wanted
        first_D, second_D, residual_D = vectors
        found.append(
            Carried(first_D, second_D, residual_D, adam_steps, file=file, is_lost=not is_whole)
        )
    settled, tried = found
    settled_round = NONE_YET if settled.is_lost else rounds[0]
    sealed_round = NONE_YET if tried.is_lost else rounds[1]
    if settled.is_lost and sealed_round == NONE_YET:
        raise StateLost(f"{path}: damaged")
    return InnerState(settled, tried, settled_round, sealed_round)


def _body_start(header_bytes: int) -> int:
    return -(-(LENGTH.size + header_bytes) // ALIGNMENT) * ALIGNMENT


def _vectors(carried: Carried) -> list[Float32Array]:
    vectors = carried.first_D, carried.second_D, carried.residual_D
    return [np.ascontiguousarray(vector, FP32) for vector in vectors]


def _roots(carried: Carried, ends: Ends) -> list[BlobRoot]:
    """A vector's root is that of its manifest."""
    known = [] if carried.memory_id is None else ends.get(carried.memory_id, [])
    roots = [part.root for part in known[1:-1]]  # between the weights and the steps
    return [*roots, *(_root(vector_D) for vector_D in _vectors(carried)[len(roots) :])]


def _root(vector_D: Float32Array) -> BlobRoot:
    return manifest_of(vector_D.data.cast("B"), cut([vector_D.nbytes])).root
