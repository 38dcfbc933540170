"""Whether others have gone on to a newer release: by the protocol versions that members speak.

What one node says of itself is no more than its word. A newer release is taken to be out where more
stake speaks a newer protocol than may lie: of all that there is, however little of it was met.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    return [judged(_met(scene.validators, scene.peers), sum(scene.validators.values()))]


@dataclass(frozen=True, slots=True)
class Met:
    """One validator, as the daemon has met it."""

    most: int  # the newest version that it speaks
    stake: int


def _met(stake_of: Mapping[str, int], peers: Iterable[Mapping[str, Any]]) -> list[Met]:
    """Each once, under however many peer ids it came."""
    spoken = {peer.get("node_id"): peer["speaks"] for peer in peers if peer.get("speaks")}
    return [Met(spoken[node][1], stake) for node, stake in stake_of.items() if node in spoken]


def overdue(version: int, first_round: int) -> Finding:
    """A quorum of the validators goes on, and this release cannot."""
    return amiss(
        CHECK,
        f"protocol {version} is used from round {first_round} on, and this release speaks "
        f"protocol {OURS}: the node stops there",
        UPGRADE,
    )


def judged(met: Sequence[Met], total: int) -> Finding:
    """`total`: the stake of all validators."""
    if not met:
        return unmeasured(CHECK, f"this release speaks protocol {OURS}; no daemon has met others")
    known = sum(each.stake for each in met)
    newer = sum(each.stake for each in met if each.most > OURS.most)
    told = f"validators with {newer} of all {total} stake speak a newer protocol than {OURS.most}"
    if known < total:
        told += f", as far as those with {known} tell, whom the daemon has met"
    if 3 * newer <= total:
        return well(CHECK, f"this release speaks protocol {OURS}; {told}")
    return amiss(CHECK, f"a newer release is out: {told}; this release speaks {OURS}", VERSIONS)
