"""How far this host's clock is off, as a figure: against those of the nodes that said hello.

Each hello tells the time of whoever sends it. What is found holds the way of that message, some
tenths of a second across the world, and so no more than the seconds of it are judged.
"""

from collections.abc import Sequence
from statistics import median

from daa_node.cli.doctor.findings import Finding, amiss, unmeasured, well
from daa_node.identity.record import CLOCK_SKEW_MAX_NS

SKEW_MAX_S = CLOCK_SKEW_MAX_NS // 1_000_000_000  # beyond it hello refuses
SKEW_TOLD_S = 5.0  # NTP keeps milliseconds, and no message is on its way for so long


def judged(offs_s: Sequence[float], of_whom: str) -> Finding:
    """`offs_s`: of each node how far its clock is ahead of ours.

    The median of them: one node's clock may be the wrong one.
    """
    if not offs_s:
        return unmeasured("clock", "no other node was met, so there is no clock to compare with")
    off_s = median(offs_s)
    word = "behind" if off_s > 0 else "ahead of"
    told = f"{abs(off_s):.1f} s {word} the clock of {of_whom}"
    if len(offs_s) > 1:
        told = f"{abs(off_s):.1f} s {word} the clocks of {len(offs_s)} {of_whom}, by their median"
    if abs(off_s) < SKEW_TOLD_S:
        return well("clock", f"{told}; {SKEW_MAX_S} s are tolerated")
    return amiss(
        "clock",
        f"{told}; beyond {SKEW_MAX_S} s nobody welcomes this node",
    )
