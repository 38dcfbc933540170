"""Four daemons lose more than a process: directories, their quorum, a long while, all of them.

One cluster goes through the tests in order; first, as long as all are well, monitoring programs
read what the four tell. Whatever was lost, the network goes on once a quorum is
back, whoever was away catches up, and nobody forks: that is looked at once more at the end.
"""

import re
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from daa_node.agreement.wan_bft import DRAIN_S_MAX
from tests.scenarios.little_cluster import (
    LittleCluster,
    Node,
    assert_verified,
    height,
    named,
    published,
    says,
    until,
)
from tests.scenarios.read_by_others import (
    RoundSpans,
    check_described,
    check_round,
    sample_name,
    scraped,
    traced,
)

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("warm")]

ROUNDS_FROZEN = 4
WATCHED = "api: {listen: '127.0.0.1:0'}\ntraces: {file: true}\n"
DESCRIBED = (
    *("status", "peers", "rounds", "validators", "settings", "contributions"),
    *("history/rounds", "history/decisions", "history/spans"),
)
DOC = Path(__file__).parents[2] / "docs/operator-api.md"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LittleCluster]:
    made = LittleCluster(tmp_path_factory.mktemp("lost") / "cluster")
    for node in made.nodes:
        with (node.directory / "config.yaml").open("a") as config:
            config.write(WATCHED)
    try:
        made.start()
        all_reach(made, 5)
        yield made
    finally:
        made.close()


def all_reach(cluster: LittleCluster, wanted: int) -> None:
    until(
        f"height {wanted} on all",
        lambda: all(height(node) >= wanted for node in cluster.nodes),
        cluster.nodes,
    )


def all_contribute(cluster: LittleCluster, since_s: float) -> None:
    def whole(node: Node) -> bool:
        rounds = [event for event in published(node) if event["ts"] > since_s]
        return any(event["contributors"] == len(cluster.nodes) for event in rounds)

    until(
        "a set with everybody's contribution",
        lambda: all(whole(node) for node in cluster.nodes),
        cluster.nodes,
    )


def test_metrics_of_the_four_are_read_by_prometheus_own_reader_and_documented(
    cluster: LittleCluster,
) -> None:
    documented = set(re.findall(r"^\| `(daa_\w+)", DOC.read_text(encoding="utf-8"), re.MULTILINE))
    told_by = set()
    for node in cluster.nodes:
        status = node.status()
        assert status is not None
        told = scraped(node.directory, status["api"]["url"])
        assert {sample_name(family) for family in told.values()} == documented
        (who,) = told["daa_node_info"].samples
        told_by.add((who.labels["node_id"], who.labels["chain_id"]))
        assert told["daa_height"].samples[0].value >= status["height"]
        assert told["daa_validators"].samples[0].value == len(cluster.nodes)
        events = {one.labels["name"]: one.value for one in told["daa_events"].samples}
        assert events["round_finalized"] >= status["height"]
    chain_id = cluster.genesis.chain_id.hex()
    assert told_by == {(node.node_id.hex(), chain_id) for node in cluster.nodes}


def test_what_the_four_answer_is_what_their_api_says_of_itself(cluster: LittleCluster) -> None:
    for node in cluster.nodes:
        status = node.status()
        assert status is not None
        answered = check_described(node.directory, status["api"]["url"])
        assert answered >= {"/readyz", "/metrics"}
        assert answered >= {f"/v1/{name}" for name in DESCRIBED}


def test_traces_of_the_four_are_read_by_opentelemetry_s_own_messages(
    cluster: LittleCluster,
) -> None:
    def traced_by_all() -> list[list[RoundSpans]]:
        """The rounds that all have walked to the end, each as the four saw it."""
        of_nodes = [traced(node.directory) for node in cluster.nodes]
        ids = set[bytes].intersection(*map(set[bytes], of_nodes))
        found = [[rounds[trace_id] for rounds in of_nodes] for trace_id in ids]
        return [of_round for of_round in found if all(spans.is_final for spans in of_round)]

    for of_round in until("a round that all have traced", traced_by_all, cluster.nodes):
        for spans in of_round:
            check_round(spans)
        assert [spans.node_id for spans in of_round] == [n.node_id.hex() for n in cluster.nodes]
        assert len({spans.chain_id for spans in of_round}) == 1
        rounds = {one.value.int_value for spans in of_round for one in spans.root.attributes
                  if one.key == "daa.round"}  # fmt: skip
        assert len(rounds) == 1
        own = [span.span_id for spans in of_round for span in (spans.root, *spans.parts)]
        assert len(own) == len({*own})
        names = {span.name for spans in of_round for span in spans.parts}
        assert {"train", "seal", "collect", "decide", "execute", "certify", "publish"} <= names


