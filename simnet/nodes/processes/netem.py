"""The internet that the kernel emulates: cables between namespaces, and qdiscs at their ends.

    node k: eth0 <-- veth --> n<k> on a bridge, in a namespace of its own: the hub

    n<receiver>  htb 1:  -- u32: sent by s --> class 1:<s>   a class for each sender
                 netem 1<s>:   latency, jitter, loss         one direction of one pair
                 tbf   2<s>:   rate
                 plug  3<s>:   the queue, so many bytes; holds them all, while the link holds

All emulation is at the hub's ports, where packets leave for their receiver: a sender's own kernel
would tell its TCP what was lost. HTB limits nothing here, it only has a class for each sender; what
is not IPv4 (who has which address) passes it by. netem keeps packets in order as long as it has a
rate, so it has one that no link reaches; what it takes is bounded in packets, and the queue of a
link in time. Handles are in hexadecimal, as tc has them.
"""

import json
import re
import subprocess
from collections.abc import Iterable, Sequence

from simnet.nodes.processes import kernel
from simnet.nodes.processes.kernel import MTU_BYTES, address_of
from simnet.nodes.processes.lines import Line
from simnet.world.link_conditions import Ends, LinkState, LinkStates
from simnet.world.links import NS, LinkModel

PROGRAM_TIMEOUT_S = 30.0  # for a thousand links on a busy machine
DEVICE = "eth0"  # of every node
BRIDGE = "hub"
NETEM, TBF, PLUG = 0x100, 0x200, 0x300  # plus the sender's class
UNDER_WAY_PACKETS_MAX = 200_000  # of one link: 1 Gbit/s over 2 s, and memory for it
QUEUE_BYTES_MAX = 256 << 20  # of one link: 2 s of 1 Gbit/s
# That may come at once after a pause: a packet, and what a timer that is late must make up for. A
# kernel with much to do is late by milliseconds, and a bucket that is full then loses its rate.
BURST_BYTES_MIN, BURST_S = MTU_BYTES + 100, 0.005
BITS_PER_S_MIN = 1000  # below, tc loses count of a burst
BITS_PER_S_MAX = 100_000_000_000  # as good as no limit
SHARE_PPM = 10_000  # parts in a million of a per cent
US = 1000  # nanoseconds, which tc does not read


def cabled_namespaces(count: int, as_user: bool) -> list[int]:
    """Descriptors: a namespace for each node, and the hub's. All links are cut; we stay in the hub.

    Must be called by a process with a single thread. Raises OSError.
    """
    if as_user:
        kernel.become_root_of_a_user_namespace()
    made = [kernel.enter_new_namespace() for _ in range(count + 1)]
    run("ip", _hub_wires(made[:count]), made[:count])
    for node in range(count):
        kernel.enter_namespace(made[node])
        run("ip", _node_wires(node))
    kernel.enter_namespace(made[count])
    run("tc", _all_cut(count))
    return made


def serve(line: Line) -> None:
    """The whole life of the hub: tells the kernel what the tool says of links.

    When it and the warm parent have ended, the kernel takes namespaces, cables and qdiscs away.
    """
    states: dict[Ends, LinkState] = {}
    seen: dict[Ends, tuple[int, int]] = {}  # passed and lost so far
    counts = {"delivered": 0, "lost": 0, "cut": 0}
    while True:
        news: LinkStates = line.receive()[0]
        # what was lost so far was lost under the old states
        for ends, (passed, lost) in read_counts(_ask(["tc", "-s", "-j", "qdisc"])).items():
            passed_before, lost_before = seen.get(ends, (0, 0))
            seen[ends] = passed, lost
            counts["delivered"] += passed - passed_before
            is_open = ends in states and states[ends].is_open
            counts["lost" if is_open else "cut"] += lost - lost_before
        lines = [line for e, now in news.items() for line in changed(e, states.get(e), now)]
        if lines:
            run("tc", lines)
        states |= news
        line.send(counts)


def run(program: str, lines: Sequence[str], descriptors: Sequence[int] = ()) -> None:
    """A batch of `ip` or `tc` where we are. Raises OSError with what it said."""
    _ask([program, "-batch", "-"], "".join(f"{line}\n" for line in lines), descriptors)


def _ask(order: list[str], said: str = "", descriptors: Sequence[int] = ()) -> str:
    try:
        done = subprocess.run(
            order,
            input=said,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROGRAM_TIMEOUT_S,
            pass_fds=descriptors,
        )
    except subprocess.TimeoutExpired as hung:
        raise OSError(f"{order[0]} hangs: {hung}") from None
    if done.returncode:
        raise OSError(f"{order[0]}: {' '.join(done.stderr.split())}")
    return done.stdout


