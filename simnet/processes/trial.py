"""Try out what this system allows, each thing in a process that ends at once, and tell the tool.

The answer holds a word for each trial: empty if it worked, else what the system said.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress

from simnet.links import MS, LinkModel
from simnet.processes import hub, kernel, namespaces, qdiscs
from simnet.processes.namespaces import Namespace, address_of
from simnet.processes.switch import LinkState

WORDS_BYTES_MAX = 4096
TRIAL_PORT, TRIAL_BYTES, TRIAL_PACKETS = 9, 1000, 10
TRIAL_BITS_PER_S = 1_000_000  # 80 ms for all packets
TRIAL_PATIENCE_S, TRIAL_SILENCE_S = 3.0, 0.1


def _namespaces() -> None:
    namespaces.make_namespaces(1, f"daa{os.getpid()}t")


def _user_namespaces() -> None:
    kernel.become_root_of_a_user_namespace()
    _namespaces()


def _netem() -> None:
    """The backend, small: packets that wait for a slow link come, and held ones when released.

    netem before Linux 6.13, unless mended, forgets packets that wait below it.
    """
    here, there = hub.make_namespaces(2)[:2]
    model = LinkModel(MS, MS, TRIAL_BITS_PER_S, reorder_ppm=1)
    closed, is_open = LinkState(model, is_open=False), LinkState(model)
    home = kernel.open_namespace()
    with _door(there) as receiver, _door(here) as sender:
        kernel.set_namespace(home)
        receiver.bind((address_of(1), TRIAL_PORT))
        for before, now, expected in (
            (None, closed, 0),
            (closed, is_open, TRIAL_PACKETS),
            (is_open, LinkState(model, holds=True), 0),
            (LinkState(model, holds=True), is_open, TRIAL_PACKETS),
        ):
            hub.run("tc", qdiscs.changed((0, 1), before, now))
            hub.run("tc", qdiscs.changed((1, 0), before, is_open))
            if before is None or not before.holds:
                for _ in range(TRIAL_PACKETS):
                    sender.sendto(bytes(TRIAL_BYTES), (address_of(1), TRIAL_PORT))
            came = _count(receiver, expected)
            if came != expected:
                raise OSError(f"{came} of {expected} packets came through {now}")


def _door(namespace: Namespace) -> socket.socket:
    kernel.set_namespace(namespace.descriptor)
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _count(receiver: socket.socket, expected: int) -> int:
    """How many datagrams come; more patience where some must."""
    receiver.settimeout(TRIAL_PATIENCE_S if expected else TRIAL_SILENCE_S)
    came = 0
    with suppress(TimeoutError):
        while came < max(1, expected):
            receiver.recv(TRIAL_BYTES)
            came += 1
    return came


def _user_netem() -> None:
    kernel.become_root_of_a_user_namespace()
    _netem()


def _real_time() -> None:
    if not kernel.be_punctual(kernel.CARRIER_PRIORITY):
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
    line, _ = kernel.line_to_tool("simnet.processes.trial")
    kernel.send(line, {name: attempt(trial) for name, trial in TRIALS.items()})


if __name__ == "__main__":
    main()
