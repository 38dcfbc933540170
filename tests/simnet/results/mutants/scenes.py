"""Scenes of whole daemons, each the shortest that a kind of mistake shows in.

A scene is directed, not drawn: what the random sweep befalls its clusters with may change, and
what a planted mistake needs to show does not. All run at `light` fidelity.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from daa_consensus.bft.messages import SetPayload
from simnet.checks.invariants import PROGRESS
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.cluster import Cluster, Script
from simnet.nodes.virtual.world import run_script
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

WITHIN_S = 30.0  # a hundred rounds of the shortest; or a restart and all that follows
CUTS_MS = (0, 2, 4, 6, 10, 20, 60, 120)  # after something was seen: another moment each time
ROUNDS_MS = (20, 40, 60, 80, 100, 140, 250)  # in a round: offers come, blobs, words
STATES = "work/states/"
WORK: dict[str, Any] = {
    "kind": "training",
    "rounds": 1000,
    "inner_steps_max": 2,
    "window_s": 4,
    "snapshot_every": 4,
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A script, and what is special about its cluster; `stakes` are those of the validators."""

    script: Script
    stakes: tuple[int, ...] = (1,)
    observers: int = 0
    newcomers: int = 0  # trainers that enroll
    work: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


def play(scene: Scene) -> Outcome:
    groups: list[dict[str, Any]] = [
        {"name": f"node-{node}", "count": 1, "stake": stake}
        for node, stake in enumerate(scene.stakes)
    ]
    if scene.observers:
        groups.append({"name": "outside", "count": scene.observers, "role": "observer"})
    if scene.newcomers:
        groups.append({"name": "newcomer", "count": scene.newcomers, "role": "newcomer"})
    fields = {
        "name": "scene",
        "fidelity": "light",
        "duration_s": 600,
        "nodes": groups,
        "topology": {"preset": "regional"},
        "work": {**WORK, **scene.work},
        **scene.others,
    }
    return run_script(Scenario.model_validate(fields), Trace(), scene.script)


# What scripts are made of


async def until_height(cluster: Cluster, height: int, *nodes: int) -> None:
    """These nodes publish as much in time, or there is no progress."""
    if not await cluster.until_height(height, WITHIN_S, *nodes):
        stand = {node: cluster.sightings.height(node) for node in nodes or cluster.honest}
        cluster.sightings.breaks(PROGRESS, f"not at {height} within {WITHIN_S:g} s: {stand}")
        await trio.sleep_forever()  # the run ends with what broke


async def goes_on(cluster: Cluster, rounds: int = 2) -> None:
    """So many more rounds, for everybody who is up."""
    there = [node for node in cluster.honest if cluster.machines[node].is_on]
    await until_height(cluster, cluster.sightings.newest_height + rounds, *there)


# Scripts


async def quiet(cluster: Cluster) -> None:
    """Nothing happens."""
    cluster.start()
    await until_height(cluster, 4)


async def power_cuts(cluster: Cluster) -> None:
    """All lose power at once, again and again, at all moments of a round."""
    cluster.start()
    await until_height(cluster, 1)
    for after_ms in CUTS_MS:
        await cluster.sightings.changed.wait()
        await trio.sleep(after_ms / 1e3)
        cluster.kill()
        cluster.start()
        await goes_on(cluster, 1)


async def cuts_while_waiting(cluster: Cluster) -> None:
    """One loses power in the middle of a round that waits for another one."""
    cluster.start()
    for height, after_ms in enumerate(ROUNDS_MS, 1):
        await until_height(cluster, height)
        await trio.sleep(after_ms / 1e3)
        cluster.kill(1)
        await trio.sleep(0.05)
        cluster.kill(0)
        cluster.start()


async def damaged_states(cluster: Cluster) -> None:
    """A power cut leaves wrong bits in caches, which nobody syncs."""
    cluster.start()
    await until_height(cluster, 3)
    disk = cluster.machines[0].disk
    states = [path for path in disk.files if path.startswith(STATES)]
    for path, file in disk.inodes.items():
        disk.sync(file)
        disk.sync_names(path.rpartition("/")[0])
    cluster.kill(0)
    for path in states:
        payload = bytearray(disk.files[path])
        payload[len(payload) // 2] ^= 1
        disk.put(path, bytes(payload), sync=True)
    cluster.start(0)
    await goes_on(cluster)


async def lost_states(cluster: Cluster) -> None:
    """A power cut takes every cache: snapshots and deltas must do."""
    cluster.start()
    await until_height(cluster, 5)
    cluster.kill(0)
    disk = cluster.machines[0].disk
    for path in [path for path in disk.files if path.startswith(STATES)]:
        disk.remove(path)
    cluster.start(0)
    await goes_on(cluster)


async def torn_writes(cluster: Cluster) -> None:
    """The power goes in the middle of a write, of each of a round's in turn."""
    cluster.start()
    await until_height(cluster, 1)
    disk = cluster.machines[0].disk
    for writes in range(1, 40, 3):
        disk.on_crash_due = partial(cluster.kill, 0)
        disk.writes_until_crash = writes
        while cluster.machines[0].is_on:
            await trio.sleep(0.05)
        cluster.start(0)
        await goes_on(cluster, 1)


async def away(cluster: Cluster) -> None:
    """The last one misses some rounds, and follows."""
    last = len(cluster.machines) - 1
    cluster.start()
    await until_height(cluster, 1)
    cluster.kill(last)
    await until_height(cluster, 7, *range(last))
    cluster.start(last)
    await goes_on(cluster)


async def gone_when_decided(cluster: Cluster, nodes: tuple[int, ...], for_s: float) -> None:
    """Some are gone once a set is decided: the others execute it, and are no quorum."""
    cluster.start()
    await until_height(cluster, 1)
    for _ in range(2):
        decided = partial(decides, cluster, len(cluster.sightings.watch.chain))
        assert await cluster.until(decided, WITHIN_S)
        cluster.kill(*nodes)
        await trio.sleep(for_s)
        cluster.start()
        await goes_on(cluster)


def decides(cluster: Cluster, length: int) -> bool:
    """Whether a set is final above so many blocks."""
    new = cluster.sightings.watch.chain[length:]
    return any(isinstance(block.payload, SetPayload) for block in new)


async def convicts(cluster: Cluster) -> None:
    """Somebody says two things; long enough for all others to have led."""
    cluster.start()
    await until_height(cluster, 12)


SCENES: dict[str, Scene] = {
    "alone": Scene(quiet),
    "power cuts": Scene(power_cuts),
    "cuts while waiting": Scene(cuts_while_waiting, stakes=(1, 1)),
    "torn writes": Scene(torn_writes),
    "damaged states": Scene(damaged_states),
    "lost states": Scene(lost_states, work={"snapshot_every": 1, "vertices_restorable": 1}),
    "away": Scene(away, observers=1),
    "heavy one gone": Scene(
        partial(gone_when_decided, nodes=(0,), for_s=2.0), stakes=(2, 1, 1, 1, 1)
    ),
    "executed by two of four": Scene(
        partial(gone_when_decided, nodes=(0, 1), for_s=12.0), stakes=(1, 1, 1, 1)
    ),
    "two words": Scene(
        convicts,
        stakes=(1, 1, 1, 1),
        others={"adversaries": [{"kind": "equivocator", "nodes": [3]}]},
    ),
}
