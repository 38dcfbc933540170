"""A node's canary steps: taken in turns, told to members, asked of them, kept over a restart."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import trio

from daa_dag.ids import NodeId
from daa_node.errors import NodeError, PeerFault, TrainerFailed, Unavailable
from daa_node.network.requests import Requests
from daa_node.observability.events import CALIBRATED, CALIBRATION_FAILED, STORAGE_FAILED, EventLog
from daa_node.seams import BlobStore, CanaryStep, PeerId, Trainer
from daa_node.spot_checks.calibration import CANARY_STEPS, Calibration, DeviceReport
from daa_node.spot_checks.canaries import (
    ASK_S,
    FAILURES_MAX,
    KIND,
    REFRESH_S,
    REQUEST,
    RETRY_S,
    Canaries,
    Others,
)
from tests.daa_node.agreement.memory_disk import Disk

NODES = [NodeId(bytes([number]) * 32) for number in range(1, 5)]
ME, *OTHERS = NODES
STRANGER = NodeId(b"s" * 32)
CPU = "cpu x86_64 AVX2, torch 2.9"
TURN_S = 10.0  # until the next training
REPORT = DeviceReport(CPU, CANARY_STEPS, 1e-6, 2e-6)


@dataclass
class Bench:
    """A worker whose steps are this far off, and members that answer so."""

    device: str = CPU
    repeats: bool = True
    failures: int = 0  # of the worker, to come
    step_s: float = 0.0
    disk: Disk = field(default_factory=Disk)
    answers: dict[NodeId, bytes | NodeError] = field(
        default_factory=lambda: dict.fromkeys(OTHERS, REPORT.encode())
    )
    asked: list[NodeId] = field(default_factory=list)
    faults: list[NodeId] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = EventLog(lambda: int(trio.current_time() * 1e9))
        self.calibration = Calibration(ME, (1, 200), lambda: NODES, lambda: 2)
        others = Others(
            lambda: {*self.answers}, lambda peer: NodeId(bytes.fromhex(peer)), self.ask, self.fault
        )
        self.canaries = Canaries(
            *(self.calibration, cast(Trainer, self), self.turn),
            *(cast(BlobStore, self.disk.work), others, self.log),
        )
        self.canaries.serve(cast(Requests, self))

    def register(self, name: str, answer: Callable[[PeerId, bytes], Awaitable[bytes]]) -> None:
        assert name == REQUEST
        self.answer = answer

    async def turn(self, work: Callable[[], Awaitable[CanaryStep]]) -> CanaryStep:
        await trio.sleep(TURN_S)
        return await work()

    async def canary(self, step: int) -> CanaryStep:
        self.taken.append(step)
        await trio.sleep(self.step_s)
        if self.failures:
            self.failures -= 1
            raise TrainerFailed("the worker died")
        return CanaryStep(self.device, (step + 1) * 1e-7, self.repeats)

    async def ask(self, node: NodeId, name: str, body: bytes, answer_bytes_max: int) -> bytes:
        self.asked.append(node)
        answer = self.answers[node]
        if isinstance(answer, NodeError):
            raise answer
        assert len(answer) <= answer_bytes_max
        return answer

    def fault(self, node: NodeId, _fault: PeerFault) -> None:
        self.faults.append(node)

    def told(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.log.tail() if event["name"] == name]

    async def live(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.canaries.run()


async def test_steps_are_taken_one_a_turn_and_then_told(autojump_clock: object) -> None:
    bench = Bench()
    await bench.live(CANARY_STEPS * TURN_S - 1)
    assert await bench.answer(PeerId(OTHERS[0].hex()), b"") == b""  # not yet
    bench = Bench()
    await bench.live(CANARY_STEPS * TURN_S + 1)
    assert bench.taken == [*range(CANARY_STEPS)]
    ((told),) = bench.told(CALIBRATED)
    assert (told["device"], told["steps"], told["repeats"]) == (CPU, CANARY_STEPS, True)
    assert told["high"] == pytest.approx(7e-7)
    own = bench.calibration.own
    assert own is not None
    assert await bench.answer(PeerId(OTHERS[0].hex()), b"") == own.encode()
    with pytest.raises(Unavailable):
        await bench.answer(PeerId(STRANGER.hex()), b"")


@pytest.mark.parametrize("failures", [0, FAILURES_MAX - 1])
async def test_our_own_training_has_nearly_all_of_the_worker(
    failures: int, autojump_clock: object
) -> None:
    bench = Bench(step_s=3.0, failures=failures)
    await bench.live(2000)
    ((told),) = bench.told(CALIBRATED)
    assert told["ts"] > 30 * 3.0 * (CANARY_STEPS - 1 + failures)


async def test_a_device_that_does_not_repeat_itself_is_told(autojump_clock: object) -> None:
    bench = Bench(repeats=False)
    await bench.live(CANARY_STEPS * TURN_S + 1)
    assert [event["repeats"] for event in bench.told(CALIBRATED)] == [False]


async def test_a_worker_that_dies_is_asked_again_and_in_the_end_no_more(
    autojump_clock: object,
) -> None:
    bench = Bench(failures=FAILURES_MAX - 1)
    await bench.live((CANARY_STEPS + FAILURES_MAX) * (TURN_S + RETRY_S))
    assert bench.told(CALIBRATED)
    bench = Bench(failures=FAILURES_MAX)
    await bench.live(3600)
    assert [event["why"] for event in bench.told(CALIBRATION_FAILED)] == ["the worker died"]
    assert len(bench.taken) == FAILURES_MAX
    assert bench.calibration.tolerance(OTHERS[0]) == 5e-3


async def test_members_are_asked_until_they_say_and_then_seldom(autojump_clock: object) -> None:
    bench = Bench()
    bench.answers |= {OTHERS[0]: b"", OTHERS[1]: Unavailable("it is away"), STRANGER: b"\xc1"}
    await bench.live(10 * ASK_S - 1)
    asked = [bench.asked.count(node) for node in OTHERS]
    assert asked == [10, 10, 1]
    assert STRANGER not in bench.asked  # connected, and no member
    assert bench.calibration.report_of(OTHERS[2]) == REPORT
    await bench.live(REFRESH_S)
    assert bench.asked.count(OTHERS[2]) == 2


async def test_who_tells_nonsense_is_blamed_for_it(autojump_clock: object) -> None:
    bench = Bench()
    bench.answers[OTHERS[0]] = b"\xc1"
    await bench.live(10 * ASK_S)
    assert bench.faults == [OTHERS[0]]
    assert bench.calibration.report_of(OTHERS[0]) is None


async def test_a_restart_takes_one_step_and_goes_on_where_it_was(autojump_clock: object) -> None:
    bench = Bench()
    await bench.live(CANARY_STEPS * TURN_S + 2 * ASK_S)
    bench.calibration.note_found(OTHERS[0], 1e-5)
    await bench.live(2 * ASK_S)
    after = Bench(disk=bench.disk)
    await after.live(TURN_S + 2 * ASK_S)
    assert after.taken == [0]
    assert after.calibration.own == bench.calibration.own
    assert after.calibration.pairs()[0]["checks"] == 1
    moved = Bench(disk=bench.disk, device="cuda H200, torch 2.9")
    await moved.live(CANARY_STEPS * TURN_S + 2 * ASK_S)
    assert moved.taken == [*range(CANARY_STEPS)]


@pytest.mark.parametrize("kept", [b"", b"\xc1", b"\x01", b"\x92\x91\x01\x90", b"\x92\x90\x90"])
async def test_what_another_version_has_kept_is_measured_anew(
    kept: bytes, autojump_clock: object
) -> None:
    bench = Bench()
    bench.disk.work.records[KIND, KIND] = kept
    await bench.live(CANARY_STEPS * TURN_S + 2 * ASK_S)
    assert bench.taken == [*range(CANARY_STEPS)]
    assert bench.disk.work.records[KIND, KIND] == bench.calibration.encode()


async def test_a_full_disk_ends_nothing(autojump_clock: object) -> None:
    bench = Bench()
    bench.disk.refuses = {KIND}
    await bench.live(CANARY_STEPS * TURN_S + 2 * ASK_S)
    assert bench.told(STORAGE_FAILED)
    assert bench.calibration.own is not None
    bench.disk.refuses = set()
    await bench.live(2 * ASK_S)
    assert (KIND, KIND) in bench.disk.work.records