def _hub_wires(namespaces: Iterable[int]) -> list[str]:
    """For `ip`, in the hub: a bridge, and a cable to each namespace.

    Nobody merges packets into larger ones, or a loss would take all of them at once.
    """
    lines = [f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up"]
    for node, descriptor in enumerate(namespaces):
        peer = f"{DEVICE} netns /proc/self/fd/{descriptor}"
        lines += [
            f"link add n{node} mtu {MTU_BYTES} type veth peer name {peer} mtu {MTU_BYTES}",
            f"link set n{node} gso_max_segs 1 master {BRIDGE} up",
        ]
    return lines


def _node_wires(node: int) -> list[str]:
    """For `ip`, in the node's own namespace."""
    return [
        "link set lo up",
        f"address add {address_of(node)}/24 dev {DEVICE}",
        f"link set {DEVICE} gso_max_segs 1 up",
    ]


def _all_cut(count: int) -> list[str]:
    """For `tc`, in the hub: every link, and all of them cut."""
    lines = []
    for receiver in range(count):
        lines.append(f"qdisc add dev n{receiver} root handle 1: htb")
        for sender in range(count):
            if sender == receiver:
                continue
            one, add = sender + 1, f"add dev n{receiver} parent"  # 1:0 is the whole qdisc
            lines += [
                f"class {add} 1: classid 1:{one:x} htb rate {BITS_PER_S_MAX}bit quantum 10000",
                f"qdisc {add} 1:{one:x} handle {NETEM + one:x}: netem loss 100%",
                f"qdisc {add} {NETEM + one:x}:1 handle {TBF + one:x}: tbf {_rate(0)}",
                f"qdisc {add} {TBF + one:x}:1 handle {PLUG + one:x}: plug limit 1",
                f"qdisc change dev n{receiver} handle {PLUG + one:x}: plug release_indefinite",
                f"filter {add} 1: protocol ip prio 1 u32 "
                f"match ip src {address_of(sender)}/32 flowid 1:{one:x}",
            ]
    return lines


def changed(ends: Ends, before: LinkState | None, now: LinkState) -> list[str]:
    """For `tc`, in the hub: the direction `ends` is as `now` says; what is under way goes on."""
    (sender, receiver), lines = ends, []
    one, start = sender + 1, f"qdisc change dev n{receiver} handle"
    if before is None or (before.model, before.is_open) != (now.model, now.is_open):
        lines.append(f"{start} {NETEM + one:x}: netem {_delay_and_loss(now)}")
    if before is None or before.model != now.model:
        lines.append(f"{start} {TBF + one:x}: tbf {_rate(now.model.bits_per_s)}")
        lines.append(f"{start} {PLUG + one:x}: plug limit {_queue_bytes(now.model)}")
    if (before is not None and before.holds) != now.holds:
        what = "block" if now.holds else "release_indefinite"
        lines.append(f"{start} {PLUG + one:x}: plug {what}")
    return lines


def read_counts(said: str) -> dict[Ends, tuple[int, int]]:
    """(packets that passed, packets that were lost) by link, of `tc -s -j qdisc show`."""
    found = {}
    for qdisc in json.loads(said):
        port = re.fullmatch(r"n(\d+)", qdisc["dev"])
        if port is not None and qdisc["kind"] == "netem":
            sender = int(qdisc["handle"].rstrip(":"), 16) - NETEM - 1
            found[sender, int(port[1])] = qdisc["packets"], qdisc["drops"]
    return found


def _delay_and_loss(state: LinkState) -> str:
    """Jitter is even within a half of it to both sides, so latency is put in the middle."""
    model = state.model
    half_us = model.jitter_ns / 2 / US
    loss_ppm = model.loss_ppm if state.is_open else 100 * SHARE_PPM
    words = [
        f"limit {UNDER_WAY_PACKETS_MAX}",
        f"delay {model.latency_ns / US + half_us:.3f}us {half_us:.3f}us",
        f"loss {loss_ppm / SHARE_PPM:.4f}%",
        f"rate {BITS_PER_S_MAX}bit",
    ]
    if model.reorder_ppm:
        words.append(f"reorder {model.reorder_ppm / SHARE_PPM:.4f}%")
    return " ".join(words)


def _rate(bits_per_s: int) -> str:
    """Its queue is the plug's, so its own limit counts for nothing."""
    bits_per_s = max(BITS_PER_S_MIN, bits_per_s or BITS_PER_S_MAX)
    burst_bytes = BURST_BYTES_MIN + int(bits_per_s / 8 * BURST_S)
    return f"rate {bits_per_s}bit burst {burst_bytes} limit {MTU_BYTES}"


def _queue_bytes(model: LinkModel) -> int:
    """As much as waits no longer than the model has it."""
    queue_bytes = (model.bits_per_s or BITS_PER_S_MAX) * model.queue_ns // NS // 8
    return max(2 * MTU_BYTES, min(queue_bytes, QUEUE_BYTES_MAX))
