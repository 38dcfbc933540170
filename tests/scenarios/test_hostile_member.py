"""Three honest daemons and a fourth validator's keys in wrong hands.

Everything wrong with an offer costs its sender score and nobody else anything: the others certify
round after round, and blame nobody but the sender.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from daa_consensus.bft.messages import OfferBody
from daa_dag.ids import BlobRoot, VertexId
from daa_node.adapters import control_socket
from daa_node.adapters.key_files import load_keys
from daa_node.errors import UserError
from daa_node.seams import Address
from daa_node.updates.grid import BLOCK, block_count_of
from tests.scenarios.hostile_member import HostileMember, hostile_member, stranger
from tests.scenarios.little_cluster import TINY, LittleCluster, Node

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("warm")]

WAIT_S = 240.0  # for three busy daemons on two shared cores
HONEST = 3


def ask(node: Node, command: str) -> dict[str, Any]:
    return control_socket.ask(node.directory / "control.sock", command)


async def until(what: Callable[[], bool], why: str) -> None:
    with trio.move_on_after(WAIT_S):
        while True:
            try:
                if what():
                    return
            except UserError:
                pass  # the door is not open yet
            await trio.sleep(0.1)
    raise AssertionError(f"not within {WAIT_S} s: {why}")


def faults_of(honest: list[Node], peer_id: str) -> dict[str, int]:
    """What the honest members together hold against one peer."""
    found: dict[str, int] = {}
    for node in honest:
        for peer in ask(node, "peers")["peers"]:
            if peer["peer_id"] == peer_id:
                for reason, count in peer["faults"].items():
                    found[reason] = max(found.get(reason, 0), count)
    return found


async def say_everything_wrong(hostile: HostileMember, honest: list[Node], peer_id: str) -> None:
    """One misdeed after the other; each must be counted before the next is tried."""
    blocks = block_count_of(TINY.model.parameter_count())
    zeros = np.zeros(blocks * BLOCK, np.int8)
    good_shifts, wild_shifts = np.zeros(blocks, np.uint8), np.full(blocks, 200, np.uint8)
    honest_root, size_bytes = await hostile.seal(zeros, good_shifts)
    wild_root, _ = await hostile.seal(zeros, wild_shifts)  # exponents beyond the grid: not finite

    async def misdeed(reason: str, commit: Callable[[dict[str, Any]], Any]) -> None:
        """Do it at the start of rounds, once each, until it is held against us."""
        tried_in = ask(honest[0], "status")["round"]
        deadline_s = trio.current_time() + WAIT_S
        while reason not in faults_of(honest, peer_id):
            assert trio.current_time() < deadline_s, (reason, faults_of(honest, peer_id))
            status = ask(honest[0], "status")
            if status["round"] > tried_in:
                tried_in = status["round"]
                await commit(status)
            await trio.sleep(0.02)

    def offer(status: dict[str, Any], root: BlobRoot, size_bytes: int) -> OfferBody:
        base = VertexId(bytes.fromhex(status["vertex_id"]))
        return hostile.honest_offer(status["round"] + 1, base, root, size_bytes)

    async def wrong_shape(status: dict[str, Any]) -> None:
        await hostile.offer(offer(status, honest_root, size_bytes - 65))

    async def not_finite(status: dict[str, Any]) -> None:
        await hostile.offer(offer(status, wild_root, size_bytes))

    async def late(status: dict[str, Any]) -> None:
        body = offer(status, honest_root, size_bytes)
        await hostile.offer(replace(body, round=status["round"]))

    async def by_a_stranger(status: dict[str, Any]) -> None:
        keys = stranger()
        body = offer(status, honest_root, size_bytes)
        await hostile.offer(replace(body, author=keys.node_id), keys)

    # Late first: whoever offered in that round as well would be an equivocator besides.
    await misdeed("late_offer", late)
    await misdeed("bad_update", not_finite)
    await misdeed("bad_size", wrong_shape)
    await misdeed("unknown-signer", by_a_stranger)
    await misdeed("malformed", lambda _: hostile.say(b"\xff" * 300))
    await misdeed("oversize", lambda _: hostile.shout(2**31))


def test_every_wrong_offer_costs_its_sender_score_and_nobody_else_anything(tmp_path: Path) -> None:
    cluster = LittleCluster(tmp_path / "cluster", count=HONEST + 1)
    honest, keys = cluster.nodes[:HONEST], load_keys(cluster.nodes[HONEST].directory / "keys")

    async def scenario() -> None:
        await until(lambda: ask(honest[0], "status")["height"] >= 1, "a first certified round")
        addresses = [
            Address(address)
            for node in honest
            for address in ask(node, "status")["addresses"]
            if "/ws" not in address
        ]
        async with hostile_member(cluster.genesis, keys, addresses, tmp_path) as hostile:
            await say_everything_wrong(hostile, honest, str(keys.peer_id))
        reached = ask(honest[0], "status")["height"]
        await until(
            lambda: ask(honest[0], "status")["height"] > reached, "another round after all that"
        )

    cluster.start(honest)
    try:
        trio.run(scenario)
        others = {str(load_keys(node.directory / "keys").peer_id) for node in honest}
        for node in honest:
            assert node.running.poll() is None, "no daemon was stopped"
            listed = ask(node, "peers")["peers"]
            blamed = {p["peer_id"]: p for p in listed if p["score"] < 0}
            assert str(keys.peer_id) in blamed
            assert not others & blamed.keys(), "the honest blame each other for nothing"
        heights = [r["contributors"] for r in ask(honest[0], "rounds")["rounds"][1:]]
        assert all(keys.node_id.hex() not in authors for authors in heights)
    finally:
        cluster.close()
