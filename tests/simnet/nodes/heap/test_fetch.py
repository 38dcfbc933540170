"""A checkpoint reaches everybody over the mesh: past deaths, cuts, liars and slow links."""

import os
import subprocess
import sys
from typing import Any

import pytest

from daa_dag.fetch import ChunkArrived, Fetch
from daa_node.errors import UserError
from simnet.checks.outcome import Outcome
from simnet.nodes.heap.fetch import EVERYBODY, HONEST, RIGHT, Spread, run_fetch
from simnet.nodes.heap.fetch_node import Announce, Answer, Disk, FetchNode, Message, Request
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario
from simnet.world.scenario_file import open_scenario


def scenario(**fields: Any) -> Scenario:
    plain: dict[str, Any] = {
        "name": "test",
        "seed": 1,
        "fidelity": "heap",
        "duration_s": 90,
        "nodes": [{"count": 40}],
        "topology": {"preset": "regional"},
        "work": {"kind": "fetch", "chunks": 20, "chunk_bytes": 4096},
        "checks": {"heal_s": 60},
    }
    return Scenario.model_validate(plain | fields)


def played(**fields: Any) -> Outcome:
    return run_fetch(scenario(**fields), Trace())


def broken(outcome: Outcome) -> list[str]:
    return [invariant.name for invariant in outcome.invariants if not invariant.ok]


def hits(outcome: Outcome, name: str) -> int:
    return next(mark.hits for mark in outcome.sometimes if mark.name == name)


def test_a_hundred_nodes_have_it_soon_and_mostly_from_each_other() -> None:
    outcome = played(nodes=[{"count": 120}])
    assert not broken(outcome)
    assert len(outcome.final_roots) == 1
    assert outcome.facts["whole_share"] == 1.0
    assert outcome.facts["share_from_holders"] < 0.25
    assert 1.0 <= outcome.facts["sent_bytes_over_needed"] < 1.3


def test_who_is_not_whole_when_a_run_ends_too_early_is_told() -> None:
    outcome = played(duration_s=0.3)
    assert broken(outcome) == [EVERYBODY]
    assert outcome.facts["whole_share"] < 1


def test_a_situation_that_is_wanted_and_not_met_is_told() -> None:
    assert broken(played(checks={"sometimes": ["liar banned"]})) == ["sometimes liar banned"]


def test_a_slower_link_takes_longer_by_what_its_rate_says() -> None:
    full: dict[str, Any] = {"kind": "fetch", "chunks": 16, "chunk_bytes": 1 << 18}
    two = [{"count": 2}]
    job = {"nodes": two, "work": full | {"holders": 1}}
    quick = played(topology={"preset": "regional", "mbit_s": 80.0}, **job)
    slow = played(topology={"preset": "regional", "mbit_s": 8.0}, **job)
    wire_ms = 16 * (1 << 18) * 8 / 8e6 * 1e3  # 4 MiB over 8 Mbit/s
    more_ms = slow.facts["whole_ms_last"] - quick.facts["whole_ms_last"]
    assert more_ms == pytest.approx(wire_ms * 0.9, rel=0.1)


def test_the_dead_resume_with_what_they_hold_and_fetch_nothing_twice() -> None:
    slow: dict[str, Any] = {"preset": "regional", "mbit_s": 1.0}
    kill = {"kind": "kill", "at_s": 1.5, "for_s": 10, "nodes": tuple(range(20))}
    outcome = played(topology=slow, faults=[kill])
    assert not broken(outcome)
    assert hits(outcome, "resumed after a death") > 20


def test_who_never_comes_back_is_not_waited_for_and_who_does_not_finish_is_named() -> None:
    gone = {"kind": "kill", "at_s": 0.2, "nodes": (5, 6)}
    outcome = played(faults=[gone])
    assert not broken(outcome)
    cut = {"kind": "partition", "shape": "isolate", "at_s": 0.0, "nodes": (7,)}
    parted = played(faults=[cut])
    assert broken(parted) == [EVERYBODY]
    assert "node 7" in parted.invariants[0].detail
    assert parted.final_roots == ()


@pytest.mark.parametrize("shape", ["halves", "one_way", "flapping", "isolate"])
def test_after_a_partition_everybody_finishes(shape: str) -> None:
    cut = {"kind": "partition", "shape": shape, "at_s": 0.3, "for_s": 25}
    assert not broken(played(faults=[cut]))


