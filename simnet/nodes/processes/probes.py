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
from collections import defaultdict
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
    refused: int = 0  # times that the kernel did not take a datagram, which was then tried again


class Prober:
    """One node's probe: sends the flows that the tool names, and reports what it received.

    It hears a list of flows, or None for a Report, which waits until everything is sent.
    """

    def __init__(self, line: Line, address: str) -> None:
        self._line = line
        self._address = address
        self._courses: dict[int, Course] = {}
        self._under_way: list[Course] = []
        self._is_asked = False
        self._refused = 0
        self._arrived: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))
        self._delays: defaultdict[int, int] = defaultdict(int)
        self._sizes: dict[int, int] = {}

    def run(self) -> None:
        """Raises EOFError when the tool closes the line."""
        kernel.be_punctual(kernel.PROBE_PRIORITY)  # or a busy machine would measure itself
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
            _widen(door)
            door.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
            door.bind((self._address, PORT))
            door.setblocking(False)
            before = dropped(door)
            self._line.send(None)
            while True:
                wait_s = self._send_due(door)
                if self._is_asked and not self._under_way:
                    self._is_asked = False
                    arrived = {flow: self._arrivals(flow) for flow in self._arrived}
                    lost = dropped(door) - before
                    self._line.send(Report(self._courses, arrived, lost, self._refused))
                sources: list[Any] = [self._line, door]
                ready, _, _ = select.select(sources, [], [], wait_s)
                if door in ready:
                    self._receive(door)
                if self._line in ready:
                    flows: list[Flow] | None = self._line.receive()[0]
                    self._is_asked = flows is None
                    for flow in flows or ():
                        self._courses[flow.number] = Course(flow, flow.start_ns)
                        self._under_way.append(self._courses[flow.number])

    def _send_due(self, door: socket.socket) -> float | None:
        """Send what is due, and say how long there is nothing to do."""
        is_behind = False
        for course in self._under_way:
            refused, put_off_ns = self._refused, course.put_off_ns
            self._send_some(door, course)
            is_behind |= (refused, put_off_ns) != (self._refused, course.put_off_ns)
        now_ns = monotonic_ns()
        self._under_way = [course for course in self._under_way if not course.is_over(now_ns)]
        if not self._under_way:
            return None
        wait_ns = min(course.due_ns for course in self._under_way) - now_ns
        return max(wait_ns, REST_NS if is_behind else 0) / NS

    def _send_some(self, door: socket.socket, course: Course) -> None:
        flow = course.flow
        padding = bytes(flow.size_bytes - HEADERS_BYTES - HEADER.size)
        for _ in range(SENDS_AT_ONCE):
            now_ns = monotonic_ns()
            if not course.is_due(now_ns):
                return
            try:
                header = HEADER.pack(flow.number, course.sent, now_ns)
                door.sendto(header + padding, (flow.receiver, PORT))
            except OSError as refused:
                if refused.errno not in (errno.EAGAIN, errno.ENOBUFS):
                    raise
                self._refused += 1
                return
            course.went(now_ns)

    def _receive(self, door: socket.socket) -> None:
        while True:
            try:
                packet = door.recv(65_536)
            except BlockingIOError:
                return
            now_ns = monotonic_ns()
            number, _, sent_ns = HEADER.unpack_from(packet)
            self._arrived[number].append(now_ns)
            self._delays[number] += now_ns - sent_ns
            self._sizes[number] = len(packet) + HEADERS_BYTES

    def _arrivals(self, flow: int) -> Arrivals:
        times = self._arrived[flow]
        count = len(times)
        first = int(count * STEADY_FROM)
        lasted_ns = times[-1] - times[first]
        bits = (count - 1 - first) * self._sizes[flow] * 8
        rate = bits * NS // lasted_ns if lasted_ns else 0
        return Arrivals(count, self._delays[flow] // count, rate)


def serve(address: str, line: Line) -> None:
    """The whole life of a probe, in its node's namespace."""
    Prober(line, address).run()


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
