"""What a worker must not forget between rounds, in one file that a crash cannot half-write.

AdamW's two moments, the steps in them, and the error-feedback residual: as the newest merged update
left them, and as the newest sealed one did, whose fate is not known yet. The file is written beside
its name and renamed without a sync: after a power cut it may be torn, its checksum says so, and the
worker starts afresh and reports it. Layout: 4-byte header length, canonical header, fp32 vectors.
"""

import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from blake3 import blake3

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import Digest
from daa_node.training.boundaries import FP32, Carried

SCHEMA = 2
HEADER_BYTES_MAX = 1024
LENGTH = struct.Struct(">I")
VECTORS = 6  # two moments and a residual, twice


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


def save(path: Path, job: Digest, state: InnerState) -> None:
    """Replaces the file atomically. `job` names the configuration that the state belongs to."""
    vectors = [
        np.ascontiguousarray(vector, FP32)
        for carried in (state.settled, state.tried)
        for vector in (carried.first_D, carried.second_D, carried.residual_D)
    ]
    hasher = blake3()
    for vector in vectors:
        hasher.update(vector.data.cast("B"))
    header = canonical.encode(
        {
            "schema": SCHEMA,
            "job": job,
            "parameters": len(vectors[0]),
            "settled_steps": state.settled.adam_steps,
            "settled_round": state.settled_round,
            "tried_steps": state.tried.adam_steps,
            "sealed_round": state.sealed_round,
            "body_digest": hasher.digest(),
        }
    )
    scratch = path.with_name(path.name + ".tmp")
    # Over the file before last: pages that the kernel has at hand cost a tenth of fresh ones.
    with scratch.open("r+b" if scratch.exists() else "wb") as file:
        file.write(LENGTH.pack(len(header)) + header)
        for vector in vectors:
            file.write(vector.data)
        file.truncate()
    before = path.with_name(path.name + ".old")
    with suppress(OSError):  # not every file system has links; the next save then starts a file
        before.unlink(missing_ok=True)
        os.link(path, before)
    os.replace(scratch, path)
    with suppress(OSError):
        os.replace(before, scratch)


def load(path: Path, job: Digest, parameter_count: int) -> InnerState | None:
    """The saved state; None if none was saved. Raises StateLost if what is there cannot be used."""
    try:
        payload = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise StateLost(f"{path}: {fault.strerror}") from None
    try:
        (length,) = LENGTH.unpack_from(payload)
        header = canonical.decode(payload[LENGTH.size : LENGTH.size + length], HEADER_BYTES_MAX)
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
    body = memoryview(payload)[LENGTH.size + length :]
    whole = len(body) == VECTORS * FP32.itemsize * parameter_count
    if not whole or blake3(body).digest() != header.get("body_digest"):
        raise StateLost(f"{path}: torn or damaged")
    vectors_D = np.frombuffer(body, FP32).reshape(VECTORS, -1).copy()
    first_D, second_D, residual_D, tried_first_D, tried_second_D, tried_residual_D = vectors_D
    settled = Carried(first_D, second_D, residual_D, settled_steps)
    tried = Carried(tried_first_D, tried_second_D, tried_residual_D, tried_steps)
    return InnerState(settled, tried, settled_round, sealed_round)
