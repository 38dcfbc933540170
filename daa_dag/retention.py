"""What of a chain may be deleted: deltas and snapshots below a snapshot that is old enough.

Vertices and blocks are never deleted: they are small, and they are the proof. What goes is always a
prefix: with a floor at height s, the deltas of heights 1 to s and the snapshots below s. Every
vertex from s on can then still be restored, by snapshot s and the deltas above it.

Of an epoch that is long over, one certificate is proof enough, as for a light client: it makes the
epoch's last block final, and by their hashes all blocks below with the vertices that they name.
"""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """How much stays restorable, and proved twice. None keeps everything."""

    vertices_restorable: int | None = None  # the newest so many, the tip included; at least 1
    # The newest so many that are over keep all their certificates, older ones keep one each.
    epochs_whole: int | None = None

    def __post_init__(self) -> None:
        assert self.vertices_restorable is None or self.vertices_restorable >= 1
        assert self.epochs_whole is None or self.epochs_whole >= 1


@dataclass(frozen=True, slots=True)
class Prunable:
    """What may go, as heights, ascending."""

    delta_heights: tuple[int, ...]
    snapshot_heights: tuple[int, ...]


def prunable(
    policy: Retention,
    tip_height: int,
    delta_heights: Collection[int],
    snapshot_heights: Collection[int],
) -> Prunable:
    """What the policy lets go of a chain that holds these deltas and these whole snapshots.

    The floor is the newest snapshot from which the wanted vertices can be restored; without such a
    snapshot nothing goes.
    """
    if policy.vertices_restorable is None:
        return Prunable((), ())
    oldest_wanted = tip_height - policy.vertices_restorable + 1
    floors = [height for height in snapshot_heights if 0 < height <= oldest_wanted]
    if not floors:
        return Prunable((), ())
    floor = max(floors)
    return Prunable(
        tuple(sorted(height for height in delta_heights if height <= floor)),
        tuple(sorted(height for height in snapshot_heights if height < floor)),
    )
