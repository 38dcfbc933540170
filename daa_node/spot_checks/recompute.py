"""One step of training whose every bit is the same on every machine, in numpy alone.

Only operations that IEEE 754 rounds correctly (+ - * / and the square root), comparisons and
integers, one numpy call each and in an order that is stated here: no fused multiply-add, no BLAS,
no libm, no sum whose order a library chooses. What is computed is what `daa_node.training` computes
in torch (models, inner_loop), up to rounding. A browser loads this very file, alone.

All arrays are fp32 unless it says otherwise; Python floats are float64 and round as IEEE says.
Sums are `fold_sum`, except in a product. What is not finite, given or made, raises NotFinite: the
bits of a NaN differ between machines, and so none is part of an answer.

Legend: D parameters, B windows or pictures, T tokens of a window, R = B T rows, W width,
V vocabulary or classes, H heads, G = B H attention matrices, S = W / H or a side, F features.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Integers = NDArray[np.int64]
Matmul = Callable[[Array, Array], Array]  # see sequential_matmul
Float = TypeVar("Float", np.float32, np.float64)
Backward = Callable[[Array], Array]  # gradient of what was made -> gradient of what it came from

ZERO, ONE = np.float32(0), np.float32(1)
RMS_EPSILON = np.float32(2.0**-23)  # torch's own for fp32
ADAM_EPSILON = np.float32(1e-8)
NORM_EPSILON = np.float32(1e-6)
PI = 3.141592653589793
ADAM_STEPS_MAX = 2**63 - 1  # an int64 in a boundary

LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH = np.float32(0.693359375)  # nine bits: its product with a small integer is exact
LN2_LOW = np.float32(-2.12194440054690583e-4)  # ln 2 - LN2_HIGH
ROUNDER = np.float32(1.5 * 2**23)  # added and taken away it rounds to an integer, ties to even
EXP_LOWEST = np.float32(-87)  # a little beneath it powers become subnormal; here they are 0
EXP_SERIES = tuple(np.float32(1 / n) for n in (5040, 720, 120, 24, 6, 2, 1, 1))  # 1 / 7! to 1 / 0!
LOG_SERIES = tuple(np.float32(2 / n) for n in (9, 7, 5, 3, 1))  # of 2 artanh
MANTISSA_BITS = np.int32(23)
EXPONENT_BIAS = np.int32(127)
ROOT_HALF_BITS = np.int32(0x3F3504F3)  # sqrt(1/2) as fp32


class NotFinite(ValueError):
    """What training would go on from, or has come to, holds infinities or NaN."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model and its tensors' names and shapes, in the order in which they lie in the vector."""

    kind: Literal["byte_gpt", "mlp", "cnn"]
    depth: int
    heads: int  # of the byte GPT
    tensors: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def parameter_count(self) -> int:
        return sum(int(np.prod(shape)) for _, shape in self.tensors)


@dataclass(frozen=True, slots=True)
class Inner:
    """The inner optimiser: the fields of `daa_node.training.config.InnerConfig`."""

    lr: float
    lr_final_fraction: float
    warmup_steps: int
    total_steps: int
    weight_decay: float
    beta1: float
    beta2: float
    grad_clip: float


@dataclass(frozen=True, slots=True)
class State:
    """What a step starts from and what it leaves: vectors (D,)."""

    weights_D: Array
    first_D: Array
    second_D: Array
    adam_steps: int  # that are in the moments


@dataclass(frozen=True, slots=True)
class Batch:
    """Tokens (B, T) and those that follow them, or pictures (B, F) fp32 and classes (B,)."""

    inputs: NDArray[Any]
    targets: NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Run:
    """One pass through a model and back: weights and gradients are views of vectors (D,)."""

    model: Model
    weights: Mapping[str, Array]
    gradients: Mapping[str, Array]
    matmul: Matmul

    def dot(self, a_MK: Array, b_KN: Array) -> Array:
        product_MN: Array = self.matmul(a_MK[None], b_KN[None])[0]
        return product_MN

    def linear(self, name: str, inputs_RM: Array) -> tuple[Array, Backward]:
        """Rows times the weight of that name; the way back also writes the weight's gradient."""

        def backward(slopes_RN: Array) -> Array:
            self.gradients[name][...] = self.dot(inputs_RM.T, slopes_RN)
            return self.dot(slopes_RN, self.weights[name].T)

        return self.dot(inputs_RM, self.weights[name]), backward


