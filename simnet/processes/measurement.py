"""Measure every link before a run, and put what was measured beside what the scenario asks for.

    delay   a few small datagrams, far apart: the mean against latency + half of the jitter
    rate    a burst a quarter above the link's rate: what arrives once it is steady
    loss    all of the above and more small ones, pooled over links that ask for the same loss

A pool is large enough that a tenth of its loss is three standard errors, or, where loss is so rare
that this would take minutes, within three standard errors of what is asked. A rate that the switch
itself cannot carry is not asked for: such a link is as fast as the machine is.
"""

import math
import socket
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic_ns, sleep
from typing import Any

from simnet.links import MILLION, MS, NS, LinkModel
from simnet.processes import kernel
from simnet.processes.probes import Arrivals, Flow
from simnet.processes.weather import Ends

TOLERANCE = 0.10
DELAY_FLOOR_NS = MS // 2  # what the host's own scheduler adds; matters below 5 ms only
DELAY_COUNT, DELAY_BYTES, DELAY_GAP_NS_MIN = 24, 64, 10 * MS
PACKETS_PER_S = 16_000  # that the switch and all probes carry on two busy cores
RATE_BITS_PER_S_MAX = 150_000_000  # of one link that can be filled so
RATE_BYTES, RATE_PACKETS, RATE_NS_MAX, OVERLOAD = 1500, 2000, 2 * NS, 1.25
LOSS_BYTES, LOSS_PACKETS_MAX = 64, 200_000  # 12 s; a rarer loss is judged by its error
STANDARD_ERRORS = 3
START_NS = 100 * MS  # from the order to the first datagram: every probe has read it by then
SETTLE_NS = 300 * MS  # after the last arrival that is expected


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

    @property
    def as_asked(self) -> bool:
        """Delay and rate within the tolerance."""
        floor = max(TOLERANCE * self.delay_ms_asked, DELAY_FLOOR_NS / MS)
        right = abs(self.delay_ms - self.delay_ms_asked) <= floor
        if self.mbit_s_asked is not None:
            right &= abs(self.mbit_s / self.mbit_s_asked - 1) <= TOLERANCE
        return right


@dataclass(frozen=True, slots=True)
class Pool:
    """Links that ask for one loss, together."""

    percent_asked: float
    percent: float
    sent: int
    lost: int

    @property
    def error_percent(self) -> float:
        """The standard error that so many datagrams leave."""
        share = self.percent_asked / 100
        return 100 * math.sqrt(share * (1 - share) / self.sent)

    @property
    def as_asked(self) -> bool:
        allowed = max(TOLERANCE * self.percent_asked, STANDARD_ERRORS * self.error_percent)
        return abs(self.percent - self.percent_asked) <= allowed


@dataclass(frozen=True, slots=True)
class Measurement:
    """What `measure` found, and how long it took."""

    links: tuple[Measured, ...]
    pools: tuple[Pool, ...]
    wall_s: float

    def faults(self) -> list[str]:
        """What is not as the scenario asks, in words."""
        wrong = [
            f"{m.sender}->{m.receiver}: {m.delay_ms:.1f} ms for {m.delay_ms_asked:.1f}, "
            f"{m.mbit_s:.1f} Mbit/s for {m.mbit_s_asked}"
            for m in self.links
            if not m.as_asked
        ]
        return wrong + [
            f"loss {pool.percent:.3f} % for {pool.percent_asked:.3f} % of {pool.sent}"
            for pool in self.pools
            if not pool.as_asked
        ]

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
            "measured_in_s": round(self.wall_s, 1),
        }


@dataclass(slots=True)
class _Schedule:
    """Flows laid out in time so that together they stay below PACKETS_PER_S."""

    first: int  # number of its first flow: probes remember those of earlier schedules
    flows: dict[int, tuple[Ends, Flow]] = field(default_factory=dict)
    end_ns: int = 0

    def add(self, ends: Ends, count: int, size_bytes: int, gap_ns: int, start_ns: int) -> None:
        number = self.first + len(self.flows)
        receiver = str(ends[1])
        self.flows[number] = ends, Flow(number, receiver, count, size_bytes, gap_ns, start_ns)
        self.end_ns = max(self.end_ns, start_ns + count * gap_ns)


