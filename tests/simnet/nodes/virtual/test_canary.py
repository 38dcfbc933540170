"""The canary: one seed gives one trace, in any process, however Python salts its hashes.

Signatures get into blocks on the way: of a node that rejoins, and as evidence against a liar.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from simnet.nodes.virtual.world import run_virtual
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

pytestmark = pytest.mark.long

PROGRAM = """
import sys
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario
from simnet.nodes.virtual.world import run_virtual

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

DRAWN = """
import sys
from simnet.results import run as running
from simnet.results.sweep import Swept

for name in sys.argv[1:]:
    fidelity, seed = name.split("-")
    outcome = running.run(Swept(fidelity=fidelity).scenario(int(seed)))
    print(name, outcome.trace_hash, *outcome.final_roots)
"""
# Members come, go and hand on their seats, and knock at others' doors; a puppet, observers, kills.
IN_TROUBLE = ("light-3", "light-14", "trio-14")


def run(seed: int, hash_seed: str) -> str:
    """Trace hash and final roots, as a fresh process has them."""
    return said_by(PROGRAM, [str(seed)], hash_seed)


def said_by(program: str, arguments: Sequence[str], hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_seed_is_one_trace_in_every_process() -> None:
    first = run(1, "1")
    assert len(first.split()) == 2
    assert first == run(1, "2")


def test_another_seed_is_another_run_of_the_same_scenario() -> None:
    told = [word for seed in (1, 2) for word in brief(seed)]
    assert len(set(told)) == len(told) == 4


def brief(seed: int) -> list[str]:
    """Trace hash and final root of one round."""
    scenario = Scenario.model_validate(
        {
            "name": "brief",
            "fidelity": "light",
            "seed": seed,
            "duration_s": 60,
            "nodes": [{"count": 3}],
            "work": {"kind": "training", "rounds": 1, "inner_steps_max": 5},
        }
    )
    outcome = run_virtual(scenario, Trace())
    return [outcome.trace_hash, *outcome.final_roots]


def test_a_drawn_cluster_in_trouble_leaves_a_trace_of_its_own_however_sets_are_ordered() -> None:
    first, second = (said_by(DRAWN, IN_TROUBLE, hash_seed) for hash_seed in ("0", "1"))
    assert len(first.splitlines()) == len(IN_TROUBLE)
    assert first == second
    told = [word for line in first.splitlines() for word in line.split()[1:]]
    assert len(set(told)) == len(told)  # another seed, another trace, and other roots
