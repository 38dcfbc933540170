"""The kernel's link emulation, as text: what `ip` and `tc` are told in their batches.

    node k: eth0 <-- veth --> n<k> on a bridge, in a namespace of its own: the hub

    n<receiver>  htb 1:  -- u32: sent by s --> class 1:<s>     a class for each sender
                 netem 1<s>:   rate, latency, jitter, loss     one direction of one pair
                 plug  2<s>:   holds what has arrived, while the link holds

All emulation is at the hub's ports, where packets leave for their receiver: a sender's own kernel
would tell its TCP what was lost. HTB limits nothing here, it only has a class for each sender; what
is not IPv4 (who has which address) passes it by. Handles are in hexadecimal, as tc has them.
"""

import json
import re
from collections.abc import Iterable

from simnet.links import NS, LinkModel
from simnet.processes.namespaces import MTU_BYTES, address_of
from simnet.processes.switch import LinkState
from simnet.processes.weather import Ends

DEVICE = "eth0"  # of every node
BRIDGE = "hub"
NETEM_HANDLE, PLUG_HANDLE = 0x100, 0x200  # plus the sender's class
SMALL_BYTES = 64  # packets that are under way may be as small
LIMIT_PACKETS_MAX = 1_000_000  # of one link; 2.5 s of 5 Gbit/s, and memory for it
HELD_BYTES_MAX = 4096 * MTU_BYTES  # of one link that holds; what comes on top is lost
BITS_PER_S_MIN = 8  # netem counts in bytes, and takes none for no limit
SHARE_PPM = 10_000  # parts in a million of a per cent
US = 1000  # nanoseconds, which tc does not read


def hub_wires(descriptors: Iterable[int]) -> list[str]:
    """For `ip`, in the hub: a bridge, and a cable to each namespace that a descriptor holds.

    Nobody merges packets into larger ones, or a loss would take all of them at once.
    """
    lines = [f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up"]
    for node, descriptor in enumerate(descriptors):
        port, peer = port_of(node), f"{DEVICE} netns /proc/self/fd/{descriptor}"
        lines += [
            f"link add {port} mtu {MTU_BYTES} type veth peer name {peer} mtu {MTU_BYTES}",
            f"link set {port} gso_max_segs 1 master {BRIDGE} up",
        ]
    return lines


def node_wires(node: int) -> list[str]:
    """For `ip`, in the node's own namespace."""
    return [
        "link set lo up",
        f"address add {address_of(node)}/24 dev {DEVICE}",
        f"link set {DEVICE} gso_max_segs 1 up",
    ]


def made(count: int) -> list[str]:
    """For `tc`, in the hub: every link, and all of them cut."""
    lines = []
    for receiver in range(count):
        port = port_of(receiver)
        lines.append(f"qdisc add dev {port} root handle 1: htb")
        for sender in range(count):
            if sender == receiver:
                continue
            one = sender + 1  # 1:0 is the whole qdisc
            netem, plug = f"{NETEM_HANDLE + one:x}", f"{PLUG_HANDLE + one:x}"
            lines += [
                f"class add dev {port} parent 1: classid 1:{one:x} htb rate 100gbit quantum 10000",
                f"qdisc add dev {port} parent 1:{one:x} handle {netem}: netem loss 100%",
                f"qdisc add dev {port} parent {netem}:1 handle {plug}: plug limit {HELD_BYTES_MAX}",
                f"qdisc change dev {port} handle {plug}: plug release_indefinite",
                f"filter add dev {port} parent 1: protocol ip prio 1 u32 "
                f"match ip src {address_of(sender)}/32 flowid 1:{one:x}",
            ]
    return lines


def changed(ends: Ends, before: LinkState | None, now: LinkState) -> list[str]:
    """For `tc`, in the hub: the direction `ends` is as `now` says; what is under way goes on."""
    (sender, receiver), lines = ends, []
    one, port = sender + 1, port_of(receiver)
    if before is None or (before.model, before.is_open) != (now.model, now.is_open):
        lines.append(f"qdisc change dev {port} handle {NETEM_HANDLE + one:x}: netem {_netem(now)}")
    if (before is not None and before.holds) != now.holds:
        what = "block" if now.holds else "release_indefinite"
        lines.append(f"qdisc change dev {port} handle {PLUG_HANDLE + one:x}: plug {what}")
    return lines


def read_counts(said: str) -> dict[Ends, tuple[int, int]]:
    """(packets that passed, packets that were lost) by link, of `tc -s -j qdisc show`."""
    found = {}
    for qdisc in json.loads(said):
        port = re.fullmatch(r"n(\d+)", qdisc["dev"])
        if port is not None and qdisc["kind"] == "netem":
            sender = int(qdisc["handle"].rstrip(":"), 16) - NETEM_HANDLE - 1
            found[sender, int(port[1])] = qdisc["packets"], qdisc["drops"]
    return found


def port_of(node: int) -> str:
    return f"n{node}"


def _netem(state: LinkState) -> str:
    """Jitter is even within a half of it to both sides, so latency is put in the middle.

    With a rate, netem keeps packets in order, but for those that it is told to send at once.
    """
    model = state.model
    half_us = model.jitter_ns / 2 / US
    loss_ppm = model.loss_ppm if state.is_open else 100 * SHARE_PPM
    middle_us = model.latency_ns / US + half_us
    words = [f"limit {_limit(model)}", f"delay {middle_us:.3f}us {half_us:.3f}us"]
    words.append(f"loss {loss_ppm / SHARE_PPM:.4f}%")
    if model.reorder_ppm:
        words.append(f"reorder {model.reorder_ppm / SHARE_PPM:.4f}%")
    if model.bits_per_s:
        words.append(f"rate {max(BITS_PER_S_MIN, model.bits_per_s)}bit")
    return " ".join(words)


def _limit(model: LinkModel) -> int:
    """Packets in one netem: those under way may be small, those that wait are counted as full."""
    under_way_ns = model.latency_ns + model.jitter_ns
    packets = model.bits_per_s * under_way_ns // NS // (8 * SMALL_BYTES)
    packets += model.bits_per_s * model.queue_ns // NS // (8 * MTU_BYTES)
    return max(1, min(packets, LIMIT_PACKETS_MAX)) if model.bits_per_s else LIMIT_PACKETS_MAX
