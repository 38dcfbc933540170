"""Four daemons train on data of their own, and check each other by the batches that are shown."""

from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from daa_dag.ids import BlobRoot
from daa_node import bulk_wiring
from daa_node.genesis import Job
from daa_node.network.blob_server import BlobServer
from daa_node.training.boundaries import BOUNDARIES
from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import OwnFiles
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.model_config import ModelConfig
from simnet.nodes.virtual import cluster as virtual
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.world import run_script
from simnet.world.determinism import Trace
from tests.simnet.nodes.virtual.test_fine_tuning import SCENARIO, OfItsOwn

ROUNDS, STEPS = 3, 8
NOWHERE = BlobRoot(bytes(32))  # a state that no lot has drawn
SERVERS: list[BlobServer] = []


class KnownServer(BlobServer):
    """One that a test can ask."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        SERVERS.append(self)


@pytest.mark.long
def test_members_check_what_none_of_them_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, own = tmp_path / "heldout.txt", tmp_path / "own.txt"
    held.write_text("what nobody trains on " * 400)
    own.write_text("what one host alone has, and tells to nobody, " * 200)
    digest = blake3(held.read_bytes()).hexdigest()
    data = DataConfig(kind="local", format="text", path=held, digest=digest, reveal=True)
    model = ModelConfig(width=8, heads=2, depth=1, context=8)
    examples = open_examples(data, model, tmp_path, OwnFiles(path=own))
    monkeypatch.setattr(virtual, "shared_examples", lambda _job: examples)
    monkeypatch.setattr(bulk_wiring, "BlobServer", KnownServer)
    SERVERS.clear()

    def change(plain: Job) -> Job:
        return plain.model_copy(update={"model": model, "data": data})

    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_done(timeout_s=900)
        assert len(SERVERS) == len(cluster.machines)
        for machine, server in zip(cluster.machines, SERVERS, strict=True):
            paths = [Path(path) for path in machine.disk.files]
            ours = [path.name for path in paths if path.parent.name == BOUNDARIES]
            shown = [
                name for name in ours if server.may_show(BOUNDARIES, BlobRoot(bytes.fromhex(name)))
            ]
            assert 0 < len(shown) < len(ours)
            assert server.may_show("updates", NOWHERE)
            assert not server.may_show(BOUNDARIES, NOWHERE)

    work = SCENARIO.work.model_copy(update={"rounds": ROUNDS, "inner_steps_max": STEPS})
    scenario = SCENARIO.model_copy(update={"work": work})
    outcome = run_script(scenario, Trace(), script, OfItsOwn(change))
    assert outcome.facts["classes"]["node"]["share_of_time"]["checking"] > 0
    losses = outcome.facts["losses"]
    assert losses[-1] < losses[0] - 0.3
    assert [(each.name, each.detail) for each in outcome.invariants if not each.ok] == []
