"""What is published reaches everybody who can be reached, whatever the links and nodes do."""

import json
import os
import random
import subprocess
import sys
from typing import Any

import pytest

from daa_node.errors import UserError
from simnet.checks.outcome import Outcome
from simnet.nodes.heap import gossip
from simnet.nodes.heap.gossip import DELIVERED, MEMORY, run_gossip
from simnet.nodes.heap.gossip_core import (
    GOSSIP_WINDOWS,
    HISTORY_WINDOWS,
    LAZY_PEERS,
    Data,
    GossipNode,
    Have,
    Limits,
    Want,
)
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario
from simnet.world.scenario_file import open_scenario

BUSY = {"kind": "gossip", "messages": 100}
SMALL = Limits(seen_max=8, cached_max=4, ids_max=3, hints_max=2)


def node(limits: Limits = SMALL) -> GossipNode:
    return GossipNode((1, 2, 3), tuple(range(10, 20)), random.Random(1), limits)


def scenario(**fields: Any) -> Scenario:
    plain: dict[str, Any] = {
        "name": "test",
        "seed": 1,
        "fidelity": "heap",
        "duration_s": 45,
        "nodes": [{"count": 60}],
        "topology": {"preset": "regional"},
        "work": {"kind": "gossip", "messages": 30},
        "checks": {"heal_s": 10},
    }
    return Scenario.model_validate(plain | fields)


def played(**fields: Any) -> Outcome:
    return run_gossip(scenario(**fields), Trace())


def hits(outcome: Outcome, name: str) -> int:
    return next(mark.hits for mark in outcome.sometimes if mark.name == name)


def test_a_situation_that_is_wanted_and_not_met_is_told() -> None:
    outcome = played(checks={"heal_s": 10, "sometimes": ["published while parted"]})
    (told,) = (invariant.name for invariant in outcome.invariants if not invariant.ok)
    assert told == "sometimes published while parted"


def test_new_data_goes_to_the_mesh_but_not_back_and_only_once() -> None:
    one = node()
    assert one.on_data(2, Data(7, 100)) == ((Data(7, 100), [1, 3]),)
    assert one.on_data(1, Data(7, 100)) is None
    assert one.publish(Data(8, 100)) == ((Data(8, 100), (1, 2, 3)),)


def test_a_heartbeat_hints_to_peers_outside_the_mesh_while_the_news_is_fresh() -> None:
    one = node()
    one.publish(Data(7, 100))
    for _ in range(GOSSIP_WINDOWS):
        ((have, peers),) = one.on_heartbeat()
        assert have == Have((7,))
        assert len(set(peers)) == LAZY_PEERS
        assert set(peers) <= set(range(10, 20))
    assert one.on_heartbeat() == ()
    assert one.on_want(10, Want((7,))) == [(Data(7, 100), (10,))]
    for _ in range(HISTORY_WINDOWS - GOSSIP_WINDOWS - 1):
        one.on_heartbeat()
    assert one.on_want(10, Want((7,))) == []


def test_what_a_hint_names_and_we_lack_is_asked_for() -> None:
    one = node()
    one.publish(Data(7, 100))
    assert one.on_have(10, Have((7, 8))) == ((Want((8,)), (10,)),)
    assert one.on_have(10, Have((7,))) == ()


def test_a_flood_of_hints_is_answered_in_part() -> None:
    one = node()
    assert one.on_have(10, Have((1, 2, 3, 4))) == ((Want((1, 2, 3)), (10,)),)
    assert one.on_have(10, Have((5,)))
    assert not one.on_have(10, Have((6,)))
    assert one.on_have(11, Have((6,)))
    one.on_heartbeat()
    assert one.on_have(10, Have((6,)))


def test_caches_keep_the_newest_within_their_limits() -> None:
    one = node()
    for key in range(100):
        one.on_data(1, Data(key, 1))
        assert one.within_limits()
    wanted = one.on_want(10, Want((95, 96, 99)))
    assert [data for data, _ in wanted] == [Data(96, 1), Data(99, 1)]
    assert one.on_data(1, Data(92, 1)) is None
    assert one.on_data(1, Data(91, 1)) is not None


@pytest.mark.parametrize("preset", ["local", "wan", "mobile", "datacenter", "three_tier"])
def test_everybody_gets_everything_over_every_kind_of_link(preset: str) -> None:
    outcome = played(topology={"preset": preset})
    assert outcome.ok, outcome.invariants
    assert outcome.facts["published"] == 30
    assert outcome.facts["delivered_share"] == 1.0


def test_latency_grows_with_the_links() -> None:
    near, far = played(topology={"preset": "local"}), played(topology={"preset": "wan"})
    assert near.facts["latency_ms_p99"] < 20 < 100 < far.facts["latency_ms_p50"]
    assert near.facts["latency_ms_p50"] <= near.facts["latency_ms_p99"]


def test_lazy_gossip_repairs_what_a_very_lossy_network_loses() -> None:
    lossy: dict[str, Any] = {"topology": {"preset": "regional", "loss_percent": 40, "degree": 4}}
    outcome = played(**lossy)
    assert outcome.ok, outcome.invariants
    assert hits(outcome, "repaired by lazy gossip") > 100
    assert outcome.facts["messages_lost"] > 1000


