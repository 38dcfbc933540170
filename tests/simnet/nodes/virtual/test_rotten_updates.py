"""A bit that turns on a disk costs a fetch, and nobody its seat."""

from collections.abc import Callable, Collection

import pytest
import trio

from daa_consensus.bft.messages import OfferBody
from daa_dag.ids import NodeId
from daa_node.rounds.holding import Holding
from daa_node.rounds.peers import Peers
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.disk import Disk
from simnet.nodes.virtual.scheduling import NODE
from simnet.nodes.virtual.world import run_script
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

UPDATES = "work/updates/"
VERTICES = "chain/vertices/"
BITS = 40  # of four updates: one that a trimmed mean leaves out would change nothing


def test_a_node_whose_disk_damages_an_update_merges_what_everybody_merges() -> None:
    rotten: list[str] = []

    async def script(cluster: Cluster) -> None:
        cluster.start()
        disk = cluster.machines[1].disk
        while len([path for path in disk.files if path.startswith(UPDATES)]) < 4:
            await trio.sleep(0.001)
        cluster.sightings.lossy.add(1)
        rotten.extend(disk.rot(UPDATES) or "" for _ in range(BITS))
        assert await cluster.until_done(60)
        assert cluster.chain(1) == cluster.chain(0)

    work = {"kind": "training", "rounds": 3, "inner_steps_max": 5}
    fields = {"name": "rot", "fidelity": "light", "topology": {"preset": "regional"}, "work": work}
    outcome = run_script(Scenario.model_validate(fields), Trace(), script)
    assert rotten[0].startswith(UPDATES)
    assert [each.detail for each in outcome.invariants if not each.ok] == []
    assert "evidence found" not in {mark.name for mark in outcome.sometimes}


def test_what_turns_while_another_one_is_fetched_again_is_not_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_again, fetch = Holding.look_again, Peers.fetch_update
    damaged: list[str] = []  # in the order of their damage
    disks: list[Disk] = []

    async def look_at_the_damaged(self: Holding, contribution: OfferBody) -> bool:
        if NODE.get() == 1 and not damaged:
            damaged.append(UPDATES + contribution.blob_root.hex())
            assert disks[0].rot(damaged[0])
        return await look_again(self, contribution)

    async def fetch_while_others_turn(
        self: Peers, offer: OfferBody, nodes: Callable[[], Collection[NodeId]]
    ) -> None:
        if NODE.get() == 1 and damaged == [UPDATES + offer.blob_root.hex()]:
            others = [path for path in sorted(disks[0].files) if path.startswith(UPDATES)]
            damaged.extend(path for path in others for _ in range(BITS) if disks[0].rot(path))
        await fetch(self, offer, nodes)

    async def script(cluster: Cluster) -> None:
        disks.append(cluster.machines[1].disk)
        cluster.sightings.lossy.add(1)
        cluster.start()
        assert await cluster.until_done(60)
        assert cluster.chain(1) == cluster.chain(0)

    monkeypatch.setattr(Holding, "look_again", look_at_the_damaged)
    monkeypatch.setattr(Peers, "fetch_update", fetch_while_others_turn)
    work = {"kind": "training", "rounds": 3, "inner_steps_max": 5}
    fields = {"name": "rot", "fidelity": "light", "topology": {"preset": "regional"}, "work": work}
    outcome = run_script(Scenario.model_validate(fields), Trace(), script)
    assert len({*damaged}) > 2
    assert [each.detail for each in outcome.invariants if not each.ok] == []
    assert "evidence found" not in {mark.name for mark in outcome.sometimes}


def test_a_damaged_vertex_of_a_disk_that_fails_is_compared_with_nobody() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_done(60)
        cluster.sightings.lossy.add(1)
        disk = cluster.machines[1].disk
        longer, turned, *_ = sorted(path for path in disk.files if path.startswith(VERTICES))
        disk.files[longer] += b"\0"
        disk.files[turned] = disk.files[turned][:-1] + bytes([disk.files[turned][-1] ^ 1])

    work = {"kind": "training", "rounds": 2, "inner_steps_max": 5}
    fields = {"name": "rot", "fidelity": "light", "topology": {"preset": "regional"}, "work": work}
    outcome = run_script(Scenario.model_validate(fields), Trace(), script)
    assert [each.detail for each in outcome.invariants if not each.ok] == []
