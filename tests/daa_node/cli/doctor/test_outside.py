"""An address that does not answer is told by the stage at which the way to it ends."""

import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from daa_dag.ids import ChainId
from daa_node import genesis
from daa_node.cli.doctor import outside
from daa_node.cli.doctor.findings import Finding
from daa_node.cli.doctor.outside import Stage, Try, try_once
from daa_node.cli.doctor.scene import open_scene
from daa_node.network.hello import decode_greeting, encode_greeting
from daa_node.seams import Address
from tests.daa_node.cli.doctor.scenes import GOLDEN, ROOMY, made_node
from tests.daa_node.network.neighbours import KEYS, Neighbour, WallClock, running

MADE = genesis.parse("genesis.json", GOLDEN)
AWAY = Address("/ip4/192.0.2.1/tcp/1")


async def test_a_name_that_nobody_knows_fails_at_name() -> None:
    tried = await try_once(Address("/dns4/no-such-host.invalid/tcp/4001"), MADE)
    assert tried.stage is Stage.NAME
    assert "no-such-host.invalid" in tried.cause


async def test_a_port_where_nobody_listens_fails_at_dial() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nobody else gets it, and it does not listen
        port = silent.getsockname()[1]
        tried = await try_once(Address(f"/ip4/127.0.0.1/tcp/{port}"), MADE)
    assert tried.stage is Stage.DIAL


async def test_what_is_no_node_fails_at_noise() -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, hang_up, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        port = listener.socket.getsockname()[1]
        tried = await try_once(Address(f"/ip4/127.0.0.1/tcp/{port}"), MADE)
        nursery.cancel_scope.cancel()
    assert tried.stage is Stage.NOISE


async def test_a_node_with_other_keys_than_its_address_names_fails_at_noise() -> None:
    node = Neighbour(0, chain_id=MADE.chain_id)
    async with running(node):
        bare = node.address.partition("/p2p/")[0]
        tried = await try_once(Address(f"{bare}/p2p/{KEYS[1].peer_id}"), MADE)
    assert tried.stage is Stage.NOISE


@pytest.mark.parametrize(
    ("chain_id", "skew_s", "reason", "words"),
    [
        (ChainId(b"\xaa" * 32), 0.0, "wrong-chain", "both nodes need the same genesis.json"),
        (MADE.chain_id, 400.0, "clock-skew", "this node's"),
    ],
)
async def test_a_node_that_refuses_fails_at_hello_with_its_reason(
    chain_id: ChainId, skew_s: float, reason: str, words: str
) -> None:
    node = Neighbour(0, chain_id=chain_id, clock=WallClock(skew_s))
    async with running(node):
        tried = await try_once(node.address, MADE)
    assert (tried.stage, tried.reason) == (Stage.HELLO, reason)
    assert words in tried.cause


async def test_a_node_of_another_version_fails_at_hello_with_both_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Neighbour(0, chain_id=MADE.chain_id)
    later = replace(decode_greeting(node.hello._own_greeting()), version=9, version_min=7)
    monkeypatch.setattr(node.hello, "_own_greeting", lambda: encode_greeting(later))
    async with running(node):
        tried = await try_once(node.address, MADE)
    assert (tried.stage, tried.reason) == (Stage.HELLO, "incompatible-version")
    assert "theirs speaks protocol 7 to 9, ours" in tried.cause
    found = outside._failed(tried, is_met=False)
    assert "fails at stage hello: incompatible-version" in found.cause
    assert "Install the same version" in found.advice


async def test_a_node_of_the_network_is_met() -> None:
    node = Neighbour(0, chain_id=MADE.chain_id)
    async with running(node):
        address = node.address
        tried = await try_once(address, MADE)
    assert (tried.address, tried.stage) == (address, Stage.MET)
    assert tried.clock_off_s is not None
    assert abs(tried.clock_off_s) < 60  # one host, and so one clock: a slow machine is late


def told(*tries: Try) -> dict[str, list[Finding]]:
    findings = [*outside._ways(list(tries), len(tries)), outside._clock(list(tries), ())]
    return {
        name: [finding for finding in findings if finding.check == name]
        for name in ("bootstrap", "clock")
    }


def test_one_node_that_answers_makes_the_others_a_warning() -> None:
    lost = Try(AWAY, Stage.DIAL, "refused")
    assert [str(f.level) for f in told(lost, lost)["bootstrap"]] == ["error", "error"]
    elsewhere = Try(Address("/ip4/192.0.2.2/tcp/1"), Stage.MET)
    assert [str(f.level) for f in told(lost, elsewhere)["bootstrap"]] == ["ok", "warning"]
    twice = [
        Try(Address(f"/ip4/192.0.2.{host}/tcp/1/p2p/{KEYS[0].peer_id}"), stage)
        for host, stage in ((1, Stage.DIAL), (2, Stage.MET))
    ]
    (found,) = told(*twice)["bootstrap"]
    assert (str(found.level), found.cause) == ("ok", "1 of 1 nodes answer")


def test_a_clock_that_nobody_was_met_to_compare_with_is_not_measured() -> None:
    skewed = Try(AWAY, Stage.HELLO, "set the wrong one of the two (NTP)", "clock-skew")
    lost, met = Try(AWAY, Stage.DIAL, "refused"), Try(AWAY, Stage.MET, clock_off_s=0.1)
    levels = [str(told(*tries)["clock"][0].level) for tries in ([lost], [met], [skewed, met])]
    assert levels == ["unmeasured", "ok", "warning"]
    assert str(told(skewed)["clock"][0].level) == "error"


def test_where_nobody_is_met_the_peers_of_the_daemon_are_compared_with() -> None:
    peers: list[dict[str, Any]] = [{"clock_off_s": None}, {"clock_off_s": 40.0}, {}]
    found = outside._clock([], peers)
    assert (str(found.level), "40.0 s behind" in found.cause) == ("warning", True)
    near = outside._clock([Try(AWAY, Stage.MET, clock_off_s=0.0)], peers)
    assert str(near.level) == "ok"


def test_our_own_address_is_not_tried(tmp_path: Path) -> None:
    scene = open_scene(made_node(tmp_path / "n"), None, ROOMY)
    own = Address(f"/ip4/127.0.0.1/tcp/1/p2p/{KEYS[4].peer_id}")
    assert scene.config is not None
    network = scene.config.network.model_copy(update={"bootstrap": (own, AWAY)})
    config = scene.config.model_copy(update={"network": network})
    known = outside.known_addresses(replace(scene, config=config))
    assert known[0] == AWAY
    assert own not in known
    assert own in outside.known_addresses(replace(scene, config=config, keys=None))