def sequential_matmul(a_GMK: Array, b_GKN: Array) -> Array:
    """(G, M, K) @ (G, K, N) -> (G, M, N); another Matmul may take its place if it does the same.

    Each number begins as +0, and a[g, m, k] * b[g, k, n] is added for k = 0, 1, 2, ...; each
    product and each sum is rounded to fp32; subnormals and signs of zero are kept. The arguments
    come with any strides and stay as they are.
    """
    groups, rows, _ = a_GMK.shape
    columns = b_GKN.shape[2]
    if rows > columns:  # numpy's inner loops run along the last axis: let it be the longer one
        return sequential_matmul(b_GKN.swapaxes(1, 2), a_GMK.swapaxes(1, 2)).swapaxes(1, 2)
    columns_KGM = np.ascontiguousarray(a_GMK.transpose(2, 0, 1))
    rows_KGN = np.ascontiguousarray(b_GKN.transpose(1, 0, 2))
    sums_GMN = np.zeros((groups, rows, columns), np.float32)
    products = np.empty_like(sums_GMN)
    for column_GM, row_GN in zip(columns_KGM, rows_KGN, strict=True):
        np.multiply(column_GM[:, :, None], row_GN[:, None, :], out=products)
        np.add(sums_GMN, products, out=sums_GMN)
    return sums_GMN


def step(
    model: Model,
    inner: Inner,
    state: State,
    batch: Batch,
    schedule_step: int,
    matmul: Matmul = sequential_matmul,
) -> State:
    """The author's inner step number `schedule_step` since the genesis, as InnerLoop takes it.

    Raises NotFinite, and ValueError for a state or batch that does not fit the model.
    """
    weights_D, inputs, targets = state.weights_D, batch.inputs, batch.targets
    _, gradient_D = loss_and_gradient(model, weights_D, inputs, targets, matmul)
    lr = learning_rate(inner, schedule_step)
    return adamw_step(inner, state, clip(gradient_D, inner.grad_clip), lr)


@np.errstate(all="ignore")
def distance(outcome_D: Array, claimed_D: Array, start_D: Array) -> float:
    """Relative L2 of (outcome - claimed) over (claimed - start), folded in float64.

    0 if nothing is off, infinite if that is all there is. Raises NotFinite and ValueError.
    """
    outcome, claimed, start = (
        _vector(each_D, start_D.size).astype(np.float64)
        for each_D in (outcome_D, claimed_D, start_D)
    )
    off = float(np.sqrt(fold_sum((outcome - claimed) * (outcome - claimed))))
    way = float(np.sqrt(fold_sum((claimed - start) * (claimed - start))))
    if off == 0:
        return 0.0
    return off / way if way else float("inf")


@np.errstate(all="ignore")
def loss_and_gradient(
    model: Model,
    weights_D: Array,
    inputs: NDArray[Any],
    targets: NDArray[Any],
    matmul: Matmul = sequential_matmul,
) -> tuple[float, Array]:
    """Mean loss in nats a prediction, and its gradient (D,).

    Raises NotFinite, and ValueError for weights or a batch that do not fit the model.
    """
    _require_subnormals()
    size = model.parameter_count
    weights_D, gradient_D = _vector(weights_D, size), np.zeros(size, np.float32)
    run = _Run(model, _named(model, weights_D), _named(model, gradient_D), matmul)
    forth_and_back = _byte_gpt if model.kind == "byte_gpt" else _layers
    loss = forth_and_back(run, inputs, targets)
    if not np.isfinite(loss):
        raise NotFinite(f"the loss is {loss}")
    return float(loss), _vector(gradient_D, size)


