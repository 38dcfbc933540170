"""Try out what this system allows, each thing in a process that ends at once, and tell the tool.

The answer holds a word for each trial: empty if it worked, else what the system said.
"""

import argparse
import os
import socket
from collections.abc import Callable
from itertools import pairwise

from simnet.links import MS, LinkModel
from simnet.processes import hub, kernel, namespaces, qdiscs, switch
from simnet.processes.switch import LinkState

WORDS_BYTES_MAX = 4096


def _namespaces() -> None:
    namespaces.make_namespaces(1, f"daa{os.getpid()}t")


def _user_namespaces() -> None:
    kernel.become_root_of_a_user_namespace()
    _namespaces()


def _netem() -> None:
    """Everything that the backend does, small: cables, qdiscs, and a link of every kind."""
    hub.make_namespaces(2)
    model = LinkModel(MS, MS, 10**9, loss_ppm=1, reorder_ppm=1)
    states = [LinkState(model), LinkState(model, holds=True), LinkState(model, is_open=False)]
    hub.run("tc", qdiscs.changed((0, 1), None, states[0]))
    for before, now in pairwise(states):
        hub.run("tc", qdiscs.changed((0, 1), before, now))


def _user_netem() -> None:
    kernel.become_root_of_a_user_namespace()
    _netem()


def _real_time() -> None:
    if not switch.be_punctual():
        raise PermissionError("SCHED_FIFO is not allowed")


TRIALS: dict[str, Callable[[], None]] = {
    "namespaces": _namespaces,
    "user_namespaces": _user_namespaces,
    "real_time": _real_time,
    "netem": _netem,
    "user_netem": _user_netem,
}


def attempt(trial: Callable[[], None]) -> str:
    """What went wrong with it, in a child of ours; nothing if nothing did."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        words = "it failed"
        try:
            trial()
            words = ""
        except OSError as refused:
            words = str(refused)
        finally:
            os.write(writer, words.encode()[:WORDS_BYTES_MAX])
            os._exit(0)
    os.close(writer)
    said = os.read(reader, WORDS_BYTES_MAX).decode()
    os.close(reader)
    os.waitpid(pid, 0)
    return said


def main() -> None:
    """Started by the tool alone."""
    arguments = argparse.ArgumentParser(prog="simnet.processes.trial")
    arguments.add_argument("--fd", type=int, required=True, help="our end of the tool's line")
    arguments.add_argument("--parent", type=int, required=True)
    options = arguments.parse_args()
    kernel.die_with_parent(options.parent)
    line = socket.socket(fileno=options.fd)
    kernel.send(line, {name: attempt(trial) for name, trial in TRIALS.items()})


if __name__ == "__main__":
    main()
