"""Cut off, held, flapping and lossy links in a training world: who goes on, and who comes back."""

import io
import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from daa_consensus.committee import Committee, Validator
from daa_dag.ids import NodeId
from simnet.determinism import Trace
from simnet.heap import training
from simnet.heap.training_links import stream_rate
from simnet.heap.training_reach import BREAK_S, Cut, Reach
from simnet.heap.training_world import TrainingWorld
from simnet.links import NS
from simnet.scenario import Scenario
from simnet.training.tally import Stage
from tests.simnet.training.test_training_run import scenario

CUT_S, HEAL_S = 33.0, 233.0  # rounds take 11 s


@dataclass
class Walked:
    """A run, and what its trace tells."""

    world: TrainingWorld
    events: list[dict[str, Any]]

    def heights(self, until_s: float) -> list[int]:
        """Where each node stood at that time."""
        found = [0] * len(self.world.members)
        for event in self.events:
            if event["what"] in ("round", "caught_up") and event["t_ns"] <= until_s * NS:
                found[event["node"]] = event["height"]
        return found

    def contributors(self, after_s: float, until_s: float) -> list[int]:
        """Of each set that became final in that time."""
        found = {}
        for event in self.events:
            if event["what"] == "round" and after_s * NS < event["t_ns"] <= until_s * NS:
                found[event["height"]] = event["contributors"]
        return list(found.values())

    def times_s(self, what: str, **fields: Any) -> list[float]:
        """When such events were noted."""
        return [
            event["t_ns"] / NS
            for event in self.events
            if event["what"] == what and fields.items() <= event.items()
        ]


def walked(plan: Scenario) -> Walked:
    file = io.StringIO()
    world = training.build(plan, Trace(file))
    end_ns = training.walk(world)
    assert len(world.books.sets) == plan.work.rounds
    assert not [i for i in world.books.invariants(end_ns) if not i.ok]
    return Walked(world, [json.loads(line) for line in file.getvalue().splitlines()])


def cut(shape: str, nodes: list[int], **changes: Any) -> Walked:
    fault = {"kind": "partition", "shape": shape, "nodes": nodes, "at_s": CUT_S, **changes}
    return walked(scenario(count=7, rounds=30, faults=[{"for_s": HEAL_S - CUT_S, **fault}]))


@pytest.mark.parametrize("shape", ["halves", "one_way", "isolate"])
def test_a_side_with_a_quorum_goes_on_and_the_other_follows_once_it_has_healed(
    shape: str,
) -> None:
    """Of seven nodes, two are cut off; five are a quorum."""
    run = cut(shape, [0, 1])
    before, after = run.heights(CUT_S + 11), run.heights(HEAL_S)
    assert after[0] == after[1] <= before[0] + 1
    assert min(after[2:]) > before[2] + 10
    assert set(run.contributors(CUT_S + 12, HEAL_S)) == {5}
    assert run.world.books.hits["a node was left behind"] == 2
    offered_s = [at_s for node in (0, 1) for at_s in run.times_s("offer", node=node)]
    assert [at_s for at_s in offered_s if CUT_S + 12 < at_s < HEAL_S] == []
    assert run.heights(HEAL_S + 12) == [max(run.heights(HEAL_S + 12))] * 7
    assert set(run.contributors(HEAL_S + 24, 1e6)) == {7}


def test_two_sides_without_a_quorum_stand_still_and_go_on_from_where_they_stood() -> None:
    run = cut("halves", [0, 1, 2])
    assert run.contributors(CUT_S + 1, HEAL_S) == []
    assert len(run.contributors(HEAL_S, HEAL_S + 15)) == 1  # the round that was under way
    assert set(run.contributors(HEAL_S, 1e6)) == {7}
    assert run.world.books.hits["nobody reached a quorum"]


def test_a_cut_at_any_moment_of_a_round_stops_whatever_needs_a_quorum_for_its_time() -> None:
    work = {"parameters_per_s": 2e6}  # merging takes longer than voting
    calm = walked(scenario(count=7, rounds=4, work=work))
    begins_s, ends_s = calm.times_s("final", payload="result")[1:3]
    for step in range(40):
        at_s = ends_s - (ends_s - begins_s) * (step / 40) ** 3  # most of them while votes travel
        halves = {"kind": "partition", "nodes": [0, 1, 2], "at_s": at_s, "for_s": 50.0}
        run = walked(scenario(count=7, rounds=4, work=work, faults=[halves]))
        assert [t for t in run.times_s("final") if at_s < t < at_s + 50] == []
        assert run.world.now_ns < calm.world.now_ns + 65 * NS
        assert set(run.world.books.sets[1:]) == {7}
        few = walked(scenario(count=7, rounds=4, work=work, faults=[{**halves, "nodes": [0, 1]}]))
        told_s = [at_s for node in (0, 1) for at_s in few.times_s("round", node=node)]
        assert [t for t in told_s if at_s < t < at_s + 50] == []


def test_who_hears_of_no_decision_trains_to_its_end() -> None:
    """Node 0 was stopped for a while, and would have given up with the others."""
    pause = {"kind": "pause", "nodes": [0], "at_s": CUT_S - 6, "for_s": 5.0}
    split = {"kind": "partition", "nodes": [0, 1], "at_s": CUT_S, "for_s": 100.0}
    accounts = walked(scenario(count=7, rounds=20, faults=[pause, split])).world.books.accounts
    assert accounts[0].spent_ns[Stage.TRAINING] == accounts[1].spent_ns[Stage.TRAINING]