def learning_rate(inner: Inner, schedule_step: int) -> float:
    """Linear warm-up, then half a cosine."""
    warm = min(1.0, (schedule_step + 1) / inner.warmup_steps) if inner.warmup_steps else 1.0
    progress = min(1.0, schedule_step / inner.total_steps)
    low = inner.lr_final_fraction
    return inner.lr * warm * (low + (1 - low) * 0.5 * (1 + half_turn_cosine(progress)))


def half_turn_cosine(progress: float) -> float:
    """cos(pi progress) for 0 <= progress <= 1: the sine of what is left to the middle.

    The series ends with the 21st power; what it leaves out is under 2e-18.
    """
    angle = PI * (0.5 - progress)
    term = total = angle
    for n in range(2, 22, 2):
        term *= -angle * angle / (n * (n + 1))
        total += term
    return total


@np.errstate(all="ignore")
def clip(gradient_D: Array, norm_max: float) -> Array:
    """The gradient times min(1, norm_max / L2 norm), all in fp32 as in the inner loop."""
    norm = np.sqrt(fold_sum(gradient_D * gradient_D))
    factor = np.float32(norm_max) / (norm + NORM_EPSILON)
    clipped_D: Array = gradient_D * (factor if factor < ONE else ONE)
    return clipped_D


@np.errstate(all="ignore")
def adamw_step(inner: Inner, state: State, gradient_D: Array, lr: float) -> State:
    """AdamW with decoupled weight decay (Loshchilov and Hutter 2019), as torch's fused kernel.

    Scalars are Python floats until they meet a vector, then rounded to fp32. Raises NotFinite, and
    ValueError for vectors that differ in length, or steps that nobody has taken.
    """
    _require_subnormals()
    if not 0 <= state.adam_steps < ADAM_STEPS_MAX:
        raise ValueError(f"{state.adam_steps} steps: nobody takes one after them")
    size, steps = gradient_D.size, state.adam_steps + 1
    start_D, first_D, second_D, gradient_D = (
        _vector(each_D, size)
        for each_D in (state.weights_D, state.first_D, state.second_D, gradient_D)
    )
    step_size = np.float32(lr / (1 - _power(inner.beta1, steps)))
    unbias_root = np.float32(np.sqrt(np.float64(1 - _power(inner.beta2, steps))))
    squares_D = np.float32(1 - inner.beta2) * (gradient_D * gradient_D)
    first_D = first_D + np.float32(1 - inner.beta1) * (gradient_D - first_D)
    second_D = np.float32(inner.beta2) * second_D + squares_D
    kept_D = start_D * np.float32(1 - lr * inner.weight_decay)
    weights_D = kept_D - step_size * first_D / (np.sqrt(second_D) / unbias_root + ADAM_EPSILON)
    return State(_vector(weights_D, size), _vector(first_D, size), _vector(second_D, size), steps)


def _power(factor: float, exponent: int) -> float:
    """By squaring, the exponent's lowest bit first: the pow() of each libm rounds otherwise."""
    power = 1.0
    while exponent:
        if exponent & 1:
            power *= factor
        factor *= factor
        exponent >>= 1
    return power


