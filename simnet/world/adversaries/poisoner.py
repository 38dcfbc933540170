"""A poisoner: what it trained, turned against the model before it is sealed, or sealed wrongly.

    sign_flip       the opposite of its own update, ten times as long
    little          honest mean minus z deviations, z as large as still looks honest (Baruch et al.
                    2019, "A Little Is Enough", section 3.3)
    inner_product   against the honest mean, and short (Xie et al. 2020, "Fall of Empires")
    noise           gaussian, as long as ten of its own
    label_flip      an honest update, trained on the wrong labels
    zeros, huge     nothing; as much as the grid holds
    nan             not a number: no integer form has one, so its blob breaks the form instead

Met by the form of a blob (nothing but mantissas and exponents in range decodes), by a cap on its
norm, and by robust rules: with at most f_agg poisoners the trimmed mean stays within what honest
nodes say of each parameter. `little` and `label_flip` stay inside of that by design; what they cost
is measured, not prevented. N honest updates that the poisoners know, D parameters.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

import numpy as np

from daa_node.tensors import Float32Array, Int64Array, UInt8Array
from daa_node.training.datasets.examples import Batch, Examples
from daa_node.updates.compression.codec import Codec, encode
from daa_node.updates.grid import block_count_of
from simnet.world.scenario import Poison

FLIP_SCALE = 10.0
NOISE_SCALE = 10.0
INNER_PRODUCT_SCALE = 0.5  # short enough not to stand out, and still against everybody
HUGE = 127.0  # the largest mantissa at the largest exponent
BAD_EXPONENT = 0xFF
BAD_MANTISSA = 0x80  # -128


@dataclass(frozen=True, slots=True)
class Sight:
    """What a poisoner knows: its own update, honest ones, and how many are in league."""

    own_D: Float32Array
    honest_ND: Float32Array
    poisoners: int
    chance: np.random.Generator


def sign_flip(sight: Sight) -> Float32Array:
    return np.float32(-FLIP_SCALE) * sight.own_D


def little(sight: Sight) -> Float32Array:
    """All poisoners say the same, so that it looks like a cluster at the edge of the honest."""
    z = np.float32(little_z(len(sight.honest_ND) + sight.poisoners, sight.poisoners))
    mean_D: Float32Array = sight.honest_ND.mean(axis=0, dtype=np.float32)
    deviation_D: Float32Array = sight.honest_ND.std(axis=0, dtype=np.float32)
    return mean_D - z * deviation_D


def little_z(nodes: int, poisoners: int) -> float:
    """The largest z at which a majority still holds values beyond the poisoners' own."""
    supporters = nodes // 2 + 1 - poisoners
    share = (nodes - poisoners - supporters) / (nodes - poisoners)
    return NormalDist().inv_cdf(min(max(share, 1e-6), 1 - 1e-6))


def inner_product(sight: Sight) -> Float32Array:
    mean_D: Float32Array = sight.honest_ND.mean(axis=0, dtype=np.float32)
    return np.float32(-INNER_PRODUCT_SCALE) * mean_D


def noise(sight: Sight) -> Float32Array:
    deviation = NOISE_SCALE * float(np.sqrt(np.mean(np.square(sight.own_D, dtype=np.float64))))
    return sight.chance.normal(0.0, deviation, sight.own_D.size).astype(np.float32)


def zeros(sight: Sight) -> Float32Array:
    return np.zeros_like(sight.own_D)


def huge(sight: Sight) -> Float32Array:
    return np.copysign(np.float32(HUGE), -sight.own_D)


def nan(sight: Sight) -> Float32Array:
    """What an honest node's own codec refuses to seal; see `broken_blob`."""
    return np.full_like(sight.own_D, np.nan)


def own(sight: Sight) -> Float32Array:
    """Trained on flipped labels: the harm is done before."""
    return sight.own_D


POISONS: Final[Mapping[Poison, Callable[[Sight], Float32Array]]] = {
    "sign_flip": sign_flip,
    "little": little,
    "inner_product": inner_product,
    "noise": noise,
    "label_flip": own,
    "nan": nan,
    "zeros": zeros,
    "huge": huge,
}


def flipped_labels(labels_B: Int64Array, classes: int) -> Int64Array:
    """Each class for its opposite: 0 for the last."""
    return classes - 1 - labels_B


class Mislabelled:
    """Examples that are wrong in training, and right where they are held out."""

    def __init__(self, inner: Examples, classes: int) -> None:
        self._inner = inner
        self._classes = classes
        self.train_count, self.heldout_count = inner.train_count, inner.heldout_count
        self.tokens_each, self.heldout = inner.tokens_each, inner.heldout

    def train(self, indices_B: Int64Array) -> Batch:
        batch = self._inner.train(indices_B)
        return replace(batch, targets=flipped_labels(batch.targets, self._classes))


def poisoned_blob(kind: Poison, sight: Sight, codec: Codec) -> UInt8Array:
    """What a poisoner offers instead of its own blob."""
    poisoned_D = POISONS[kind](sight)
    if kind == "nan":
        return broken_blob(codec, sight.own_D.size)
    return encode(codec, poisoned_D)


def broken_blob(codec: Codec, parameter_count: int) -> UInt8Array:
    """Of the right length, every mantissa and every exponent out of range."""
    blob = np.full(codec.encoded_size_bytes(parameter_count), BAD_MANTISSA, np.uint8)
    blob[-block_count_of(parameter_count) :] = BAD_EXPONENT
    return blob
