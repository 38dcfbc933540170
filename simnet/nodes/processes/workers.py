"""Training workers, forked from a warm parent that has torch imported already.

What differs from a worker that a daemon starts by itself is only how it starts, and that its
processor may be slow, its labels wrong, and its core a cheat's.
"""

import os
import resource
import select
import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from daa_node.errors import Unavailable
from simnet.nodes.processes.fork_server import Ended, Fork, Refused
from simnet.nodes.processes.hardware import SlowProcessor
from simnet.nodes.processes.lines import Line
from simnet.world.scenario import Cheat


@dataclass(frozen=True, slots=True)
class WorkerNature:
    """In what a worker differs from another."""

    slowness: float = 1.0  # of its processor
    mislabelled: bool = False  # what it trains on
    cheat: Cheat | None = None


def spawn_worker(
    path: Path, nature: WorkerNature, _threads: int, log: Path
) -> tuple["WarmWorker", socket.socket]:
    """A daemon starts a worker where a warm parent serves at `path`.

    It joins the daemon's process group, so that both are suspended together. Raises OSError when
    the warm parent is gone.
    """
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line = Line("warm parent", end)
    ours, theirs = socket.socketpair()
    life = partial(be_worker, os.getpid(), nature)
    try:
        end.connect(str(path))
        log.write_bytes(b"")
        with theirs:
            answer = line.ask(Fork(life, log, group=os.getpgid(0)), [theirs.fileno()])
        if isinstance(answer, Refused):
            raise OSError(answer.why)
    except (OSError, Unavailable) as gone:
        line.close()
        ours.close()
        raise OSError(str(gone)) from None
    return WarmWorker(line, answer), ours


class WarmWorker:
    """A daemon's handle of a worker that another process has forked for it.

    While its line is open the daemon lives: when it closes, the worker is killed, as a daemon's own
    child would be by the kernel.
    """

    def __init__(self, line: Line, pid: int) -> None:
        self._line = line
        self._code: int | None = None
        self.pid = pid

    def kill(self) -> None:
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self._code is None:
            if not select.select([self._line], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            try:
                ended: Ended = self._line.receive()[0]
                self._code = ended.code
            except EOFError:
                self._code = -signal.SIGKILL
            self._line.close()
        return self._code


def be_worker(daemon: int, nature: WorkerNature, descriptor: int) -> None:
    """The whole life of a worker."""
    from daa_node.training.config import TrainingJob
    from daa_node.training.core import Core
    from daa_node.training.datasets.catalogue import open_examples
    from daa_node.training.model_config import DIGIT_CLASSES
    from daa_node.training.torch_worker import serve
    from simnet.world.adversaries.cheating_core import CheatingCore
    from simnet.world.adversaries.lying_trainer import Mislabelled

    def open_core(
        job: TrainingJob, device: Any, cache_dir: Path, _modules: Any, _memories: Any
    ) -> Any:
        examples = open_examples(job.data, job.model, cache_dir)
        if nature.mislabelled:
            examples = Mislabelled(examples, DIGIT_CLASSES)
        core = Core(job, examples, device, SlowProcessor(nature.slowness).now_s)
        return core if nature.cheat is None else CheatingCore(core, nature.cheat)

    # a full disk is full for the worker, too
    resource.setrlimit(resource.RLIMIT_FSIZE, resource.prlimit(daemon, resource.RLIMIT_FSIZE))
    serve(descriptor, os.getppid(), open_core)
