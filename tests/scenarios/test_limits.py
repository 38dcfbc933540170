"""Four daemons, one behind a cap and then a budget: what its bulk costs, and what goes on.

Nothing here wants a fast machine: a slow one sends less. Bytes are those that the daemon itself
tells of; each look is timed from before one question to after the other.
"""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from daa_node.network.link_limits import BURST_S, MBIT_BYTES
from daa_node.rounds.config import RoundsConfig
from daa_node.training.model_config import ModelConfig
from daa_node.updates.config import UpdatesConfig
from tests.scenarios.little_cluster import TINY, LittleCluster, Node, height, named, says, until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("warm")]

CAP_MBIT_S = 2.0
UPDATE_BYTES = 1_500_000  # of so many parameters in int8: six seconds of such a link
CHUNK_BYTES = 32 * 1024
ANSWER_BYTES = 4 * CHUNK_BYTES
LETTERS_SHARE = 0.2  # of the cap, at most: what members send each other to agree
WINDOW_S = 2.0
ROUND_S = 120.0  # of a capped node's round, on a machine that others use as well

JOB = TINY.model_copy(
    update={
        "model": ModelConfig(kind="mlp", depth=2, width=1_200),
        "updates": UpdatesConfig(rule="mean", f_agg=0, chunk_bytes=CHUNK_BYTES),
        "rounds": RoundsConfig(inner_steps_max=2, window_ms=12_000, exec_ms=60_000),
    }
)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LittleCluster]:
    made = LittleCluster(tmp_path_factory.mktemp("limits") / "cluster", JOB)
    try:
        yield made
    finally:
        made.close()


def set_limits(node: Node, lines: str, plain: str) -> None:
    (node.directory / "config.yaml").write_text(f"{plain}{lines}")


def take_over(node: Node, lines: str, plain: str) -> None:
    """The operator edits the file, and sends SIGHUP."""
    mark = node.events.mark()
    set_limits(node, lines, plain)
    os.kill(node.running.pid, signal.SIGHUP)
    event = node.wait_event(named("config_reloaded"), mark, "settings read again")
    assert event.get("error") is None
    assert event["needs_restart"] == []


def sent_bytes(node: Node) -> int | None:
    status = node.status()
    return None if status is None else int(status["bytes_sent"])


def test_a_cap_and_a_budget_hold_a_real_daemon_s_bulk_and_nothing_else(
    cluster: LittleCluster,
) -> None:
    limited, others = cluster.nodes[0], cluster.nodes[1:]
    plain = (limited.directory / "config.yaml").read_text()
    set_limits(limited, f"  upload_mbit_s: {CAP_MBIT_S}\n", plain)
    cluster.start()
    looks: list[tuple[float, float, int]] = []  # from, to, bytes sent by then

    def has_contributed() -> bool:
        began_s = time.monotonic()
        sent = sent_bytes(limited)
        if sent is not None:
            looks.append((began_s, time.monotonic(), sent))
        spreads = [e for e in limited.events.since(0) if e["name"] == "update_spread"]
        return sum(int(spread["sent_bytes"]) for spread in spreads) >= 2 * UPDATE_BYTES

    until("it uploads twice", has_contributed, cluster.nodes, 2 * ROUND_S)
    allowed = (1 + LETTERS_SHARE) * CAP_MBIT_S * MBIT_BYTES
    at_once = BURST_S * CAP_MBIT_S * MBIT_BYTES + ANSWER_BYTES
    for began_s, _, before in looks:
        window = [look for look in looks if look[0] >= began_s + WINDOW_S]
        if window:
            _, ended_s, after = window[0]
            assert after - before <= allowed * (ended_s - began_s) + at_once

    mark, level = limited.events.mark(), max(map(height, others))
    take_over(limited, "  data_gb_a_day: 0.001\n", plain)
    limited.wait_event(named("data_budget", budget="spent"), mark, "its data are spent")
    mark = limited.events.mark()
    until("others go on", lambda: min(map(height, others)) >= level + 3, cluster.nodes, ROUND_S)
    limited.wait_event(says("finalize"), mark, "it votes all the same")
    status = limited.status()
    assert status is not None
    assert status["link"]["budget"] == "spent"
    assert "network.data_gb_a_day" in status["decisions"][0]["reason"]

    mark = limited.events.mark()
    take_over(limited, "  data_gb_a_day: 1000\n", plain)
    limited.wait_event(named("data_budget", budget="open"), mark, "there are data again")
    limited.wait_event(named("update_spread"), mark, "it contributes again", ROUND_S)
    until("it is level", lambda: height(limited) >= max(map(height, others)) - 1, cluster.nodes)
