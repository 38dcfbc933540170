"""A process that goes on growing is told from one that has settled, by what the kernel says."""

import os
import subprocess
import sys

import pytest

from simnet.nodes.processes.memory import (
    READINGS_LEAST,
    READINGS_MAX,
    SLACK_BYTES,
    Memory,
    Process,
    bound_bytes,
    growth,
)

MIB = 2**20
# Takes so many MiB for each line that it reads, and says when it has them; keeps all, or the last.
TAKES = """
import sys
kept = []
for line in sys.stdin:
    taken = bytearray(int(line.split()[0]) * 2**20)
    kept = [*kept, taken] if sys.argv[1] == "leaks" else [taken]
    print("taken", flush=True)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the kernel tells in /proc")
@pytest.mark.parametrize("habit", ["leaks", "settles"])
def test_a_real_process_with_a_leak_is_found_and_one_without_is_not(habit: str) -> None:
    command = [sys.executable, "-c", TAKES, habit]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
    memory = Memory()
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        for number in range(READINGS_LEAST):
            child.stdin.write("1\n")
            child.stdin.flush()
            assert child.stdout.readline() == "taken\n"
            memory.look(float(number), {child.pid: 7})
    finally:
        child.kill()
        child.communicate()
    assert [(process.node, process.role) for process in memory.readings] == [(7, "daemon")]
    assert len(memory.as_facts()) == 1
    told = memory.excess()
    assert (len(told) == 1) == (habit == "leaks"), told
    assert all(words.startswith("node 7's daemon: ") for words in told)


def test_what_is_warming_up_or_freed_again_is_no_leak() -> None:
    warm = [MIB * size for size in range(1, 101, 10)]
    assert growth([*warm, *[100 * MIB] * 50]) == (100 * MIB, 100 * MIB)
    peak = [*[100 * MIB] * 59, 900 * MIB]
    assert growth(peak) == (100 * MIB, 100 * MIB)
    assert growth([1] * (READINGS_LEAST - 1)) is None


def test_a_process_may_grow_to_the_bound_and_not_beyond() -> None:
    steady = 100 * MIB
    for last, is_told in ((bound_bytes(steady), False), (bound_bytes(steady) + 1, True)):
        memory = Memory(readings={Process(0, 1, "worker"): [*[steady] * 45, *[last] * 15]})
        assert bool(memory.excess()) == is_told
    assert bound_bytes(0) == SLACK_BYTES


def test_readings_of_a_long_run_are_thinned_and_their_quarters_stay() -> None:
    memory, process = Memory(), Process(0, 1, "daemon")
    for size in range(2 * READINGS_MAX):
        memory.note(process, size)
    readings = memory.readings[process]
    assert len(readings) <= READINGS_MAX
    assert readings[0] == 0
