"""Scenes in which one kind of fault alone befalls whole daemons; how rough is said, not drawn."""

from collections.abc import Sequence
from functools import partial

import trio

from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.disk import LOG, Failing
from tests.simnet.results.mutants.scenes import CUTS_MS, Scene, goes_on, power_cuts, until_height

LOOK_S = 2e-4  # a tenth of a sync
LOG_CUTS = 5
TOLD_S = 15.0  # three heads


async def cut_in_the_log(cluster: Cluster, fate: str) -> None:
    """The power goes between a record's writing and its sync: this is left of it."""
    cluster.start()
    await until_height(cluster, 1)
    disk = cluster.machines[0].disk
    disk.fates = (fate,)
    for _ in range(LOG_CUTS):
        log = disk.inodes[LOG]
        while log.content is log.durable:
            await trio.sleep(LOOK_S)
            log = disk.inodes[LOG]
        cluster.kill(0)
        cluster.start(0)
        await goes_on(cluster, 1)


async def cuts_leave(cluster: Cluster, fates: Sequence[str]) -> None:
    """Power cuts at all moments of a round leave all names, and this of what was not synced."""
    disk = cluster.machines[0].disk
    disk.fates = tuple(fates)
    cluster.start()
    await until_height(cluster, 1)
    for after_ms in CUTS_MS:
        await cluster.sightings.changed.wait()
        await trio.sleep(after_ms / 1e3)
        for folder in {path.rpartition("/")[0] for path in disk.files}:
            disk.sync_names(folder)
        cluster.kill()
        cluster.start()
        await goes_on(cluster, 1)


async def fails(cluster: Cluster, what: Failing, nodes: tuple[int, ...]) -> None:
    """Disks fail at it now and then, and are cut off now and then; then they are sound."""
    cluster.start()
    await until_height(cluster, 1)
    for after_ms in CUTS_MS:
        heals = [cluster.machines[node].disk.fails_at(what) for node in nodes]
        await trio.sleep(0.3 + after_ms / 1e3)
        for heal in heals:
            heal()
        await goes_on(cluster, 1)
        cluster.kill(*nodes)
        cluster.start()
        await goes_on(cluster, 1)
    await goes_on(cluster)  # what the last cut has brought back is cleared away


async def fails_and_is_cut(cluster: Cluster, what: Failing) -> None:
    """Power cuts at all moments of a round in which one disk fails at it."""
    cluster.start()
    await until_height(cluster, 1)
    disk = cluster.machines[0].disk
    for after_ms in CUTS_MS:
        heal = disk.fails_at(what)
        await cluster.sightings.changed.wait()
        await trio.sleep(after_ms / 1e3)
        cluster.kill()
        heal()
        cluster.start()
        await goes_on(cluster, 1)
    await goes_on(cluster)


async def slow(cluster: Cluster, factor: float) -> None:
    """A disk that is slow for good."""
    cluster.start()
    await until_height(cluster, 1)
    cluster.machines[0].disk.slow_down(factor)
    await goes_on(cluster, 2)


async def out_of_order(cluster: Cluster, percent: float) -> None:
    """Streams overtake each other."""
    cluster.start()
    await until_height(cluster, 1)
    heal = cluster.links.reorder(range(len(cluster.machines)), percent)
    await goes_on(cluster, 4)
    heal()


async def twice(cluster: Cluster, percent: float) -> None:
    """Messages come twice."""
    cluster.start()
    await until_height(cluster, 1)
    heal = cluster.links.duplicate(range(len(cluster.machines)), percent)
    await goes_on(cluster, 3)
    heal()


async def told_twice(cluster: Cluster) -> None:
    """All announcements are made twice; an observer listens."""
    cluster.links.duplicate(range(len(cluster.machines)), 100)
    cluster.start()
    await trio.sleep(TOLD_S)


async def dead_for_good(cluster: Cluster, node: int) -> None:
    cluster.start()
    await until_height(cluster, 1)
    cluster.kill(node)
    await goes_on(cluster, 2)


FOUR = (1, 1, 1, 1)
ROUGH: dict[str, Scene] = {
    "log torn": Scene(partial(cut_in_the_log, fate="torn")),
    "log zeroed": Scene(partial(cut_in_the_log, fate="zeroed"), stakes=FOUR),
    "log whole": Scene(partial(cut_in_the_log, fate="whole")),
    "cuts": Scene(power_cuts, others={"seed": 7}),  # most seeds show it
    "cuts gone": Scene(partial(cuts_leave, fates=("gone",))),
    "cuts other": Scene(partial(cuts_leave, fates=("whole", "with other bytes"))),
    "cuts pruning": Scene(power_cuts, work={"snapshot_every": 1, "vertices_restorable": 1}),
    "syncs fail": Scene(partial(fails, what="failed_sync", nodes=(0,)), stakes=(1, 1)),
    "renames fail": Scene(partial(fails_and_is_cut, what="failed_rename")),
    "full": Scene(partial(fails, what="full", nodes=(0,)), stakes=(1, 1), others={"seed": 3}),
    "slow": Scene(partial(slow, factor=20)),
    "out of order": Scene(
        partial(out_of_order, percent=50),
        stakes=FOUR,
        others={"topology": {"preset": "local"}},  # else a vote may overtake its block by itself
    ),
    "twice": Scene(partial(twice, percent=5), stakes=FOUR),
    "told twice": Scene(told_twice, stakes=(1,), observers=1),
    "one dead for good": Scene(partial(dead_for_good, node=3), stakes=FOUR),
}