def _layers(run: _Run, inputs_BF: NDArray[Any], targets_B: NDArray[Any]) -> np.float32:
    """The MLP, and the CNN: there a picture has a row for each place that a layer leaves of it."""
    pictures, is_cnn = len(inputs_BF), run.model.kind == "cnn"
    hidden: Array = _vector(inputs_BF.reshape(-1), inputs_BF.size).reshape(inputs_BF.shape)
    if is_cnn:  # from channel by channel to place by place
        channels = len(run.weights["layers.0.weight"]) // 9
        side = int(np.sqrt(hidden.shape[1] // channels))
        hidden = hidden.reshape(pictures, channels, side, side).transpose(0, 2, 3, 1)
    ways_back: list[tuple[str, Array, Backward, Backward]] = []
    for layer in [f"layers.{number}." for number in range(run.model.depth)]:
        rows, to_places = _patches(hidden) if is_cnn else (hidden, lambda slopes: slopes)
        sums, backward = run.linear(layer + "weight", rows.reshape(-1, rows.shape[-1]))
        hidden_RO = relu(sums + run.weights[layer + "bias"])
        ways_back.append((layer, hidden_RO, backward, to_places))
        hidden = hidden_RO.reshape(*rows.shape[:-1], -1)
    sums, backward = run.linear("head.weight", hidden.reshape(pictures, -1))
    loss, slopes = cross_entropy(sums + run.weights["head.bias"], targets_B)
    run.gradients["head.bias"][...] = fold_sum(slopes.T)
    slopes = backward(slopes)
    for layer, hidden_RO, backward, to_places in reversed(ways_back):
        slopes = np.where(hidden_RO > ZERO, slopes.reshape(hidden_RO.shape), ZERO)
        run.gradients[layer + "bias"][...] = fold_sum(slopes.T)
        slopes = to_places(backward(slopes))
    return loss


def _patches(x_BSSC: Array) -> tuple[Array, Backward]:
    """What every second place sees in 3 x 3 around it, zeros beyond the border: (B, T, T, 9 C)."""
    framed, side = np.pad(x_BSSC, ((0, 0), (1, 1), (1, 1), (0, 0))), x_BSSC.shape[1]
    views = [np.s_[:, n // 3 : n // 3 + side : 2, n % 3 : n % 3 + side : 2] for n in range(9)]
    seen = np.concatenate([framed[view] for view in views], axis=3)

    def backward(slopes: Array) -> Array:
        sums, parts = np.zeros_like(framed), np.split(slopes.reshape(seen.shape), 9, axis=3)
        for view, part in zip(views, parts, strict=True):  # a fixed order
            sums[view] += part
        return sums[:, 1:-1, 1:-1]

    return seen, backward


def _byte_gpt(run: _Run, inputs_BT: NDArray[Any], targets_BT: NDArray[Any]) -> np.float32:
    embedding_VW, position_TW = run.weights["embedding"], run.weights["position"]
    windows, tokens = inputs_BT.shape
    inputs_R = _indices(inputs_BT, windows * tokens, len(embedding_VW))
    if tokens > len(position_TW):
        raise ValueError(f"{tokens} tokens a window, at most {len(position_TW)}")
    stream_BTW = embedding_VW[inputs_R].reshape(windows, tokens, -1) + position_TW[:tokens]
    stream_RW = stream_BTW.reshape(windows * tokens, -1)
    ways_back: list[Backward] = []
    for block in [f"blocks.{number}." for number in range(run.model.depth)]:
        added_RW, backward = _attention(run, block + "attention.", stream_RW, windows)
        stream_RW = stream_RW + added_RW
        ways_back.append(backward)
        added_RW, backward = _squared_relu(run, block + "mlp.", stream_RW)
        stream_RW = stream_RW + added_RW
        ways_back.append(backward)
    normed_RW, normed_backward = rms_norm(stream_RW)
    loss, slopes_RV = cross_entropy(run.dot(normed_RW, embedding_VW.T), targets_BT)
    run.gradients["embedding"][...] = run.dot(slopes_RV.T, normed_RW)
    slopes_RW = normed_backward(run.dot(slopes_RV, embedding_VW))
    for backward in reversed(ways_back):
        slopes_RW = slopes_RW + backward(slopes_RW)
    for token, slope_W in zip(inputs_R, slopes_RW, strict=True):  # row after row: a fixed order
        run.gradients["embedding"][token] += slope_W
    for slopes_TW in slopes_RW.reshape(windows, tokens, -1):
        run.gradients["position"][:tokens] += slopes_TW
    return loss


def _squared_relu(run: _Run, name: str, stream_RW: Array) -> tuple[Array, Backward]:
    """What the MLP of a block adds to the stream."""
    normed_RW, normed_backward = rms_norm(stream_RW)
    sums, up_backward = run.linear(name + "up", normed_RW)
    positive = relu(sums)
    added_RW, down_backward = run.linear(name + "down", positive * positive)

    def backward(slopes_RW: Array) -> Array:
        slopes = down_backward(slopes_RW) * (positive + positive)
        return normed_backward(up_backward(slopes))

    return added_RW, backward


def _attention(run: _Run, name: str, stream_RW: Array, windows: int) -> tuple[Array, Backward]:
    """What causal attention adds to the stream: a token looks at itself and those before it."""
    rows, width = stream_RW.shape
    heads, tokens = run.model.heads, rows // windows
    scale = ONE / np.sqrt(np.float32(width // heads))
    is_later_TT = np.arange(tokens)[None, :] > np.arange(tokens)[:, None]
    normed_RW, normed_backward = rms_norm(stream_RW)
    joined, qkv_backward = run.linear(name + "qkv", normed_RW)
    parts = joined.reshape(windows, tokens, 3, heads, -1).transpose(2, 0, 3, 1, 4)
    query_GTS, key_GTS, value_GTS = parts.reshape(3, windows * heads, tokens, -1)
    scores_GTT = run.matmul(query_GTS, key_GTS.swapaxes(1, 2)) * scale
    shares_GTT = softmax(np.where(is_later_TT, np.float32(-np.inf), scores_GTT))
    mixed_GTS = run.matmul(shares_GTT, value_GTS)
    mixed_BTHS = mixed_GTS.reshape(windows, heads, tokens, -1).swapaxes(1, 2)
    added_RW, out_backward = run.linear(name + "out", mixed_BTHS.reshape(rows, width))

    def backward(slopes_RW: Array) -> Array:
        slopes_BTHS = out_backward(slopes_RW).reshape(windows, tokens, heads, -1)
        slopes_GTS = slopes_BTHS.swapaxes(1, 2).reshape(mixed_GTS.shape)
        slopes_GTT = run.matmul(slopes_GTS, value_GTS.swapaxes(1, 2))
        slopes_GTT = slopes_GTT - fold_sum(slopes_GTT * shares_GTT)[..., None]
        slopes_GTT = shares_GTT * slopes_GTT * scale
        part_slopes = np.stack(
            [
                run.matmul(slopes_GTT, key_GTS),
                run.matmul(slopes_GTT.swapaxes(1, 2), query_GTS),
                run.matmul(shares_GTT.swapaxes(1, 2), slopes_GTS),
            ]
        ).reshape(3, windows, heads, tokens, -1)
        joined_slopes = part_slopes.transpose(1, 3, 0, 2, 4).reshape(rows, 3 * width)
        return normed_backward(qkv_backward(joined_slopes))

    return added_RW, backward


def fold_sum(x: NDArray[Float]) -> NDArray[Float]:
    """The sum over the last axis: its second half is added to its first until one number is left.

    Of an odd count the one in the middle waits for the next turn.
    """
    x = x.copy()
    while (count := x.shape[-1]) > 1:
        x[..., : count // 2] += x[..., count - count // 2 :]
        x = x[..., : count - count // 2]
    return x[..., 0]


def exp(x: Array) -> Array:
    """e^x for x <= 0, within 2 units in the last place; 0 where x is under -87."""
    inside = np.maximum(x, EXP_LOWEST)
    shifted = inside * LOG2_E + ROUNDER  # its last bits are the integer nearest to x / ln 2
    turns = shifted - ROUNDER
    rest = inside - turns * LN2_HIGH - turns * LN2_LOW
    exponents = shifted.view(np.int32) - ROUNDER.view(np.int32) + EXPONENT_BIAS
    powers = _series(EXP_SERIES, rest) * (exponents << MANTISSA_BITS).view(np.float32)
    return np.where(x < EXP_LOWEST, ZERO, powers)


def log(x: Array) -> Array:
    """ln x of numbers >= 1, within 2 units in the last place: 2 artanh((m - 1) / (m + 1))."""
    bits = x.view(np.int32)
    exponents = (bits - ROOT_HALF_BITS) >> MANTISSA_BITS
    mantissas = (bits - (exponents << MANTISSA_BITS)).view(np.float32)  # sqrt(1/2) to sqrt(2)
    ratio = (mantissas - ONE) / (mantissas + ONE)
    turns = exponents.astype(np.float32)
    return turns * LN2_HIGH + (ratio * _series(LOG_SERIES, ratio * ratio) + turns * LN2_LOW)


def _series(coefficients: tuple[np.float32, ...], x: Array) -> Array:
    """Horner's rule, the highest power first."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= x
        total += coefficient
    return total


def relu(x: Array) -> Array:
    """Not np.maximum, which returns one zero or the other according to the processor."""
    return np.where(x < ZERO, ZERO, x)


def softmax(x: Array) -> Array:
    """Shares along the last axis; minus infinity gets none."""
    powers = exp(x - x.max(axis=-1, keepdims=True))
    return powers / fold_sum(powers)[..., None]


def cross_entropy(logits_RV: Array, targets: NDArray[Any]) -> tuple[np.float32, Array]:
    """Mean loss in nats, and its gradient by the logits. Raises ValueError on a target that misses.

    The targets, R of them in any shape, are integers in 0..V-1.
    """
    rows, classes = logits_RV.shape
    at = (np.arange(rows), _indices(targets, rows, classes))
    largest_R = logits_RV.max(axis=-1)
    powers_RV = exp(logits_RV - largest_R[:, None])
    totals_R = fold_sum(powers_RV)
    losses_R: Array = (largest_R - logits_RV[at]) + log(totals_R)
    slopes_RV = powers_RV / totals_R[:, None]
    slopes_RV[at] -= ONE
    slopes_RV /= np.float32(rows)
    return np.float32(fold_sum(losses_R) / np.float32(rows)), slopes_RV


def rms_norm(x_RW: Array) -> tuple[Array, Backward]:
    """Rows divided by their root mean square (Zhang and Sennrich 2019), without gain."""
    width = np.float32(x_RW.shape[1])
    inverse_R1 = ONE / np.sqrt(fold_sum(x_RW * x_RW) / width + RMS_EPSILON)[:, None]
    normed_RW = x_RW * inverse_R1

    def backward(slopes_RW: Array) -> Array:
        means_R1 = (fold_sum(slopes_RW * normed_RW) / width)[:, None]
        below_RW: Array = inverse_R1 * (slopes_RW - normed_RW * means_R1)
        return below_RW

    return normed_RW, backward


def _named(model: Model, values_D: Array) -> dict[str, Array]:
    """Views of a flat vector, one tensor after the other."""
    views, start = {}, 0
    for name, shape in model.tensors:
        stop = start + int(np.prod(shape))
        views[name] = values_D[start:stop].reshape(shape)
        start = stop
    return views


def _vector(values_D: NDArray[Any], size: int) -> Array:
    """Native and contiguous, from any fp32. Raises NotFinite; ValueError on type or length."""
    if values_D.dtype.newbyteorder("=") != np.float32 or values_D.shape != (size,):
        raise ValueError(f"{values_D.dtype} of shape {values_D.shape}, not fp32 of ({size},)")
    if not np.isfinite(values_D).all():
        raise NotFinite("a vector holds infinities or NaN")
    return np.ascontiguousarray(values_D, np.float32)


def _indices(values: NDArray[Any], size: int, limit: int) -> Integers:
    """Flat int64. Raises ValueError unless they are `size` integers in 0..limit-1."""
    is_wrong = values.dtype.kind not in "iu" or values.size != size
    if is_wrong or ((values < 0) | (values >= limit)).any():
        raise ValueError(f"{values.size} x {values.dtype}, not {size} integers below {limit}")
    return values.reshape(-1).astype(np.int64)


def _require_subnormals() -> None:
    """Some library may have told this thread's processor to flush them: other bits would come."""
    smallest_normal = np.array([2.0**-126], np.float32)
    if (smallest_normal * np.float32(0.5) == ZERO).any():
        raise ArithmeticError("this thread rounds subnormal numbers to zero")
