"""Little clusters in trouble, each the shortest that some mistakes in the agreement show in.

Some are befallen by faults of a scenario, others by a script that waits for the right moment.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import trio

from daa_consensus.bft.messages import ResultPayload
from daa_consensus.votes import Kind
from daa_dag.ids import BlockId
from simnet.checks.invariants import PROGRESS
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.insides import Inside
from simnet.nodes.virtual.operators import Operators
from simnet.nodes.virtual.world import run_virtual
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario
from tests.simnet.results.mutants.scenes import (
    WITHIN_S,
    Scene,
    decides,
    goes_on,
    play,
    power_cuts,
    until_height,
)

LOOK_S = 0.005  # a fraction of a link's delay
AFTER_MS = (20, 40, 60, 80)  # a view was given up: its successor is voted on, and not final yet
NEW_DISKS = 4
EPOCHS = 4
DEAF_S = 3.0  # longer than all timers of a view
MERGE_S = 25.0  # so late, who has not executed leads a view, however long views are by then
FOUR = (1, 1, 1, 1)
STANDING_BY: dict[str, Any] = {"name": "outside", "count": 1, "role": "observer"}
JOIN: dict[str, Any] = {"kind": "join", "at_s": 0.5, "node": 4, "stake": 1}
ROTATE: dict[str, Any] = {"kind": "rotate", "at_s": 0.5, "node": 1, "successor": 4}


async def until(cluster: Cluster, is_so: Callable[[], bool]) -> None:
    """Whoever looks all the time sees the moment in which it becomes so."""
    with trio.move_on_after(WITHIN_S):
        while not is_so():
            await trio.sleep(LOOK_S)
        return
    cluster.sightings.breaks(PROGRESS, f"what a script waits for has not come in {WITHIN_S:g} s")
    await trio.sleep_forever()  # the run ends with what broke


async def cut_when_given_up(cluster: Cluster) -> None:
    """One is dead; all others lose power as soon as they have given up a view that it leads."""
    cluster.start()
    await until_height(cluster, 1)
    dead = 3
    cluster.kill(dead)
    for after_ms in AFTER_MS:
        await until(cluster, lambda: cluster.leader() == dead)
        await until(cluster, lambda: cluster.leader() != dead)
        await trio.sleep(after_ms / 1e3)
        cluster.kill(0, 1, 2)
        cluster.start(0, 1, 2)
        await goes_on(cluster, 1)


async def deaf_when_an_epoch_ends(cluster: Cluster) -> None:
    """One is dead, another one hears nothing once it has voted for the end of an epoch.

    It gives that view up, so that views go on, and the end is final only by what stands on it.
    """
    dead, deaf = 3, 2
    cluster.start()
    await until_height(cluster, 1)
    cluster.kill(dead)
    for _ in range(EPOCHS):
        await until(cluster, partial(votes_for_a_result, cluster, deaf))
        hears = cluster.links.block([(0, deaf), (1, deaf)])
        await trio.sleep(DEAF_S)
        hears()
        await goes_on(cluster, 1)


def votes_for_a_result(cluster: Cluster, node: int) -> bool:
    """Whether that is its newest vote."""
    messages, watch = cluster.sightings.messages, cluster.sightings.watch
    words = watch._said.get((node, "view", *messages.newest_view), {})
    if words.keys() & {Kind.NULLIFY, Kind.FINALIZE} or Kind.NOTARIZE not in words:
        return False
    inside = Inside.of(cluster.machines[node].desk.handlers)
    assert inside is not None
    block = inside.machine.known.block(BlockId(cast(bytes, words[Kind.NOTARIZE].statement.value)))
    return block is not None and isinstance(block.payload, ResultPayload)


async def new_disks(cluster: Cluster) -> None:
    """One node gets a new disk again and again, and each time asks to rejoin, and votes again."""
    cluster.start()
    await until_height(cluster, 1)
    sometimes = cluster.sightings.sometimes
    while sometimes["rejoined"] < NEW_DISKS:
        has_rejoined = partial(_grown, sometimes, sometimes["rejoined"])
        cluster.wipe(1)
        cluster.start(1)
        await until(cluster, has_rejoined)
        await goes_on(cluster, 1)


def _grown(sometimes: Counter[str], before: int) -> bool:
    return sometimes["rejoined"] > before


async def slow_and_gone(cluster: Cluster) -> None:
    """One takes long to execute, another one is gone when a set is decided: two have executed."""
    slow, gone = 3, 2
    machine = cluster.machines[slow]
    machine.pace = replace(machine.pace, merge_s=MERGE_S)
    cluster.start()
    await until_height(cluster, 1, 0, 1, gone)
    decided = partial(decides, cluster, len(cluster.sightings.watch.chain))
    assert await cluster.until(decided, WITHIN_S)
    cluster.kill(gone)
    await trio.sleep(2 * MERGE_S)  # it was a round behind
    cluster.start(gone)
    await goes_on(cluster, 1)


async def cut_while_a_request_waits(cluster: Cluster) -> None:
    cluster.start()
    audit = cluster.sightings.watch.audit
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Operators(cluster).run)
        await until(cluster, lambda: bool(audit.now.waiting))
        await goes_on(cluster, 1)
        cluster.kill()
        cluster.start()
        await goes_on(cluster, 1)
        assert audit.now.waiting
        nursery.cancel_scope.cancel()


TROUBLES: dict[str, dict[str, Any] | Scene] = {
    "a leader dies": {"faults": [{"kind": "kill", "aim": "leader", "at_s": 2}]},
    "leader after leader dies": {
        "faults": [
            {"kind": "kill", "aim": "leader", "at_s": 1.5 + 0.5 * k, "for_s": 0.1}
            for k in range(12)
        ],
        "duration_s": 8,
    },
    "messages are held": {
        "faults": [
            {"kind": "hold", "at_s": at_s, "for_s": 0.8, "nodes": [0, 1]}
            for at_s in (1.5, 2.6, 3.7)
        ]
    },
    "a forger": {"adversaries": [{"kind": "forger", "nodes": [3]}], "duration_s": 4},
    "a forger, and leaders cut off": {
        "adversaries": [{"kind": "forger", "nodes": [3]}],
        "faults": [
            {"kind": "partition", "shape": "isolate", "aim": "leader", "at_s": at_s}
            for at_s in (1.5, 2.6, 3.7)
        ],
    },
    "all lose power": Scene(power_cuts, FOUR),
    "a view was given up": Scene(cut_when_given_up, FOUR),
    "an epoch's end is final late": Scene(deaf_when_an_epoch_ends, FOUR, work={"epoch_rounds": 1}),
    "two of four have executed": Scene(slow_and_gone, FOUR, work={"window_s": 1}),
    "new disks": Scene(new_disks, FOUR),
    "a joiner": {"nodes": [{"count": 4}, STANDING_BY], "changes": [JOIN]},
    "a leaver": {
        "nodes": [{"count": 5}],
        "changes": [{"kind": "leave", "at_s": 0.5, "node": 0}],
    },
    "a new key": {
        "nodes": [{"count": 4}, STANDING_BY],
        "changes": [ROTATE],
        "work": {"epoch_rounds": 1},
    },
    "half are upgraded": {"nodes": [{"count": 2, "speaks": [1, 2]}, {"count": 2}]},
    "a request waits": Scene(
        cut_while_a_request_waits,
        FOUR,
        observers=1,
        work={"epoch_rounds": 16},
        others={"changes": [JOIN]},
    ),
}


def broken(name: str, seed: int) -> set[str]:
    """What does not hold in it."""
    trouble = TROUBLES[name]
    if isinstance(trouble, Scene):
        outcome = play(replace(trouble, others={**trouble.others, "seed": seed}))
    else:
        work = {"rounds": 60, "inner_steps_max": 1, "epoch_rounds": 2, **trouble.get("work", {})}
        faults = [{"for_s": 0.5, **fault} for fault in trouble.get("faults", ())]
        fields = {
            "name": "trouble",
            "seed": seed,
            "duration_s": 5,
            "checks": {"finalizations_after_heal": 3, "heal_s": 30},
            **trouble,
            "work": work,
            "faults": faults,
        }
        outcome = run_virtual(Scenario.model_validate(fields), Trace())
    return {each.name for each in outcome.invariants if not each.ok}
