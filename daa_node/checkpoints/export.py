"""One vertex's weights as a safetensors file that plain torch loads.

The state is replayed from the chain's files and must reach the vertex's roots, so what is exported
is what was certified. Weights are float32: grid integers times 2^-24.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import save_file

from daa_dag.checkpoint import Vertex
from daa_dag.chunking import CHUNK_BYTES_MAX, MANIFEST_BYTES_MAX, Manifest, decode_manifest
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot, ChainId, digest_of
from daa_node.checkpoints.certified import Certified
from daa_node.checkpoints.files import ChainReader
from daa_node.checkpoints.layout import CHUNKS, DELTAS, MANIFESTS
from daa_node.checkpoints.plain_files import Unreadable
from daa_node.checkpoints.publish import state_of
from daa_node.checkpoints.replay import ReplayedState, StateRules, delta_bytes_max
from daa_node.errors import PeerFault, UserError
from daa_node.tensors import Float32Array, slots_of
from daa_node.updates.grid import to_float32


def replayed_state(certified: Certified, vertex: Vertex, rules: StateRules) -> ReplayedState:
    """The state of a certified vertex, from the nearest snapshot below it or from the genesis.

    Raises UserError when the chain's files do not lead to the vertex's roots.
    """
    files, state = certified.files, ReplayedState(rules)
    start = vertex.height
    while start and not certified.has_snapshot(certified.chain[start]):
        start -= 1
    try:
        if start or rules.first_root is not None:
            base = certified.chain[start]
            roots = (base.model_root, base.outer_state_root)
            state.load(*(_snapshot(files, root) for root in roots))
        else:
            state.start()
        for step in certified.chain[start + 1 : vertex.height + 1]:
            name = f"{DELTAS}/{step.delta_root.hex()}"
            state.apply(files.read(name, delta_bytes_max(rules)))
    except (Unreadable, DagError, PeerFault, ValueError) as fault:
        raise _unreachable(vertex, str(fault)) from None
    if state.ref() != state_of(vertex):
        raise _unreachable(vertex, "the replay ends at other roots")
    return state


def export_safetensors(
    target: Path,
    state: ReplayedState,
    rules: StateRules,
    chain_id: ChainId,
    vertex: Vertex,
    loss_nats: float | None = None,
) -> None:
    """Write the weights to `target`, which is replaced only by a whole file. Raises UserError."""
    metadata = {
        "format": "pt",
        "chain_id": chain_id.hex(),
        "vertex_id": vertex.vertex_id.hex(),
        "height": str(vertex.height),
        "training_round": str(vertex.training_round),
        "tokens_total": str(vertex.tokens_total),
        "model_root": vertex.model_root.hex(),
    }
    if loss_nats is not None:
        metadata["loss_nats"] = repr(loss_nats)
    if not target.parent.is_dir():
        raise UserError(
            f"{target}: {target.parent} is no directory: make it, or choose another --out"
        )
    partial = target.with_name(target.name + ".part")
    try:
        save_file(dict(named_tensors(state, rules)), partial, metadata)
        os.replace(partial, target)
    except OSError as fault:
        raise UserError(f"{target}: {fault.strerror or fault}", exit_code=1) from None
    except SafetensorError as fault:  # as which the library tells of a disk, too
        raise UserError(f"cannot write {target}: {fault}", exit_code=1) from None
    finally:
        with suppress(OSError):  # there may be no such directory
            partial.unlink(missing_ok=True)


def named_tensors(state: ReplayedState, rules: StateRules) -> Mapping[str, Float32Array]:
    """The weights by name, in float32."""
    values_D = to_float32(state.weights_D)
    return {
        slot.spec.name: values_D[slot.start : slot.stop].reshape(slot.spec.shape)
        for slot in slots_of(rules.tensors)
    }


def _snapshot(files: ChainReader, root: BlobRoot) -> bytearray:
    manifest: Manifest = decode_manifest(
        files.read(f"{MANIFESTS}/{root.hex()}", MANIFEST_BYTES_MAX)
    )
    joined = bytearray()
    for digest in manifest.digests:
        chunk = files.read(f"{CHUNKS}/{digest.hex()}", CHUNK_BYTES_MAX)
        if digest_of(chunk) != digest:
            raise Unreadable(f"{CHUNKS}/{digest.hex()} does not hash to its name")
        joined += chunk
    return joined


def _unreachable(vertex: Vertex, why: str) -> UserError:
    return UserError(
        f"the state of height {vertex.height} cannot be had from this directory: {why}; "
        "`daa-node checkpoint verify` says more",
        exit_code=1,
    )