def test_nobody_waits_for_who_was_gone_so_long_that_others_noticed() -> None:
    """Node 3 is also slow to send: it is waited for, unless its connections broke meanwhile."""
    slow = {"kind": "slow", "nodes": [3], "factor": 100, "at_s": 0.0}

    def taking_part(for_s: float) -> list[int]:
        away = {"kind": "hold", "nodes": [3], "at_s": 70.0, "for_s": for_s}
        work = {"step_s": 5.0, "window_s": 300}
        return walked(scenario(7, 2, faults=[slow, away], work=work)).contributors(60, 1e6)

    assert taking_part(BREAK_S - 5) == [7]
    assert taking_part(BREAK_S + 5) == [6]


def test_a_bridge_tells_its_smaller_side_what_the_larger_one_decides() -> None:
    """Nodes 1 and 2 reach only node 0; it and the other four are a quorum."""
    run = cut("bridge", [0, 1, 2])
    assert set(run.contributors(CUT_S + 12, HEAL_S)) == {5}
    assert min(run.heights(HEAL_S)) >= max(run.heights(HEAL_S)) - 1 > 12


def test_a_bridge_between_sides_that_are_no_quorum_decides_nothing() -> None:
    assert cut("bridge", [0, 1, 2, 3]).contributors(CUT_S + 1, HEAL_S) == []


def test_a_partition_that_flaps_slows_rounds_and_breaks_no_connection() -> None:
    calm = walked(scenario(count=7, rounds=30))
    run = cut("flapping", [0, 1, 2], period_s=2.0)
    assert set(run.contributors(0, 1e6)) == {7}
    assert calm.world.now_ns + 10 * NS < run.world.now_ns < 2 * calm.world.now_ns


def test_what_is_held_for_a_while_comes_afterwards_and_nothing_is_lost() -> None:
    """Held while it trains: its update is there with the others'."""
    calm = walked(scenario(count=7))
    hold = {"kind": "hold", "nodes": [3], "at_s": CUT_S, "for_s": 1.0}
    run = walked(scenario(count=7, faults=[hold]))
    assert run.world.now_ns == calm.world.now_ns
    assert run.world.books.sets == calm.world.books.sets
    longer = walked(scenario(count=7, faults=[{**hold, "for_s": 100.0}]))
    assert set(longer.contributors(CUT_S + 12, CUT_S + 100)) == {6}


def test_faults_that_overlap_heal_each_for_itself() -> None:
    both = [
        {"kind": "partition", "nodes": [0, 1], "at_s": CUT_S, "for_s": 100.0},
        {"kind": "hold", "nodes": [1, 2], "at_s": CUT_S + 50, "for_s": 100.0},
    ]
    run = walked(scenario(count=7, rounds=30, faults=both))
    assert set(run.contributors(CUT_S + 12, CUT_S + 50)) == {5}
    assert run.contributors(CUT_S + 51, CUT_S + 100) == []  # four are left
    assert set(run.contributors(CUT_S + 125, CUT_S + 150)) == {5}
    slow = {"kind": "slow", "nodes": [0], "factor": 1000, "at_s": 0.0}
    short = {**slow, "factor": 2, "at_s": CUT_S, "for_s": 1.0}
    assert set(walked(scenario(count=7, faults=[slow, short])).contributors(60, 1e6)) == {6}


def test_a_loss_slows_streams_as_the_literature_says() -> None:
    """Mathis et al. 1997: MSS / RTT times the root of 3 / (2 b p); far less where loss is large."""
    assert stream_rate(0.0001, 0.1) == pytest.approx(1460 / 0.1 * (0.75 / 0.0001) ** 0.5, rel=0.02)
    assert stream_rate(0.1, 0.1) < 0.5 * 1460 / 0.1 * (0.75 / 0.1) ** 0.5
    rates = [stream_rate(loss, 0.1) for loss in (0.0, 0.001, 0.01, 0.1, 1.0)]
    assert all(more > less > 0 for more, less in pairwise(rates))


def test_a_node_on_a_lossy_link_is_left_out_until_it_has_healed() -> None:
    loss = {"kind": "loss", "nodes": [3], "percent": 5, "at_s": CUT_S, "for_s": 100.0}
    run = walked(scenario(count=7, rounds=20, faults=[loss]))
    assert set(run.contributors(CUT_S + 12, CUT_S + 100)) == {6}
    assert set(run.contributors(CUT_S + 125, 1e6)) == {7}


NODES = [NodeId(bytes([65 + k]) * 32) for k in range(7)]


def reach_of(stakes: list[int]) -> Reach:
    validators = (Validator(n, s) for n, s in zip(NODES, stakes, strict=True))
    return Reach(stakes, Committee(tuple(validators)))


def test_who_reaches_a_quorum_decides_and_tells_whom_it_reaches() -> None:
    reach = reach_of([1] * 7)
    assert reach.is_simple
    bridge = Cut((frozenset({0, 1}), frozenset({1, 2, 3, 4, 5, 6})), 0)
    reach.set_cuts([bridge], NS)
    assert [reach.decides(n) for n in range(7)] == [False] + [True] * 6
    assert all(reach.is_told(n) for n in range(7))
    assert reach.linked(0, 1)
    assert not reach.linked(0, 2)
    reach.set_up(1, False)  # the bridge itself
    assert not reach.is_told(0)
    assert reach.weight(2) == 5
    reach.set_up(6, False)
    assert not reach.has_quorum
    assert not reach.is_told(2)


def test_a_cut_is_noticed_once_connections_break() -> None:
    reach = reach_of([1] * 7)
    halves = Cut((frozenset({0, 1}), frozenset({2, 3, 4, 5, 6})), 0)
    reach.set_cuts([halves], NS)
    assert reach.is_whole
    assert reach.sees(reach.view(2), 0)
    reach.set_cuts([halves], BREAK_S * NS)
    assert not reach.is_whole
    assert not reach.sees(reach.view(2), 0)
    assert reach.sees(reach.widest_view(), 6)
