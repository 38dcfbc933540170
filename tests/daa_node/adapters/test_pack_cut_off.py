"""Packing that the kernel kills at each byte of what it writes loses nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

CUT = """
import os
import resource
import signal
import sys
from pathlib import Path
sys.path.insert(0, {top!r})
from daa_node.adapters.blob_directory import BlobDirectory
from tests.daa_node.adapters.test_pack_directory import KINDS, assert_holds, fill
root, step = Path(sys.argv[1]), int(sys.argv[2])
made = fill(BlobDirectory(root), 0, 3)
size_bytes, ended = 0, False
while not ended:
    child = os.fork()
    if child == 0:  # the kernel kills it when a file of its own would get larger
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))
        BlobDirectory(root).packs.pack(KINDS, 1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    ended = status == 0
    assert ended or os.WTERMSIG(status) == signal.SIGXFSZ, status
    again = BlobDirectory(root)
    assert_holds(again, made)
    again.sweep()
    assert_holds(again, made)
    size_bytes += step
print(size_bytes - step)
"""


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.long)])
def test_a_process_that_is_killed_at_any_byte_of_a_pack_loses_nothing(
    tmp_path: Path, step: int
) -> None:
    root, top = tmp_path / "chain", str(Path(__file__).parents[3])
    command = [sys.executable, "-c", CUT.format(top=top), str(root), str(step)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (pack,) = (root / "packs").iterdir()
    size_bytes = pack.stat().st_size
    assert size_bytes <= int(ended.stdout) < size_bytes + step  # killed at each size before that
    assert not list((tmp_path / "chain.tmp").iterdir())