def test_without_lazy_gossip_such_a_network_loses_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test before proves something."""
    monkeypatch.setattr(gossip, "LAZY_DEGREE", 2)
    monkeypatch.setattr(GossipNode, "on_have", lambda *_: ())
    outcome = played(topology={"preset": "regional", "loss_percent": 40, "degree": 4})
    assert [i.name for i in outcome.invariants if not i.ok] == [DELIVERED]
    assert outcome.facts["delivered_share"] < 1


@pytest.mark.parametrize("shape", ["halves", "bridge", "one_way", "isolate", "flapping"])
def test_a_partition_keeps_messages_in_and_after_it_everybody_gets_everything(shape: str) -> None:
    cut = {"kind": "partition", "shape": shape, "at_s": 5, "for_s": 15}
    outcome = played(faults=[cut])
    assert outcome.ok, outcome.invariants
    assert hits(outcome, "published while parted") > 5
    assert hits(outcome, "published after healing") > 5
    if shape in ("halves", "isolate"):
        assert outcome.facts["delivered_share"] < 1
    assert outcome.facts["messages_lost"] > 0


@pytest.mark.parametrize("kind", ["hold", "slow", "loss", "kill", "pause", "attrition"])
def test_faults_of_nodes_and_links_cost_nobody_else_a_message(kind: str) -> None:
    fault: dict[str, Any] = {"kind": kind, "at_s": 5, "for_s": 15}
    if kind in ("loss", "attrition"):
        fault["percent"] = 30
    if kind != "attrition":
        fault["nodes"] = tuple(range(20))
    outcome = played(faults=[fault])
    assert outcome.ok, outcome.invariants
    assert outcome.trace_hash != played().trace_hash
    assert hits(outcome, "published after healing") > 5


def test_the_dead_hear_nothing_and_the_frozen_hear_later() -> None:
    faulty = {"at_s": 1, "for_s": 8, "nodes": tuple(range(1, 31))}
    dead = played(faults=[faulty | {"kind": "kill"}], duration_s=60, work=BUSY)
    frozen = played(faults=[faulty | {"kind": "pause"}], duration_s=60, work=BUSY)
    assert dead.facts["delivered_share"] < frozen.facts["delivered_share"] == 1.0
    assert frozen.facts["latency_ms_p99"] > 1000


def test_a_link_that_was_very_slow_does_not_hold_back_what_is_sent_once_it_is_quick() -> None:
    slow = {"kind": "slow", "at_s": 1, "for_s": 9, "factor": 1000, "nodes": tuple(range(40))}
    outcome = played(topology={"preset": "wan"}, faults=[slow], work=BUSY)
    assert outcome.ok, outcome.invariants
    assert hits(outcome, "published after healing") > 50


def test_a_mesh_that_is_cut_for_good_breaks_no_promise() -> None:
    outcome = played(faults=[{"kind": "partition", "at_s": 5}])
    assert outcome.ok, outcome.invariants
    assert outcome.facts["delivered_share"] < 0.9


def test_more_messages_than_a_cache_holds_leave_it_within_its_limit() -> None:
    limits = Limits(seen_max=40, cached_max=20)
    outcome = run_gossip(scenario(work={"kind": "gossip", "messages": 200}), Trace(), limits)
    assert {i.name: i.ok for i in outcome.invariants}[MEMORY]
    assert outcome.facts["published"] == 200


def test_a_cache_over_its_limit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GossipNode, "within_limits", lambda _: False)
    assert [i.name for i in played().invariants if not i.ok] == [MEMORY]


@pytest.mark.parametrize("fault", [{"kind": "disk"}, {"kind": "clock", "skew_ms": 5}])
def test_what_gossip_does_not_have_is_refused_by_name(fault: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"heap gossip has no {fault['kind']}: faults"):
        played(faults=[{"at_s": 1} | fault])


def test_adversaries_are_refused() -> None:
    with pytest.raises(UserError, match="no adversaries"):
        played(adversaries=[{"kind": "babbler"}])


CANARY = """
import sys, json
from simnet.world.determinism import Trace
from simnet.nodes.heap.gossip import run_gossip
from simnet.world.scenario import Scenario
print(run_gossip(Scenario.model_validate_json(sys.argv[1]), Trace()).trace_hash)
"""


def test_two_fresh_processes_play_one_seed_alike_and_another_seed_otherwise() -> None:
    faults = [
        {"kind": "loss", "at_s": 1, "for_s": 20},
        {"kind": "attrition", "at_s": 5, "for_s": 10, "percent": 100, "away_s": (1, 5)},
        {"kind": "partition", "at_s": 8, "for_s": 4},
    ]
    hashes = []
    for hash_seed, seed in (("1", 5), ("2", 5), ("2", 6)):
        text = scenario(faults=faults, seed=seed).model_dump_json()
        done = subprocess.run(
            [sys.executable, "-c", CANARY, text],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        hashes.append(done.stdout)
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_message_on_a_wire_that_differs_changes_the_hash() -> None:
    one = played(work={"kind": "gossip", "messages": 3, "message_bytes": 100})
    other = played(work={"kind": "gossip", "messages": 3, "message_bytes": 101})
    assert one.trace_hash != other.trace_hash
    assert one.facts["published"] == other.facts["published"] == 3


def test_the_shipped_scenario_holds_for_fewer_nodes() -> None:
    shipped = open_scenario("gossip")
    assert shipped.why
    assert shipped.node_count == 1000
    groups = (shipped.nodes[0].model_copy(update={"count": 100}),)
    outcome = run_gossip(shipped.model_copy(update={"nodes": groups}), Trace())
    assert outcome.ok, outcome.invariants
    json.dumps(outcome.as_json())
