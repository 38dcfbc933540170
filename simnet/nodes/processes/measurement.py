"""Measure every link before a run, and put what was measured beside what the scenario asks for.

    delay   a few small datagrams, far apart: the mean against latency + half of the jitter
    rate    a burst a quarter above the link's rate: what arrives once it is steady
    loss    all of the above and more small ones, pooled over links that ask for the same loss

A pool is large enough that a tenth of its loss is three standard errors, or, where loss is so rare
that this would take minutes, within three standard errors of what is asked. A rate that the switch
itself cannot carry is not asked for: such a link is as fast as the machine is.

Only what a sender's kernel took counts as sent. What a kernel threw away outside the links is
counted by node and not by flow: the flows are then sent once more at half the pace, and so are
bursts that a machine was too slow for. What is thrown away at the lowest pace may be among a pool's
losses, or not: the pool must be right either way.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as numbers
from time import monotonic_ns, sleep
from typing import Any

from simnet.nodes.processes.borders import public_address_of
from simnet.nodes.processes.lines import Line
from simnet.nodes.processes.probes import Arrivals, Course, Flow, Report
from simnet.world.link_conditions import Ends
from simnet.world.links import MILLION, MS, NS, LinkModel

TOLERANCE = 0.10
DELAY_FLOOR_NS = MS // 2  # what the host's own scheduler adds; matters below 5 ms only
DELAY_COUNT, DELAY_BYTES, DELAY_GAP_NS_MIN = 24, 64, 10 * MS
DELAY_TRIES_MAX = 3  # a machine that pauses in one of them adds to it, and never takes away
PACKETS_PER_S = 16_000  # that the switch and all probes carry on two busy cores
PACKETS_PER_S_MIN = 1_000  # below, a slow machine is not what loses them
RATE_BITS_PER_S_MAX = 150_000_000  # of one link that can be filled so
RATE_BYTES, RATE_PACKETS, RATE_NS_MAX, OVERLOAD = 1500, 2000, 2 * NS, 1.25
LOSS_BYTES, LOSS_PACKETS_MAX = 64, 200_000  # 12 s; a rarer loss is judged by its error
STANDARD_ERRORS = 3
START_NS = 100 * MS  # from the order to the first datagram: every probe has read it by then
SETTLE_NS = 300 * MS  # without arrivals, after the last one that is expected
SETTLES_MAX = 100  # half a minute: a slow machine hands out what it has taken
REPORT_TIMEOUT_S = 600.0  # 200,000 datagrams take 200 s at the lowest pace, and 120 more put off

Models = Mapping[Ends, LinkModel]
# A flow to be: its link, how many datagrams of how many bytes, the gap between two, and when the
# first one leaves, after the start of all (ns).
Wish = tuple[Ends, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Measured:
    """One direction; `*_asked` as the scenario has it."""

    sender: int
    receiver: int
    delay_ms_asked: float
    delay_ms: float
    mbit_s_asked: float | None  # None: as fast as the machine is
    mbit_s: float
    sent: int
    lost: int
    was_full: bool = True  # or the machine did not send fast enough for its rate

    @property
    def as_asked(self) -> bool:
        """Delay and rate within the tolerance."""
        floor = max(TOLERANCE * self.delay_ms_asked, DELAY_FLOOR_NS / MS)
        right = abs(self.delay_ms - self.delay_ms_asked) <= floor
        if self.mbit_s_asked is not None:
            right &= abs(self.mbit_s / self.mbit_s_asked - 1) <= TOLERANCE
        return right

    def in_words(self) -> str:
        words = f"{self.sender}->{self.receiver}: {self.delay_ms:.1f} ms for "
        words += f"{self.delay_ms_asked:.1f}, {self.mbit_s:.1f} Mbit/s for {self.mbit_s_asked}"
        return words if self.was_full else f"{words}, sent too slowly by this machine"

    def as_facts(self) -> dict[str, Any]:
        return {
            "link": f"{self.sender}->{self.receiver}",
            "delay_ms": round(self.delay_ms, 2),
            "asked_ms": round(self.delay_ms_asked, 2),
            "mbit_s": round(self.mbit_s, 2),
            "asked_mbit_s": self.mbit_s_asked,
            "lost": f"{self.lost} of {self.sent}",
            "as_asked": self.as_asked,
        }


@dataclass(frozen=True, slots=True)
class Pool:
    """Links that ask for one loss, together."""

    percent_asked: float
    sent: int
    lost: int
    dropped: int = 0  # by the machine; perhaps among the lost

    @property
    def error_percent(self) -> float:
        """The standard error that so many datagrams leave."""
        share = self.percent_asked / 100
        return 100 * math.sqrt(share * (1 - share) / max(1, self.sent))

    @property
    def as_asked(self) -> bool:
        """Whether the machine's drops are all among the lost, or none of them is."""
        allowed = max(TOLERANCE * self.percent_asked, STANDARD_ERRORS * self.error_percent)
        either = (self._percent(lost) for lost in (max(0, self.lost - self.dropped), self.lost))
        return self.sent > 0 and all(abs(p - self.percent_asked) <= allowed for p in either)

    def in_words(self) -> str:
        percent = self._percent(self.lost)
        words = f"loss {percent:.3f} % for {self.percent_asked:.3f} % of {self.sent}"
        if self.dropped:
            words += f", unless this machine lost {self.dropped} of them and not the link"
        return words

    def as_facts(self) -> dict[str, Any]:
        return {
            "loss_percent": round(self._percent(self.lost), 4),
            "asked_percent": self.percent_asked,
            "standard_error": round(self.error_percent, 4),
            "probes": self.sent,
            "as_asked": self.as_asked,
        }

    def _percent(self, lost: int) -> float:
        return 100 * lost / max(1, self.sent)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What `measure` found, and what the machine did to it, and no link."""

    links: tuple[Measured, ...]
    pools: tuple[Pool, ...]
    dropped: int = 0  # datagrams that its kernel took and threw away outside the links
    unsent: int = 0  # datagrams that it was too slow for
    packets_per_s: int = PACKETS_PER_S  # the lowest pace that was needed

    def faults(self) -> list[str]:
        """What is not as the scenario asks, in words."""
        wrong = [link.in_words() for link in self.links if not link.as_asked]
        wrong += [pool.in_words() for pool in self.pools if not pool.as_asked]
        if self.unsent:
            wrong.append(f"this machine is too slow: {self.unsent} datagrams were not sent")
        return wrong

    def as_facts(self) -> dict[str, Any]:
        """Rows for a person and for JSON: measured beside asked."""
        return {
            "links": [link.as_facts() for link in self.links],
            "loss": [pool.as_facts() for pool in self.pools],
            "machine": {
                "dropped": self.dropped,
                "unsent": self.unsent,
                "packets_per_s": self.packets_per_s,
            },
        }


@dataclass(frozen=True, slots=True)
class _Flown:
    """What became of a flow."""

    sent: int = 0
    unsent: int = 0
    is_late: bool = False  # sent too slowly to fill its link, if it was meant to
    came: Arrivals = Arrivals()


class Probes:
    """A probe in each namespace, for the time of a measurement."""

    def __init__(self, lines: list[Line], wait: Callable[[float], None] = sleep) -> None:
        """`wait` so many seconds: real probes take their time."""
        self._lines = lines
        self._wait = wait
        self._numbers = numbers()  # of flows: probes remember all of them
        # so far, in flows that count
        self._dropped = self._unsent = 0
        self._packets_per_s = PACKETS_PER_S

    def measure(self, models: Models) -> Measurement:
        """All links, which must be open and free of faults. Takes some seconds."""
        delays = self._delays(models)
        bursts = self._run(models, _rate_flows, is_burst=True)
        so_far = {ends: delays[ends].sent + bursts[ends].sent for ends in models}
        rest = self._run(models, lambda models, pace: _loss_flows(models, pace, so_far))
        links = tuple(
            _measured(ends, model, delays[ends], bursts[ends], rest.get(ends, _Flown()))
            for ends, model in models.items()
        )
        pools = _pools(links, models, self._dropped)
        return Measurement(links, pools, self._dropped, self._unsent, self._packets_per_s)

    def _delays(self, models: Models) -> dict[Ends, _Flown]:
        """The shortest of some tries, where the first is longer than what is asked."""
        found = self._run(models, _delay_flows)
        for _ in range(DELAY_TRIES_MAX - 1):
            late = {ends: models[ends] for ends in models if _is_late(models[ends], found[ends])}
            again = self._run(late, _delay_flows) if late else {}
            for ends, flown in again.items():
                found[ends] = min(found[ends], flown, key=lambda one: one.came.delay_ns_mean)
        return found

    def _run(
        self,
        models: Models,
        plan: Callable[[Models, int], Iterator[Wish]],
        is_burst: bool = False,
    ) -> dict[Ends, _Flown]:
        """What became of the flows that `plan` lays out at a pace, which is halved as need be.

        All are sent again if the machine has dropped any, and bursts that were late.
        """
        way_ns = max(model.latency_ns + model.jitter_ns for model in models.values())
        queued_ns = int((OVERLOAD - 1) * RATE_NS_MAX)  # in front of a link that gets too much
        packets_per_s, found = PACKETS_PER_S, dict[Ends, _Flown]()
        while flows := self._flows(plan(models, packets_per_s)):
            before = self._hear()
            for node, line in enumerate(self._lines):
                line.send([flow for ends, flow in flows.items() if ends[0] == node])
            self._hear()  # once everything is sent
            self._wait((way_ns + queued_ns) / NS)
            now = self._settled()
            dropped, is_last = now.dropped - before.dropped, packets_per_s <= PACKETS_PER_S_MIN
            if not dropped or is_last:
                for ends, flow in flows.items():
                    found[ends] = _flown(now.sent[flow.number], now.arrived.get(flow.number))
                late = [ends for ends in flows if is_burst and found[ends].is_late]
                models = {ends: models[ends] for ends in late}
            if not models or is_last:
                self._dropped += dropped
                self._unsent += sum(flow.unsent for flow in found.values())
                self._packets_per_s = min(self._packets_per_s, packets_per_s)
                break
            packets_per_s //= 2
        return found

    def _flows(self, wishes: Iterator[Wish]) -> dict[Ends, Flow]:
        start_ns = monotonic_ns() + START_NS
        return {
            ends: Flow(
                next(self._numbers),
                public_address_of(ends[1]),
                count,
                size,
                gap_ns,
                start_ns + offset_ns,
            )
            for ends, count, size, gap_ns, offset_ns in wishes
        }

    def _settled(self) -> Report:
        """What probes tell when nothing more arrives."""
        told = self._hear()
        for _ in range(SETTLES_MAX):
            before = told
            self._wait(SETTLE_NS / NS)
            told = self._hear()
            if told == before:
                break
        return told

    def _hear(self) -> Report:
        """What probes tell together, each once it has sent everything. Raises Unavailable."""
        for line in self._lines:
            line.send(None)
        told = Report()
        for line in self._lines:
            own: Report = line.hear(REPORT_TIMEOUT_S)[0]
            told.sent |= own.sent
            told.arrived |= own.arrived
            told.dropped += own.dropped
        return told


def _delay_flows(models: Models, packets_per_s: int) -> Iterator[Wish]:
    for index, (ends, model) in enumerate(models.items()):
        # farther apart than the jitter, so that none waits for the one before
        gap_ns = max(DELAY_GAP_NS_MIN, model.jitter_ns * 5 // 4, len(models) * NS // packets_per_s)
        yield ends, DELAY_COUNT, DELAY_BYTES, gap_ns, index * gap_ns // len(models)


def _rate_flows(models: Models, packets_per_s: int) -> Iterator[Wish]:
    """One after another on as many lanes as the machine carries."""
    lanes = [0]  # when each is free
    for ends, model in models.items():
        rate = min(model.bits_per_s or RATE_BITS_PER_S_MAX, RATE_BITS_PER_S_MAX)
        gap_ns = int(RATE_BYTES * 8 * NS / (rate * OVERLOAD))
        count = max(20, min(RATE_PACKETS, RATE_NS_MAX // gap_ns))
        wanted_lanes = max(1, packets_per_s * gap_ns // NS)
        lanes += [0] * (min(wanted_lanes, len(models)) - len(lanes))
        lane = lanes.index(min(lanes))
        yield ends, count, RATE_BYTES, gap_ns, lanes[lane]
        lanes[lane] += int(count * gap_ns * OVERLOAD)


def _loss_flows(
    models: Models, packets_per_s: int, sent_so_far: Mapping[Ends, int]
) -> Iterator[Wish]:
    pools: dict[int, list[Ends]] = defaultdict(list)
    for ends, model in models.items():
        if model.loss_ppm:
            pools[model.loss_ppm].append(ends)
    for loss_ppm, members in pools.items():
        share = loss_ppm / MILLION
        wanted = (1 - share) / share * (STANDARD_ERRORS / TOLERANCE) ** 2
        missing = min(wanted, LOSS_PACKETS_MAX) - sum(sent_so_far[ends] for ends in members)
        count = math.ceil(missing / len(members))
        for index, ends in enumerate(members if count > 0 else []):
            slowest = models[ends].bits_per_s or RATE_BITS_PER_S_MAX
            gap_ns = max(len(models) * NS // packets_per_s, 2 * LOSS_BYTES * 8 * NS // slowest)
            yield ends, count, LOSS_BYTES, gap_ns, index * gap_ns // len(members)


def _is_late(model: LinkModel, delay: _Flown) -> bool:
    """Some of the datagrams came, and took more than is tolerated."""
    asked_ns = model.latency_ns + model.jitter_ns // 2
    return delay.came.delay_ns_mean > asked_ns + max(TOLERANCE * asked_ns, DELAY_FLOOR_NS)


def _flown(course: Course, came: Arrivals | None) -> _Flown:
    flow = course.flow
    late_ns_max = int((OVERLOAD - 1) / 2 * flow.count * flow.gap_ns)
    is_late = course.put_off_ns > late_ns_max
    return _Flown(course.sent, flow.count - course.sent, is_late, came or Arrivals())


def _measured(ends: Ends, model: LinkModel, delay: _Flown, burst: _Flown, rest: _Flown) -> Measured:
    sent = delay.sent + burst.sent + rest.sent
    sending_ns = DELAY_BYTES * 8 * NS // model.bits_per_s if model.bits_per_s else 0
    is_judged = 0 < model.bits_per_s <= RATE_BITS_PER_S_MAX
    return Measured(
        *ends,
        delay_ms_asked=(model.latency_ns + model.jitter_ns / 2 + sending_ns) / MS,
        delay_ms=delay.came.delay_ns_mean / MS,
        mbit_s_asked=model.bits_per_s / MILLION if is_judged else None,
        mbit_s=burst.came.bits_per_s / MILLION,
        sent=sent,
        lost=sent - delay.came.count - burst.came.count - rest.came.count,
        was_full=not burst.is_late,
    )


def _pools(links: Sequence[Measured], models: Models, dropped: int) -> tuple[Pool, ...]:
    sent, lost = Counter[int](), Counter[int]()
    for link in links:
        loss_ppm = models[link.sender, link.receiver].loss_ppm
        sent[loss_ppm] += link.sent
        lost[loss_ppm] += link.lost
    return tuple(
        Pool(100 * ppm / MILLION, sent[ppm], lost[ppm], min(dropped, lost[ppm]))
        for ppm in sorted(sent)
    )
