"""How the agreed aggregate of a sparse round may travel: bytes both ways, and held-out loss.

    python benchmarks/sparse_deltas.py [candidates | levels] [--rounds 60] [--steps 8]
        [--authors 8] [--width 32] [--seeds 2] [--share 0.9] [--announcers 8]
        [--only WORD ...] [--json]

Authors train a byte GPT of 35k parameters on Shakespeare with the daemon's own core, rules and
outer step, from first weights and batches of each seed. A candidate says what an author sends and
what of the merged updates comes back:

  int8         all of it both ways: what a sparse round is measured by
  top_k        up the codec of that name. Down every author's update once more (replay), their
               union (what the daemon does), or a second top_k
  second top_k the 128 largest of each block. What is left either is everybody's, a residual that
               all certify and keep (certified), or goes back to whose it was (taken back)
  mask_k       all authors send the same 128 of each 4,096 places, which some of them, drawn by
               lot, have named a round ahead: the largest of what each owes itself. Two bits a
               place and a scale of eighths of an octave a block, int4 down. `levels` tries what
               two bits may mean, where so much of what waits still does a round later (--share)
               and so many authors are drawn (--announcers)

What waits is forgotten at the rate that was best for each, and so are levels and the number of
authors that name places. Bytes are those of one parameter. `places` are those of the places named,
as few as Elias and Fano need: the drawn send them beside their updates, and everybody receives
them. Sources: ScaleCom (Chen et al. 2020) for places in common, SparseLoCo (Sarfi et al. 2025).

A trimmed mean drops of each place the f lowest and highest, f as the daemon has it for validators:
a third. Legend: D parameters, N authors, K blocks of B = 4096, M common places of a block.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import log2
from pathlib import Path
from statistics import mean
from typing import Protocol, cast

import numpy as np
import torch

from daa_dag.ids import BlobRoot, Digest, NodeId, digest_of
from daa_node.seams import StateRef, TrainOrder
from daa_node.tensors import Float32Array, Float64Array, Int32Array, Int64Array
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.core import open_core
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.compression.blob import Blob
from daa_node.updates.compression.codec import Codec, decode
from daa_node.updates.compression.delta import DENSE, DeltaFormat
from daa_node.updates.compression.dense import INT4, INT8
from daa_node.updates.compression.error_feedback import residual_after, with_residual
from daa_node.updates.compression.top_k import TOP_K
from daa_node.updates.compression.union import UNION
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.grid import GRID_ONE, SHIFT_MAX, to_float32
from daa_node.updates.outer_step import OuterRates, OuterState, apply_delta

BLOCK = 4096
COMMON = 128  # places of a block
ANNOUNCERS = 8  # authors drawn in each round
# Of what waits, how much does after a round. Tried: 1, 0.95, 0.9, 0.85, 0.8.
COMMON_SHARE, CERTIFIED_SHARE = 0.9, 0.95
OCTAVE = 8  # scales of a block from a power of two to the next
SCALES_MAX = OCTAVE * SHIFT_MAX  # in one byte
PARTS = ("candidates", "levels")
SHOWN = 4  # losses on the way
NOWHERE = StateRef(BlobRoot(bytes(32)), BlobRoot(bytes(32)))

# (what is sent of each block, on the grid) -> (what that decodes to, bytes a block)
Quantised = Callable[[Float64Array], tuple[Float64Array, int]]


@dataclass(frozen=True)
class Size:
    authors: int
    width: int
    rounds: int
    steps: int  # of an author in a round


class Updates(Protocol):
    """What authors send."""

    share: float  # of what a round could not send, how much the next one still owes
    size_bytes: int  # of an update
    places_bytes: int  # of what was named a round ahead

    def coded(self, wanted_D: Float32Array) -> Int32Array:
        """What it decodes to."""

    def end(self, owed_ND: Sequence[Float32Array], lot: np.random.Generator) -> None:
        """All have sent theirs, and owe themselves this."""


class Delta(Protocol):
    """What comes back."""

    def coded(self, merged_D: Int32Array) -> tuple[Int32Array, int]:
        """What it decodes to, and its bytes."""


class InCodec:
    """Updates in one of the daemon's codecs."""

    places_bytes = 0

    def __init__(self, codec: Codec, parameter_count: int) -> None:
        self._codec = codec
        self._blob = np.zeros(codec.encoded_size_bytes(parameter_count), np.uint8)
        self.share = codec.residual_share
        self.size_bytes = self._blob.size

    def coded(self, wanted_D: Float32Array) -> Int32Array:
        self._codec.encode_chunk(wanted_D, 0, self._blob, wanted_D.size)
        return decode(self._codec, self._blob, 0, wanted_D.size, wanted_D.size)

    def end(self, owed_ND: Sequence[Float32Array], lot: np.random.Generator) -> None:
        pass


