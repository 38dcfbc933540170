"""What each codec costs and saves: CPU of one thread beside a copy of the same vector, same run.

    python benchmarks/codecs.py [--parameters 10000000] [--repeat 5] [--json]

Sealing is what an author does once a round (difference, error feedback, encoding); checking and
decoding what every node does with each update. The update is Laplace noise, heavier in its tails
than a normal one, as pseudo-gradients are. The least of all repetitions counts.

Then the delta of a round of 4 and of 24 such updates in top_k, as it is agreed and as int8 of every
parameter, with what it costs to code and to decode. The updates have nothing in common but chance:
real ones share places, and their deltas are smaller (`benchmarks/codec_losses.py` prints them).
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from daa_node.tensors import Float32Array, Int32Array, UInt8Array
from daa_node.updates.aggregation.mean import Mean
from daa_node.updates.compression.blob import Blob
from daa_node.updates.compression.codec import (
    CODEC_NAMES,
    Codec,
    bits_per_parameter,
    codec_named,
    encode,
)
from daa_node.updates.compression.delta import DENSE, DeltaFormat
from daa_node.updates.compression.top_k import TOP_K
from daa_node.updates.compression.union import UNION
from daa_node.updates.grid import CHUNK_PARAMETERS
from daa_node.updates.pipeline import seal

BASELINE = "int8"
MERGED = (4, 24)


@dataclass(frozen=True)
class Cost:
    """CPU seconds of the whole vector, and how often a copy of it would have fitted in."""

    codec: str
    bits_a_parameter: float
    bytes: int
    seal_s: float
    norm_s: float
    decode_s: float
    seal_in_copies: float
    decode_in_copies: float


@dataclass(frozen=True)
class DeltaCost:
    """Of one format, for a round of so many top_k updates."""

    merged: int
    delta: str
    bytes: int
    of_dense: float
    of_all_updates: float
    code_s: float
    decode_s: float


def least_s(work: Callable[[], object], repeat: int) -> float:
    spans = []
    for _ in range(repeat + 1):
        before_s = time.process_time()
        work()
        spans.append(time.process_time() - before_s)
    return min(spans)


def decode_all(codec: Codec | DeltaFormat, blob: Blob, parameter_count: int) -> None:
    """As aggregation does it: chunk by chunk, into the same room."""
    room_C = np.empty(CHUNK_PARAMETERS, np.int32)
    for start in range(0, parameter_count, CHUNK_PARAMETERS):
        whole = -(-min(CHUNK_PARAMETERS, parameter_count - start) // 64) * 64
        codec.decode_blocks(blob, start, parameter_count, room_C[:whole])


def cost(name: str, base_D: Float32Array, trained_D: Float32Array, repeat: int) -> Cost:
    codec, count = codec_named(name), base_D.size
    residual_D, room_D, copied_D = np.zeros_like(base_D), np.empty_like(base_D), base_D.copy()
    blob = seal(base_D, trained_D, residual_D, codec, None, room_D).blob
    copy_s = least_s(lambda: np.copyto(copied_D, base_D), repeat)
    seal_s = least_s(lambda: seal(base_D, trained_D, residual_D, codec, None, room_D), repeat)
    norm_s = least_s(lambda: codec.norm_squared(blob, count), repeat)
    decode_s = least_s(lambda: decode_all(codec, blob, count), repeat)
    bits = float(bits_per_parameter(codec))
    in_copies = seal_s / copy_s, decode_s / copy_s
    return Cost(name, bits, blob.size, seal_s, norm_s, decode_s, *in_copies)


def code_all(delta_format: DeltaFormat, merged_D: Int32Array) -> UInt8Array:
    """As aggregation does it, which brings each chunk in an array of its own."""
    writer, room_C = delta_format.writer(merged_D.size), np.empty(CHUNK_PARAMETERS, np.int32)
    for start in range(0, merged_D.size, CHUNK_PARAMETERS):
        chunk_C = room_C[: min(CHUNK_PARAMETERS, merged_D.size - start)]
        np.copyto(chunk_C, merged_D[start : start + CHUNK_PARAMETERS])
        writer.add(chunk_C)
    return writer.blob()


def merged_of(updates: list[UInt8Array], parameter_count: int) -> Int32Array:
    """Their mean on the grid, padded to whole 64."""
    merged_D = np.empty(-(-parameter_count // 64) * 64, np.int32)
    for start in range(0, merged_D.size, CHUNK_PARAMETERS):
        part_C = merged_D[start : start + CHUNK_PARAMETERS]
        rows_NC = np.empty((len(updates), part_C.size), np.int32)
        for update, row_C in zip(updates, rows_NC, strict=True):
            TOP_K.decode_blocks(update, start, parameter_count, row_C)
        part_C[:] = Mean().aggregate_chunk(rows_NC, [1] * len(updates), 0)
    return merged_D


def delta_costs(parameter_count: int, repeat: int) -> list[DeltaCost]:
    chance = np.random.default_rng(1)
    updates = [
        encode(TOP_K, (chance.laplace(size=parameter_count) * 1e-3).astype(np.float32))
        for _ in range(max(MERGED))
    ]
    costs: list[DeltaCost] = []
    for merged in MERGED:
        merged_D = merged_of(updates[:merged], parameter_count)
        dense_bytes = DENSE.size_bytes_max(parameter_count)
        for coded in (DENSE, UNION):
            blob = code_all(coded, merged_D)
            code_s = least_s(partial(code_all, coded, merged_D), repeat)
            decode_s = least_s(partial(decode_all, coded, blob, parameter_count), repeat)
            shares = blob.size / dense_bytes, blob.size / (merged * updates[0].size)
            costs.append(DeltaCost(merged, coded.name, blob.size, *shares, code_s, decode_s))
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--parameters", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chance = np.random.default_rng(0)
    base_D = (chance.standard_normal(options.parameters) * 0.02).astype(np.float32)
    trained_D = base_D + (chance.laplace(size=options.parameters) * 1e-3).astype(np.float32)
    costs = [cost(name, base_D, trained_D, options.repeat) for name in CODEC_NAMES]
    deltas = delta_costs(options.parameters, options.repeat)
    if options.json:
        print(json.dumps([asdict(each) for each in [*costs, *deltas]]))
        return
    peer = next(each for each in costs if each.codec == BASELINE)
    print(f"{options.parameters:,} parameters, CPU of one thread")
    for each in costs:
        print(
            f"  {each.codec:6} {each.bits_a_parameter:6.3f} bits {each.bytes / 1e6:7.3f} MB"
            f"  seal {each.seal_s * 1e3:6.1f} ms ({each.seal_s / peer.seal_s:4.2f} x {BASELINE},"
            f" {each.seal_in_copies:4.1f} copies)  norm {each.norm_s * 1e3:5.1f} ms"
            f"  decode {each.decode_s * 1e3:5.1f} ms ({each.decode_s / peer.decode_s:4.2f} x)"
        )
    print("the delta of so many top_k updates")
    for delta in deltas:
        print(
            f"  {delta.merged:2} {delta.delta:6} {delta.bytes / 1e6:7.3f} MB"
            f" ({delta.of_dense:5.3f} x int8, {delta.of_all_updates:5.2f} x all updates)"
            f"  code {delta.code_s * 1e3:6.1f} ms  decode {delta.decode_s * 1e3:6.1f} ms"
        )


if __name__ == "__main__":
    main()
