"""A wall clock that is set wrong while somebody reads it, and a processor that is slow."""

from pathlib import Path
from time import monotonic_ns, thread_time, time_ns

from simnet.links import NS
from simnet.processes.clocks import WrongClock, set_wrong
from simnet.processes.handicaps import SlowProcessor

HOUR_MS, MINUTE_NS = 3_600_000, 60 * NS


def off_ns(clock: WrongClock) -> int:
    return clock.wall_ns() - time_ns()


def test_a_clock_is_as_wrong_as_it_was_last_set(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    clock = WrongClock(path)
    for skew_ms in (0, HOUR_MS, -HOUR_MS, 0):
        set_wrong(path, skew_ms, 0)
        assert abs(off_ns(clock) - skew_ms * 1_000_000) < MINUTE_NS
    assert [file.name for file in tmp_path.iterdir()] == ["clock"]


def test_a_clock_that_drifts_is_the_more_wrong_the_longer_it_does(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    set_wrong(path, 0, 100_000)
    skew, drift, since = path.read_text().split()
    assert abs(int(since) - monotonic_ns()) < MINUTE_NS
    path.write_text(f"{skew} {drift} {int(since) - 6000 * NS}")  # a hundred minutes ago
    assert abs(off_ns(WrongClock(path)) - 600 * NS) < MINUTE_NS


def test_what_a_slow_processor_computes_takes_as_many_times_longer() -> None:
    processor = SlowProcessor(4.0)
    began_s, busy_s = processor.now_s(), thread_time()
    while thread_time() - busy_s < 0.02:
        pass
    # sleeping may take longer than asked for, never less
    assert processor.now_s() - began_s >= 4 * 0.02
