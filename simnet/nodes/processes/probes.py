"""What the links between namespaces really do: datagrams that carry the moment they were sent.

All nodes share one host, so one clock tells a way's time without guessing. A flow is some datagrams
from one node to another at a pace; the receiver counts them. Delay is measured by a few, far apart;
rate by a burst above what the link carries; loss by as many as make ten per cent of it visible.

A slow machine is not a lossy link. What the kernel did not take is not sent, but tried again; a
flow that is late is put off, for a burst would fill the link's queue; what the kernel itself threw
away, before the link or behind it, is told apart.
"""

import errno
import select
import socket
import struct
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns
from typing import Any

from simnet.nodes.processes import kernel
from simnet.nodes.processes.lines import Line
from simnet.world.links import MS, NS

PORT = 9  # discard
HEADER = struct.Struct("!IIQ")  # flow, number, sent_ns
HEADERS_BYTES = 28  # IPv4 and UDP
BUFFER_BYTES = 16 << 20
SENDS_AT_ONCE = 32  # of one flow that is late, before others have their turn
LATE_NS_MAX = 50 * MS  # that a flow catches up: links queue for two seconds; the rest is put off
PUT_OFF_NS_MAX = 120 * NS  # then the rest of a flow is not sent any more
REST_NS = MS  # of a probe that is behind: the kernel's own threads rank below it
_SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 33, 32
_IP_RECVERR = 11  # linux/in.h: without it the kernel says that it took what it threw away
_SO_MEMINFO, _MEMINFO = 55, struct.Struct("9I")  # linux/sock_diag.h; the last are drops
_DEVICE_DROPS = 3, 11  # columns of /proc/net/dev: received, and to be sent
STEADY_FROM = 0.25  # of a burst's arrivals: before, jitter still sorts itself


