"""What the kernel's link emulation is told, as text: testable where the kernel has none."""

import json
from dataclasses import replace

from simnet.nodes.processes import netem
from simnet.world.link_conditions import LinkState
from simnet.world.links import MS, LinkModel

KINDS = ["netem", "tbf", "plug"]
WAN = LinkState(LinkModel(100 * MS, 20 * MS, 8_000_000, loss_ppm=5_000))


def test_every_direction_of_every_pair_has_an_emulation_of_its_own_and_starts_cut() -> None:
    lines = netem._all_cut(3)
    emulations = [line for line in lines if "netem" in line]
    assert emulations == [
        f"qdisc add dev n{receiver} parent 1:{sender + 1} handle 10{sender + 1}: netem loss 100%"
        for receiver in range(3)
        for sender in range(3)
        if sender != receiver
    ]
    chosen = [line for line in lines if line.startswith("filter") and " dev n0 " in line]
    assert [line.split("match ")[1] for line in chosen] == [
        "ip src 10.86.0.2/32 flowid 1:2",
        "ip src 10.86.0.3/32 flowid 1:3",
    ]


def test_handles_are_hexadecimal_and_differ_for_as_many_nodes_as_there_may_be() -> None:
    made = [line.split() for line in netem._all_cut(32) if " dev n31 " in line and "handle" in line]
    # the sender is named the same way by its class, and by each emulation
    handles = [words[words.index("handle") + 1] for words in made if words[1] == "add"]
    assert len(set(handles)) == 1 + 3 * 31
    assert {"11f:", "21f:", "31f:"} <= set(handles)
    lines = netem.changed((30, 31), None, WAN)
    assert lines[0].startswith("qdisc change dev n31 handle 11f: netem ")


def test_jitter_is_even_around_the_middle_and_the_queue_is_as_long_as_the_models() -> None:
    way, rate, queue = netem.changed((0, 1), None, WAN)
    assert " delay 110000.000us 10000.000us loss 0.5000% rate " in way
    assert " tbf rate 8000000bit burst 6600 " in rate
    assert queue.endswith(" plug limit 2000000")  # 2 s
    shuffled = replace(WAN, model=replace(WAN.model, reorder_ppm=20_000))
    assert netem.changed((0, 1), None, shuffled)[0].endswith(" reorder 2.0000%")


def test_only_what_differs_is_told() -> None:
    cut, held = replace(WAN, is_open=False), replace(WAN, holds=True)
    slow = replace(WAN, model=WAN.model.slowed(10))
    assert netem.changed((0, 1), WAN, WAN) == []
    (line,) = netem.changed((0, 1), WAN, cut)
    assert " loss 100.0000% " in line
    assert netem.changed((0, 1), WAN, held) == ["qdisc change dev n1 handle 301: plug block"]
    assert netem.changed((0, 1), held, WAN) == [
        "qdisc change dev n1 handle 301: plug release_indefinite"
    ]
    assert [line.split()[6] for line in netem.changed((0, 1), WAN, slow)] == KINDS
    assert netem.changed((0, 1), WAN, slow)[2].endswith(" plug limit 2000000")


def test_a_link_that_hardly_sends_is_not_one_without_a_limit() -> None:
    for bits_per_s, told in ((1, "rate 1000bit burst 1600 "), (0, "rate 100000000000bit ")):
        state = LinkState(LinkModel(MS, bits_per_s=bits_per_s))
        assert told in netem.changed((0, 1), None, state)[1]


def test_cables_join_each_namespace_to_the_hub_and_carry_packets_one_by_one() -> None:
    lines = netem._hub_wires([7, 9])
    assert "link add n1 mtu 1500 type veth peer name eth0 netns /proc/self/fd/9 mtu 1500" in lines
    assert all("gso_max_segs 1" in line for line in lines if line.startswith("link set n"))
    assert netem._node_wires(1)[1] == "address add 10.86.0.2/24 dev eth0"
    assert "gso_max_segs 1" in netem._node_wires(1)[2]


def test_counts_are_read_by_sender_and_receiver() -> None:
    said = [
        {"kind": "htb", "dev": "n1", "handle": "1:", "packets": 99, "drops": 9},
        {"kind": "netem", "dev": "n1", "handle": "101:", "packets": 12, "drops": 3},
        {"kind": "netem", "dev": "n2", "handle": "110:", "packets": 5, "drops": 0},
        {"kind": "noqueue", "dev": "lo", "handle": "0:", "packets": 1, "drops": 1},
    ]
    assert netem.read_counts(json.dumps(said)) == {(0, 1): (12, 3), (15, 2): (5, 0)}
