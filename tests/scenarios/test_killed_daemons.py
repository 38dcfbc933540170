"""One cluster of four daemons goes through a dozen deaths, one by one, and no harm is done.

Every test kills one daemon with SIGKILL at one moment of a round, as its own event log tells it.
The other three must certify the next vertex; the killed one comes back, catches up and contributes
again within two rounds. At the end nobody has signed two different things for one slot.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from daa_consensus.votes import Kind
from daa_node.spot_checks.config import SpotChecksConfig
from tests.scenarios.little_cluster import (
    LOOK_S,
    TINY,
    WAIT_S,
    Event,
    LittleCluster,
    Node,
    assert_verified,
    height,
    named,
    published,
    says,
    until,
    words_in_log,
)

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("warm")]

ROUNDS_TO_COME_BACK = 2
# A leader that is gone costs two delays of its view, a round without a member a second of grace.
NEXT_VERTEX_S = 180.0
ROUNDS_AWAY = 10  # more than two pages


# Most of what anybody has committed to is asked for, so what a death has lost would be missed.
CHECKED = TINY.model_copy(update={"spot_checks": SpotChecksConfig(share=(1, 2))})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LittleCluster]:
    made = LittleCluster(tmp_path_factory.mktemp("killed") / "cluster", CHECKED)
    try:
        made.start()
        until("a first vertex on all", lambda: all(height(n) >= 1 for n in made.nodes), made.nodes)
        yield made
    finally:
        made.close()


def first(nodes: list[Node], wanted: Callable[[Node, Event], bool], what: str) -> Node:
    """Which node's log has a wanted event first, from now on."""
    looked_at = {node.index: node.events.mark() for node in nodes}
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        for node in nodes:
            new = node.events.since(looked_at[node.index])
            looked_at[node.index] += len(new)
            if any(wanted(node, event) for event in new):
                return node
        time.sleep(LOOK_S)
    raise AssertionError(f"nobody ever: {what}")


def leads(cluster: LittleCluster, node: Node) -> bool:
    """Whether the node leads the view that it stands in."""
    entered = next(e for e in reversed(node.events.seen) if e["name"] == "view_entered")
    return cluster.leader(entered["epoch"], entered["view"]) is node


def closes(event: Event) -> bool:
    """The window has ended: its leader proposes next."""
    return event["name"] == "decision" and str(event["decision"]).startswith("close round")


ANYBODYS = {
    "while training": named("round_started"),
    "right after its Offer": says("offer"),
    "while acks fly": says("ack"),
    "after Notarize": says("notarize"),
    "after Finalize": says("finalize"),
    "while aggregating": named("set_decided"),
    "after Exec": says("exec"),
    "while publishing": named("block_finalized", payload="ResultPayload"),
}
LEADERS = {
    "right before its Proposal": closes,
    "right after its Proposal": says("proposal"),
}


@pytest.fixture(scope="module")
def figures() -> Iterator[list[str]]:
    lines: list[str] = []
    yield lines
    print("\n" + "\n".join(lines))


def came_back(cluster: LittleCluster, victim: Node, since: int, started_s: float) -> int:
    """Waits until all four contribute; in how many rounds it took part for that, caught up."""
    witness = cluster.others(victim)[0]

    def whole() -> list[int]:
        rounds = [e for e in published(witness) if e["ts"] > started_s]
        return [int(e["round"]) for e in rounds if e["contributors"] == len(cluster.nodes)]

    came_in: int = until(f"node {victim.index} contributes", whole, cluster.nodes)[0]
    opened: list[int] = []  # since it last had to catch up
    for event in victim.events.since(since):
        if event["name"] == "caught_up":
            opened.clear()
        elif event["name"] == "round_started" and event["round"] <= came_in:
            opened.append(int(event["round"]))
    return came_in - opened[0] + 1


