"""By what a sweep of whole daemons can tell that a fault has befallen them, and not only begun.

A kind of fault that is drawn and never befalls anybody finds nothing. So every kind has its marks
here, and a long sweep fails when it has not met one of them.
"""

HELD_UP = "packet held up"
POWER_CUT = "power cut"
WIPED = "disk wiped"
DRAINED = "daemon drained"
CLEARED = "cached states gone"
BEGUN = {  # what needs nobody's help to befall
    "pause": "process stopped",
    "clock": "clock gone wrong",
    "slow": "link slowed",
    "loss": "link made lossy",
}
OF_KINDS: dict[str, tuple[str, ...]] = {
    "partition": (HELD_UP,),
    "hold": (HELD_UP,),
    "kill": (POWER_CUT,),
    "drain": (DRAINED,),
    "reorder": ("stream overtaken by another",),
    "duplicate": ("message sent twice", "announcement published twice"),
    **{kind: (mark,) for kind, mark in BEGUN.items()},
}
OF_DISKS: dict[str, tuple[str, ...]] = {
    "torn_write": ("power lost while writing",),
    "lost_fsync": ("sync that was none",),
    "bit_rot": ("bit turned",),
    "wiped": (WIPED,),
    "full": ("disk full",),
    "slow": ("disk slow",),
    "failed_sync": ("sync failed", "sync of a folder failed"),
    "failed_rename": ("rename failed",),
    "cleared": (CLEARED,),
}
# What all disks do, and power cuts leave.
OF_ALL_DISKS = (
    "write overtaken by a later one",
    "deleted file back after a crash",
    "rename undone by a crash",
    "unsynced file gone",
    "unsynced bytes whole",
    "unsynced bytes gone",
    "unsynced bytes torn",
    "unsynced bytes zeroed",
    "unsynced bytes with other bytes",
)


def every_mark() -> list[str]:
    """Of all kinds."""
    tables = (*OF_KINDS.values(), *OF_DISKS.values(), OF_ALL_DISKS)
    return sorted({mark for marks in tables for mark in marks})
