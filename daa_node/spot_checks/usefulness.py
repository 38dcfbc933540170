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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from daa_dag.ids import Digest, NodeId
from daa_node.spot_checks.copies import Update, drawn_values
from daa_node.tensors import Float64Array

AUTHORS_MAX = 1024  # the longest unseen is forgotten
ROUNDS_KEPT = 32  # of each author
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
    values_NC = np.stack(
        [drawn_values(one, parameter_count, seed).astype(np.float64) for one in updates]
    )
    sum_C, norms_N = values_NC.sum(axis=0), np.linalg.norm(values_NC, axis=1)
    median = float(np.median(norms_N))
    found = []
    for values_C, norm in zip(values_NC, norms_N, strict=True):
        others_C = sum_C - values_C
        length = float(np.linalg.norm(others_C))
        mean_C = others_C / (len(updates) - 1)
        found.append(
            Usefulness(
                round_number,
                _over(float(norm), median),
                _over(float(values_C @ others_C), float(norm) * length),
                _over(float(np.linalg.norm(values_C - mean_C)), float(np.linalg.norm(mean_C))),
                _agreement(values_C, others_C),
            )
        )
    return found


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


def _agreement(values_C: Float64Array, others_C: Float64Array) -> float:
    own = _largest(values_C)
    return len(own & _largest(others_C)) / len(own) if own else 0.0


def _largest(values_C: Float64Array) -> set[int]:
    """Places of the largest magnitudes; of zeros none."""
    count = max(1, values_C.size // LARGEST_SHARE)
    magnitudes_C = np.abs(values_C)
    places_K = np.argpartition(magnitudes_C, -count)[-count:]
    return {int(place) for place in places_K if magnitudes_C[place]}


def _over(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
