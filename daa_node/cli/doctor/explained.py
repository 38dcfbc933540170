"""Below the error that ends `run` or `join`: one fact more, and what to do where it lacks that.

    error: ...          the message
    found: ...          what this host knows and the message could not say: who has the port,
                        which disk is full, how far the way to an inviter goes
    what to do: ...     of the table of advice

Most messages have their cause and their remedy in them, and nothing is added to those. Each line
hangs at the error as a note, and `main` prints it.
"""

import errno
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from daa_node.adapters import host_looks
from daa_node.adapters.host_looks import DiskLeft
from daa_node.adapters.host_names import HostNames
from daa_node.advice.of_messages import FACTS
from daa_node.advice.table import OF_COMMANDS, row_of_message, says_what_to_do
from daa_node.cli import report
from daa_node.cli.data_directory import DataDirectory
from daa_node.errors import NodeError

FULL_BYTES = 64 * 2**20  # a disk with less room refuses what a round writes
LOOK = "Ask `daa-node doctor` with the same --dir: it says what to do about what it finds"
LOOK_TIMEOUT_S = 4.0  # a person waits for the prompt; two SYNs of TCP
_PORT = re.compile(r"/tcp/(\d+)")
_PID = re.compile(r"\(pid (\d+)\)")
_UNANSWERED = re.compile(r"(/(?:ip4|ip6|dns|dns4|dns6)/[^/\s]+/tcp/\d+)\S* did not answer \(")


@dataclass(frozen=True, slots=True)
class Looks:
    """What is asked of this host; a test gives other ones."""

    port_holder: Callable[[int], str | None] = host_looks.port_holder
    disk_left: Callable[[Path], DiskLeft] = host_looks.disk_left
    is_stopped: Callable[[int], bool] = host_looks.is_stopped


LOOKS = Looks()


@contextmanager
def explained(root: Path, looks: Looks = LOOKS) -> Iterator[None]:
    """Hang fact and advice at a NodeError that comes out, if there are, and let it go on."""
    try:
        yield
    except NodeError as error:
        fact = None
        with suppress(OSError):  # a look that fails must not hide the error
            fact = fact_behind(str(error), root, looks)
        if fact is not None:
            error.add_note(f"found: {fact}")
        advice = advice_below(str(error), fact)
        if advice is not None:
            error.add_note(f"what to do: {advice}")
        raise


def advice_below(message: str, fact: str | None = None) -> str | None:
    """What the message does not say itself; None if it does, or if nobody knows.

    A part of what ends `join` may be another node's words: they choose nothing that could harm.
    """
    if says_what_to_do(message):
        return None
    if fact is not None and (of_fact := row_of_message(fact, FACTS)) is not None:
        return of_fact.advice
    row = row_of_message(message, OF_COMMANDS)
    if row is None:
        return None
    return LOOK if row.is_drastic else row.advice


def fact_behind(message: str, root: Path, looks: Looks = LOOKS) -> str | None:
    """What the message lacks; None if that is nothing. At most one: two might not agree."""
    if "cannot listen on" in message and os.strerror(errno.EADDRINUSE) in message:
        return _who_listens(message, looks)
    if "a daemon is already running in" in message:
        return _what_holds_it(message, root, looks)
    if os.strerror(errno.ENOSPC) in message:
        return _what_is_full(root, looks)
    if match := _UNANSWERED.search(message):
        fact = trio.run(_how_far, match[1])
        is_told = any(word in message for word in fact.words)
        return None if is_told else fact.told
    return None


def _who_listens(message: str, looks: Looks) -> str | None:
    match = _PORT.search(message)
    holder = None if match is None else looks.port_holder(int(match[1]))
    return None if holder is None else f"{holder} listens there"


def _what_holds_it(message: str, root: Path, looks: Looks) -> str | None:
    """Nothing of a daemon that answers: it is told by its pid already."""
    match = _PID.search(message)
    if match is not None and looks.is_stopped(int(match[1])):
        return f"that process is stopped: `kill -CONT {match[1]}` lets it go on"
    if not DataDirectory(root).control.exists():
        return "it answers nobody: it starts, or ends, just now"
    return None


def _what_is_full(root: Path, looks: Looks) -> str | None:
    places = {
        root.absolute(): f"where {root} lies",
        Path(os.environ.get("TMPDIR") or "/tmp"): "of temporary files",
    }
    for place, words in places.items():
        try:
            while not place.exists() and place != place.parent:
                place = place.parent
            left = looks.disk_left(place)
        except OSError:
            continue
        if left.files_left == 0:
            free = report.size(left.bytes_left)
            return f"the disk {words} can hold no more files, though {free} are free (`df -i`)"
        if left.bytes_left < FULL_BYTES:
            return f"{report.size(left.bytes_left)} are free on the disk {words}"
    return None


@dataclass(frozen=True, slots=True)
class _Way:
    """Where the way to an address ends; `words`: who has read one of these knows it already."""

    told: str
    words: tuple[str, ...] = ()


async def _how_far(address: str) -> _Way:
    _, kind, host, _, port = address.split("/")
    names = HostNames()
    with trio.move_on_after(LOOK_TIMEOUT_S):
        try:
            await names.numbers_of(kind, host)
        except socket.gaierror as error:
            why = error.strerror or str(error)
            return _Way(f"the name {host} has no address: {why}", (why,))
        try:
            stream = await names.connect(kind, (host, int(port)))
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            return _Way(f"{host} lets nobody in at port {port}: {why}", (why,))
        await trio.aclose_forcefully(stream)
        return _Way(
            f"something listens at {host}, port {port}, and does not greet as a node does: another "
            "program, a node with other keys, or one that is too busy"
        )
    return _Way(f"{host} does not answer at port {port}: it is off, or a firewall is between")
