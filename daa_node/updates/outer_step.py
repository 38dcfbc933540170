"""The agreed outer step: decode, aggregate, code the delta, integer Nesterov.

    v' = R(mu v) + g        w' = w - R(lambda (R(mu v') + g))        (docs/protocol.md, 5)

R rounds to nearest; w' and v' saturate. g is what the *delta* decodes to, so whoever holds the base
and the delta alone replays the step bit for bit. One pass over chunks of the parameter vector: it
never holds N copies of the model, and the result does not depend on the chunk size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from daa_node.tensors import Int32Array, UInt8Array
from daa_node.updates.aggregation.rule import Rule
from daa_node.updates.compression.blob import Blob
from daa_node.updates.compression.codec import codec_named
from daa_node.updates.compression.delta import DeltaFormat
from daa_node.updates.grid import (
    BLOCK,
    CHUNK_PARAMETERS,
    GRID_MAX,
    block_count_of,
    dividend_peak,
    peak_of,
    quotient_peak,
    round_div,
    round_div_int32,
)


@dataclass(frozen=True, slots=True)
class OuterRates:
    """Rationals [numerator, denominator] as UpdatesConfig allows them."""

    lr: tuple[int, int]
    momentum: tuple[int, int]


@dataclass(frozen=True, slots=True)
class OuterState:
    """Grid weights and outer momentum; memory maps will do."""

    weights_D: Int32Array
    momentum_D: Int32Array


@dataclass(frozen=True, slots=True)
class Contribution:
    """One member of a decided set: a blob that passed its codec's `check`."""

    blob: Blob
    codec: str
    weight: int  # used by rules with a weighted formula only


def aggregate_and_step(
    base: OuterState,
    contributions: Sequence[Contribution],
    rule: Rule,
    f_agg: int,
    rates: OuterRates,
    out: OuterState,
    delta_format: DeltaFormat,
) -> UInt8Array:
    """Merges the contributions into a delta, applies it to `base`, into `out`, and returns it.

    `out` may be `base` itself. The order of the contributions changes nothing. Raises RuleUnbounded
    before anything is written.
    """
    parameter_count = base.weights_D.size
    codecs = [codec_named(contribution.codec) for contribution in contributions]
    weights_N = [contribution.weight for contribution in contributions]
    updates_NC = np.empty((len(contributions), CHUNK_PARAMETERS), np.int32)
    stepper, delta = _Stepper(base, rates, out), delta_format.writer(parameter_count)
    for start, stop in _chunks_of_blocks(parameter_count):
        decoded_NC = updates_NC[:, : stop - start]
        for codec, contribution, decoded_C in zip(codecs, contributions, decoded_NC, strict=True):
            codec.decode_blocks(contribution.blob, start, parameter_count, decoded_C)
        merged_C = rule.aggregate_chunk(decoded_NC, weights_N, f_agg)
        stepper.step(start, delta.add(merged_C))
    return delta.blob()


def apply_delta(
    base: OuterState, delta: Blob, rates: OuterRates, out: OuterState, delta_format: DeltaFormat
) -> None:
    """Replays one agreed aggregate: `out` is what aggregate_and_step made of the same base.

    The delta passed its format's `check`. `out` may be `base` itself.
    """
    parameter_count = base.weights_D.size
    chunk_C = np.empty(CHUNK_PARAMETERS, np.int32)
    stepper = _Stepper(base, rates, out)
    for start, stop in _chunks_of_blocks(parameter_count):
        delta_C = chunk_C[: stop - start]
        delta_format.decode_blocks(delta, start, parameter_count, delta_C)
        stepper.step(start, delta_C)