class InCommonPlaces:
    """Updates of mask_k."""

    def __init__(
        self, quantised: Quantised, parameter_count: int, share: float, announcers: int
    ) -> None:
        self._quantised = quantised
        self.share = share
        self._announcers = announcers
        starts_K = np.arange(0, parameter_count, BLOCK)
        stride_K = np.minimum(BLOCK, parameter_count - starts_K) // COMMON
        self.place_KM: Int64Array = starts_K[:, None] + np.arange(COMMON) * stride_K[:, None]
        high_bits, low_bits = 2 * COMMON, int(log2(BLOCK // COMMON))  # Elias and Fano
        self.places_bytes = len(starts_K) * (high_bits + COMMON * low_bits) // 8
        _, block_bytes = quantised(np.zeros(self.place_KM.shape))
        self.size_bytes = len(starts_K) * block_bytes

    def coded(self, wanted_D: Float32Array) -> Int32Array:
        decoded_KM, _ = self._quantised(wanted_D[self.place_KM].astype(np.float64) * GRID_ONE)
        sent_D = np.zeros(wanted_D.size, np.int32)
        sent_D[self.place_KM] = decoded_KM
        return sent_D

    def end(self, owed_ND: Sequence[Float32Array], lot: np.random.Generator) -> None:
        """Each of those drawn names as many places; who comes later leaves out what is named."""
        count = min(self._announcers, len(owed_ND))
        named = [COMMON * (turn + 1) // count - COMMON * turn // count for turn in range(count)]
        left: list[Int64Array] = []
        free_KB = in_blocks(np.ones(owed_ND[0].size))
        for author, places in zip(lot.permutation(len(owed_ND)), named, strict=False):
            owed_KB = in_blocks(np.abs(owed_ND[author]) + np.float32(1e-30)) * free_KB
            best_KM = np.argpartition(-owed_KB, places - 1, axis=1)[:, :places]
            np.put_along_axis(free_KB, best_KM, 0.0, axis=1)
            left.append(best_KM)
        starts_K = np.arange(len(free_KB)) * BLOCK
        self.place_KM = np.sort(np.concatenate(left, axis=1), axis=1) + starts_K[:, None]


class Whole:
    """The merged update in one of the daemon's formats."""

    def __init__(self, delta_format: DeltaFormat) -> None:
        self._format = delta_format

    def coded(self, merged_D: Int32Array) -> tuple[Int32Array, int]:
        writer = self._format.writer(merged_D.size)
        return writer.add(merged_D), writer.blob().size


class Replay:
    """All updates once more, from which everybody merges."""

    def __init__(self, updates: Updates, authors: int) -> None:
        self._size_bytes = updates.size_bytes * authors

    def coded(self, merged_D: Int32Array) -> tuple[Int32Array, int]:
        return merged_D, self._size_bytes


class Largest:
    """A second top_k: of each block so many, with a residual that everybody keeps if `share`."""

    def __init__(self, kept: int, share: float) -> None:
        self._kept = kept
        self._share = share
        self._owed_D: Int64Array | None = None

    def coded(self, merged_D: Int32Array) -> tuple[Int32Array, int]:
        wanted_D = merged_D.astype(np.int64)
        if self._owed_D is not None:
            wanted_D += np.rint(self._owed_D * self._share).astype(np.int64)
        size_KB = np.abs(in_blocks(wanted_D))
        best_KM = np.argpartition(-size_KB, self._kept - 1, axis=1)[:, : self._kept]
        kept_KB = np.zeros(size_KB.shape, np.bool_)
        np.put_along_axis(kept_KB, best_KM, True, axis=1)
        kept_D = kept_KB.reshape(-1)[: wanted_D.size]
        sent_D, size_bytes = Whole(UNION).coded((wanted_D * kept_D).astype(np.int32))
        self._owed_D = wanted_D - sent_D if self._share else None
        return sent_D, size_bytes


class Int4OfPlaces:
    """What the merged update has at the common places, in the daemon's int4."""

    def __init__(self, updates: InCommonPlaces) -> None:
        self._updates = updates

    def coded(self, merged_D: Int32Array) -> tuple[Int32Array, int]:
        place_KM = self._updates.place_KM
        blob = np.zeros(INT4.encoded_size_bytes(place_KM.size), np.uint8)
        values = INT4.requantise_chunk(merged_D[place_KM].reshape(-1), 0, blob, place_KM.size)
        sent_D = np.zeros_like(merged_D)
        sent_D[place_KM] = values.reshape(place_KM.shape)
        return sent_D, blob.size


class AsItIs:
    """What a delta format steps with, of one that is decoded already."""

    block_parameters = 1

    def decode_blocks(
        self, blob: Blob, start: int, parameter_count: int, out_C: Int32Array
    ) -> None:
        out_C[:] = np.frombuffer(blob, np.int32)[start : start + out_C.size]


def in_blocks(values_D: np.ndarray) -> np.ndarray:
    """Rows of 4096, the last one with zeros behind it."""
    return np.pad(values_D, (0, -values_D.size % BLOCK)).reshape(-1, BLOCK)


def scale_of(number: np.ndarray) -> np.ndarray:
    """From its byte, in grid units."""
    return np.exp2(np.clip(number, 0, SCALES_MAX) / OCTAVE)


def to_levels(*levels: float) -> Quantised:
    """The nearest of these times the scale, which is the one with the least squared error."""
    tried_S = np.arange(-OCTAVE, 4 * OCTAVE)
    block_bytes = COMMON * (len(levels) - 1).bit_length() // 8 + 1

    def quantised(values_KM: Float64Array) -> tuple[Float64Array, int]:
        peak_K = np.maximum(1.0, np.abs(values_KM).max(axis=1))
        number_KS = np.ceil(np.log2(peak_K) * OCTAVE)[:, None] - tried_S
        level_KSL = np.rint(scale_of(number_KS)[:, :, None] * np.array(levels))
        error_KSML = np.abs(values_KM[:, None, :, None] - level_KSL[:, :, None, :])
        best_K = np.square(error_KSML.min(axis=3)).sum(axis=2).argmin(axis=1)
        rows_K = np.arange(len(best_K))
        nearest_KM = error_KSML[rows_K, best_K].argmin(axis=2)
        return np.take_along_axis(level_KSL[rows_K, best_K], nearest_KM, axis=1), block_bytes

    return quantised


def to_halves(values_KM: Float64Array) -> tuple[Float64Array, int]:
    """A sign, and the mean of the larger or of the smaller half of the block: two scales."""
    size_KM = np.abs(values_KM)
    is_large_KM = size_KM > np.median(size_KM, axis=1, keepdims=True)
    decoded_KM = np.zeros_like(values_KM)
    for half_KM in (is_large_KM, ~is_large_KM):
        count_K = np.maximum(1, half_KM.sum(axis=1))
        mean_K = np.maximum(1.0, (size_KM * half_KM).sum(axis=1) / count_K)
        scale_K = np.rint(scale_of(np.rint(np.log2(mean_K) * OCTAVE)))
        decoded_KM += half_KM * scale_K[:, None]
    return np.where(values_KM < 0, -decoded_KM, decoded_KM), COMMON * 2 // 8 + 2


@dataclass(frozen=True)
class Candidate:
    name: str
    ways: Callable[[int, int], tuple[Updates, Delta]]  # of so many parameters and authors
    rules: tuple[str, ...] = ("mean",)
    is_taken_back: bool = False  # what of an update is not in the delta goes back to its author


def top_k(delta_of: Callable[[Updates, int], Delta]) -> Callable[[int, int], tuple[Updates, Delta]]:
    def ways(parameter_count: int, authors: int) -> tuple[Updates, Delta]:
        updates = InCodec(TOP_K, parameter_count)
        return updates, delta_of(updates, authors)

    return ways


def mask_k(
    quantised: Quantised, share: float = COMMON_SHARE, announcers: int = ANNOUNCERS
) -> Callable[[int, int], tuple[Updates, Delta]]:
    def ways(parameter_count: int, authors: int) -> tuple[Updates, Delta]:
        updates = InCommonPlaces(quantised, parameter_count, share, announcers)
        return updates, Int4OfPlaces(updates)

    return ways


BOTH = ("mean", "trimmed_mean")
LEVELS: dict[str, Quantised] = {
    "0.5 and 2": to_levels(-2, -0.5, 0.5, 2),
    "1 and 2": to_levels(-2, -1, 1, 2),
    "1 and 3": to_levels(-3, -1, 1, 3),
    "2 and 3": to_levels(-3, -2, 2, 3),
    "0 and 1": to_levels(-1, 0, 0, 1),
    "means of halves": to_halves,
    "15 levels, as 4 bits have": to_levels(*range(-7, 8)),
}
CANDIDATES = (
    Candidate("int8", lambda count, _: (InCodec(INT8, count), Whole(DENSE)), BOTH),
    Candidate("top_k, replay", top_k(Replay)),
    Candidate("top_k, union", top_k(lambda _updates, _authors: Whole(UNION)), BOTH),
    Candidate("second top_k, certified", top_k(lambda _u, _a: Largest(128, CERTIFIED_SHARE))),
    Candidate("second top_k, taken back", top_k(lambda _u, _a: Largest(128, 0)), ("mean",), True),
    Candidate("mask_k", mask_k(LEVELS["1 and 3"]), BOTH),
    Candidate("mask_k as judged first", mask_k(LEVELS["0.5 and 2"], TOP_K.residual_share, 4)),
)


@dataclass(frozen=True)
class Trained:
    candidate: str
    rule: str
    seed: int
    up: float  # bytes a parameter: of an update
    places: float
    down: float  # of the delta, over the second half of all rounds
    losses: list[float]  # at SHOWN times


def train(candidate: Candidate, rule_name: str, seed: int, size: Size, cache: Path) -> Trained:
    job = TrainingJob(
        model=ModelConfig(kind="byte_gpt", depth=2, width=size.width),
        inner=InnerConfig(lr=0.006, total_steps=size.rounds * size.steps),
        updates=UpdatesConfig(error_feedback=False),  # that is ours here
        seed=seed,
    )
    cpu = torch.device("cpu")
    cores = [open_core(job, cpu, cache, time.monotonic) for _ in range(size.authors)]
    weights_D = genesis_weights(job.model, seed)
    state = OuterState(weights_D, np.zeros_like(weights_D))
    rates = OuterRates(job.updates.outer_lr, job.updates.outer_momentum)
    updates, delta = candidate.ways(weights_D.size, size.authors)
    rule, f_agg = rule_named(rule_name), 0 if rule_name == "mean" else (size.authors - 1) // 3
    owed_ND = [np.zeros(weights_D.size, np.float32) for _ in cores]
    lot = np.random.default_rng(seed)
    losses, down = [], []
    for number in range(size.rounds):
        base_D = to_float32(state.weights_D)
        rows_ND = np.empty((size.authors, weights_D.size), np.int32)
        for author, core in enumerate(cores):
            order = order_of(seed, author, number, size.steps)
            moved_D = base_D - core.train_and_seal(order, state.weights_D).end.weights_D
            wanted_D = with_residual(moved_D, owed_ND[author], updates.share)
            rows_ND[author] = updates.coded(wanted_D)
            owed_ND[author] = residual_after(wanted_D, to_float32(rows_ND[author]))
        merged_D = rule.aggregate_chunk(rows_ND, [1] * size.authors, f_agg)
        sent_D, size_bytes = delta.coded(merged_D)
        if candidate.is_taken_back:
            for owed_D, row_D in zip(owed_ND, rows_ND, strict=True):
                owed_D += to_float32(row_D * (sent_D == 0))
        updates.end(owed_ND, lot)
        apply_delta(state, sent_D.view(np.uint8), rates, state, cast(DeltaFormat, AsItIs()))
        if 2 * number >= size.rounds:
            down.append(size_bytes)
        if (number + 1) % max(1, size.rounds // SHOWN) == 0:
            losses.append(cores[0].evaluate(state.weights_D))
    per = weights_D.size
    sizes = updates.size_bytes / per, updates.places_bytes / per, mean(down) / per
    return Trained(candidate.name, rule_name, seed, *sizes, losses)


def order_of(seed: int, author: int, number: int, steps: int) -> TrainOrder:
    return TrainOrder(
        base=NOWHERE,
        seed=Digest(digest_of(b"%d %d" % (seed, number))),
        round=number,
        author=NodeId(author.to_bytes(32)),
        steps_max=steps,
        stop_after_s=float("inf"),
        codec=INT8.name,  # of a blob that nobody reads
        first_step=number * steps,
        merged_round=number - 1,
    )


def shown(found: Sequence[Trained]) -> str:
    """A line of one candidate and rule, over all seeds."""
    first = found[0]
    down = mean(each.down for each in found)
    losses = " ".join(f"{mean(at):.3f}" for at in zip(*(f.losses for f in found), strict=True))
    spread = ", ".join(f"{each.losses[-1]:.3f}" for each in found)
    sizes = f"{first.up:7.4f} {down:7.4f} {first.places:7.4f}"
    return f"{first.candidate:33} {first.rule:13} {sizes}  {losses}  ({spread})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("part", nargs="?", choices=PARTS, default=PARTS[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=8, help="of an author in a round")
    parser.add_argument("--authors", type=int, default=8)
    parser.add_argument("--width", type=int, default=32, help="of the model, two blocks deep")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--share", type=float, default=COMMON_SHARE, help="of `levels`")
    parser.add_argument("--announcers", type=int, default=ANNOUNCERS, help="of `levels`")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="in the candidate's name")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    size = Size(options.authors, options.width, options.rounds, options.steps)
    tried = [
        Candidate(f"mask_k, {name}", mask_k(each, options.share, options.announcers))
        for name, each in LEVELS.items()
    ]
    found: list[Trained] = []
    if not options.json:
        print(f"{size}; bytes a parameter up, down, and of places; loss on the way (each seed's)")
    with tempfile.TemporaryDirectory() as cache:
        for candidate in CANDIDATES if options.part == PARTS[0] else tried:
            if options.only and not any(word in candidate.name for word in options.only):
                continue
            for rule in candidate.rules:
                seeds = range(1, options.seeds + 1)
                ran = [train(candidate, rule, seed, size, Path(cache)) for seed in seeds]
                found.extend(ran)
                if not options.json:
                    print(shown(ran), flush=True)
    if options.json:
        print(json.dumps([asdict(each) for each in found]))


if __name__ == "__main__":
    main()
