"""What each codec costs and saves: CPU of one thread beside a copy of the same vector, same run.

    python benchmarks/codecs.py [--parameters 10000000] [--repeat 5] [--json]

Sealing is what an author does once a round (difference, error feedback, encoding); checking and
decoding what every node does with each update. The update is Laplace noise, heavier in its tails
than a normal one, as pseudo-gradients are. The least of all repetitions counts.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from daa_node.tensors import Float32Array, UInt8Array
from daa_node.updates.compression.codec import CODEC_NAMES, Codec, bits_per_parameter, codec_named
from daa_node.updates.grid import CHUNK_PARAMETERS
from daa_node.updates.pipeline import seal

BASELINE = "int8"


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


def least_s(work: Callable[[], object], repeat: int) -> float:
    spans = []
    for _ in range(repeat + 1):
        before_s = time.process_time()
        work()
        spans.append(time.process_time() - before_s)
    return min(spans)


def decode_all(codec: Codec, blob: UInt8Array, parameter_count: int) -> None:
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
    if options.json:
        print(json.dumps([asdict(each) for each in costs]))
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


if __name__ == "__main__":
    main()