def test_two_of_four_say_that_they_wait_and_a_third_without_its_chain_lets_them_go_on(
    cluster: LittleCluster,
) -> None:
    here, away = cluster.nodes[:2], cluster.nodes[2:]
    marks = [node.events.mark() for node in here]
    for node in away:
        node.kill()
    for node, mark in zip(here, marks, strict=True):
        told = node.wait_event(named("quorum_wait", waiting=True), mark, "no quorum")
        assert (told["reachable"], told["total"], told["quorum"]) in [(2, 4, 3), (1, 4, 3)]
    until(
        "both say whom they wait for",
        lambda: all(
            str((node.status() or {}).get("waiting")).startswith("2 of 4 reachable, waiting")
            for node in here
        ),
        cluster.nodes,
    )
    reached = [height(node) for node in here]
    third = away[0]
    shutil.rmtree(third.directory / "chain")
    mark = third.events.mark()
    third.start()
    # Its log and guard are whole: it remembers what it signed, so it need not be trusted anew.
    third.wait_event(named("round_finalized", height=max(reached) + 1), mark, "on it goes")
    assert third.events.count("quarantined", mark) == 0
    assert third.events.count("caught_up", mark) >= 1
    until(
        "the two go on",
        lambda: all(height(node) > max(reached) for node in here),
        cluster.nodes,
    )


def test_a_node_without_its_work_directory_comes_back(cluster: LittleCluster) -> None:
    fourth = cluster.nodes[3]
    shutil.rmtree(fourth.directory / "work")
    started_s = time.time()
    fourth.start()
    all_contribute(cluster, started_s)


def test_a_node_that_forgot_what_it_signed_observes_until_its_rejoin_is_final(
    cluster: LittleCluster,
) -> None:
    node = cluster.nodes[1]
    node.kill()
    # The chain as well: that its keys have signed is then all that it knows.
    for lost in ("agreement", "chain"):
        shutil.rmtree(node.directory / lost)
    mark = node.events.mark()
    started_s = time.time()
    node.start()
    node.wait_event(named("quarantined"), mark, "it knows that it forgot")
    rejoined = node.wait_event(named("rejoined"), mark, "the others let it in again")
    vote = node.wait_event(says("notarize"), mark, "it votes again")
    assert vote["ts"] > rejoined["ts"]
    assert vote["view"] >= rejoined["view"] + 2
    before = [event for event in node.events.since(mark) if event["ts"] < rejoined["ts"]]
    assert {event["kind"] for event in before if event["name"] == "statement_sent"} <= {"ack"}
    all_contribute(cluster, started_s)
    # What it asked for is settled: nobody carries it along for ever.
    assert node.events.count("rejoined", mark) == 1


def test_a_daemon_that_was_suspended_for_some_rounds_catches_up(
    cluster: LittleCluster,
) -> None:
    sleeper, witness = cluster.nodes[2], cluster.nodes[0]
    mark = sleeper.events.mark()
    sleeper.running.send_signal(signal.SIGSTOP)
    asleep_at = height(witness)
    until(
        f"{ROUNDS_FROZEN} rounds go by without it",
        lambda: height(witness) >= asleep_at + ROUNDS_FROZEN,
        cluster.nodes,
    )
    woken_s = time.time()
    sleeper.running.send_signal(signal.SIGCONT)
    sleeper.wait_event(named("caught_up"), mark, "a page")
    all_contribute(cluster, woken_s)


@pytest.mark.parametrize("moment", [says("notarize"), named("exec_certified")])
def test_all_killed_at_once_go_on_from_where_they_were(
    cluster: LittleCluster, moment: object
) -> None:
    node = cluster.nodes[3]
    node.wait_event(moment, node.events.mark(), "the moment")  # type: ignore[arg-type]
    for each in cluster.nodes:
        each.running.send_signal(signal.SIGKILL)
    for each in cluster.nodes:
        each.gone()
    reached = max(height(each) for each in cluster.nodes)
    marks = [each.events.mark() for each in cluster.nodes]
    cluster.start()
    all_reach(cluster, reached + 1)
    for each, mark in zip(cluster.nodes, marks, strict=True):
        # An Offer of the life before is sent again, not made anew and refused.
        assert each.events.count("vote_refused", mark) == 0
        faults = [e for e in each.events.since(mark) if e["name"] == "peer_fault"]
        # Whoever was killed in the middle of its training may come late; that costs it one point.
        assert {fault["reason"] for fault in faults} <= {"late_offer"}


def test_all_stopped_and_started_again_go_on(cluster: LittleCluster) -> None:
    asked_s, marks = time.time(), [node.events.mark() for node in cluster.nodes]
    for node in cluster.nodes:
        node.running.send_signal(signal.SIGTERM)
    assert [node.gone() for node in cluster.nodes] == [0] * 4
    for node, mark in zip(cluster.nodes, marks, strict=True):
        (stopped,) = (e for e in node.events.since(mark) if e["name"] == "node_stopped")
        # Who is left alone in a round does not wait for it to the end of a drain's time.
        assert stopped["ts"] - asked_s < DRAIN_S_MAX
    reached = max(height(node) for node in cluster.nodes)
    cluster.start()
    all_reach(cluster, reached + 1)


def test_nobody_forked_and_every_chain_verifies(cluster: LittleCluster) -> None:
    for node in cluster.nodes:
        node.running.send_signal(signal.SIGTERM)
        told = {event["name"] for event in node.events.since(0)}
        assert not told & {"evidence_found", "peer_banned"}
    assert [node.gone() for node in cluster.nodes] == [0] * 4
    at_height = defaultdict(set)
    for node in cluster.nodes:
        for event in published(node):
            at_height[event["height"]].add(event["vertex_id"])
    assert all(len(vertices) == 1 for vertices in at_height.values())
    assert_verified(cluster.nodes)