@pytest.mark.parametrize("kind", ["hold", "slow", "loss", "pause", "attrition"])
def test_other_faults_only_cost_time(kind: str) -> None:
    fault: dict[str, Any] = {"kind": kind, "at_s": 0.5, "for_s": 10}
    if kind in ("loss", "attrition"):
        fault["percent"] = 50
    outcome = played(faults=[fault], topology={"preset": "wan"})
    assert not broken(outcome)


@pytest.mark.parametrize("kind", ["babbler", "withholder", "staller"])
def test_liars_cost_time_and_no_chunk_of_theirs_is_kept(kind: str) -> None:
    liars = [{"kind": kind, "count": 8}]
    outcome = played(adversaries=liars)
    assert not broken(outcome)
    assert outcome.facts["whole_share"] == 1.0
    if kind == "babbler":
        assert hits(outcome, "wrong chunk refused") > 8
        assert hits(outcome, "liar banned") > 0


def test_a_machine_that_takes_any_bytes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daa_dag.fetch.digest_of", lambda payload: Anything())
    outcome = played(adversaries=[{"kind": "babbler", "count": 8}])
    assert RIGHT in broken(outcome)


class Anything(bytes):
    """Equal to every digest."""

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def test_an_honest_node_that_is_accused_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Fetch.step

    def suspicious(self: Fetch, event: Any) -> Any:
        if isinstance(event, ChunkArrived) and event.index == 3:
            event = ChunkArrived(event.peer, event.index, b"not this")
        return plain(self, event)

    monkeypatch.setattr(Fetch, "step", suspicious)
    assert HONEST in broken(played())


def test_what_the_heap_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"heap fetch has no poisoner: adversaries\[0\]"):
        played(adversaries=[{"kind": "poisoner"}])
    with pytest.raises(UserError, match=r"heap fetch has no disk: faults\[0\]"):
        played(faults=[{"kind": "disk", "at_s": 1}])
    with pytest.raises(UserError, match="41 holders, but only 40 honest nodes"):
        played(work={"kind": "fetch", "holders": 41})


def test_a_node_asks_a_peer_again_for_what_it_has_gained_since() -> None:
    world = Spread(scenario(), Trace())
    sent: list[tuple[int, Message]] = []
    one = FetchNode(world.manifest, Disk(), 0, lambda peer, message: sent.append((peer, message)))
    one.on_announce(0, 9, Announce(frozenset({4}), 20))
    assert sent == [(9, Request(4))]
    one.on_announce(1, 9, Announce(frozenset({4, 5}), 20))
    assert len(sent) == 1  # it owes chunk 4: told later
    one.on_answer(2, 9, Answer(4, world.chunks[4], 0))
    assert sent == [(9, Request(4)), (9, Request(5))]


def test_rarest_chunks_come_first() -> None:
    world = Spread(scenario(), Trace())
    sent: list[tuple[int, Message]] = []
    one = FetchNode(world.manifest, Disk(), 0, lambda peer, message: sent.append((peer, message)))
    one.on_announce(0, 1, Announce(frozenset({1}), 20))
    one.on_announce(0, 2, Announce(frozenset({1, 2}), 20))
    one.on_announce(0, 3, Announce(frozenset({0, 1, 2}), 20))
    assert sent == [(1, Request(1)), (2, Request(2)), (3, Request(0))]


CANARY = """
import sys
from simnet.world.determinism import Trace
from simnet.nodes.heap.fetch import run_fetch
from simnet.world.scenario import Scenario
print(run_fetch(Scenario.model_validate_json(sys.argv[1]), Trace()).trace_hash)
"""


def test_two_fresh_processes_spread_one_seed_alike() -> None:
    text = scenario(
        faults=[{"kind": "attrition", "at_s": 0.5, "for_s": 5, "percent": 100, "away_s": (1, 3)}],
        adversaries=[{"kind": "babbler", "count": 4}, {"kind": "staller", "count": 2}],
    ).model_dump_json()
    hashes = {
        subprocess.run(
            [sys.executable, "-c", CANARY, text],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(hashes) == 1
    assert played(seed=2).trace_hash not in hashes


def test_the_shipped_scenario_holds_for_fewer_nodes() -> None:
    shipped = open_scenario("fetch")
    assert shipped.why
    assert shipped.node_count == 1000
    groups = (shipped.nodes[0].model_copy(update={"count": 100}),)
    outcome = run_fetch(shipped.model_copy(update={"nodes": groups}), Trace())
    assert not broken(outcome)
    assert all(hits(outcome, name) for name in shipped.checks.sometimes)
