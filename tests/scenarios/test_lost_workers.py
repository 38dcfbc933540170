"""A trainer's worker that dies or hangs costs its own node one round, and nobody else anything."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from daa_node.adapters import control_socket
from daa_node.rounds.config import RoundsConfig
from daa_node.spot_checks.config import SpotChecksConfig
from daa_node.training.module_probe import probe
from tests.daa_node.training.own_modules import (
    PACKAGE,
    access,
    built,
    job_of,
    pictures,
    write_package,
)
from tests.scenarios.little_cluster import (
    TINY,
    LittleCluster,
    Node,
    height,
    named,
    published,
    until,
)

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("warm")]

# A model that waits while it trains, as on a GPU: rounds of seconds, as people's are, that leave
# a core to a worker which starts, whatever else the machine does.
STEPS, STEP_S = 64, 0.06
WAITS = f"""
def hidden(self, inputs):
    if self.training:
        time.sleep({STEP_S})
    return self.layer(inputs).relu()
"""
SLOW = TINY.model_copy(
    update={
        "rounds": RoundsConfig(inner_steps_max=STEPS, window_ms=7_000, exec_ms=20_000),
        "spot_checks": SpotChecksConfig(segments=16),
    }
)
ROUNDS_LATER = 2


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LittleCluster]:
    code = tmp_path / "code"
    write_package(code, f"import time\n{pictures(WAITS)}")
    found = built(job_of(), probe(job_of(), access(code), is_checked=True))
    made = LittleCluster(tmp_path / "cluster", SLOW.model_copy(update={"model": found.model}))
    for node in made.nodes:
        with (node.directory / "config.yaml").open("a") as file:
            file.write(f"trainer: {{allow_modules: [{PACKAGE}], module_path: {code}}}\n")
    try:
        made.start()
        until("a vertex on all", lambda: all(height(n) >= 1 for n in made.nodes), made.nodes)
        yield made
    finally:
        made.close()


def worker_pid(node: Node) -> int:
    return int((node.status() or {})["trainer_pid"])


def test_a_worker_that_dies_or_hangs_costs_its_node_one_round_and_nobody_else_anything(
    cluster: LittleCluster,
) -> None:
    dying, hanging, *whole = cluster.nodes
    daemon_pids = [node.running.pid for node in cluster.nodes]
    allowed = dict.fromkeys((node.index for node in cluster.nodes), 0)
    for victim, moment, number in [
        (dying, named("round_started"), signal.SIGKILL),  # it trains
        (hanging, named("set_decided"), signal.SIGSTOP),  # it aggregates
    ]:
        mark, pid = victim.events.mark(), worker_pid(victim)
        victim.wait_event(moment, mark, "the moment")
        os.kill(pid, number)
        victim.wait_event(named("trainer_lost"), mark, "the loss is told")
        started = victim.wait_event(named("trainer_started"), mark, "another one")
        killed_at = victim.events.since(mark)[0]["ts"]
        over = [e for e in published(whole[0]) if killed_at < e["ts"] < started["ts"]]
        # A machine so busy that a worker takes rounds to start lets no node take part in those.
        allowed[victim.index] = max(1, len(over))
        lost_at = height(whole[0])
        until(
            f"{ROUNDS_LATER} more vertices",
            lambda reach=lost_at + ROUNDS_LATER: all(  # type: ignore[misc]
                height(node) >= reach for node in cluster.nodes
            ),
            cluster.nodes,
        )
    rounds = control_socket.ask(whole[0].directory / "control.sock", "rounds")["rounds"]
    for node in cluster.nodes:
        missed = [r["height"] for r in rounds[1:] if node.node_id.hex() not in r["contributors"]]
        assert len(missed) <= allowed[node.index], (node.index, missed, allowed)
    assert [node.running.pid for node in cluster.nodes] == daemon_pids
    assert all(node.running.poll() is None for node in cluster.nodes)
    for node in whole:
        told = {event["name"] for event in node.events.since(0)}
        assert not told & {"trainer_lost", "round_aborted", "abort_due", "peer_banned"}
