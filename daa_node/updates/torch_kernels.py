"""The agreed outer step in torch, in int32 and int64: the bits of outer_step.py on any device.

A second way to the same integers: where a GPU is at hand the worker may take it, and the tests hold
both against one golden hash. On a CPU numpy is faster. No float, no fused operation, no `alpha=`,
`addcmul`, `lerp` or compiled code: nothing here may depend on how a device rounds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import torch
from torch import Tensor

from daa_node.tensors import UInt8Array
from daa_node.updates.aggregation.mean import Mean, scaled_weights
from daa_node.updates.aggregation.rule import Rule
from daa_node.updates.aggregation.trimmed_mean import TrimmedMean, trimming_network
from daa_node.updates.compression.blob import Blob
from daa_node.updates.compression.codec import Codec, codec_named
from daa_node.updates.compression.delta import DENSE, DeltaFormat, DeltaWriter, DenseDelta
from daa_node.updates.compression.dense import INT8, DenseCodec
from daa_node.updates.compression.top_k import TopKCodec
from daa_node.updates.grid import BLOCK, GRID_MAX, block_count_of
from daa_node.updates.outer_step import Contribution, OuterRates, OuterState

# 16 MiB a contribution: keeps a GPU busy, and 16 of them with their sums take under 1 GiB beside
# the model in training.
CHUNK_PARAMETERS = 1 << 22


@dataclass(frozen=True, slots=True)
class TorchKernels:
    """The step on one device; `chunk_parameters` is a multiple of 65,536 and changes no bit."""

    device: torch.device
    chunk_parameters: int = CHUNK_PARAMETERS

    def aggregate_and_step(
        self,
        base: OuterState,
        contributions: Sequence[Contribution],
        rule: Rule,
        f_agg: int,
        rates: OuterRates,
        out: OuterState,
        delta_format: DeltaFormat,
    ) -> UInt8Array:
        """outer_step.aggregate_and_step: same arguments, same bits, same errors."""
        rule.check_bound(len(contributions), f_agg)
        merge = _MERGES[rule.name]
        parameter_count = base.weights_D.size
        weights_N = [contribution.weight for contribution in contributions]
        delta = _writer(delta_format, parameter_count)
        padded_count = block_count_of(parameter_count) * BLOCK
        for start in range(0, padded_count, self.chunk_parameters):
            stop = min(start + self.chunk_parameters, padded_count)
            updates = [
                self._decode(codec_named(member.codec), member.blob, start, stop, parameter_count)
                for member in contributions
            ]
            merged_C = merge(updates, weights_N, f_agg)
            _step(base, delta.add(merged_C), start, rates, out)
        return delta.blob()

    def _decode(
        self, codec: Codec, blob: Blob, start: int, stop: int, parameter_count: int
    ) -> Tensor:
        """Parameters from `start` to `stop` on the grid, int32. The blob passed its check."""
        match codec:
            case TopKCodec():
                return self._decode_sparse(codec, blob, start, stop)
            case DenseCodec():
                return self._decode_dense(codec, blob, start, stop, parameter_count)
        raise AssertionError(f"no kernel decodes {codec.name}")

    def _decode_sparse(self, codec: TopKCodec, blob: Blob, start: int, stop: int) -> Tensor:
        """Unpacked here, a sixty-fourth of the chunk, and laid out there."""
        entries = codec.entries(blob, start, stop)
        values_C = torch.zeros(stop - start, dtype=torch.int32, device=self.device)
        index_E = torch.from_numpy(entries.index_E).to(self.device)
        values_C[index_E] = torch.from_numpy(entries.value_E).to(self.device)
        return values_C

    def _decode_dense(
        self, codec: DenseCodec, blob: Blob, start: int, stop: int, parameter_count: int
    ) -> Tensor:
        packed = torch.from_numpy(codec.packed(blob, start, stop).copy()).to(self.device)
        if codec.name == "int4":
            nibbles = torch.stack([packed & 0x0F, packed >> 4], dim=1).view(-1).to(torch.int32)
            mantissas_C = (nibbles ^ 8) - 8  # two's complement of four bits
        else:
            mantissas_C = packed.view(torch.int8).to(torch.int32)
        shifts = codec.shifts(blob, start, stop, parameter_count).astype(np.int32)
        shifts_K = torch.from_numpy(shifts).to(self.device)
        return (mantissas_C.view(-1, BLOCK) << shifts_K[:, None]).view(-1)


def _mean(updates: Sequence[Tensor], weights_N: Sequence[int], f_agg: int) -> Tensor:
    scaled_N = scaled_weights(weights_N)
    total_C = torch.zeros_like(updates[0], dtype=torch.int64)
    for update_C, weight in zip(updates, scaled_N, strict=True):
        total_C = total_C + update_C.to(torch.int64) * weight
    return _round_div(total_C, 1, sum(scaled_N)).to(torch.int32)


def _trimmed_mean(updates: Sequence[Tensor], weights_N: Sequence[int], f_agg: int) -> Tensor:
    rows = list(updates)
    for comparison in trimming_network(len(rows), f_agg):
        low_C, high_C = rows[comparison.low], rows[comparison.high]
        if comparison.keeps_low:
            rows[comparison.low] = torch.minimum(low_C, high_C)
        if comparison.keeps_high:
            rows[comparison.high] = torch.maximum(low_C, high_C)
    kept = rows[f_agg : len(rows) - f_agg]
    total_C = torch.zeros_like(kept[0], dtype=torch.int64)
    for kept_C in kept:
        total_C = total_C + kept_C
    return _round_div(total_C, 1, len(kept)).to(torch.int32)


_MERGES: Final[dict[str, Callable[[Sequence[Tensor], Sequence[int], int], Tensor]]] = {
    Mean.name: _mean,
    TrimmedMean.name: _trimmed_mean,
}


def _round_div(values_C: Tensor, numerator: int, denominator: int) -> Tensor:
    """`floor((2 n x + d) / (2 d))` of int64."""
    dividend_C = values_C * (2 * numerator) + denominator
    return torch.div(dividend_C, 2 * denominator, rounding_mode="floor")


class _Writer(Protocol):
    """A DeltaWriter (see there) of tensors."""

    def add(self, grid_C: Tensor) -> Tensor: ...

    def blob(self) -> UInt8Array: ...


def _writer(delta_format: DeltaFormat, parameter_count: int) -> _Writer:
    if isinstance(delta_format, DenseDelta):
        return _DenseWriter(parameter_count)
    return _CopyingWriter(delta_format.writer(parameter_count))


class _CopyingWriter:
    """Has the values coded on the CPU: what is left of a chunk is bytes, and these come there."""

    def __init__(self, inner: DeltaWriter) -> None:
        self._inner = inner
        self.blob = inner.blob

    def add(self, grid_C: Tensor) -> Tensor:
        return torch.from_numpy(self._inner.add(grid_C.cpu().numpy())).to(grid_C.device)


class _DenseWriter:
    """Quantises on the device."""

    def __init__(self, parameter_count: int) -> None:
        self._parameter_count = parameter_count
        self._blob = np.empty(DENSE.size_bytes_max(parameter_count), np.uint8)
        self._start = 0

    def add(self, grid_C: Tensor) -> Tensor:
        start, self._start = self._start, self._start + grid_C.numel()
        return _requantise(grid_C, start, self._blob, self._parameter_count)

    def blob(self) -> UInt8Array:
        assert self._start >= self._parameter_count
        return self._blob


def _requantise(grid_C: Tensor, start: int, out_delta: UInt8Array, parameter_count: int) -> Tensor:
    """As Codec.requantise_chunk: writes the delta's blocks, returns what they decode to."""
    thresholds = torch.from_numpy(INT8.grid_thresholds.astype(np.int32)).to(grid_C.device)
    grid_KB = grid_C.view(-1, BLOCK)
    shifts_K = torch.searchsorted(thresholds, grid_KB.abs().amax(dim=1)).to(torch.int32)
    shifts_K1 = shifts_K[:, None]
    halves_K1 = (torch.ones_like(shifts_K1) << shifts_K1) >> 1
    mantissas_KB = (grid_KB + halves_K1) >> shifts_K1
    stop = start + grid_C.numel()
    packed = mantissas_KB.to(torch.int8).view(-1).cpu().numpy().view(np.uint8)
    INT8.packed(out_delta, start, stop)[:] = packed
    INT8.shifts(out_delta, start, stop, parameter_count)[:] = shifts_K.cpu().numpy()
    return (mantissas_KB << shifts_K1).view(-1)


def _step(
    base: OuterState, delta_C: Tensor, start: int, rates: OuterRates, out: OuterState
) -> None:
    stop = min(start + delta_C.numel(), base.weights_D.size)
    gradient_C = delta_C[: stop - start].to(torch.int64)
    weights_C = _exact(base.weights_D[start:stop], delta_C.device)
    momentum_C = _exact(base.momentum_D[start:stop], delta_C.device)
    momentum_C = _saturated(_round_div(momentum_C, *rates.momentum) + gradient_C)
    ahead_C = _round_div(momentum_C, *rates.momentum) + gradient_C
    weights_C = _saturated(weights_C - _round_div(ahead_C, *rates.lr))
    out.momentum_D[start:stop] = momentum_C.cpu().numpy()
    out.weights_D[start:stop] = weights_C.cpu().numpy()


def _exact(values_C: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(values_C.astype(np.int64)).to(device)


def _saturated(values_C: Tensor) -> Tensor:
    return values_C.clamp(-GRID_MAX, GRID_MAX)
