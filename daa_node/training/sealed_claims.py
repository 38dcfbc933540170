"""What an author says that a segment of its round, and the seal of the round, have come to.

And sealing again what it says that its round ended with: else an update could be anything, as long
as no last segment is drawn. Numbers on a CPU alone, and no torch. D parameters.
"""

from dataclasses import dataclass

import numpy as np

from daa_node.errors import NotFinite
from daa_node.tensors import Float32Array, Int32Array, UInt8Array
from daa_node.training.boundaries import Boundary
from daa_node.training.config import TrainingJob
from daa_node.updates.compression.codec import codec_named, decode
from daa_node.updates.grid import to_float32
from daa_node.updates.pipeline import NormOf, l2_norm, seal


@dataclass(frozen=True, slots=True)
class ClaimedSeal:
    """The update that the end of a round is said to have been sealed into."""

    base_D: Int32Array | None  # None: what the segment starts from
    last: Boundary
    blob: UInt8Array
    codec: str


@dataclass(frozen=True, slots=True)
class Claim:
    """The two boundaries of a segment, and how the round ended.

    Distances of exact steps are over the way from `origin`, or from the start without one.
    """

    start: Boundary
    end: Boundary
    sealed: ClaimedSeal | None
    origin: Boundary | None = None


@dataclass(frozen=True, slots=True)
class SealedAgain:
    """What sealing leads to, and what it is said to have led to; vectors of shape (D,), fp32."""

    update_D: Float32Array
    claimed_update_D: Float32Array
    residual_D: Float32Array | None
    claimed_residual_D: Float32Array | None


def seal_again(
    job: TrainingJob, start: Boundary, sealed: ClaimedSeal, norm_of: NormOf = l2_norm
) -> SealedAgain | None:
    """`start` is any boundary before the last; None if something that is sealed is no number.

    Raises PeerFault for an update that no codec makes.
    """
    last, owed_D, codec = sealed.last, start.residual_D, codec_named(sealed.codec)
    codec.check(sealed.blob, last.weights_D.size, None)
    base_D = start.weights_D if sealed.base_D is None else sealed.base_D.view(np.ndarray)
    if not (np.isfinite(last.weights_D).all() and _is_finite(owed_D)):
        return None
    try:
        again = seal(base_D, last.weights_D, owed_D, codec, job.updates.clip_norm, norm_of=norm_of)
    except NotFinite:
        return None
    count = base_D.size
    ours_D, theirs_D = (
        to_float32(decode(codec, blob, 0, count, count)) for blob in (again.blob, sealed.blob)
    )
    return SealedAgain(ours_D, theirs_D, again.residual_D, last.residual_D)


def _is_finite(vector_D: Float32Array | None) -> bool:
    return vector_D is None or bool(np.isfinite(vector_D).all())
