"""A probe on a slow machine sends late and not in bursts, and knows what was thrown away."""

import socket

from simnet.nodes.processes import probes
from simnet.nodes.processes.probes import LATE_NS_MAX, PUT_OFF_NS_MAX, Course, Flow
from simnet.world.links import MS, NS

GAP_NS = 10 * MS
FLOW = Flow(1, "127.0.0.1", 100, 64, GAP_NS, start_ns=NS)
BACKLOG = LATE_NS_MAX // GAP_NS  # datagrams


def due_now(course: Course, now_ns: int) -> int:
    """How many go out at one moment."""
    count = 0
    while course.is_due(now_ns):
        course.went(now_ns)
        count += 1
    return count


def test_a_flow_goes_at_its_pace_and_a_late_one_catches_up_a_little() -> None:
    course = Course(FLOW, FLOW.start_ns)
    assert due_now(course, NS - 1) == 0
    assert due_now(course, NS) == 1
    assert due_now(course, NS + 3 * GAP_NS) == 3
    late_ns = NS + 60 * GAP_NS
    assert due_now(course, late_ns) == BACKLOG + 1
    assert due_now(course, late_ns + GAP_NS) == 1  # the rest is put off, not sent at once
    assert course.put_off_ns == (60 - 4 - BACKLOG) * GAP_NS
    assert not course.is_over(late_ns)


def test_a_flow_ends_when_all_is_sent_or_the_machine_is_much_too_slow() -> None:
    course = Course(FLOW, FLOW.start_ns)
    now_ns, sent = NS, 0
    while not course.is_over(now_ns):
        sent += due_now(course, now_ns)
        now_ns += GAP_NS
    assert sent == FLOW.count
    end_ns = FLOW.start_ns + FLOW.count * GAP_NS + PUT_OFF_NS_MAX
    refused = Course(FLOW, FLOW.start_ns)
    assert not refused.is_over(end_ns)
    assert refused.is_over(end_ns + 1)


def test_what_a_full_buffer_lost_is_known() -> None:
    sent = 200
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        door.bind(("127.0.0.1", 0))
        door.setblocking(False)
        before = probes.dropped(door)
        for _ in range(sent):
            sender.sendto(bytes(1000), door.getsockname())
        came = 0
        try:
            while door.recv(2000):
                came += 1
        except BlockingIOError:
            lost = probes.dropped(door) - before
    assert 0 < came < sent
    assert lost == sent - came