class _Stepper:
    """The Nesterov step on one chunk after another, in scratch that stays in the cache.

    In int32 where the chunk's own peaks show that nothing can leave it, as with any healthy model;
    else everything is an integer in float64. With momentum under 1, |R(mu v) + g| is at most 2^32,
    and with terms of rates up to 2^12 every dividend stays under 2^46.
    """

    def __init__(self, base: OuterState, rates: OuterRates, out: OuterState) -> None:
        # plain arrays: slicing a memmap makes a memmap, ten times slower
        self._weights_D = base.weights_D.view(np.ndarray)
        self._momentum_D = base.momentum_D.view(np.ndarray)
        self._out_weights_D = out.weights_D.view(np.ndarray)
        self._out_momentum_D = out.momentum_D.view(np.ndarray)
        self._rates = rates
        self._scratch = np.empty((3, CHUNK_PARAMETERS), np.float64)
        self._scratch_int32 = np.empty(CHUNK_PARAMETERS, np.int32)

    def step(self, start: int, delta_C: Int32Array) -> None:
        """Steps parameters from `start` on; what `delta_C` holds past the last one is padding."""
        stop = min(start + delta_C.size, self._weights_D.size)
        gradient_C = delta_C[: stop - start]
        if self._stays_in_int32(start, stop, peak_of(gradient_C)):
            self._step_int32(start, stop, gradient_C)
        else:
            self._step_float64(start, stop, gradient_C)

    def _stays_in_int32(self, start: int, stop: int, gradient_peak: int) -> bool:
        """Whether no dividend, sum or result of this chunk can be larger than GRID_MAX."""
        lr, momentum = self._rates.lr, self._rates.momentum
        weights_peak = peak_of(self._weights_D[start:stop])
        before = peak_of(self._momentum_D[start:stop])
        after = quotient_peak(before, *momentum) + gradient_peak
        ahead = quotient_peak(after, *momentum) + gradient_peak
        peaks = (
            dividend_peak(before, *momentum),
            dividend_peak(after, *momentum),
            dividend_peak(ahead, *lr),
            after,
            weights_peak + quotient_peak(ahead, *lr),
        )
        return max(peaks) <= GRID_MAX

    def _step_int32(self, start: int, stop: int, gradient_C: Int32Array) -> None:
        momentum_C = self._out_momentum_D[start:stop]
        scratch_C = self._scratch_int32[: stop - start]
        round_div_int32(self._momentum_D[start:stop], *self._rates.momentum, scratch_C)
        np.add(scratch_C, gradient_C, out=momentum_C)
        round_div_int32(momentum_C, *self._rates.momentum, scratch_C)
        np.add(scratch_C, gradient_C, out=scratch_C)
        round_div_int32(scratch_C, *self._rates.lr, scratch_C)
        np.subtract(self._weights_D[start:stop], scratch_C, out=self._out_weights_D[start:stop])

    def _step_float64(self, start: int, stop: int, delta_C: Int32Array) -> None:
        gradient_C, momentum_C, move_C = self._scratch[:, : stop - start]
        np.copyto(gradient_C, delta_C)
        np.copyto(momentum_C, self._momentum_D[start:stop])
        round_div(momentum_C, *self._rates.momentum, momentum_C)
        np.add(momentum_C, gradient_C, out=momentum_C)
        np.clip(momentum_C, -GRID_MAX, GRID_MAX, out=momentum_C)
        np.copyto(self._out_momentum_D[start:stop], momentum_C, casting="unsafe")
        round_div(momentum_C, *self._rates.momentum, move_C)
        np.add(move_C, gradient_C, out=move_C)
        round_div(move_C, *self._rates.lr, move_C)
        weights_C = momentum_C  # its values are stored: the scratch is free
        np.copyto(weights_C, self._weights_D[start:stop])
        np.subtract(weights_C, move_C, out=weights_C)
        np.clip(weights_C, -GRID_MAX, GRID_MAX, out=weights_C)
        np.copyto(self._out_weights_D[start:stop], weights_C, casting="unsafe")


def _chunks_of_blocks(parameter_count: int) -> Iterator[tuple[int, int]]:
    padded_count = block_count_of(parameter_count) * BLOCK
    for start in range(0, padded_count, CHUNK_PARAMETERS):
        yield start, min(start + CHUNK_PARAMETERS, padded_count)
