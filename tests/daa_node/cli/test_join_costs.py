"""What joining costs is told on the high side, and follows the job."""

from pathlib import Path

from daa_dag.retention import Retention
from daa_node import genesis
from daa_node.cli.join_costs import costs_of

GOLDEN = (Path(__file__).parents[2] / "golden" / "genesis.json").read_text()
MADE = genesis.parse("genesis.json", GOLDEN)
STATE_BYTES = 8 * MADE.job.model.parameter_count()


def test_far_behind_a_whole_state_is_fetched_and_not_every_delta() -> None:
    few, many = (costs_of(MADE, Retention(32), number) for number in (301, 3001))
    assert few.parts["the newest whole state"] == STATE_BYTES
    assert few.parts["deltas above it"] < 2 * STATE_BYTES
    assert few.download_bytes - few.parts["proofs"] == many.download_bytes - many.parts["proofs"]
    assert many.disk_bytes > few.disk_bytes > few.download_bytes


def test_who_keeps_every_delta_fetches_every_delta() -> None:
    costs = costs_of(MADE, Retention(None), 301)
    assert "the newest whole state" not in costs.parts
    assert costs.parts["deltas"] > 30 * STATE_BYTES
    assert costs.disk_bytes > costs.download_bytes


def test_where_nothing_was_trained_yet_nothing_is_fetched_but_the_genesis() -> None:
    costs = costs_of(MADE, Retention(32), 1)
    assert costs.download_bytes == len(GOLDEN)


def test_a_bound_leaves_out_what_would_go_again() -> None:
    """An archive with little room fetches a whole state; the least that it needs is told too."""
    free = costs_of(MADE, Retention(None), 3001)
    tight = costs_of(MADE, Retention(None, bytes_max=free.disk_bytes // 4), 3001)
    assert "the newest whole state" in tight.parts
    assert tight.disk_bytes < free.disk_bytes // 2
    assert tight.least_bytes <= tight.disk_bytes
    light = costs_of(MADE, Retention(8, 2, bytes_max=10**12), 3001)
    assert light.least_bytes < costs_of(MADE, Retention(8), 3001).least_bytes
