"""Daemons of this release and of the next one in one network, and upgrades while it trains."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from daa_dag import canonical
from daa_node.errors import PeerFault
from daa_node.network import hello
from daa_node.network.hello import Greeting
from daa_node.network.requests import Requests
from daa_node.seams import PeerId
from daa_node.wire.protocols import Versions
from simnet.checks.invariants import NO_SLANDER, PROGRESS
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.mishaps import Mishaps
from simnet.nodes.virtual.next_release import GREETING_FIELDS, NEW_REQUEST
from simnet.nodes.virtual.world import run_virtual
from simnet.pytest_plugin import RunCluster
from simnet.world.determinism import Trace
from simnet.world.scenario import ChecksConfig, Scenario

THIS, NEXT, LATER = [1, 1], [1, 2], [2, 2]  # LATER has left this release's version behind


def scenario(*nodes: dict[str, Any], rounds: int = 200) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "releases",
            "fidelity": "light",
            "duration_s": 600,
            "nodes": nodes,
            "work": {"kind": "training", "rounds": rounds, "window_s": 0.5, "step_s": 0.1},
        }
    )


async def spoken(cluster: Cluster, node: int) -> dict[int, list[int] | None]:
    """What each other node speaks, as this one has heard.

    That no honest node blames another, but for lateness, is an invariant of every run.
    """
    numbers, listed = cluster.numbers, await cluster.ask(node, "peers")
    return {numbers[peer["peer_id"]]: peer["speaks"] for peer in listed["peers"]}


@pytest.mark.parametrize("fidelity", ["light", "trio"])  # the latter with all of libp2p
def test_members_are_upgraded_one_by_one_while_the_network_trains(
    simnet_cluster: RunCluster, fidelity: str
) -> None:
    upgrade = {"speaks": NEXT, "at_s": 2, "every_s": 3, "away_s": 0.8}
    old = {"name": "old", "count": 3, "upgrade": upgrade}
    world = scenario(old, {"name": "new", "count": 1, "speaks": NEXT})

    async def script(cluster: Cluster) -> None:
        cluster.start()
        cluster.start_soon(Mishaps(cluster).run)
        assert await cluster.until_height(1, 30)
        assert await spoken(cluster, 3) == {0: THIS, 1: THIS, 2: THIS}
        assert await spoken(cluster, 0) == {1: THIS, 2: THIS, 3: NEXT}
        await trio.sleep_until(7)  # one of the old ones is left
        height = max(cluster.sightings.height(node) for node in range(4))
        assert height >= 3
        assert (await spoken(cluster, 2))[0] == NEXT
        await trio.sleep_until(9.5)
        assert await cluster.until_height(height + 3, 60)
        for node in range(4):
            assert await spoken(cluster, node) == {n: NEXT for n in range(4) if n != node}

    simnet_cluster(script, world, fidelity=fidelity)


def test_whoever_speaks_none_of_its_versions_stays_out_unblamed_until_it_does(
    simnet_cluster: RunCluster,
) -> None:
    """It loses nothing: with a release that speaks one it follows at once."""
    back = {"speaks": NEXT, "at_s": 6, "away_s": 0.5}
    world = scenario({"count": 3}, {"name": "ahead", "count": 1, "speaks": LATER, "upgrade": back})

    async def script(cluster: Cluster) -> None:
        cluster.start()
        cluster.start_soon(Mishaps(cluster).run)
        assert await cluster.until_height(2, 30, 0, 1, 2)
        assert cluster.sightings.height(3) == 0
        for node in range(3):
            assert 3 not in {n for n, said in (await spoken(cluster, node)).items() if said}
        await trio.sleep_until(7)
        height = max(cluster.sightings.height(node) for node in range(3))
        assert await cluster.until_height(height + 1, 60)
        assert (await spoken(cluster, 0))[3] == NEXT

    simnet_cluster(script, world, fidelity="light")


def blames_for_unknown_names(patch: pytest.MonkeyPatch) -> None:
    respond = Requests._response

    async def blaming(self: Requests, peer_id: PeerId, payload: bytes) -> tuple[bytes, int]:
        if canonical.decode(payload, len(payload)) == [NEW_REQUEST, b"body"]:
            self._directory.blame(peer_id, PeerFault("unknown-request"))
        return await respond(self, peer_id, payload)

    patch.setattr(Requests, "_response", blaming)


def reads_no_longer_hello(patch: pytest.MonkeyPatch) -> None:
    decode = hello.decode_greeting

    def strict(payload: bytes) -> Greeting:
        if len(canonical.decode(payload, len(payload))) != GREETING_FIELDS:
            raise PeerFault("hello-malformed", "another length")
        return decode(payload)

    patch.setattr(hello, "decode_greeting", strict)


def welcomes_its_own_version_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Versions, "meet", lambda ours, theirs: ours == theirs)


MIXED: list[dict[str, Any]] = [
    {"name": "old", "count": 2},
    {"name": "new", "count": 2, "speaks": NEXT},
]


@pytest.mark.parametrize(
    ("plant", "broken"),
    [
        (lambda patch: None, None),
        (blames_for_unknown_names, NO_SLANDER),
        (reads_no_longer_hello, NO_SLANDER),
        (welcomes_its_own_version_alone, PROGRESS),
    ],
)
def test_a_release_that_bears_with_the_next_one_less_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], broken: str | None
) -> None:
    """Two and two, of which neither is a quorum."""
    plant(monkeypatch)
    world = scenario(*MIXED, rounds=3)
    checks = ChecksConfig(finalizations_after_heal=2, heal_s=20)
    outcome = run_virtual(world.model_copy(update={"checks": checks, "duration_s": 20.0}), Trace())
    assert {each.name for each in outcome.invariants if not each.ok} == ({broken} - {None})
