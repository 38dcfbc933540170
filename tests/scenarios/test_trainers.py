"""Four daemons that vote and two that only train: these come, are killed, and come back."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from daa_node.updates.config import UpdatesConfig
from tests.scenarios.little_cluster import (
    TINY,
    LittleCluster,
    Node,
    assert_verified,
    height,
    published,
    until,
)

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("warm")]

JOB = TINY.model_copy(update={"updates": UpdatesConfig()})


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LittleCluster]:
    made = LittleCluster(tmp_path_factory.mktemp("trainers") / "cluster", JOB, trainers=2)
    try:
        yield made
    finally:
        made.close()


def listed(node: Node, vertex: int) -> list[str]:
    """Who contributed to the vertex of this height and was merged, as the command shows it."""
    done = subprocess.run(
        [sys.executable, "-m", "daa_node", "checkpoint", "show", str(vertex), "--json"]
        + ["--dir", str(node.directory)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [row["author"] for row in json.loads(done.stdout)["contributors"] if row["weight"]]


def test_trainers_join_a_round_are_killed_and_come_back_and_stop_nobody(
    cluster: LittleCluster,
) -> None:
    members, trainers = cluster.nodes[:4], cluster.nodes[4:]
    cluster.start(members)
    until("members go on alone", lambda: height(members[0]) >= 3, cluster.nodes)
    marks = [node.events.mark() for node in members]
    cluster.start(trainers)

    def counts(of: int, since: list[int]) -> list[int]:
        """Heights above `since` whose sets have so many contributions, on every member."""
        found = [
            {event["height"] for event in published(node, mark) if event["contributors"] == of}
            for node, mark in zip(members, since, strict=True)
        ]
        return sorted(set.intersection(*found))

    whole = until("a set of all six", lambda: counts(6, marks), cluster.nodes)
    assert {node.node_id.hex() for node in cluster.nodes} == {*listed(members[0], whole[0])}
    status = trainers[0].status()
    assert status is not None
    assert (status["part"], status["trainers"]["total"]) == ("trainer", 2)
    for node in trainers:
        node.kill()
    before = max(height(node) for node in members)
    until(
        "members go on without them",
        lambda: all(height(node) >= before + 3 for node in members),
        cluster.nodes,
    )
    marks = [node.events.mark() for node in members]
    cluster.start(trainers)
    until("a set of all six again", lambda: counts(6, marks), cluster.nodes)
    for node in cluster.nodes:
        node.kill()
    assert_verified([members[0], trainers[0]])
