"""What a process frees goes back to the kernel, also after it has freed something large."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys
from daa_node.adapters.system_process import SystemProcess, hand_memory_back
if sys.argv[1] == "told" and not hand_memory_back():
    sys.exit("no glibc")
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(16 * 2**20))  # from now on glibc keeps what is smaller, unless it was told
before = SystemProcess().anon_rss_bytes()
held = []
for _ in range(16):
    block = libc.malloc(2**22)
    ctypes.memset(block, 1, 2**22)
    held.append((block, libc.malloc(4096)))  # which lies on top of it
for block, _ in held:
    libc.free(block)
print(SystemProcess().anon_rss_bytes() - before)
"""


def kept_bytes(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=False
    )
    if "no glibc" in done.stderr:
        pytest.skip("another C library")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_large_buffers_that_are_freed_take_no_memory() -> None:
    assert kept_bytes("untold") > 16 * 2**20  # else there is nothing to tell
    assert kept_bytes("told") < 2**20
