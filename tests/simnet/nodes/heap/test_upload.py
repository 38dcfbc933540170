"""An author's blob reaches everybody, and leaves it about once: with liars among the receivers."""

from typing import Any

import pytest

from daa_node.errors import UserError
from simnet.checks.outcome import Outcome
from simnet.nodes.heap.upload import RATIO_MAX, Upload, run_upload
from simnet.results.run import run
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

CHUNK_BYTES = 4096
MBIT_S = 2.0  # 4 KiB take as long as 256 KiB at 128 Mbit/s


def scenario(receivers: int, **fields: Any) -> Scenario:
    plain: dict[str, Any] = {
        "name": "test",
        "seed": 1,
        "fidelity": "heap",
        "duration_s": 60,
        "nodes": [{"count": receivers + 1, "up_mbit_s": MBIT_S}],
        "topology": {"preset": "regional"},
        "work": {"kind": "upload", "chunks": 40, "chunk_bytes": CHUNK_BYTES},
        "checks": {"heal_s": 30},
    }
    return Scenario.model_validate(plain | fields)


def played(receivers: int, **fields: Any) -> Outcome:
    outcome = run_upload(scenario(receivers, **fields), Trace())
    assert outcome.ok, outcome.invariants
    return outcome


@pytest.mark.parametrize("receivers", [4, 20, 50])
def test_a_contribution_leaves_its_author_about_once(receivers: int) -> None:
    facts = played(receivers).facts
    assert 1.0 <= facts["author_sent_over_size"] <= RATIO_MAX
    floor_ms = 40 * CHUNK_BYTES * 8 / MBIT_S / 1000  # of the author's own uplink
    assert facts["whole_ms_last"] < 3.5 * floor_ms
    assert facts["opened"] == 0


@pytest.mark.parametrize("receivers", [4, 8, 20])
@pytest.mark.parametrize("mbit_s", [MBIT_S, MBIT_S / 20])
def test_a_snapshot_leaves_one_who_alone_has_it_about_once(receivers: int, mbit_s: float) -> None:
    """It knows neither that nobody else has it, nor how many are going to ask."""
    plain = scenario(receivers, nodes=[{"count": receivers + 1, "up_mbit_s": mbit_s}])
    world = Upload(plain, Trace(), is_expected=False)
    world.run()
    assert world.whole_ns.keys() == set(range(1, receivers + 1))
    assert 1.0 <= world.ratio <= RATIO_MAX
    floor_ns = world.manifest.size_bytes * 8_000 / mbit_s
    assert max(world.whole_ns.values()) < 3.5 * floor_ns


@pytest.mark.parametrize("kind", ["babbler", "withholder", "staller"])
def test_liars_that_claim_everything_delay_a_fetch_by_seconds_at_most(kind: str) -> None:
    liars = [{"kind": kind, "nodes": [node]} for node in range(1, 4)]
    facts = played(9, adversaries=liars).facts
    assert facts["whole_ms_last"] < 10_000
    assert facts["author_sent_over_size"] <= RATIO_MAX + len(liars)


@pytest.mark.parametrize("receivers", [4, 20, 50])
def test_a_quarter_of_stallers_costs_an_author_no_more_than_their_even_shares(
    receivers: int,
) -> None:
    """They claim at once what they are offered; were they not held back, 1.4, 1.5 and 1.2."""
    liars = [{"kind": "staller", "nodes": [1 + node]} for node in range(receivers // 4)]
    facts = played(receivers, adversaries=liars, seed=1).facts
    assert facts["author_sent_over_size"] <= RATIO_MAX


def test_a_run_repeats_and_another_seed_differs() -> None:
    first, again = (run(scenario(6)) for _ in range(2))
    other = run(scenario(6, seed=2))
    assert first.trace_hash == again.trace_hash != other.trace_hash


def test_what_this_work_does_not_have_is_refused() -> None:
    with pytest.raises(UserError, match="no faults"):
        played(4, faults=[{"kind": "pause", "at_s": 1, "for_s": 1, "nodes": [1]}])
    with pytest.raises(UserError, match="no poisoner"):
        played(4, adversaries=[{"kind": "poisoner", "nodes": [1]}])
    with pytest.raises(UserError, match="is the author"):
        played(4, adversaries=[{"kind": "staller", "nodes": [0]}])
