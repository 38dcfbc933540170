"""One vertex's weights as a safetensors file that plain torch loads.

    header length (8 bytes) | header (JSON) | tensors

The state is replayed from the chain's files and must reach the vertex's roots, so what is exported
is what was certified. Weights are float32: grid integers times 2^-24. With a room for the state and
the deltas, nothing of the size of a model is in memory: chunk by chunk it goes from file to file.
Source of the format: github.com/safetensors/safetensors, README, "Format".
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daa_dag.checkpoint import Vertex
from daa_dag.chunking import CHUNK_BYTES_MAX, MANIFEST_BYTES_MAX, Manifest, decode_manifest
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot, ChainId, digest_of
from daa_node.checkpoints.beside import written_whole
from daa_node.checkpoints.certified import Past, way_to
from daa_node.checkpoints.files import ChainFiles, ChainReader
from daa_node.checkpoints.layout import CHUNKS, DELTAS, MANIFESTS
from daa_node.checkpoints.plain_files import Unreadable
from daa_node.checkpoints.publish import state_of
from daa_node.checkpoints.replay import ReplayedState, StateRules, delta_bytes_max
from daa_node.errors import PeerFault, UserError
from daa_node.tensors import slots_of
from daa_node.updates.compression.blob import Blob
from daa_node.updates.grid import CHUNK_PARAMETERS, float32_piece

DELTA = "delta"  # a file of a room
HEADER_ALIGNED = 8  # bytes, with spaces: so tensors can be mapped
LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Room:
    """Where a state lies, and a delta, in place of memory: 9 bytes a parameter of the disk."""

    folder: Path  # empty; it gets a file WEIGHTS, a grid vector
    files: ChainFiles  # those that are certified


def replayed_state(
    past: Past, vertex: Vertex, rules: StateRules, room: Room | None = None
) -> ReplayedState:
    """The state of a certified vertex, from the nearest snapshot below it or from the genesis.

    Raises UserError when the chain's files do not lead to the vertex's roots, and OSError where the
    room has no place for it.
    """
    files = past.files
    state = ReplayedState(rules, None if room is None else room.folder)
    base, *steps = way_to(past, vertex)
    try:
        if base.height or rules.first_root is not None:
            roots = (base.model_root, base.outer_state_root)
            state.load(*(_snapshot(files, root) for root in roots))
        else:
            state.start()
        for step in steps:
            state.apply(_delta(files, step, rules, room))
    except (Unreadable, DagError, PeerFault, ValueError) as fault:
        raise _unreachable(vertex, str(fault)) from None
    if state.ref() != state_of(vertex):
        raise _unreachable(vertex, "the replay ends at other roots")
    return state


def export_safetensors(
    target: Path, state: ReplayedState, rules: StateRules, chain_id: ChainId, vertex: Vertex
) -> None:
    """Write the weights to `target`, which is replaced only by a whole file. Raises UserError."""
    with written_whole(target) as partial:
        write_safetensors(partial, state, rules, chain_id, vertex)


def write_safetensors(
    file: Path, state: ReplayedState, rules: StateRules, chain_id: ChainId, vertex: Vertex
) -> None:
    """A new file with the vertex's weights in float32. Raises OSError, and leaves a half then."""
    metadata = {
        "format": "pt",
        "chain_id": chain_id.hex(),
        "vertex_id": vertex.vertex_id.hex(),
        "height": str(vertex.height),
        "training_round": str(vertex.training_round),
        "tokens_total": str(vertex.tokens_total),
        "model_root": vertex.model_root.hex(),
    }
    header = _header(rules, metadata)
    # a plain array: slicing a memmap makes a memmap, ten times slower
    weights_D = state.weights_D.view(np.ndarray)
    with file.open("xb") as out:
        out.write(len(header).to_bytes(LENGTH_BYTES, "little") + header)
        for start in range(0, weights_D.size, CHUNK_PARAMETERS):
            values_C = float32_piece(weights_D, start, start + CHUNK_PARAMETERS)
            out.write(values_C.astype("<f4", copy=False).data)


def _header(rules: StateRules, metadata: Mapping[str, str]) -> bytes:
    """Tensors lie in the file as they do in the vector."""
    entries: dict[str, object] = {"__metadata__": metadata}
    size = np.dtype(np.float32).itemsize
    for slot in slots_of(rules.tensors):
        offsets = [slot.start * size, slot.stop * size]
        entries[slot.spec.name] = {
            "dtype": "F32",
            "shape": slot.spec.shape,
            "data_offsets": offsets,
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % HEADER_ALIGNED)


def _snapshot(files: ChainReader, root: BlobRoot) -> Iterator[bytes]:
    manifest: Manifest = decode_manifest(
        files.read(f"{MANIFESTS}/{root.hex()}", MANIFEST_BYTES_MAX)
    )
    for digest in manifest.digests:
        chunk = files.read(f"{CHUNKS}/{digest.hex()}", CHUNK_BYTES_MAX)
        if digest_of(chunk) != digest:
            raise Unreadable(f"{CHUNKS}/{digest.hex()} does not hash to its name")
        yield chunk


def _delta(files: ChainReader, step: Vertex, rules: StateRules, room: Room | None) -> Blob:
    name, bytes_max = f"{DELTAS}/{step.delta_root.hex()}", delta_bytes_max(rules)
    if room is None:
        return files.read(name, bytes_max)
    # A copy: what lies in a chain may be cut short by anybody, and a map of it would end us.
    copy = room.folder / DELTA
    copy.unlink(missing_ok=True)  # that of the step below is still mapped
    with copy.open("wb") as file:
        for piece in room.files.pieces(name, bytes_max):
            file.write(piece)
    return np.memmap(copy, np.uint8, mode="r")


def _unreachable(vertex: Vertex, why: str) -> UserError:
    return UserError(
        f"the state of height {vertex.height} cannot be had from this directory: {why}; "
        "`daa-node checkpoint verify` says more",
        exit_code=1,
    )
