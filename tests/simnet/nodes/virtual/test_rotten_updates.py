"""A bit that turns on a disk costs a fetch, and nobody its seat."""

import trio

from simnet.nodes.virtual.cluster import Cluster
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
