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
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from time import monotonic_ns, sleep
from typing import Any

from simnet.nodes.processes.lines import Line
from simnet.nodes.processes.probes import Arrivals, Course, Flow, Report
from simnet.world.link_conditions import Ends
from simnet.world.links import MILLION, MS, NS, LinkModel

TOLERANCE = 0.10
DELAY_FLOOR_NS = MS // 2  # what the host's own scheduler adds; matters below 5 ms only
DELAY_COUNT, DELAY_BYTES, DELAY_GAP_NS_MIN = 24, 64, 10 * MS
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


@dataclass(frozen=True, slots=True)
class Pool:
    """Links that ask for one loss, together."""

    percent_asked: float
    sent: int
    lost: int
    dropped: int = 0  # by the machine; perhaps among the lost

    @property
    def percent(self) -> float:
        """If the machine's drops were all elsewhere."""
        return 100 * self.lost / max(1, self.sent)

    @property
    def percent_least(self) -> float:
        """If they were all here."""
        return 100 * max(0, self.lost - self.dropped) / max(1, self.sent)

    @property
    def error_percent(self) -> float:
        """The standard error that so many datagrams leave."""
        share = self.percent_asked / 100
        return 100 * math.sqrt(share * (1 - share) / max(1, self.sent))

    @property
    def as_asked(self) -> bool:
        allowed = max(TOLERANCE * self.percent_asked, STANDARD_ERRORS * self.error_percent)
        ends = self.percent_least, self.percent
        return self.sent > 0 and all(abs(end - self.percent_asked) <= allowed for end in ends)

    def in_words(self) -> str:
        words = f"loss {self.percent:.3f} % for {self.percent_asked:.3f} % of {self.sent}"
        if self.dropped:
            words += f", unless this machine lost {self.dropped} of them and not the link"
        return words


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine did to the measurement, and no link."""

    dropped: int = 0  # datagrams that its kernel took and threw away outside the links
    dropped_in_all: int = 0  # with those of flows that were sent once more for it
    refused: int = 0  # times that it did not take one, which was then tried again
    unsent: int = 0  # datagrams that it was too slow for
    late: int = 0  # bursts that it sent too slowly
    packets_per_s: int = PACKETS_PER_S  # the lowest pace that was needed


@dataclass(frozen=True, slots=True)
class Measurement:
    """What `measure` found, and how long it took."""

    links: tuple[Measured, ...]
    pools: tuple[Pool, ...]
    wall_s: float
    machine: Machine = Machine()

    def faults(self) -> list[str]:
        """What is not as the scenario asks, in words."""
        wrong = [link.in_words() for link in self.links if not link.as_asked]
        wrong += [pool.in_words() for pool in self.pools if not pool.as_asked]
        if self.machine.unsent:
            wrong.append(f"this machine is too slow: {self.machine.unsent} datagrams were not sent")
        return wrong

    def as_facts(self) -> dict[str, Any]:
        """Rows for a person and for JSON: measured beside asked."""
        return {
            "links": [
                {
                    "link": f"{m.sender}->{m.receiver}",
                    "delay_ms": round(m.delay_ms, 2),
                    "asked_ms": round(m.delay_ms_asked, 2),
                    "mbit_s": round(m.mbit_s, 2),
                    "asked_mbit_s": m.mbit_s_asked,
                    "lost": f"{m.lost} of {m.sent}",
                    "as_asked": m.as_asked,
                }
                for m in self.links
            ],
            "loss": [
                {
                    "loss_percent": round(pool.percent, 4),
                    "asked_percent": pool.percent_asked,
                    "standard_error": round(pool.error_percent, 4),
                    "probes": pool.sent,
                    "as_asked": pool.as_asked,
                }
                for pool in self.pools
            ],
            "links_off_by_percent_max": round(100 * max(map(_off, self.links), default=0.0), 2),
            "machine": asdict(self.machine),
            "measured_in_s": round(self.wall_s, 1),
        }


@dataclass(slots=True)
class _Schedule:
    """Flows laid out in time so that together they stay below a pace."""

    first: int  # number of its first flow: probes remember those of earlier schedules
    packets_per_s: int
    addresses: list[str]  # of the nodes
    flows: dict[Ends, Flow] = field(default_factory=dict)

    def add(self, ends: Ends, count: int, size_bytes: int, gap_ns: int, start_ns: int) -> None:
        number, receiver = self.first + len(self.flows), self.addresses[ends[1]]
        self.flows[ends] = Flow(number, receiver, count, size_bytes, gap_ns, start_ns)


@dataclass(frozen=True, slots=True)
class _Flown:
    """What became of a flow."""

    sent: int = 0
    unsent: int = 0
    is_late: bool = False  # sent too slowly to fill its link, if it was meant to
    came: Arrivals = Arrivals()

    @classmethod
    def of(cls, course: Course, came: Arrivals) -> "_Flown":
        flow = course.flow
        late_ns_max = int((OVERLOAD - 1) / 2 * flow.count * flow.gap_ns)
        is_late = course.put_off_ns > late_ns_max
        return cls(course.sent, flow.count - course.sent, is_late, came)


class Probes:
    """A probe in each namespace, for the time of a measurement."""

    def __init__(
        self, lines: list[Line], addresses: list[str], wait: Callable[[float], None] = sleep
    ) -> None:
        """`wait` so many seconds: real probes take their time."""
        self._lines = lines
        self._addresses = addresses
        self._wait = wait
        self._flows = 0  # numbers that were given out
        self._machine = Machine()  # so far, in flows that count

    def measure(self, models: Mapping[Ends, LinkModel]) -> Measurement:
        """All links, which must be open and free of faults. Takes some seconds."""
        began_ns = monotonic_ns()
        delays = self._run(models, _delay_flows)
        bursts = self._run(models, _rate_flows, is_burst=True)
        sent_so_far = {ends: delays[ends].sent + bursts[ends].sent for ends in models}
        rest = self._run(models, lambda m, s, t: _loss_flows(m, s, t, sent_so_far))
        measured = tuple(
            _measured(ends, models[ends], delays[ends], bursts[ends], rest.get(ends, _Flown()))
            for ends in models
        )
        wall_s = (monotonic_ns() - began_ns) / NS
        pools = _pools(measured, models, self._machine.dropped)
        return Measurement(measured, pools, wall_s, self._machine)

    def _run(
        self,
        models: Mapping[Ends, LinkModel],
        plan: Callable[[Mapping[Ends, LinkModel], _Schedule, int], None],
        is_burst: bool = False,
    ) -> dict[Ends, _Flown]:
        """What became of the flows that `plan` lays out; a burst must not be late."""
        way_ns = max(model.latency_ns + model.jitter_ns for model in models.values())
        queued_ns = int((OVERLOAD - 1) * RATE_NS_MAX)  # in front of a link that gets too much
        packets_per_s, found = PACKETS_PER_S, dict[Ends, _Flown]()
        while True:
            schedule = _Schedule(self._flows, packets_per_s, self._addresses)
            plan(models, schedule, monotonic_ns() + START_NS)
            self._flows += len(schedule.flows)
            if not schedule.flows:
                return found
            before = self._hear()
            for node, line in enumerate(self._lines):
                line.send([flow for ends, flow in schedule.flows.items() if ends[0] == node])
            self._hear()  # once everything is sent
            self._wait((way_ns + queued_ns) / NS)
            now = self._settled()
            dropped, is_last = now.dropped - before.dropped, packets_per_s <= PACKETS_PER_S_MIN
            flown = {
                ends: _Flown.of(now.sent[flow.number], now.arrived.get(flow.number, Arrivals()))
                for ends, flow in schedule.flows.items()
            }
            if not dropped or is_last:
                found |= flown
                late = [ends for ends, flow in flown.items() if is_burst and flow.is_late]
                models = {ends: models[ends] for ends in late}
            if not models or is_last:
                break
            packets_per_s //= 2
        so_far = self._machine
        self._machine = Machine(
            so_far.dropped + dropped,
            now.dropped,
            now.refused,
            so_far.unsent + sum(flow.unsent for flow in found.values()),
            so_far.late + (len(models) if is_burst else 0),
            min(so_far.packets_per_s, packets_per_s),
        )
        return found

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
            told.refused += own.refused
        return told


def _delay_flows(models: Mapping[Ends, LinkModel], schedule: _Schedule, start_ns: int) -> None:
    for index, (ends, model) in enumerate(models.items()):
        # farther apart than the jitter, so that none waits for the one before
        gap_ns = max(
            DELAY_GAP_NS_MIN, model.jitter_ns * 5 // 4, len(models) * NS // schedule.packets_per_s
        )
        offset_ns = index * gap_ns // len(models)
        schedule.add(ends, DELAY_COUNT, DELAY_BYTES, gap_ns, start_ns + offset_ns)


def _rate_flows(models: Mapping[Ends, LinkModel], schedule: _Schedule, start_ns: int) -> None:
    """One after another on as many lanes as the machine carries."""
    lanes = [start_ns]
    for ends, model in models.items():
        rate = min(model.bits_per_s or RATE_BITS_PER_S_MAX, RATE_BITS_PER_S_MAX)
        gap_ns = int(RATE_BYTES * 8 * NS / (rate * OVERLOAD))
        count = max(20, min(RATE_PACKETS, RATE_NS_MAX // gap_ns))
        wanted_lanes = max(1, schedule.packets_per_s * gap_ns // NS)
        while len(lanes) < min(wanted_lanes, len(models)):
            lanes.append(start_ns)
        lane = min(range(len(lanes)), key=lambda index: lanes[index])
        schedule.add(ends, count, RATE_BYTES, gap_ns, lanes[lane])
        lanes[lane] += int(count * gap_ns * OVERLOAD)


def _loss_flows(
    models: Mapping[Ends, LinkModel],
    schedule: _Schedule,
    start_ns: int,
    sent_so_far: Mapping[Ends, int],
) -> None:
    pools: dict[int, list[Ends]] = defaultdict(list)
    for ends, model in models.items():
        if model.loss_ppm:
            pools[model.loss_ppm].append(ends)
    for loss_ppm, members in pools.items():
        share = loss_ppm / MILLION
        wanted = (1 - share) / share * (STANDARD_ERRORS / TOLERANCE) ** 2
        missing = min(wanted, LOSS_PACKETS_MAX) - sum(sent_so_far[ends] for ends in members)
        count = math.ceil(missing / len(members))
        gap_ns = len(models) * NS // schedule.packets_per_s
        for index, ends in enumerate(members if count > 0 else []):
            slowest = models[ends].bits_per_s or RATE_BITS_PER_S_MAX
            own_gap_ns = max(gap_ns, 2 * LOSS_BYTES * 8 * NS // slowest)
            start = start_ns + index * own_gap_ns // len(members)
            schedule.add(ends, count, LOSS_BYTES, own_gap_ns, start)


def _measured(ends: Ends, model: LinkModel, delay: _Flown, burst: _Flown, rest: _Flown) -> Measured:
    flows = delay, burst, rest
    sent = sum(flow.sent for flow in flows)
    sending_ns = DELAY_BYTES * 8 * NS // model.bits_per_s if model.bits_per_s else 0
    asked = model.bits_per_s / MILLION
    return Measured(
        *ends,
        delay_ms_asked=(model.latency_ns + model.jitter_ns / 2 + sending_ns) / MS,
        delay_ms=delay.came.delay_ns_mean / MS,
        mbit_s_asked=asked if 0 < model.bits_per_s <= RATE_BITS_PER_S_MAX else None,
        mbit_s=burst.came.bits_per_s / MILLION,
        sent=sent,
        lost=sent - sum(flow.came.count for flow in flows),
        was_full=not burst.is_late,
    )


def _pools(
    measured: tuple[Measured, ...], models: Mapping[Ends, LinkModel], dropped: int
) -> tuple[Pool, ...]:
    sent: dict[int, int] = defaultdict(int)
    lost: dict[int, int] = defaultdict(int)
    for link in measured:
        loss_ppm = models[link.sender, link.receiver].loss_ppm
        sent[loss_ppm] += link.sent
        lost[loss_ppm] += link.lost
    return tuple(
        Pool(100 * ppm / MILLION, sent[ppm], lost[ppm], min(dropped, lost[ppm]))
        for ppm in sorted(sent)
    )


def _off(link: Measured) -> float:
    """By what share a link misses what was asked, at worst."""
    off = abs(link.delay_ms / link.delay_ms_asked - 1)
    if link.mbit_s_asked is not None:
        off = max(off, abs(link.mbit_s / link.mbit_s_asked - 1))
    return off
