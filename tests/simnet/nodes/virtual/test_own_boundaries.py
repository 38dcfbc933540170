"""Daemons keep the boundaries that a check may ask for, crashes or not, and start where they must.

Every run is also checked for the invariants by the fixture.
"""

import trio

from daa_consensus.bft.messages import OfferBody, SetPayload, decode_block
from daa_dag.chunking import Manifest, decode_manifest
from daa_dag.ids import NodeId
from daa_node.checkpoints.layout import BLOCKS
from daa_node.rounds.own_boundaries import ROUNDS_KEPT
from daa_node.training.boundaries import BOUNDARIES
from daa_node.wiring import DISK_LIMITS
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.disk import WRITTEN_BACK_S
from simnet.pytest_plugin import RunCluster

SEGMENTS, ROUNDS = 3, 8
WORK = {
    "kind": "training",
    "rounds": ROUNDS,
    "inner_steps_max": 6,
    "spot_checks": {"segments": SEGMENTS, "share": [1, 4096]},  # what is drawn stays longer
}
VECTORS = 4  # of a blob: weights, two moments, a residual; each is one chunk here


def merged(cluster: Cluster, author: NodeId) -> list[OfferBody]:
    """Its contributions in the chain, oldest first."""
    disk, found = cluster.machines[1].disk, []
    for vertex in cluster.chain(1)[1:]:
        name = f"chain/{BLOCKS}/{vertex.decided_block.hex()}"
        payload = decode_block(disk.files[name], DISK_LIMITS).payload
        assert isinstance(payload, SetPayload)
        found += [offer for offer in payload.offers if offer.author == author]
    return found


def kept(cluster: Cluster, node: int) -> dict[bytes, Manifest]:
    """The boundaries on this node's disk."""
    files, found = cluster.machines[node].disk.files, names(cluster, node)
    return {bytes.fromhex(name): decode_manifest(files[f"work/manifests/{name}"]) for name in found}


def names(cluster: Cluster, node: int) -> set[str]:
    """Their roots, also of what a crash has torn."""
    files = cluster.machines[node].disk.files
    return {path.rsplit("/", 1)[1] for path in files if path.startswith(f"work/{BOUNDARIES}/")}


def test_what_may_be_asked_for_is_there_and_nothing_else(simnet_cluster: RunCluster) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(3, timeout_s=60)
        cluster.kill(0)
        await trio.sleep(1.0)
        cluster.start(0)
        assert await cluster.until_done(timeout_s=120)
        newest_round = cluster.chain(1)[-1].training_round
        for node, machine in enumerate(cluster.machines):
            here, offers = kept(cluster, node), merged(cluster, machine.keys.node_id)
            assert len(offers) >= ROUNDS - 3
            recent = [o for o in offers if o.round > newest_round - ROUNDS_KEPT]
            wanted = {root for o in (*recent, offers[-1]) for root in o.snapshot_roots}
            if node:  # a crash may have taken some of those of the killed one
                assert set(here) == wanted
            assert set(here) <= wanted
            for before, after in zip(recent, recent[1:], strict=False):
                end, start = here[before.snapshot_roots[-1]], here[after.snapshot_roots[0]]
                assert len(start.digests) == VECTORS + 1
                assert start.digests[1:] == end.digests[1:]
                assert start.digests[0] != end.digests[0]

    simnet_cluster(script, work=WORK)


def test_what_is_drawn_stays_whoever_restarts(simnet_cluster: RunCluster) -> None:
    """Else a restart would be an excuse to show nothing, and an honest node could not show it."""

    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(3, timeout_s=60)
        # Of what was written lately, a power cut leaves what it likes; the world stands until then.
        cluster.pause(*range(len(cluster.machines)))
        await trio.sleep(WRITTEN_BACK_S + 1)
        assert len(cluster.chain(0)) <= ROUNDS - 2, "it has rounds left to tidy up in"
        cluster.kill(0)
        cluster.resume(*range(1, len(cluster.machines)))
        await trio.sleep(1.0)
        cluster.start(0)
        assert await cluster.until_done(timeout_s=120)
        offers = merged(cluster, cluster.machines[0].keys.node_id)
        before = [offer for offer in offers if offer.round <= 2]
        assert before
        assert cluster.chain(1)[-1].training_round > 2 + ROUNDS_KEPT
        wanted = {root.hex() for offer in before for root in offer.snapshot_roots}
        assert wanted <= names(cluster, 0)

    simnet_cluster(script, work={**WORK, "spot_checks": {"segments": SEGMENTS, "share": [1, 1]}})


def test_where_nobody_is_checked_nobody_keeps_any(simnet_cluster: RunCluster) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_done(timeout_s=60)
        assert not any(kept(cluster, node) for node in range(4))
        assert not merged(cluster, cluster.machines[0].keys.node_id)[0].snapshot_roots

    simnet_cluster(script, work={"kind": "training", "rounds": 2})
