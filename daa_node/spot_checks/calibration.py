"""How far apart honest devices come out, by their kinds, and so what a check tolerates of whom.

    canary steps of ours        --> how our device rounds
    what members say of theirs  --> how that kind of device does   --> the pair's tolerance
    what our checks have found of authors of that kind

`high` is what seven of eight are at most. The pair's is MARGIN times what the canaries of both add
up to, or times what checks have found if that is more; at least FLOOR, since rare steps come out
further off than canaries show, and at most the genesis' tolerance. Of what others say or show the
f largest count for nothing, so that f liars widen nothing beyond what somebody honest has shown;
where that leaves nobody, nothing is known of the kind, and the genesis' tolerance holds. A kind is
an author's own word: who is alone in a kind is looked at as all were before.

This says whom to doubt, no more: judges go by the genesis' tolerance alone (see disputes.court).
After TAO (arXiv 2510.16028), which keeps percentiles of pairs of devices, too.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.seams import CanaryStep

CANARY_STEPS = 8  # a canonical one costs some dozens of one's own: a few rounds' worth in all
MARGIN = 8.0  # what rounding does later in training, or on another machine of a kind
# Of ten thousand honest segments four were further off in steps, all of them rare cases where AdamW
# divides a gradient that is all rounding.
FLOOR = 5e-4
FOUND_KEPT = 32  # of each author, the newest
FOUND_LEAST = 8
DEVICE_CHARS_MAX = 80
TRILLION = 10**12
REPORT_BYTES_MAX = 512
SAVED_BYTES_MAX = 2**18  # a thousand authors would be less


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """How one node's device has rounded: relative L2 from canonical kernels."""

    device: str
    steps: int
    median: float
    high: float

    def encode(self) -> bytes:
        distances = _whole(self.median), _whole(self.high)
        return canonical.encode([self.device, self.steps, *distances])


def decode_report(payload: bytes) -> DeviceReport:
    """Raises PeerFault."""
    try:
        value = canonical.decode(payload, REPORT_BYTES_MAX)
    except NotCanonical as fault:
        raise PeerFault("malformed", f"device: {fault}") from None
    match value:
        case [str(device), int(steps), int(median), int(high)] if (
            0 < len(device) <= DEVICE_CHARS_MAX
            and device.isprintable()
            and 0 < steps <= CANARY_STEPS
            and 0 <= median <= high <= TRILLION
        ):
            return DeviceReport(device, steps, median / TRILLION, high / TRILLION)
        case _:
            raise PeerFault("malformed", "no report of a device")


@dataclass(frozen=True, slots=True)
class Tolerated:
    """What the steps of somebody's work may be off for us, as relative L2, and why so much."""

    distance: float
    why: str


@dataclass(frozen=True, slots=True)
class _Found:
    """What checks of ours have found of one author, while it had that kind of device."""

    device: str
    distances: deque[float]