@dataclass(frozen=True, slots=True)
class Flow:
    """`size_bytes` counts the whole IP packet."""

    number: int
    receiver: str
    count: int
    size_bytes: int
    gap_ns: int
    start_ns: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What came of a flow: how many, how long they took, how fast they came when it was steady."""

    count: int = 0
    delay_ns_mean: int = 0
    bits_per_s: int = 0


@dataclass(slots=True)
class Course:
    """A flow under way: how many of its datagrams are out, and when the next one is due."""

    flow: Flow
    due_ns: int
    sent: int = 0  # that the kernel took
    put_off_ns: int = 0  # in all

    def is_due(self, now_ns: int) -> bool:
        return self.due_ns <= now_ns and not self.is_over(now_ns)

    def went(self, now_ns: int) -> None:
        """One more is out; what is too late by now is put off."""
        late_ns = max(0, now_ns - LATE_NS_MAX - self.due_ns)
        self.sent += 1
        self.put_off_ns += late_ns
        self.due_ns += late_ns + self.flow.gap_ns

    def is_over(self, now_ns: int) -> bool:
        """All are out, or the machine is much too slow."""
        flow = self.flow
        end_ns = flow.start_ns + flow.count * flow.gap_ns + PUT_OFF_NS_MAX
        return self.sent == flow.count or now_ns > end_ns


@dataclass(slots=True)
class Report:
    """What a probe knows of all flows so far, its own and those that come to it, by number."""

    sent: dict[int, Course] = field(default_factory=dict)
    arrived: dict[int, Arrivals] = field(default_factory=dict)
    dropped: int = 0  # by the kernel, of whatever flow


@dataclass(slots=True)
class Arriving:
    """What has come of a flow so far."""

    size_bytes: int
    delays_ns: int = 0  # together
    times_ns: "array[int]" = field(default_factory=lambda: array("q"))

    def counted(self) -> Arrivals:
        count = len(self.times_ns)
        first = int(count * STEADY_FROM)
        lasted_ns = self.times_ns[-1] - self.times_ns[first]
        bits = (count - 1 - first) * self.size_bytes * 8
        rate = bits * NS // lasted_ns if lasted_ns else 0
        return Arrivals(count, self.delays_ns // count, rate)


class Prober:
    """One node's probe: sends the flows that the tool names, and reports what it received.

    It hears a list of flows, or None for a Report, which waits until everything is sent.
    """

    def __init__(self, line: Line, door: socket.socket) -> None:
        self._line = line
        self._door = door
        self._courses: dict[int, Course] = {}
        self._under_way: list[Course] = []
        self._arriving: dict[int, Arriving] = {}

    def run(self) -> None:
        """Raises EOFError when the tool closes the line."""
        before, is_asked = dropped(self._door), False
        sources: list[Any] = [self._line, self._door]
        self._line.send(None)
        while True:
            wait_s = self._send_due()
            if is_asked and not self._under_way:
                is_asked = False
                arrived = {flow: each.counted() for flow, each in self._arriving.items()}
                self._line.send(Report(self._courses, arrived, dropped(self._door) - before))
            ready, _, _ = select.select(sources, [], [], wait_s)
            if self._door in ready:
                self._receive()
            if self._line in ready:
                flows: list[Flow] | None = self._line.receive()[0]
                is_asked = flows is None
                for flow in flows or ():
                    self._courses[flow.number] = Course(flow, flow.start_ns)
                    self._under_way.append(self._courses[flow.number])

    def _send_due(self) -> float | None:
        """Send what is due, and say how long there is nothing to do."""
        is_behind = any([self._send_some(course) for course in self._under_way])
        now_ns = monotonic_ns()
        self._under_way = [course for course in self._under_way if not course.is_over(now_ns)]
        if not self._under_way:
            return None
        wait_ns = min(course.due_ns for course in self._under_way) - now_ns
        return max(wait_ns, REST_NS if is_behind else 0) / NS

    def _send_some(self, course: Course) -> bool:
        """Whether the machine is too slow for it."""
        flow, put_off_ns = course.flow, course.put_off_ns
        padding = bytes(flow.size_bytes - HEADERS_BYTES - HEADER.size)
        for _ in range(SENDS_AT_ONCE):
            now_ns = monotonic_ns()
            if not course.is_due(now_ns):
                break
            try:
                header = HEADER.pack(flow.number, course.sent, now_ns)
                self._door.sendto(header + padding, (flow.receiver, PORT))
            except OSError as refused:
                if refused.errno not in (errno.EAGAIN, errno.ENOBUFS):
                    raise
                return True
            course.went(now_ns)
        return course.put_off_ns > put_off_ns

    def _receive(self) -> None:
        with suppress(BlockingIOError):
            while True:
                packet = self._door.recv(65_536)
                now_ns = monotonic_ns()
                number, _, sent_ns = HEADER.unpack_from(packet)
                if number not in self._arriving:
                    self._arriving[number] = Arriving(len(packet) + HEADERS_BYTES)
                self._arriving[number].times_ns.append(now_ns)
                self._arriving[number].delays_ns += now_ns - sent_ns


def serve(address: str, line: Line) -> None:
    """The whole life of a probe, in its node's namespace."""
    kernel.be_punctual(kernel.PROBE_PRIORITY)  # or a busy machine would measure itself
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        _widen(door)
        door.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        door.bind((address, PORT))
        door.setblocking(False)
        Prober(line, door).run()


def _widen(door: socket.socket) -> None:
    """Room for what arrives while the machine is busy: a full buffer would count as loss."""
    for forced, plain in ((_SO_RCVBUFFORCE, "SO_RCVBUF"), (_SO_SNDBUFFORCE, "SO_SNDBUF")):
        try:
            door.setsockopt(socket.SOL_SOCKET, forced, BUFFER_BYTES)
        except PermissionError:
            door.setsockopt(socket.SOL_SOCKET, getattr(socket, plain), BUFFER_BYTES)


def dropped(door: socket.socket) -> int:
    """How much the kernel threw away so far, at the door and at its namespace's devices."""
    said = door.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
    count = int(_MEMINFO.unpack(said)[-1])
    for row in Path("/proc/self/net/dev").read_text().splitlines()[2:]:
        figures = row.partition(":")[2].split()
        count += sum(int(figures[column]) for column in _DEVICE_DROPS)
    return count
