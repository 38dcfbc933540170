"""Clipping bounds one node's share."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from daa_node.updates.privacy.clip import clip_factor, squared_norm


def test_a_large_norm_is_scaled_down_and_a_small_one_left() -> None:
    assert clip_factor(4.0, 1.0) == 0.25
    assert clip_factor(1.0, 1.0) == 1.0
    assert clip_factor(9.0, None) == 1.0
    assert clip_factor(0.0, 1.0) == 1.0


def test_squares_that_float32_cannot_hold_still_add_up() -> None:
    assert squared_norm(np.full(4, 1e30, np.float32)) == pytest.approx(4e60)


def test_one_nan_shows_in_the_norm() -> None:
    assert not np.isfinite(squared_norm(np.array([1.0, np.nan], np.float32)))


OTHER_THREADS = """
import time
from pathlib import Path
import numpy as np
from daa_node.updates.grid import CHUNK_PARAMETERS
from daa_node.updates.privacy.clip import squared_norm

def others_ticks():
    stats = [one / "stat" for one in Path("/proc/self/task").iterdir()]
    said = [stat.read_text().rpartition(") ")[2].split() for stat in stats]
    return sum(int(one[11]) + int(one[12]) for one in said) - own_ticks()

def own_ticks():
    said = Path("/proc/thread-self/stat").read_text().rpartition(") ")[2].split()
    return int(said[11]) + int(said[12])

values_C = np.ones(CHUNK_PARAMETERS, np.float32)
# New threads of OpenBLAS look for work for a while before they sleep.
before = -1
while before != others_ticks():
    before = others_ticks()
    time.sleep(0.2)
own_before = own_ticks()
for _ in range(2_000):
    squared_norm(values_C)
print(others_ticks() - before, own_ticks() - own_before)
"""


@pytest.mark.skipif(not Path("/proc/thread-self").exists(), reason="reads a thread's CPU time")
def test_a_norm_wakes_no_other_thread() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", OTHER_THREADS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    others, own = (int(ticks) for ticks in done.stdout.split())
    assert others <= 1 + own // 10