def die_and_come_back(cluster: LittleCluster, victim: Node, what: str, figures: list[str]) -> None:
    """Check all that is promised of one death; the victim is gone already."""
    died_s, others = time.time(), cluster.others(victim)
    reached = max(height(node) for node in cluster.nodes)
    until(
        f"the others certify the vertex after {reached}, {what}",
        lambda: all(height(node) > reached for node in others),
        cluster.nodes,
        NEXT_VERTEX_S,
    )
    next_vertex_s = min(
        event["ts"] for node in others for event in published(node) if event["height"] > reached
    )
    mark = victim.events.mark()
    started_s = time.time()
    victim.start()
    rounds = came_back(cluster, victim, mark, started_s)
    figures.append(
        f"{what}: next vertex {next_vertex_s - died_s:.2f} s, back after "
        f"{time.time() - started_s:.2f} s and {rounds} rounds"
    )
    assert rounds <= ROUNDS_TO_COME_BACK, figures[-1]


@pytest.mark.parametrize("moment", [*ANYBODYS, *LEADERS])
def test_a_daemon_killed_at_any_moment_costs_nothing_certified(
    cluster: LittleCluster, figures: list[str], moment: str
) -> None:
    if moment in ANYBODYS:
        victim = cluster.nodes[list(ANYBODYS).index(moment) % len(cluster.nodes)]
        first([victim], lambda _, event: ANYBODYS[moment](event), moment)
    else:
        victim = first(
            cluster.nodes,
            lambda node, event: LEADERS[moment](event) and leads(cluster, node),
            moment,
        )
    victim.kill()
    die_and_come_back(cluster, victim, moment, figures)


def test_a_daemon_killed_again_while_it_restores_comes_back_all_the_same(
    cluster: LittleCluster, figures: list[str]
) -> None:
    victim = cluster.nodes[2]
    first([victim], lambda _, event: event["name"] == "round_started", "a round")
    victim.kill()
    mark = victim.events.mark()
    victim.start()
    # Its worker is there; what comes next is the chain, the signer's log and the state.
    victim.wait_event(named("trainer_started"), mark, "started")
    victim.kill()
    assert not any(event["name"] == "checkpoint_restored" for event in victim.events.since(mark))
    die_and_come_back(cluster, victim, "twice in a row, while restoring", figures)


def test_a_daemon_killed_while_it_catches_up_with_many_rounds_comes_back_all_the_same(
    cluster: LittleCluster, figures: list[str]
) -> None:
    victim = cluster.nodes[3]
    victim.kill()
    left_at, witness = height(victim), cluster.nodes[0]
    until(
        f"{ROUNDS_AWAY} rounds go by without it",
        lambda: height(witness) >= left_at + ROUNDS_AWAY,
        cluster.nodes,
    )
    mark = victim.events.mark()
    victim.start()
    victim.wait_event(named("caught_up"), mark, "a first page")
    victim.kill()
    assert height(victim) < height(witness)
    die_and_come_back(cluster, victim, "while catching up", figures)
    assert victim.events.count("caught_up", mark) > 1


def test_nobody_has_signed_two_things_for_one_slot_and_every_chain_verifies(
    cluster: LittleCluster,
) -> None:
    for node in cluster.nodes:
        told = {event["name"] for event in node.events.since(0)}
        assert not told & {"evidence_found", "quarantined", "round_aborted", "peer_banned"}
        # Whatever moment it died at, it has shown what it had committed to.
        assert "author_shunned" not in told
        node.running.send_signal(signal.SIGTERM)
    assert [node.gone() for node in cluster.nodes] == [0] * 4
    for node in cluster.nodes:
        words = words_in_log(node)
        assert max(Counter(words).values()) == 1
        # In its log are the votes of every life that it had.
        assert {Kind.PROPOSAL, Kind.NOTARIZE, Kind.FINALIZE, Kind.OFFER, Kind.EXEC} <= {
            kind for kind, _, _ in words
        }
    assert_verified(cluster.nodes)
