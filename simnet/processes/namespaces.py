"""A network namespace for each node, and a TUN device in it, made without any outside program.

What a node sends to another one's address comes out of its device's descriptor as an IP packet, and
a packet that is written there arrives at the node. Who holds the descriptors is the internet. The
netem backend has cables instead, see hub.py.
"""

import fcntl
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from simnet.processes import kernel

NODES_MAX = 32  # beyond it two cores carry no daemons either
MTU_BYTES = 1500
QUEUE_PACKETS = 10_000  # that wait for the switch: 40 ms at 250,000 a second
NETWORK = "10.86.0"  # seen by nobody outside
DAEMON_PORT = 4001
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
_SET_ADDRESS, _SET_NETMASK = 0x8916, 0x891C  # linux/sockios.h
_GET_FLAGS, _SET_FLAGS, _SET_MTU, _SET_QUEUE = 0x8913, 0x8914, 0x8922, 0x8943
_IFF_UP = 1


@dataclass(frozen=True, slots=True)
class Namespace:
    """Lives as long as somebody holds the descriptor, or lives in it."""

    descriptor: int


def address_of(node: int) -> str:
    return f"{NETWORK}.{node + 1}"


def multiaddr_of(node: int) -> str:
    """On which the node's daemon listens."""
    return f"/ip4/{address_of(node)}/tcp/{DAEMON_PORT}"


def make_namespaces(count: int, device_prefix: str) -> tuple[list[Namespace], list[int]]:
    """One for each node, and the descriptor of the TUN device in it. We stay in the last one.

    Must be called by a process with a single thread, which is then told apart from the others.
    Raises OSError.
    """
    made, tuns = [], []
    for node in range(count):
        made.append(enter_new())
        tuns.append(_open_tun(f"{device_prefix}{node}", address_of(node)))
    return made, tuns


def enter_new() -> Namespace:
    """A new namespace, which we are in from now on. Raises OSError.

    The kernel greets no routers there: none is there, and it would cost packets.
    """
    kernel.unshare(kernel.CLONE_NEWNET)
    for everywhere in Path("/proc/sys/net/ipv6/conf").glob("*/disable_ipv6"):
        everywhere.write_text("1")
    return Namespace(kernel.open_namespace())


def _open_tun(name: str, address: str) -> int:
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
            _bring_up(door, "lo")
            _configure(door, name, _SET_ADDRESS, _inet(address))
            _configure(door, name, _SET_NETMASK, _inet("255.255.255.0"))
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
