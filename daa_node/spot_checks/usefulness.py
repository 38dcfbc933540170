"""What one node measures of each contribution that a round has merged: for its health record.

    norm        of the update, over the median of the round's
    cosine      with the sum of all others
    distance    from their mean, over that one's length
    agreement   share of its largest positions that are among the largest of that sum

All are floats of sampled blocks (see spot_checks.copies), and this node's own opinion: they lower
no weight and exclude nobody, since an honest author whose data nobody else has differs by nature.
A merge rule that drops extremes is what holds off the others. N contributions, C values.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from daa_dag.ids import Digest, NodeId
from daa_node.spot_checks.copies import Update, drawn_values
from daa_node.tensors import BoolArray, Float64Array

AUTHORS_MAX = 1024  # the longest unseen is forgotten
ROUNDS_KEPT = 32  # of each author
SAMPLED_VALUES = 4_096  # of a dense update
LARGEST_SHARE = 16  # the largest sixteenth of magnitudes are the largest positions


@dataclass(frozen=True, slots=True)
class Usefulness:
    """Of one contribution."""

    round: int
    norm: float
    cosine: float
    distance: float
    agreement: float


def measured(
    round_number: int, updates: Sequence[Update], parameter_count: int, seed: Digest
) -> list[Usefulness]:
    """Of each update of a round; none if there are not two. Raises PeerFault if one is damaged."""
    if len(updates) < 2:
        return []
    drawn = [drawn_values(one, parameter_count, seed, SAMPLED_VALUES) for one in updates]
    values_NC = np.stack(drawn).astype(np.float64)
    dots_NN = values_NC @ values_NC.T
    squares_N = np.diagonal(dots_NN)
    with_others_N = dots_NN.sum(axis=1) - squares_N
    # |sum - x|^2 of each x; rounding may take a hair off zero
    others_N = np.sqrt(np.maximum(dots_NN.sum() - 2 * with_others_N - squares_N, 0))
    norms_N, count = np.sqrt(squares_N), len(updates) - 1
    away_N = np.sqrt(np.maximum(squares_N - 2 * with_others_N / count + (others_N / count) ** 2, 0))
    return [
        Usefulness(
            round_number,
            _over(norm, float(np.median(norms_N))),
            _over(dot, norm * others),
            _over(away, others / count),
            agreement,
        )
        for norm, dot, others, away, agreement in zip(
            norms_N.tolist(),
            with_others_N.tolist(),
            others_N.tolist(),
            away_N.tolist(),
            _agreements(values_NC),
            strict=True,
        )
    ]


def worths(measures: Mapping[NodeId, Usefulness]) -> dict[NodeId, float]:
    """Of each contribution between 0 and 1: 1 for who stands as most do in that round, or better.

    Beside the medians of the round: what honest updates come to differs with model, data and steps.
    """
    told = measures.values()
    cosine, agreement = _median(m.cosine for m in told), _median(m.agreement for m in told)
    distance = _median(m.distance for m in told)
    return {
        author: (
            min(_share(one.norm, 1.0), _share(1.0, one.norm))
            + _share(one.cosine, cosine)
            + _share(distance, one.distance)
            + _share(one.agreement, agreement)
        )
        / 4
        for author, one in measures.items()
    }


class UsefulnessLog:
    """The newest measures of each contributor."""

    def __init__(self) -> None:
        self._rounds: OrderedDict[NodeId, deque[Usefulness]] = OrderedDict()

    def of(self, author: NodeId) -> Sequence[Usefulness]:
        """Oldest first, `ROUNDS_KEPT` at most."""
        return tuple(self._rounds.get(author, ()))

    def note(self, measures: Mapping[NodeId, Usefulness]) -> None:
        for author, one in measures.items():
            self._rounds.setdefault(author, deque(maxlen=ROUNDS_KEPT)).append(one)
            self._rounds.move_to_end(author)
        while len(self._rounds) > AUTHORS_MAX:
            self._rounds.popitem(last=False)


def _agreements(values_NC: Float64Array) -> list[float]:
    own_NC = _are_largest(values_NC)
    shared_NC = own_NC & _are_largest(values_NC.sum(axis=0) - values_NC)
    pairs = zip(shared_NC.sum(axis=1).tolist(), own_NC.sum(axis=1).tolist(), strict=True)
    return [_over(shared, own) for shared, own in pairs]


def _are_largest(values_NC: Float64Array) -> BoolArray:
    """Of each row; of zeros none."""
    magnitudes_NC = np.abs(values_NC)
    place = values_NC.shape[1] - max(1, values_NC.shape[1] // LARGEST_SHARE)
    least_N = np.partition(magnitudes_NC, place, axis=1)[:, place]
    return (magnitudes_NC >= least_N[:, None]) & (magnitudes_NC > 0)


def _median(values: Iterable[float]) -> float:
    return median(sorted(values) or [0.0])


def _share(part: float, whole: float) -> float:
    """How much of the whole that is, up to all of it; all of what is nothing."""
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 1.0


def _over(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
