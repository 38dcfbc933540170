"""What Python 3.11 lacks of Linux: network namespaces, TUN devices, the death signal, real time.

A namespace made here has no name: it lives as long as a process or a descriptor holds it, and the
kernel takes it away with its devices, however its holders ended. So nothing can be left behind.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

NODES_MAX = 32  # beyond it two cores carry no daemons either
MTU_BYTES = 1500
QUEUE_PACKETS = 10_000  # that wait for the switch: 40 ms at 250,000 a second
NETMASK = "255.255.0.0"  # around the addresses of nodes, and of the boxes that they are behind
# Of SCHED_FIFO: above everything ordinary, below what keeps the machine alive; who measures what
# the carrier of packets does must not keep it from its work.
CARRIER_PRIORITY, PROBE_PRIORITY = 10, 5
_CLONE_NEWNET, _CLONE_NEWUSER = 0x40000000, 0x10000000  # linux/sched.h
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
_SET_ADDRESS, _SET_NETMASK = 0x8916, 0x891C  # linux/sockios.h
_GET_FLAGS, _SET_FLAGS, _SET_MTU, _SET_QUEUE = 0x8913, 0x8914, 0x8922, 0x8943
_IFF_UP = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill us when our parent ends, even while we are suspended."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(0)  # it ended before we asked


def outlive_parent() -> None:
    _call("prctl", _PR_SET_PDEATHSIG, 0, 0, 0, 0)


def be_punctual(priority: int) -> bool:
    """Run before everything ordinary, if we may; whether we do."""
    try:
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except (OSError, AttributeError):
        return False
    return True


def process_groups() -> Iterator[tuple[int, int]]:
    """Every process of this machine, and the group that it is in."""
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdecimal():
            with suppress(ProcessLookupError):
                yield int(name), os.getpgid(int(name))


def become_root_of_a_user_namespace() -> None:
    """All privileges over namespaces made from now on, and none that we did not have elsewhere.

    Our user keeps its number, so that files stay ours. Raises OSError where users may not do this.
    """
    uid, gid = os.getuid(), os.getgid()
    _call("unshare", _CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1\n")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1\n")


def enter_namespace(descriptor: int) -> None:
    """Go into the network namespace that `descriptor` holds. Raises OSError."""
    _call("setns", descriptor, _CLONE_NEWNET)


def enter_new_namespace() -> int:
    """Go into a new network namespace, and hold it. Raises OSError.

    The kernel greets no routers there: none is there, and it would cost packets.
    """
    _call("unshare", _CLONE_NEWNET)
    for everywhere in Path("/proc/sys/net/ipv6/conf").glob("*/disable_ipv6"):
        everywhere.write_text("1")
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def namespaces_with_tuns(addresses: Sequence[str], device_prefix: str, as_user: bool) -> list[int]:
    """Descriptors of a namespace for each address, then those of the TUN device in each.

    What a node sends to another one's address comes out of its device's descriptor as an IP packet,
    and a packet that is written there arrives at the node. We stay in the last namespace. Must be
    called by a process with a single thread. Raises OSError.
    """
    if as_user:
        become_root_of_a_user_namespace()
    namespaces, tuns = [], []
    for node, address in enumerate(addresses):
        namespaces.append(enter_new_namespace())
        tuns.append(_open_tun(f"{device_prefix}{node}", address))
    return [*namespaces, *tuns]


def _open_tun(name: str, address: str) -> int:
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
            _bring_up(door, "lo")
            _configure(door, name, _SET_ADDRESS, _inet(address))
            _configure(door, name, _SET_NETMASK, _inet(NETMASK))
            _configure(door, name, _SET_MTU, struct.pack("i", MTU_BYTES))
            with suppress(PermissionError):  # root's alone; others live with the kernel's 500
                _configure(door, name, _SET_QUEUE, struct.pack("i", QUEUE_PACKETS))
            _bring_up(door, name)
    except OSError:
        os.close(tun)
        raise
    return tun


def _bring_up(door: socket.socket, name: str) -> None:
    asked = struct.pack("16sH14x", name.encode(), 0)
    (flags,) = struct.unpack_from("H", fcntl.ioctl(door, _GET_FLAGS, asked), 16)
    _configure(door, name, _SET_FLAGS, struct.pack("H", flags | _IFF_UP))


def _configure(door: socket.socket, name: str, what: int, value: bytes) -> None:
    fcntl.ioctl(door, what, struct.pack("16s16s", name.encode(), value))


def _inet(address: str) -> bytes:
    return struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(address))


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
