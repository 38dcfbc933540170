"""The canary: one seed gives one trace, in any process, however Python salts its hashes.

Signatures get into blocks on the way: of a node that rejoins, and as evidence against a liar.
"""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

PROGRAM = """
import sys
from simnet.determinism import Trace
from simnet.scenario import Scenario
from simnet.virtual.world import run_virtual

outcome = run_virtual(Scenario.model_validate({
    "name": "canary", "fidelity": "trio", "seed": int(sys.argv[1]), "duration_s": 60,
    "nodes": [{"count": 3}, {"name": "slow", "count": 2, "speed": 0.5, "up_mbit_s": 20}],
    "topology": {"preset": "regional"},
    "work": {"kind": "training", "rounds": 3, "inner_steps_max": 10},
    "adversaries": [{"kind": "double_offerer", "nodes": [4]}],
    "faults": [{"kind": "disk", "disk": "wiped", "at_s": 2, "for_s": 2, "nodes": [0]},
               {"kind": "loss", "at_s": 1, "for_s": 9},
               {"kind": "partition", "shape": "flapping", "at_s": 3, "for_s": 4}],
}), Trace())
assert outcome.ok and outcome.facts["rounds"] == 3, outcome
assert {"rejoined", "evidence found"} <= {mark.name for mark in outcome.sometimes}, outcome
print(outcome.trace_hash, *outcome.final_roots)
"""


def run(seed: int, hash_seed: str) -> str:
    """Trace hash and final roots, as a fresh process has them."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(seed)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_seed_is_one_trace_in_every_process_and_another_seed_another() -> None:
    first = run(1, "1")
    assert len(first.split()) == 2
    assert first == run(1, "2")
    other = run(2, "1")
    assert set(first.split()).isdisjoint(other.split())
