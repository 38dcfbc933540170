"""Who votes in each epoch of a chain, in room that grows with changes alone, not with epochs."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from daa_consensus.committee import Committee
from daa_dag.ids import NodeId


class Epoch(NamedTuple):
    """Who voted in it, and who of them might contribute."""

    committee: Committee
    contributors: tuple[NodeId, ...]


class EpochRuns:
    """Epochs from 0 up; those in which nothing changed stand together."""

    def __init__(self, runs: Iterable[tuple[Epoch, int]] = ()) -> None:
        """`runs`: an epoch and how many in a row are like it, at least one, oldest first."""
        self._epochs: list[Epoch] = []
        self._firsts: list[int] = []  # the number of the first epoch of each run
        self._count = 0
        for epoch, count in runs:
            assert count > 0
            self.append(epoch)
            self._count += count - 1

    def __len__(self) -> int:
        return self._count

    def at(self, number: int) -> Epoch:
        """Of one that has begun; the newest for any other number."""
        return self._epochs[bisect_right(self._firsts, number) - 1]

    @property
    def newest(self) -> Epoch:
        """There is one."""
        return self._epochs[-1]

    def append(self, epoch: Epoch) -> None:
        """The next one."""
        if not self._epochs or epoch != self.newest:
            self._epochs.append(epoch)
            self._firsts.append(self._count)
        self._count += 1

    def runs(self) -> list[tuple[Epoch, int]]:
        """An epoch and how many in a row are like it, oldest first."""
        ends = [*self._firsts[1:], self._count]
        spans = zip(self._epochs, self._firsts, ends, strict=True)
        return [(epoch, end - first) for epoch, first, end in spans]

    def copy(self) -> "EpochRuns":
        """One that may be led on without this one."""
        return EpochRuns(self.runs())
