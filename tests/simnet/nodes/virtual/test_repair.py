"""A daemon whose disk loses records of its chain has them again after its next reading."""

import pytest
import trio

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import decode_certificate
from daa_node.checkpoints import proof_mending, scrub
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.disk_packs import unpacked
from simnet.pytest_plugin import RunCluster

READ_EVERY_S = 60.0
ASKS_S = 90.0  # longer than a mending rests
KINDS = ("blocks", "vertices", "certificates", "chunks")


def test_what_a_disk_loses_comes_back_from_the_others(
    simnet_cluster: RunCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "PAUSE_S", READ_EVERY_S)
    monkeypatch.setattr(scrub, "BYTES_PER_S", 10**12)

    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_done(timeout_s=60)
        disk, whole = cluster.machines[2].disk, dict(cluster.machines[2].disk.files)
        lost = list[str]()
        # the lowest delta could have been let go, for all that a disk tells
        lost.append(f"chain/deltas/{cluster.chain(2)[2].delta_root.hex()}")
        for kind in KINDS:
            of_kind = [p for p in sorted(whole) if p.startswith(f"chain/{kind}/")]
            lost.append(next(p for p in of_kind if not p.endswith(".final")))
        for path in lost:
            disk.remove(path)
        await trio.sleep(READ_EVERY_S)
        kept = unpacked(disk.files, "chain")  # what has come is packed at once
        for path in lost:
            if "/certificates/" not in path:  # another quorum's signatures do as well
                assert kept.get(path) == whole[path], path
            assert path in kept
        status = await cluster.ask(2, "status")
        assert status["damaged"] == []
        assert len(status["repaired"]) == len(lost)

    simnet_cluster(script, rounds=4)


def test_who_shows_a_rotten_signature_to_nobody_is_blamed_by_nobody(
    simnet_cluster: RunCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newcomer asks one member alone, whose disk has turned a bit; later that one mends it."""
    monkeypatch.setattr(proof_mending, "AGAIN_S", 1.0)

    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_done(timeout_s=60)
        vertex = cluster.chain(2)[1]
        disk, path = cluster.machines[2].disk, f"chain/certificates/{vertex.vertex_id.hex()}.exec"
        good = disk.files[path]
        certificate = decode_certificate(good, Limits(4, 4))
        signature = certificate.signatures[0][1]
        turned = bytes([signature[0] ^ 1]) + signature[1:]
        disk.put(path, good.replace(signature, turned), sync=True)
        cluster.kill(0, 1)
        cluster.wipe(3)
        cluster.start(3)
        await trio.sleep(ASKS_S)
        status = await cluster.ask(3, "status")
        assert status["height"] == 0, "nobody showed it anything"
        (seen,) = [p for p in (await cluster.ask(3, "peers"))["peers"] if p["connected"]]
        assert seen["faults"] == {}
        cluster.start(0)
        await trio.sleep(ASKS_S)
        assert disk.files[path] != good.replace(signature, turned)
        cluster.kill(0)
        assert await cluster.until_height(3, 60, 3)

    simnet_cluster(script, rounds=4)
