"""What a person reads of a running daemon's answers."""

from typing import Any

import pytest

from daa_node.cli.places import place_of
from daa_node.cli.remote import PAIRS_TOLD_MAX, device_lines, reach_line, reasons_of, why_shunned

CPU, GPU = "cpu x86_64 AVX512, torch 2.9", "cuda H200, torch 2.9"


def pair(device: str, nodes: int, tolerance: float, why: str) -> dict[str, Any]:
    return {"device": device, "nodes": nodes, "tolerance": tolerance, "why": why}


def standing(*pairs: dict[str, Any], steps: int = 8, repeats: bool = True) -> dict[str, Any]:
    told = {"device": CPU, "steps": steps, "steps_needed": 8, "repeats": repeats}
    return {**told, "tolerance_max": 5e-3, "pairs": list(pairs)}


def test_what_is_tolerated_of_each_kind_of_device_is_told_and_why() -> None:
    alone = pair(GPU, 1, 5e-3, "too few say that they have such a device")
    near = pair(CPU, 4, 5e-4, "both devices are nearer than rare steps are")
    assert device_lines(standing(alone, near)) == [
        f"device      {CPU}",
        f"tolerated   5.0e-04 of 4 nodes with {CPU}: both devices are nearer than rare steps are",
        f"tolerated   5.0e-03 of 1 node with {GPU}: too few say that they have such a device",
    ]


def test_a_device_that_is_not_measured_yet_is_told() -> None:
    (line,) = device_lines(standing(steps=3))
    assert line == "device      3 of 8 canary steps taken; checks tolerate 5.0e-03 till then"


def test_a_device_that_does_not_repeat_itself_is_told() -> None:
    assert "DOES NOT REPEAT ITSELF" in device_lines(standing(repeats=False))[0]


def test_members_that_name_many_kinds_leave_a_page_that_can_be_read() -> None:
    kinds = [pair(f"toaster {number}", 1, 5e-3, "why") for number in range(200)]
    lines = device_lines(standing(*kinds))
    assert len(lines) == PAIRS_TOLD_MAX + 2
    assert lines[-1] == f"tolerated   {200 - PAIRS_TOLD_MAX} kinds more: see --json"


def test_whom_we_shun_is_told_with_its_end() -> None:
    told = why_shunned({"shunned_until_round": 41})
    assert told == "not acknowledged until round 41: what it trained was not shown, or differs"


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("/ip4/10.86.0.2/tcp/4001/p2p/12D3KooWDs", "10.86.0.2:4001"),
        ("/ip6/2001:db8::1/tcp/4001", "[2001:db8::1]:4001"),
        ("/dns4/node.example/tcp/4001/ws", "node.example:4001"),
        (
            "/ip4/10.86.0.2/tcp/4001/p2p/12D3KooWDs/p2p-circuit/p2p/12D3KooWK7",
            "through 10.86.0.2:4001",
        ),
        ("/memory/7", "/memory/7"),
        (None, None),
    ],
)
def test_an_address_is_told_as_a_person_types_it(address: str | None, place: str | None) -> None:
    assert place_of(address) == place


def test_how_others_reach_this_node_is_told_and_why() -> None:
    told = {
        "reach": "punched",
        "why": "3 of 3 members that dialled back did not get through",
        "seen_at": ["10.86.0.4"],
        "relays": ["12D3KooWDs", "12D3KooWK7"],
        "punched": ["12D3KooWJR"],
        "not_punched": {"12D3KooWA": "no stream", "12D3KooWB": "no end", "12D3KooWC": "no end"},
        "router": {"why": "no router answers to UPnP"},
    }
    assert reach_line(told) == (
        "punched: 3 of 3 members that dialled back did not get through, seen at 10.86.0.4; "
        "others come through 2 relays; without a relay to 1, by hole punching; "
        "no hole to 2: no end; no hole to 1: no stream; "
        "UPnP: no router answers to UPnP"
    )


def test_a_peer_that_is_relayed_has_the_reason_below_the_table() -> None:
    peer = {"way": "relayed", "why": "no hole: no stream came about", "health": None}
    assert list(reasons_of(peer)) == ["relayed: no hole: no stream came about"]
    assert list(reasons_of({**peer, "way": "direct", "why": None})) == []
