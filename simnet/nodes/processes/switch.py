"""The internet between namespaces, in a process of its own: each packet takes its link's time.

Packets come from one TUN device for each node. `simnet.world.links.Link` says when a packet
arrives, from a stream of the seed for each direction of each pair; it is written to the other
device then. Links change over time as the tool says: closed, holding, slower, lossier. The process
runs under the kernel's real-time scheduler where that is allowed, so that busy daemons do not make
it late. A node behind a box that translates addresses (see borders) is reached through it: a packet
is translated outward when it is sent, and inward when it arrives.
"""

import gc
import heapq
import os
import select
import socket
from dataclasses import dataclass, field
from time import monotonic_ns, process_time
from typing import Any

from simnet.nodes.processes import kernel
from simnet.nodes.processes.borders import Borders, Letter, own_address_of
from simnet.nodes.processes.lines import Line
from simnet.world.determinism import Streams
from simnet.world.link_conditions import Ends, LinkState, LinkStates
from simnet.world.links import NS, Link
from simnet.world.node_classes import Nat

READS_AT_ONCE = 64  # packets of one device before the others have their turn
PACKET_BYTES_MAX = 65_536
HELD_PACKETS_MAX = 4096  # of one link that holds; what comes on top is lost
IDLE_S = 1.0
DESTINATION_BYTES = slice(16, 20)  # of an IPv4 header


@dataclass(slots=True)
class Way:
    """One direction of a pair, and what it holds back."""

    link: Link
    state: LinkState
    held: list[bytes] = field(default_factory=list)


class Switch:
    """Carries packets between `tuns` until the tool closes the line."""

    def __init__(
        self, line: Line, tuns: list[int], streams: Streams, nats: tuple[Nat | None, ...]
    ) -> None:
        self._line = line
        self._borders = Borders(nats, streams) if any(nats) else None
        self._node_at = {
            socket.inet_aton(own_address_of(node, None)): node for node in range(len(tuns))
        }
        self._tuns = tuns
        self._streams = streams
        self._ways: dict[Ends, Way] = {}
        # (when, number, receiver, packet): the number keeps equal moments in order
        self._waiting: list[tuple[int, int, int, bytes]] = []
        self._number = 0
        self._delivered = self._late_ns = self._late_ns_max = 0
        self._cut = 0  # packets that met a closed or full link

    def run(self) -> None:
        """Raises EOFError when the tool has ended."""
        sources: list[Any] = [self._line, *self._tuns]
        index_of = {tun: index for index, tun in enumerate(self._tuns)}
        while True:
            self._deliver_due()
            ready, _, _ = select.select(sources, [], [], self._idle_s())
            for source in ready:
                if source is self._line:
                    states, _ = self._line.receive()
                    self._set(states)
                    self._line.send(self._counts())
                else:
                    self._take(index_of[source], source)

    def _idle_s(self) -> float:
        if not self._waiting:
            return IDLE_S
        return max(0, self._waiting[0][0] - monotonic_ns()) / NS

    def _deliver_due(self) -> None:
        waiting, now_ns = self._waiting, monotonic_ns()
        while waiting and waiting[0][0] <= now_ns:
            due_ns, _, receiver, packet = heapq.heappop(waiting)
            late_ns = now_ns - due_ns
            self._delivered += 1
            self._late_ns += late_ns
            if late_ns > self._late_ns_max:
                self._late_ns_max = late_ns
            self._arrive(Letter(receiver, packet), now_ns)
            now_ns = monotonic_ns()

    def _arrive(self, letter: Letter, now_ns: int) -> None:
        packet: bytes | None = letter.packet
        if self._borders is not None:
            packet = self._borders.inward(letter, now_ns)
        if packet is None:
            return  # a box let it not in, and has counted it
        self._write(letter.receiver, packet)

    def _write(self, node: int, packet: bytes) -> None:
        try:
            os.write(self._tuns[node], packet)
        except OSError:
            self._cut += 1  # a device that is going away

    def _take(self, sender: int, tun: int) -> None:
        for _ in range(READS_AT_ONCE):
            try:
                packet = os.read(tun, PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            if packet[0] >> 4 == 4:
                self._send(sender, packet)

    def _send(self, sender: int, packet: bytes) -> None:
        if self._borders is None:
            receiver = self._node_at.get(packet[DESTINATION_BYTES])
            if receiver is not None:
                self._forward((sender, receiver), packet)
            return
        told = self._borders.answer(sender, packet, monotonic_ns())
        if told is not None:
            self._write(sender, told)
            return
        letter = self._borders.outward(sender, packet, monotonic_ns())
        if letter is not None:
            self._forward((sender, letter.receiver), letter.packet)

    def _forward(self, ends: Ends, packet: bytes) -> None:
        way = self._ways.get(ends)
        if way is None:
            return  # before the links are set
        if not way.state.is_open:
            self._cut += 1
        elif not way.state.holds:
            at_ns = way.link.arrival_ns(monotonic_ns(), len(packet))
            if at_ns is not None:
                self._number += 1
                heapq.heappush(self._waiting, (at_ns, self._number, ends[1], packet))
        elif len(way.held) < HELD_PACKETS_MAX:
            way.held.append(packet)
        else:
            self._cut += 1

    def _set(self, states: LinkStates) -> None:
        """From now on these links are so."""
        for ends, state in states.items():
            way = self._ways.get(ends)
            if way is None:
                chance = self._streams.random(f"link {ends[0]} {ends[1]}")
                way = self._ways[ends] = Way(Link(state.model, chance), state)
            way.link.model, way.state = state.model, state
            if way.held and not state.holds:
                held, way.held = way.held, []
                for packet in held:
                    self._forward(ends, packet)

    def _counts(self) -> dict[str, float]:
        return {
            "delivered": self._delivered,
            "lost": sum(way.link.dropped for way in self._ways.values()),
            "cut": self._cut,
            "late_us_mean": round(self._late_ns / max(1, self._delivered) / 1000, 1),
            "late_us_max": round(self._late_ns_max / 1000, 1),
            "cpu_s": round(process_time(), 3),
            **(self._borders.counts() if self._borders is not None else {}),
        }


def serve(seed: int, nats: tuple[Nat | None, ...], line: Line) -> None:
    """The whole life of a switch; the devices come with the tool's first message."""
    _, tuns = line.receive()
    kernel.be_punctual(kernel.CARRIER_PRIORITY)
    gc.freeze()
    gc.disable()  # a packet makes no cycles, and a collection would make it late
    line.send(None)
    Switch(line, tuns, Streams(seed).below("switch"), nats).run()
