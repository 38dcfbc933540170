"""Whether others have gone on to a newer release: by the protocol versions that members speak.

What one node says of itself is no more than its word. A newer release is taken to be out where more
validators speak a newer protocol than may lie.
"""

from collections.abc import Sequence

from daa_node.advice.of_messages import UPGRADE, VERSIONS
from daa_node.cli.doctor.findings import Finding, amiss, unmeasured, well
from daa_node.cli.doctor.scene import Scene
from daa_node.wire.protocols import OURS

CHECK = "release"


async def look_at_releases(scene: Scene) -> list[Finding]:
    """What the validators speak that the running daemon has met."""
    told = scene.status.get("protocol") or {}
    if told.get("next_from_round") is not None and not told.get("speaks_next"):
        return [overdue(told["in_use"] + 1, told["next_from_round"])]
    met = [peer.get("speaks") for peer in scene.peers if peer.get("part") == "validator"]
    return [judged([speaks[1] for speaks in met if speaks is not None])]


def overdue(version: int, first_round: int) -> Finding:
    """A quorum of the validators goes on, and this release cannot."""
    return amiss(
        CHECK,
        f"protocol {version} is used from round {first_round} on, and this release speaks "
        f"protocol {OURS}: the node stops there",
        UPGRADE,
    )


def judged(newest: Sequence[int]) -> Finding:
    """`newest`: the newest version that each of some validators speaks."""
    if not newest:
        return unmeasured(CHECK, f"this release speaks protocol {OURS}; no daemon has met others")
    newer = [most for most in newest if most > OURS.most]
    told = f"{len(newer)} of {len(newest)} validators speak a newer protocol than {OURS.most}"
    if 3 * len(newer) <= len(newest):
        return well(CHECK, f"this release speaks protocol {OURS}; {told}")
    return amiss(
        CHECK, f"a newer release is out: {told}, the newest that this one speaks", VERSIONS
    )
