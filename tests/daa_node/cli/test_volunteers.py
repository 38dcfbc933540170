"""A real daemon gives pieces of its chain to volunteers, and its rounds go on whoever comes."""

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from daa_dag.ids import ChainId, NodeId
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.identity.keys import NodeKeys
from daa_node.network.config import NetworkConfig
from daa_node.seams import Address, ByteStream
from daa_node.wire import protocols
from simnet.nodes.virtual.volunteer import Volunteer
from tests.daa_node.cli.test_daemon import daa_node, network, running, until
from tests.daa_node.cli.test_gateway import ENDLESS, with_gateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a network of one that goes on and on, and asks volunteers."""
    (node,) = network(tmp_path_factory.mktemp("volunteers"), 1, ENDLESS)
    with_gateway(node)
    with running(node):
        until(node, "vertices", lambda said: said["gateway"]["url"] and said["height"] > 2)
        yield node


def standing(node: Path) -> dict[str, Any]:
    return until(node, "answer", lambda said: True)


def volunteer(node: Path, number: int, **how: Any) -> Volunteer:
    said = standing(node)
    return Volunteer(
        NodeKeys.from_seed(b"volunteer %d" % number),
        ChainId(bytes.fromhex(said["chain_id"])),
        NodeId(bytes.fromhex(said["node_id"])),
        lambda: int(time.time()),
        **how,
    )


@asynccontextmanager
async def connected(node: Path, keys: NodeKeys) -> AsyncIterator[Libp2pTransport]:
    """A libp2p of the volunteer's own, connected by WebSocket."""
    said = standing(node)
    (address,) = [a for a in said["addresses"] if "/ws/" in a and "/127.0.0.1/" in a]
    config = NetworkConfig(listen=(), bootstrap=())
    transport = Libp2pTransport(keys.ed25519_seed, "elsewhere", config)
    async with trio.open_nursery() as nursery:
        await nursery.start(transport.run)
        await transport.dial(Address(address))
        yield transport
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def stream_to(node: Path, keys: NodeKeys) -> AsyncIterator[ByteStream]:
    async with connected(node, keys) as transport:
        peer_id = transport.connected()[0]
        yield await transport.open_stream(peer_id, protocols.VOLUNTEER)


async def attending(node: Path, who: Volunteer, until_done: int) -> None:
    with trio.fail_after(60):
        async with stream_to(node, who.keys) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(who.attend, stream)
            while len(who.done) < until_done and who.refused is None:
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()


async def test_three_honest_volunteers_check_the_chain_and_agree(gateway: Path) -> None:
    three = [volunteer(gateway, number) for number in range(3)]
    async with trio.open_nursery() as nursery:
        for one in three:
            nursery.start_soon(attending, gateway, one, 12)
    assert all(one.refused is None and False not in one.judged for one in three)
    assert {kind for one in three for kind in one.done} >= {"certificate", "dag", "chunks"}
    assert any(True in one.judged for one in three)
    found = json.loads(daa_node("logs", "-n", "2000", "--json", "--dir", gateway).stdout)["events"]
    agreed = [event for event in found if event["name"] == "volunteers_found"]
    assert agreed
    assert all(event["sound"] for event in agreed)