class Calibration:
    """Of one node. Only members count: the rest could be as many as anybody likes."""

    def __init__(
        self,
        me: NodeId,
        ceiling: tuple[int, int],
        members: Callable[[], Collection[NodeId]],
        liars_max: Callable[[], int],
    ) -> None:
        """`ceiling` is the genesis' tolerance, as a rational.

        `liars_max` goes by stake: of small seats more may lie than a third.
        """
        self._me = me
        self._ceiling = float(Fraction(*ceiling))
        self.members = members
        self._liars_max = liars_max
        self._canary: list[CanaryStep] = []
        self._reports: dict[NodeId, DeviceReport] = {}
        self._found: dict[NodeId, _Found] = {}

    @property
    def steps_taken(self) -> int:
        return len(self._canary)

    @property
    def repeats(self) -> bool:
        """Our device has come to the same bits each time."""
        return all(step.repeats for step in self._canary)

    @property
    def own(self) -> DeviceReport | None:
        """None until all canary steps are taken."""
        if len(self._canary) < CANARY_STEPS:
            return None
        distances = [step.distance for step in self._canary]
        return DeviceReport(
            self._canary[0].device, len(distances), _part(distances, 1, 2), high(distances)
        )

    def note_own(self, step: CanaryStep) -> None:
        """The next canary step. Another device than before begins anew."""
        if self._canary and self._canary[0].device != step.device:
            self._canary.clear()
            self._found.clear()
        self._canary.append(step)

    def note_report(self, node: NodeId, report: DeviceReport) -> None:
        """What a member says of its device. What another one has shown says nothing of this."""
        if node == self._me:
            return
        self._reports[node] = report
        if node in self._found and self._found[node].device != report.device:
            del self._found[node]

    def note_found(self, author: NodeId, distance: float) -> None:
        """What a check of ours has found, of the steps alone."""
        report = self._reports.get(author)
        # what is beyond is no rounding, whoever is right
        if report is not None and distance <= self._ceiling:
            none = _Found(report.device, deque(maxlen=FOUND_KEPT))
            self._found.setdefault(author, none).distances.append(distance)

    def forget_others(self) -> None:
        """Who is no member any more."""
        members = self.members()
        for kept in (self._reports, self._found):
            for node in kept.keys() - set(members):
                del kept[node]

    def report_of(self, node: NodeId) -> DeviceReport | None:
        return self.own if node == self._me else self._reports.get(node)

    def tolerance(self, author: NodeId) -> float:
        """What the steps of this author's work may be off for us."""
        return self._of(author).distance

    def of(self, author: NodeId) -> dict[str, Any]:
        """For people: what it says of its device, and what its work may be off for us."""
        report, tolerated = self.report_of(author), self._of(author)
        return {
            "device": None if report is None else report.device,
            "canary_median": None if report is None else report.median,
            "canary_high": None if report is None else report.high,
            "tolerance": tolerated.distance,
            "why": tolerated.why,
        }

    def standing(self) -> dict[str, Any]:
        """For people: how far it has come, and our device with each kind that members have."""
        return {
            "device": self._canary[0].device if self._canary else None,
            "steps": len(self._canary),
            "steps_needed": CANARY_STEPS,
            "repeats": self.repeats,
            "tolerance_max": self._ceiling,
            "pairs": self.pairs(),
        }

    def pairs(self) -> list[dict[str, Any]]:
        """Our device with each kind that members have, for people."""
        own = self.own
        if own is None:
            return []
        told = []
        for device in sorted({own.device, *(each.device for each in self._reports.values())}):
            nodes = sum(each.device == device for each in self._reports.values())
            found = sorted(d for by in self._found_of(device) for d in by)
            tolerated = self._of_pair(device)
            told.append(
                {
                    "device": device,
                    "nodes": nodes + (device == own.device),
                    "canary": self._by_canaries(own, device),
                    "checks": len(found),
                    "found_median": _part(found, 1, 2) if found else None,
                    "found_high": high(found) if found else None,
                    "tolerance": tolerated.distance,
                    "why": tolerated.why,
                }
            )
        return told

    def encode(self) -> bytes:
        """What a restart goes on from."""
        return canonical.encode(
            [
                [[s.device, _whole(s.distance), s.repeats] for s in self._canary],
                [
                    [node, found.device, [_whole(d) for d in found.distances]]
                    for node, found in sorted(self._found.items())
                ],
            ]
        )

    def restore(self, payload: bytes, again: CanaryStep) -> bool:
        """Go on from there if our first canary step comes out `again` as it did.

        Raises NotCanonical, ValueError or TypeError for what `encode` never makes.
        """
        canary, found = _saved(payload)
        if not canary or (canary[0].device, _whole(canary[0].distance)) != (
            again.device,
            _whole(again.distance),
        ):
            return False
        self._canary, self._found = canary, found
        return True

    def _of(self, author: NodeId) -> Tolerated:
        report = self._reports.get(author)
        if report is None:
            return Tolerated(self._ceiling, "it has not said yet what its device is")
        return self._of_pair(report.device)

    def _of_pair(self, device: str) -> Tolerated:
        own, ceiling = self.own, self._ceiling
        if own is None:
            return Tolerated(ceiling, "our own device is not measured yet")
        canaries = self._by_canaries(own, device)
        if canaries is None:
            return Tolerated(ceiling, "too few say that they have such a device")
        shown = [high(by) for by in self._found_of(device) if len(by) >= FOUND_LEAST]
        found = self._without_liars(shown) or 0.0
        told = Tolerated(MARGIN * canaries, "by canary steps of both devices")
        if found > canaries:
            told = Tolerated(MARGIN * found, "by what checks have found")
        if told.distance < FLOOR:
            return Tolerated(min(FLOOR, ceiling), "both devices are nearer than rare steps are")
        if not told.distance < ceiling:  # nor if it is no number
            return Tolerated(ceiling, "these devices are further apart than the genesis tolerates")
        return told

    def _found_of(self, device: str) -> list[deque[float]]:
        """By author."""
        return [found.distances for found in self._found.values() if found.device == device]

    def _by_canaries(self, own: DeviceReport, device: str) -> float | None:
        """How far our device and that kind are apart at most, if both are as far from canonical."""
        others = self._without_liars(
            [each.high for each in self._reports.values() if each.device == device]
        )
        if device == own.device:
            return own.high + max(own.high, others or 0.0)
        return None if others is None else own.high + others

    def _without_liars(self, said: Iterable[float]) -> float | None:
        """The largest that somebody honest must have reached; None if all may be liars'."""
        rest = sorted(said, reverse=True)[self._liars_max() :]
        return rest[0] if rest else None


def high(distances: Iterable[float]) -> float:
    """What seven of eight are at most."""
    return _part(distances, 7, 8)


def _part(distances: Iterable[float], numerator: int, denominator: int) -> float:
    ordered = sorted(distances)
    return ordered[-(-numerator * len(ordered) // denominator) - 1]


def _whole(distance: float) -> int:
    return round(min(distance, 1.0) * TRILLION)


def _saved(payload: bytes) -> tuple[list[CanaryStep], dict[NodeId, _Found]]:
    canary, found = canonical.decode(payload, SAVED_BYTES_MAX)
    steps = [CanaryStep(str(name), int(d) / TRILLION, bool(again)) for name, d, again in canary]
    by_author = {
        NodeId(bytes(author)): _Found(
            str(device), deque([int(d) / TRILLION for d in distances], FOUND_KEPT)
        )
        for author, device, distances in found
    }
    return steps[:CANARY_STEPS], by_author
