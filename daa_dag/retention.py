"""What of a chain may be deleted: deltas and snapshots below a snapshot that is old enough.

Vertices and blocks are never deleted: they are small, and they are the proof. What goes is always a
prefix: with a floor at height s, the deltas of heights 1 to s and the snapshots below s. Every
vertex from s on can then still be restored, by snapshot s and the deltas above it.

A bound in bytes lets go of more of them, oldest first, and never of the newest snapshot.

Of an epoch that is long over, one certificate is proof enough, as for a light client: it makes the
epoch's last block final, and by their hashes all blocks below with the vertices that they name.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """How much stays restorable, and proved twice. None keeps everything."""

    vertices_restorable: int | None = None  # the newest so many, the tip included; at least 1
    # The newest so many that are over keep all their certificates, older ones keep one each.
    epochs_whole: int | None = None
    bytes_max: int | None = None  # of everything that is kept; what may go, goes before

    @property
    def lets_go(self) -> bool:
        """Whether states may go at all."""
        return self.vertices_restorable is not None or self.bytes_max is not None

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
    return below(max(floors), delta_heights, snapshot_heights)


def below(
    floor: int, delta_heights: Collection[int], snapshot_heights: Collection[int]
) -> Prunable:
    """What is not needed to restore the vertices from the snapshot at `floor` on."""
    return Prunable(
        tuple(sorted(height for height in delta_heights if height <= floor)),
        tuple(sorted(height for height in snapshot_heights if height < floor)),
    )


def floor_for(
    excess_bytes: int,
    delta_bytes: Mapping[int, int],
    snapshot_bytes: Mapping[int, int],
    floors: Collection[int],
) -> int | None:
    """The oldest of the snapshots at `floors` below which so much can go, else the newest of them.

    The others are what each height takes. None: there is no snapshot to stand on.
    """
    best: int | None = None
    for floor in sorted(height for height in floors if height > 0):
        best = floor
        going = below(floor, delta_bytes, snapshot_bytes)
        gained = sum(delta_bytes[height] for height in going.delta_heights)
        gained += sum(snapshot_bytes[height] for height in going.snapshot_heights)
        if gained >= excess_bytes:
            break
    return best
