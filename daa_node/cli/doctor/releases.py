"""Whether others have gone on to a newer release: by the protocol versions that members speak.

What one node says of itself is no more than its word. A newer release is taken to be out where more
validators speak a newer protocol than may lie: of all that there are, however few of them were met.
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
    listed = [peer.get("speaks") for peer in scene.peers if peer.get("part") == "validator"]
    validators = max(scene.status.get("validators", {}).get("total", 0), len(listed))
    return [judged([speaks[1] for speaks in listed if speaks is not None], validators)]


def overdue(version: int, first_round: int) -> Finding:
    """A quorum of the validators goes on, and this release cannot."""
    return amiss(
        CHECK,
        f"protocol {version} is used from round {first_round} on, and this release speaks "
        f"protocol {OURS}: the node stops there",
        UPGRADE,
    )


def judged(newest: Sequence[int], validators: int) -> Finding:
    """`newest`: the newest version that each of those speaks that were met, of so many in all."""
    if not newest:
        return unmeasured(CHECK, f"this release speaks protocol {OURS}; no daemon has met others")
    newer = [most for most in newest if most > OURS.most]
    told = f"{len(newer)} of {validators} validators speak a newer protocol than {OURS.most}"
    if len(newest) < validators:
        told += f", as far as the {len(newest)} that were met tell"
    if 3 * len(newer) <= validators:
        return well(CHECK, f"this release speaks protocol {OURS}; {told}")
    return amiss(CHECK, f"a newer release is out: {told}; this release speaks {OURS}", VERSIONS)
