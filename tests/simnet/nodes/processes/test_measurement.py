"""A link that is not as the scenario asks is told of, by how much and from how many datagrams."""

import select
from collections import Counter
from dataclasses import replace
from threading import Thread

from simnet.nodes.processes.lines import Line, pair
from simnet.nodes.processes.measurement import (
    DELAY_COUNT,
    DELAY_TRIES_MAX,
    PACKETS_PER_S,
    RATE_BYTES,
    Measured,
    Measurement,
    Pool,
    Probes,
)
from simnet.nodes.processes.probes import Arrivals, Course, Flow, Report
from simnet.world.links import MILLION, MS, NS, LinkModel

RIGHT = Measured(0, 1, 100.0, 104.0, 50.0, 48.0, 1000, 5)
POOL = Pool(percent_asked=0.5, sent=200_000, lost=1040)


def faults(link: Measured = RIGHT, pool: Pool = POOL) -> list[str]:
    return Measurement((link,), (pool,)).faults()


def test_a_tenth_is_tolerated_and_no_more() -> None:
    assert faults() == []
    assert faults(replace(RIGHT, delay_ms=111.0)) == [
        "0->1: 111.0 ms for 100.0, 48.0 Mbit/s for 50.0"
    ]
    assert faults(replace(RIGHT, mbit_s=44.0))
    assert faults(pool=replace(POOL, lost=1120)) == ["loss 0.560 % for 0.500 % of 200000"]


def test_rare_loss_is_judged_by_the_error_that_so_few_datagrams_leave() -> None:
    few = replace(POOL, sent=10_000, lost=60)
    assert few.error_percent > 0.07
    assert faults(pool=few) == []
    assert faults(pool=replace(few, lost=80))


def test_what_the_machine_dropped_may_neither_hide_nor_be_a_loss() -> None:
    lossy = Pool(percent_asked=5.0, sent=20_000, lost=1090)
    assert not faults(pool=lossy)
    assert not faults(pool=replace(lossy, dropped=180))  # 4.55 %, if all of these are among them
    assert faults(pool=replace(lossy, dropped=280)) == [
        "loss 5.450 % for 5.000 % of 20000, unless this machine lost 280 of them and not the link"
    ]
    assert faults(pool=replace(lossy, lost=1_120, dropped=120))  # 5.6 %, if none of them is


def test_a_machine_that_is_too_slow_is_told_of() -> None:
    slow = Measurement((RIGHT,), (POOL,), unsent=7)
    assert slow.faults() == ["this machine is too slow: 7 datagrams were not sent"]


def test_links_that_nothing_was_sent_over_are_not_as_asked() -> None:
    assert faults(pool=Pool(percent_asked=5.0, sent=0, lost=0))


def test_a_rate_that_nobody_can_measure_is_not_judged() -> None:
    assert faults(replace(RIGHT, mbit_s_asked=None, mbit_s=180.0)) == []


def test_the_facts_put_measured_beside_asked() -> None:
    facts = Measurement((RIGHT,), (POOL,)).as_facts()
    assert facts["links"][0]["asked_ms"] == 100.0
    assert facts["links"][0]["delay_ms"] == 104.0
    assert facts["loss"][0]["asked_percent"] == 0.5


class SlowMachine:
    """Two probes on a machine that throws away half of what is too fast, and sends few bursts."""

    def __init__(
        self,
        packets_per_s: int = PACKETS_PER_S,
        bursts_at_once: int = 2,
        pauses: int = 0,
    ) -> None:
        """`pauses`: tries of one direction's delay during which it did nothing for a while."""
        self._packets_per_s = packets_per_s
        self._pauses = pauses
        self._bursts_at_once = bursts_at_once
        self._bursts = Counter[int]()  # by when they start
        pairs = [pair("probe") for _ in PAIR]
        self.lines = [ours for ours, _ in pairs]
        self._ends = [Line("tool", theirs) for _, theirs in pairs]
        self._reports = [Report() for _ in PAIR]

    def live(self) -> None:
        """Until the lines are closed."""
        while True:
            ready, _, _ = select.select(self._ends, [], [])
            for end in ready:
                try:
                    flows, _ = end.receive()
                except EOFError:
                    return
                if flows is None:
                    end.send(self._reports[self._ends.index(end)])
                else:
                    self._send(self._ends.index(end), flows)

    def close(self) -> None:
        for end in (*self.lines, *self._ends):
            end.close()

    def _send(self, sender: int, flows: list[Flow]) -> None:
        ours, theirs = self._reports[sender], self._reports[1 - sender]
        for flow in flows:
            lost, late_ns = flow.count * LOSSY.loss_ppm // MILLION, 0
            if flow.size_bytes == RATE_BYTES:
                self._bursts[flow.start_ns] += 1
                if self._bursts[flow.start_ns] > self._bursts_at_once:
                    late_ns = flow.count * flow.gap_ns
            elif NS // flow.gap_ns > self._packets_per_s // 2:
                theirs.dropped += flow.count // 2
                lost += flow.count // 2
            delay_ns = LOSSY.latency_ns
            if flow.count == DELAY_COUNT and sender == 0 and self._pauses:
                self._pauses -= 1
                delay_ns += delay_ns // 5
            bits_per_s = LOSSY.bits_per_s // (2 if late_ns else 1)
            ours.sent[flow.number] = Course(flow, flow.start_ns, flow.count, late_ns)
            came = Arrivals(flow.count - lost, delay_ns, bits_per_s)
            theirs.arrived[flow.number] = came


PAIR = (0, 1), (1, 0)
LOSSY = LinkModel(latency_ns=50 * MS, bits_per_s=10_000_000, loss_ppm=50_000)


def measured_on(machine: SlowMachine) -> Measurement:
    thread = Thread(target=machine.live)
    thread.start()
    try:
        probes = Probes(machine.lines, wait=lambda _seconds: None)
        return probes.measure(dict.fromkeys(PAIR, LOSSY))
    finally:
        machine.lines[0].close()
        thread.join()
        machine.close()


def test_what_a_machine_threw_away_is_sent_again_more_slowly() -> None:
    measured = measured_on(SlowMachine(packets_per_s=5_000))
    assert measured.faults() == []
    assert measured.packets_per_s == PACKETS_PER_S // 4
    assert measured.dropped == 0
    assert measured.pools[0].lost == sum(link.lost for link in measured.links)


def test_a_machine_that_throws_away_at_every_pace_is_not_believed() -> None:
    measured = measured_on(SlowMachine(packets_per_s=0))
    assert measured.dropped > 0
    assert any("this machine lost" in fault for fault in measured.faults())


def test_a_burst_that_a_machine_was_too_slow_for_is_sent_again() -> None:
    measured = measured_on(SlowMachine(bursts_at_once=1))
    assert measured.faults() == []
    assert measured.packets_per_s == PACKETS_PER_S // 2
    assert all(link.was_full for link in measured.links)


def test_a_machine_that_is_too_slow_for_every_burst_is_not_believed() -> None:
    measured = measured_on(SlowMachine(bursts_at_once=0))
    assert all(fault.endswith("sent too slowly by this machine") for fault in measured.faults())
    assert len(measured.faults()) == len(PAIR)


def test_a_delay_that_a_pause_of_the_machine_made_longer_is_measured_again() -> None:
    assert measured_on(SlowMachine(pauses=DELAY_TRIES_MAX - 1)).faults() == []
    (fault,) = measured_on(SlowMachine(pauses=DELAY_TRIES_MAX)).faults()
    assert fault.startswith("0->1: 60.0 ms for 50.1")
