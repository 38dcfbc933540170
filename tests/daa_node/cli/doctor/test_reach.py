"""Whether others can dial this node, by its daemon or by a visit, and what to do if not."""

import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from daa_node.cli.doctor import reach
from daa_node.cli.doctor.scene import open_scene
from daa_node.network.config import NetworkConfig
from daa_node.network.dial_back import REQUEST, DialBack
from tests.daa_node.cli.doctor.scenes import ROOMY, made_node
from tests.daa_node.cli.doctor.test_outside import MADE
from tests.daa_node.network.neighbours import Neighbour, running

PLAIN = NetworkConfig(listen=("/ip4/0.0.0.0/tcp/4001",))
STANDING: dict[str, Any] = {
    "reach": "unreachable",
    "why": "3 of 4 members that dialled back did not get through",
    "seen_at": ["192.0.2.1"],
    "relays": [],
    "punched": [],
    "not_punched": {},
    "router": {"open": None, "why": "no router answers"},
}


def told(network: NetworkConfig = PLAIN, **changed: object) -> tuple[str, str, str]:
    found = reach.of_daemon({**STANDING, **changed}, ["/ip4/10.0.0.2/tcp/4711"], network)
    assert found.check == "reach"
    return str(found.level), found.cause, found.advice


@pytest.mark.parametrize(
    ("named", "level"),
    [
        ("direct", "ok"),
        ("unknown", "unmeasured"),
        ("relayed", "warning"),
        ("punched", "warning"),
        ("unreachable", "warning"),
    ],
)
def test_each_way_of_being_reached_is_told_with_why(named: str, level: str) -> None:
    found = told(reach=named)
    assert found[0] == level
    assert f"{named}: 3 of 4 members that dialled back" in found[1]
    assert bool(found[2]) == (level == "warning")


def test_the_advice_names_the_port_the_router_and_a_relay() -> None:
    _, cause, advice = told()
    assert "UPnP: no router answers" in cause
    assert "TCP port 4001" in advice
    assert "network.relay: true" in advice
    assert "through a relay" in told(relays=["12D3"])[2]
    assert "network.relay" not in told(punched=["12D3"])[2]
    off = told(PLAIN.model_copy(update={"upnp": False}), router=None)
    assert "network.upnp: true" in off[2]
    free = told(PLAIN.model_copy(update={"listen": ("/ip4/0.0.0.0/tcp/0",)}))
    assert "TCP port 4711" in free[2]
    assert "network.listen" in told(PLAIN.model_copy(update={"listen": ()}))[2]
    announced = ("/ip4/192.0.2.9/tcp/4001",)
    assert "network.announce" in told(PLAIN.model_copy(update={"announce": announced}))[2]


async def test_a_node_that_does_not_run_is_dialled_back_by_one_that_was_met(
    tmp_path: Path,
) -> None:
    scene = open_scene(made_node(tmp_path / "n"), None, ROOMY)
    assert str((await reach.of_visit(scene, MADE, None)).level) == "unmeasured"
    node = Neighbour(0, chain_id=MADE.chain_id)
    dial_back = DialBack(node.transport.doorbell, lambda peer_id: True)
    node.requests.register(REQUEST, dial_back.answer)
    async with running(node) as here, trio.open_nursery() as nursery:
        nursery.start_soon(dial_back.run)
        found = await reach.of_visit(scene, MADE, here.address)
        nursery.cancel_scope.cancel()
    assert (str(found.level), "got through" in found.cause) == ("ok", True)


async def test_a_port_that_another_program_has_is_no_answer_about_reach(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = f"network: {{listen: [/ip4/127.0.0.1/tcp/{port}]}}\n"
        scene = open_scene(made_node(tmp_path / "n", settings), None, ROOMY)
        found = await reach.of_visit(scene, MADE, MADE.bootstrap()[0])
    assert (str(found.level), "nobody could be asked" in found.cause) == ("unmeasured", True)


async def test_a_node_that_listens_nowhere_is_well(tmp_path: Path) -> None:
    scene = open_scene(made_node(tmp_path / "n", "network: {listen: []}\n"), None, ROOMY)
    found = await reach.of_visit(scene, MADE, None)
    assert (str(found.level), "listens nowhere" in found.cause) == ("ok", True)
