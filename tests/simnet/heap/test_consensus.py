"""Heap consensus: what a world of the daemon's own agreement code holds through, and repeats."""

import subprocess
import sys

import pytest

from simnet.determinism import Streams, Trace
from simnet.faults import Edge
from simnet.heap import consensus
from simnet.heap.consensus_wire import Wire
from simnet.invariants import PROGRESS
from simnet.outcome import Outcome
from simnet.scenario import FaultConfig, Scenario
from simnet.scenario_file import open_scenario
from simnet.topology import Topology


def scenario(**fields: object) -> Scenario:
    work = {"epoch_rounds": 2}
    return Scenario.model_validate({"name": "try", "work": work, **fields})


def run(**fields: object) -> Outcome:
    return consensus.run(scenario(**fields), Trace())


def broken(outcome: Outcome) -> list[str]:
    return [f"{i.name}: {i.detail}" for i in outcome.invariants if not i.ok]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_without_faults_blocks_become_final_whatever_the_number_of_nodes(count: int) -> None:
    outcome = run(nodes=[{"count": count}])
    assert broken(outcome) == []
    assert outcome.facts["blocks"] >= 10
    assert len(outcome.final_roots) == 1


def test_an_observer_ends_with_the_chain_of_the_validators() -> None:
    nodes = [{"count": 4}, {"name": "looker", "count": 2, "role": "observer"}]
    kill = {"kind": "kill", "at_s": 1, "for_s": 1, "nodes": [4]}
    outcome = run(nodes=nodes, faults=[kill])
    assert broken(outcome) == []
    assert len(outcome.final_roots) == 1


@pytest.mark.parametrize("name", ["partition", "churn", "epochs", "byzantine", "members"])
def test_a_shipped_scenario_holds_and_meets_what_it_is_for(name: str) -> None:
    outcome = consensus.run(open_scenario(name), Trace())
    assert broken(outcome) == []
    assert {mark.name for mark in outcome.sometimes if not mark.hits} == set()


def test_a_run_that_never_met_what_its_scenario_wants_is_not_ok() -> None:
    outcome = run(checks={"sometimes": ["quarantine entered"]})
    assert broken(outcome) == ["sometimes quarantine entered: this run never was"]


def test_without_a_quorum_nothing_becomes_final_and_the_run_says_so() -> None:
    fault = {"kind": "partition", "shape": "halves", "at_s": 0.5, "for_s": 1e9, "nodes": [0, 1]}
    outcome = run(faults=[fault], checks={"heal_s": 20})
    assert [b.split(":")[0] for b in broken(outcome)] == [PROGRESS]


def test_two_faults_that_are_told_in_the_same_words_both_begin_and_heal() -> None:
    fault = {"kind": "partition", "shape": "isolate", "at_s": 1, "for_s": 1, "nodes": [0]}
    outcome = run(faults=[fault, fault])
    assert broken(outcome) == []
    assert [m.hits for m in outcome.sometimes if m.name == "partition healed"] == [2]


def at_leader(kind: str, at_s: float, **more: object) -> dict[str, object]:
    return {"kind": kind, "aim": "leader", "at_s": at_s, "for_s": 0.5, **more}


def test_nobody_is_struck_where_nobody_is_up_who_could_say_who_leads() -> None:
    faults = [{"kind": "kill", "at_s": 1, "for_s": 2, "nodes": [0, 1, 2, 3]}, at_leader("hold", 2)]
    outcome = run(faults=faults)
    assert broken(outcome) == []
    assert "leader struck" not in {mark.name for mark in outcome.sometimes}


SCRIPT = """
import sys
from simnet.determinism import Trace
from simnet.heap import consensus
from simnet.scenario import Scenario
faults = [{"kind": "partition", "at_s": 1, "for_s": 3}, {"kind": "kill", "at_s": 2, "for_s": 3}]
named = {"name": "canary", "seed": int(sys.argv[1]), "faults": faults}
print(consensus.run(Scenario.model_validate(named), Trace()).trace_hash)
"""


def test_one_seed_has_one_trace_in_every_process_and_another_seed_another() -> None:
    def hash_of(seed: int, hash_seed: str) -> str:
        command = [sys.executable, "-c", SCRIPT, str(seed)]
        env = {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return done.stdout

    assert hash_of(5, "1") == hash_of(5, "2") != hash_of(6, "1")


def test_a_fault_without_an_end_is_waited_for_and_demanded_to_be_survived() -> None:
    gone = {"kind": "kill", "at_s": 20, "nodes": [0]}
    outcome = run(faults=[gone])
    assert broken(outcome) == []
    assert outcome.virtual_s > 20


def test_of_two_faults_of_one_link_each_lasts_as_long_as_it_was_to() -> None:
    wire = Wire(Topology(scenario(), Streams(0)), Streams(0), 4)
    kinds: list[dict[str, object]] = [
        {"kind": "loss", "percent": 100.0},
        {"kind": "loss", "percent": 10.0},
        {"kind": "slow", "factor": 100.0},
        {"kind": "slow", "factor": 2.0},
    ]
    whole, part, crawl, slow = (
        Edge(0, True, FaultConfig.model_validate({**fields, "at_s": 0}), (1,)) for fields in kinds
    )
    arrived: list[int] = []
    for edge in (whole, part, crawl, slow):
        wire.begin(edge)
    wire.end(0, part)
    wire.end(0, slow)
    wire.send(0, 0, 1, 100, arrived.append)
    assert arrived == []
    wire.end(0, whole)
    wire.send(0, 0, 1, 100, arrived.append)
    wire.end(0, crawl)
    wire.send(0, 0, 1, 100, arrived.append)
    assert arrived[0] > 50 * arrived[1]
