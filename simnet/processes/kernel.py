"""What Python 3.11 lacks of Linux: namespaces, the death signal, messages of JSON with descriptors.

A namespace made here has no name: it lives as long as a process or a descriptor holds it, and the
kernel takes it away with its devices, however its holders ended. So nothing can be left behind.
"""

import argparse
import array
import ctypes
import json
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000  # linux/sched.h
PR_SET_PDEATHSIG = 1  # linux/prctl.h
MESSAGE_BYTES_MAX = 1 << 20  # the links of 32 nodes are 80 kB
# Of SCHED_FIFO: above everything ordinary, below what keeps the machine alive; who measures what
# the carrier of packets does must not keep it from its work.
CARRIER_PRIORITY, PROBE_PRIORITY = 10, 5
DESCRIPTORS_MAX = 250  # of one message; the kernel's SCM_MAX_FD is 253

Message = dict[str, Any]


def unshare(flags: int) -> None:
    """Leave shared namespaces for new ones. Raises OSError."""
    _call("unshare", flags)


def set_namespace(descriptor: int) -> None:
    """Enter the network namespace that `descriptor` holds. Raises OSError."""
    _call("setns", descriptor, CLONE_NEWNET)


def open_namespace() -> int:
    """A descriptor of our own network namespace."""
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill us when our parent ends, even while we are suspended."""
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(0)  # it ended before we asked


def line_to_tool(program: str) -> tuple[socket.socket, int]:
    """Of a helper, which the tool alone starts and which ends with it; and the seed it is given."""
    arguments = argparse.ArgumentParser(prog=program)
    arguments.add_argument("--fd", type=int, required=True, help="our end of the tool's line")
    arguments.add_argument("--parent", type=int, required=True)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    die_with_parent(options.parent)
    return socket.socket(fileno=options.fd), options.seed


def become_root_of_a_user_namespace() -> None:
    """All privileges over namespaces made from now on, and none that we did not have elsewhere.

    Our user keeps its number, so that files stay ours. Raises OSError where users may not do this.
    """
    uid, gid = os.getuid(), os.getgid()
    unshare(CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1\n")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1\n")


def start_ticks(pid: int) -> int | None:
    """When a process started, in the kernel's ticks; None if there is none, or a zombie.

    A pid and this name one process for good: pids are used again, moments are not.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def be_punctual(priority: int) -> bool:
    """Run before everything ordinary, if we may; whether we do."""
    try:
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except (OSError, AttributeError):
        return False
    return True


def members_of(group: int) -> list[int]:
    """The processes of a process group."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(ProcessLookupError):
            if os.getpgid(pid) == group:
                found.append(pid)
    return found


def send(line: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """One message, whole. Raises OSError when nobody listens any more."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    line.sendmsg([json.dumps(message).encode()], rights if descriptors else [])


def receive(line: socket.socket) -> tuple[Message | None, list[int]]:
    """The next message and its descriptors; None when the other side has ended."""
    space = socket.CMSG_SPACE(DESCRIPTORS_MAX * array.array("i").itemsize)
    try:
        payload, ancillary, _, _ = line.recvmsg(MESSAGE_BYTES_MAX, space)
    except ConnectionResetError:
        return None, []
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = len(data) - len(data) % descriptors.itemsize
            descriptors.frombytes(data[:whole])
    return (json.loads(payload) if payload else None), list(descriptors)


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a line for messages."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES_MAX)
    return ours, theirs


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