class Probes:
    """A probe in each namespace, for the time of a measurement."""

    def __init__(self, lines: list[socket.socket], addresses: list[str]) -> None:
        self._lines = lines
        self._addresses = addresses
        self._flows = 0  # numbers that were given out

    def measure(self, models: Mapping[Ends, LinkModel]) -> Measurement:
        """All links, which must be open and free of faults. Takes some seconds."""
        began_ns = monotonic_ns()
        way_ns = max(model.latency_ns + model.jitter_ns for model in models.values())
        delays = self._run(models, way_ns, _delay_flows)
        bursts = self._run(models, way_ns, _rate_flows)
        sent_so_far = {ends: delays[ends][0] + bursts[ends][0] for ends in models}
        rest = self._run(models, way_ns, lambda m, s, t: _loss_flows(m, s, t, sent_so_far))
        measured = tuple(
            _measured(ends, models[ends], delays[ends], bursts[ends], rest.get(ends))
            for ends in models
        )
        wall_s = (monotonic_ns() - began_ns) / NS
        return Measurement(measured, _pools(measured, models), wall_s)

    def _run(
        self,
        models: Mapping[Ends, LinkModel],
        way_ns: int,
        plan: Callable[[Mapping[Ends, LinkModel], _Schedule, int], None],
    ) -> dict[Ends, tuple[int, Arrivals]]:
        """(datagrams sent, what arrived) of the flows that `plan` lays out."""
        schedule = _Schedule(self._flows)
        plan(models, schedule, monotonic_ns() + START_NS)
        self._flows += len(schedule.flows)
        if not schedule.flows:
            return {}
        for node, line in enumerate(self._lines):
            own = [
                _as_message(flow, self._addresses[ends[1]])
                for ends, flow in schedule.flows.values()
                if ends[0] == node
            ]
            kernel.send(line, {"flows": own})
        queued_ns = int((OVERLOAD - 1) * RATE_NS_MAX)  # in front of a link that gets too much
        sleep((schedule.end_ns + way_ns + queued_ns + SETTLE_NS - monotonic_ns()) / NS)
        arrived: dict[int, Arrivals] = {}
        for line in self._lines:
            kernel.send(line, {"report": True})
            message, _ = kernel.receive(line)
            assert message is not None, "a probe has died"
            for number, fields in message["arrived"].items():
                arrived[int(number)] = Arrivals(**fields)
        return {
            ends: (flow.count, arrived.get(number, Arrivals()))
            for number, (ends, flow) in schedule.flows.items()
        }


def _delay_flows(models: Mapping[Ends, LinkModel], schedule: _Schedule, start_ns: int) -> None:
    for index, (ends, model) in enumerate(models.items()):
        # farther apart than the jitter, so that none waits for the one before
        gap_ns = max(DELAY_GAP_NS_MIN, model.jitter_ns * 5 // 4)
        offset_ns = index * gap_ns // len(models)
        schedule.add(ends, DELAY_COUNT, DELAY_BYTES, gap_ns, start_ns + offset_ns)


def _rate_flows(models: Mapping[Ends, LinkModel], schedule: _Schedule, start_ns: int) -> None:
    """One after another on as many lanes as the machine carries."""
    lanes = [start_ns]
    for ends, model in models.items():
        rate = min(model.bits_per_s or RATE_BITS_PER_S_MAX, RATE_BITS_PER_S_MAX)
        gap_ns = int(RATE_BYTES * 8 * NS / (rate * OVERLOAD))
        count = max(20, min(RATE_PACKETS, RATE_NS_MAX // gap_ns))
        wanted_lanes = max(1, PACKETS_PER_S * gap_ns // NS)
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
        gap_ns = len(models) * NS // PACKETS_PER_S
        for index, ends in enumerate(members if count > 0 else []):
            slowest = models[ends].bits_per_s or RATE_BITS_PER_S_MAX
            own_gap_ns = max(gap_ns, 2 * LOSS_BYTES * 8 * NS // slowest)
            start = start_ns + index * own_gap_ns // len(members)
            schedule.add(ends, count, LOSS_BYTES, own_gap_ns, start)


def _measured(
    ends: Ends,
    model: LinkModel,
    delay: tuple[int, Arrivals],
    burst: tuple[int, Arrivals],
    rest: tuple[int, Arrivals] | None,
) -> Measured:
    flows = [delay, burst, *([rest] if rest else [])]
    sent, came = sum(flow[0] for flow in flows), sum(flow[1].count for flow in flows)
    sending_ns = DELAY_BYTES * 8 * NS // model.bits_per_s if model.bits_per_s else 0
    asked = model.bits_per_s / MILLION
    return Measured(
        *ends,
        delay_ms_asked=(model.latency_ns + model.jitter_ns / 2 + sending_ns) / MS,
        delay_ms=delay[1].delay_ns_mean / MS,
        mbit_s_asked=asked if 0 < model.bits_per_s <= RATE_BITS_PER_S_MAX else None,
        mbit_s=burst[1].bits_per_s / MILLION,
        sent=sent,
        lost=sent - came,
    )


def _pools(measured: tuple[Measured, ...], models: Mapping[Ends, LinkModel]) -> tuple[Pool, ...]:
    sent: dict[int, int] = defaultdict(int)
    lost: dict[int, int] = defaultdict(int)
    for link in measured:
        loss_ppm = models[link.sender, link.receiver].loss_ppm
        sent[loss_ppm] += link.sent
        lost[loss_ppm] += link.lost
    return tuple(
        Pool(100 * ppm / MILLION, 100 * lost[ppm] / sent[ppm], sent[ppm], lost[ppm])
        for ppm in sorted(sent)
    )


def _off(link: Measured) -> float:
    """By what share a link misses what was asked, at worst."""
    off = abs(link.delay_ms / link.delay_ms_asked - 1)
    if link.mbit_s_asked is not None:
        off = max(off, abs(link.mbit_s / link.mbit_s_asked - 1))
    return off


def _as_message(flow: Flow, receiver: str) -> dict[str, Any]:
    return {
        "number": flow.number,
        "receiver": receiver,
        "count": flow.count,
        "size_bytes": flow.size_bytes,
        "gap_ns": flow.gap_ns,
        "start_ns": flow.start_ns,
    }
