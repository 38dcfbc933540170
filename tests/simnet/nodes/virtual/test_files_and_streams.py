"""What befalls files and streams of whole daemons: it does, and they come through it."""

import random
from typing import Any, cast

import pytest
import trio
from pydantic import ValidationError

from daa_node.checkpoints.writes import GroupWriter
from daa_node.seams import BlobStore
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.disk import FATES, Disk
from simnet.nodes.virtual.disk_mount import Mount
from simnet.nodes.virtual.disk_seams import MemoryStore
from simnet.nodes.virtual.world import run_script, run_virtual
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario
from tests.simnet.nodes.virtual.test_random_daemons import BASE

EVERYBODY = [0, 1, 2, 3]


def scenario(faults: list[dict[str, Any]], **changes: Any) -> Scenario:
    fields = {**BASE, "nodes": [{"count": 4}], "duration_s": 12.1, "faults": faults, **changes}
    return Scenario.model_validate({**fields, "work": {**BASE["work"], "rounds": 40}})


def broken(outcome: Outcome) -> list[str]:
    return [each.name for each in outcome.invariants if not each.ok]


@pytest.mark.long
def test_files_and_streams_in_trouble_cost_no_word_and_no_round() -> None:
    often = [1.3 * k for k in range(1, 9)]
    faults = [
        {"kind": "disk", "disk": "failed_sync", "at_s": 1, "for_s": 9, "nodes": EVERYBODY},
        {"kind": "disk", "disk": "failed_rename", "at_s": 1, "for_s": 9, "nodes": [1, 2]},
        {"kind": "disk", "disk": "slow", "factor": 20, "at_s": 2, "for_s": 5, "nodes": [2, 3]},
        {"kind": "reorder", "percent": 20, "at_s": 0.5, "for_s": 11, "nodes": EVERYBODY},
        {"kind": "duplicate", "percent": 30, "at_s": 0.5, "for_s": 11, "nodes": EVERYBODY},
        *({"kind": "kill", "at_s": s, "for_s": 0.3, "nodes": [int(s * 7) % 4]} for s in often),
    ]
    met = set[str]()
    for seed in range(6):  # the dice of one may miss what befalls a few writes in a hundred
        outcome = run_virtual(scenario(faults, checks={"heal_s": 90}, seed=seed), Trace())
        assert broken(outcome) == []
        met |= {mark.name for mark in outcome.sometimes}
    assert met >= {
        *("sync failed", "rename failed", "disk slow"),
        *("write overtaken by a later one", "deleted file back after a crash"),
        *(f"unsynced bytes {fate}" for fate in FATES if fate != "whole"),
        *("message sent twice", "stream overtaken by another"),
    }


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({"kind": "disk", "disk": "failed_sync"}, "disk: failed_sync"),
        ({"kind": "disk", "disk": "failed_rename"}, "disk: failed_rename"),
        ({"kind": "disk", "disk": "slow"}, "disk: slow"),
        ({"kind": "reorder"}, "kind: reorder"),
        ({"kind": "duplicate"}, "kind: duplicate"),
    ],
)
def test_worlds_without_files_and_streams_refuse_what_befalls_them(
    fault: dict[str, Any], place: str
) -> None:
    fields = {"name": "heap", "fidelity": "heap", "work": {"kind": "gossip"}}
    with pytest.raises(ValidationError, match=rf"`{place}` takes `fidelity: light` or `trio`"):
        Scenario.model_validate({**fields, "faults": [fault | {"at_s": 1}]})


def test_only_a_slow_disk_has_a_factor() -> None:
    scenario([{"kind": "disk", "disk": "slow", "factor": 7, "at_s": 1}])
    with pytest.raises(ValueError, match="leave it out"):
        scenario([{"kind": "disk", "disk": "full", "factor": 7, "at_s": 1}])


def test_streams_overtake_each_other_and_each_keeps_its_own_order() -> None:
    heard: dict[str, list[int]] = {"one": [], "other": []}

    async def script(cluster: Cluster) -> None:
        network = cluster.network
        heal = cluster.links.reorder([0], 50)
        ends = {name: network.pair(0, 1) for name in heard}
        for number in range(40):
            for here, _ in ends.values():
                await here.write(bytes([number]))
            await trio.sleep(0.01)
        heal()
        for name, (_, there) in ends.items():
            while len(heard[name]) < 40:
                heard[name] += await there.read()
        assert network.befallen["stream overtaken by another"]

    run_script(scenario([], duration_s=1), Trace(), script)
    assert heard == {"one": [*range(40)], "other": [*range(40)]}


def test_what_is_deleted_with_its_note_stays_deleted_over_a_power_cut() -> None:
    """A file that came back alone, with no note to say so, would stay: half a snapshot, say."""

    async def main() -> None:
        for seed in range(20):
            disk = Disk(random.Random(seed))
            writer = _writer(disk)
            names = [f"manifests/{'aa' * 32}", f"chunks/{'bb' * 32}", f"chunks/{'cc' * 32}"]
            kinds = [name.split("/") for name in names]
            await writer.add([[writer.record(kind, name, b"x") for kind, name in kinds]])
            await writer.drop(names)
            disk.crash()
            await _writer(disk).drop([])
            left = [path for path in disk.files if path.startswith("chain/")]
            assert left == []

    trio.run(main)


def _writer(disk: Disk) -> GroupWriter:
    mount = Mount(disk)
    chain, work = MemoryStore(mount, "chain"), MemoryStore(mount, "work")
    return GroupWriter(cast(BlobStore, chain), cast(BlobStore, work))
