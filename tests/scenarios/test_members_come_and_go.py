"""A fifth node joins a running network by the commands alone, contributes, and an old one leaves.

Then a member that slept over the changes comes back, and every chain verifies from the genesis,
over all boundaries.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from daa_node.adapters import control_socket
from daa_node.agreement.config import AgreementConfig
from daa_node.cli import identity
from daa_node.cli.cluster import settings
from daa_node.cli.free_ports import free_ports
from tests.scenarios.little_cluster import (
    TINY,
    LittleCluster,
    Node,
    assert_verified,
    height,
    until,
)

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("warm")]

EPOCH_ROUNDS = AgreementConfig().epoch_rounds
JOB = TINY.model_copy(
    update={
        # As often as a genesis that says nothing of it lets members change.
        "agreement": TINY.agreement.model_copy(update={"epoch_rounds": EPOCH_ROUNDS}),
    }
)
CHANGES_S = 300.0  # two epochs, on a busy machine


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LittleCluster]:
    made = LittleCluster(tmp_path_factory.mktemp("members") / "cluster", JOB)
    try:
        yield made
    finally:
        made.close()


def command(node: Node, *words: str) -> dict[str, Any] | None:
    """What `daa-node validators ...` answers; None if it refuses."""
    done = subprocess.run(
        [sys.executable, "-m", "daa_node", "validators", *words]
        + ["--json", "--dir", str(node.directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout) if done.returncode == 0 else None


def validators(node: Node) -> dict[str, Any]:
    return control_socket.ask(node.directory / "control.sock", "validators")


def members(node: Node) -> set[str]:
    return {row["node_id"] for row in validators(node)["validators"]}


def newcomer_of(cluster: LittleCluster) -> Node:
    """A fifth node with the network's genesis, and in nobody's list."""
    directory = cluster.root / "n4"
    identity.create_node(directory, settings(free_ports(1)[0], []))
    (directory / "genesis.json").write_text(cluster.genesis.as_text())
    node = Node(directory, 4)
    cluster.nodes.append(node)
    return node


def contributors(node: Node) -> list[str]:
    """Of the newest vertex."""
    rounds = control_socket.ask(node.directory / "control.sock", "rounds")["rounds"]
    return list(rounds[-1]["contributors"]) if rounds else []


def goes_on(nodes: list[Node], rounds: int) -> None:
    goal = max(height(node) for node in nodes) + rounds
    until(f"height {goal}", lambda: all(height(n) >= goal for n in nodes), nodes, CHANGES_S)


def test_a_node_joins_contributes_and_another_leaves(cluster: LittleCluster) -> None:
    first, second, third, leaver = cluster.nodes
    cluster.start()
    goes_on(cluster.nodes, 1)

    newcomer = newcomer_of(cluster)
    newcomer.start()
    asked = until("a request to join", lambda: command(newcomer, "propose", "join"), [newcomer])
    for node in (first, second, third):
        until("it is heard", partial(command, node, "approve", asked["id"]), [node])
    name = newcomer.node_id.hex()
    until("it is a member", lambda: name in members(first), cluster.nodes, CHANGES_S)
    until("it contributes", lambda: name in contributors(first), cluster.nodes, CHANGES_S)
    until("it votes", lambda: newcomer.events.count("statement_sent") > 2, cluster.nodes, CHANGES_S)

    second.kill()  # sleeps over the boundary at which the leaver goes
    assert command(leaver, "propose", "leave") is not None
    gone = leaver.node_id.hex()
    until("it has left", lambda: gone not in members(first), cluster.nodes, CHANGES_S)
    until("it knows", lambda: gone not in members(leaver), cluster.nodes, CHANGES_S)
    second.start()
    until("who slept knows", lambda: _knows(second, gone), cluster.nodes, CHANGES_S)
    leaver.kill()
    goes_on([first, second, third, newcomer], 2)
    assert gone not in contributors(first)
    assert name in contributors(first)

    for node in (first, second, third, newcomer):
        node.kill()
    assert_verified([first, second, third, newcomer])


def _knows(node: Node, gone: str) -> bool:
    return node.status() is not None and gone not in members(node)
