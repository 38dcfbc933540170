"""What the links between namespaces really do: datagrams that carry the moment they were sent.

All nodes share one host, so one clock tells a way's time without guessing. A flow is some datagrams
from one node to another at a pace; the receiver counts them. Delay is measured by a few, far apart;
rate by a burst above what the link carries; loss by as many as make ten per cent of it visible.
"""

import os
import select
import socket
import struct
from array import array
from collections import defaultdict
from dataclasses import asdict, dataclass
from time import monotonic_ns

from simnet.links import NS
from simnet.processes import kernel

PORT = 9  # discard
HEADER = struct.Struct("!IIQ")  # flow, number, sent_ns
HEADERS_BYTES = 28  # IPv4 and UDP
BUFFER_BYTES = 16 << 20
SENDS_AT_ONCE = 32  # of one flow that is late, before others have their turn
_SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 33, 32
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


class Prober:
    """One node's probe: sends the flows that the tool names, and reports what it received."""

    def __init__(self, line: socket.socket, address: str) -> None:
        self._line = line
        self._address = address
        self._flows: list[list[int]] = []  # [next number, index into _plans]
        self._plans: list[Flow] = []
        self._arrived: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))
        self._delays: defaultdict[int, int] = defaultdict(int)
        self._sizes: dict[int, int] = {}

    def run(self) -> None:
        """Until the tool closes the line."""
        kernel.be_punctual(kernel.PROBE_PRIORITY)  # or a busy machine would measure itself
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
            _widen(door)
            door.bind((self._address, PORT))
            door.setblocking(False)
            kernel.send(self._line, {"ready": True})
            while True:
                wait_s = self._send_due(door)
                ready, _, _ = select.select([self._line, door], [], [], wait_s)
                if door in ready:
                    self._receive(door)
                if self._line in ready:
                    message, _ = kernel.receive(self._line)
                    if message is None:
                        return
                    self._obey(message)

    def _obey(self, message: kernel.Message) -> None:
        if "flows" in message:
            for fields in message["flows"]:
                self._plans.append(Flow(**fields))
                self._flows.append([0, len(self._plans) - 1])
        else:
            report = {flow: asdict(self._report(flow)) for flow in self._arrived}
            kernel.send(self._line, {"arrived": report, "pid": os.getpid()})

    def _send_due(self, door: socket.socket) -> float | None:
        """Send what is due, and say how long there is nothing to do."""
        next_ns: int | None = None
        for running in self._flows:
            flow = self._plans[running[1]]
            padding = bytes(flow.size_bytes - HEADERS_BYTES - HEADER.size)
            for _ in range(SENDS_AT_ONCE):
                due_ns = flow.start_ns + running[0] * flow.gap_ns
                now_ns = monotonic_ns()
                if running[0] == flow.count or due_ns > now_ns:
                    break
                try:
                    header = HEADER.pack(flow.number, running[0], now_ns)
                    door.sendto(header + padding, (flow.receiver, PORT))
                except BlockingIOError:
                    break
                running[0] += 1
            if running[0] < flow.count:
                due_ns = flow.start_ns + running[0] * flow.gap_ns
                next_ns = due_ns if next_ns is None else min(next_ns, due_ns)
        self._flows = [r for r in self._flows if r[0] < self._plans[r[1]].count]
        return None if next_ns is None else max(0, next_ns - monotonic_ns()) / NS

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

    def _report(self, flow: int) -> Arrivals:
        times = self._arrived[flow]
        count = len(times)
        first = int(count * STEADY_FROM)
        lasted_ns = times[-1] - times[first]
        bits = (count - 1 - first) * self._sizes[flow] * 8
        rate = bits * NS // lasted_ns if lasted_ns else 0
        return Arrivals(count, self._delays[flow] // count, rate)


def _widen(door: socket.socket) -> None:
    """Room for what arrives while the machine is busy: a full buffer would count as loss."""
    for forced, plain in ((_SO_RCVBUFFORCE, "SO_RCVBUF"), (_SO_SNDBUFFORCE, "SO_SNDBUF")):
        try:
            door.setsockopt(socket.SOL_SOCKET, forced, BUFFER_BYTES)
        except PermissionError:
            door.setsockopt(socket.SOL_SOCKET, getattr(socket, plain), BUFFER_BYTES)
