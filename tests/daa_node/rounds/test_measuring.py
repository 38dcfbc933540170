"""What merged contributions are worth to each other is measured, and nobody waits for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import trio
import trio.testing

from daa_dag.ids import Digest
from daa_node.errors import PeerFault
from daa_node.observability import events
from daa_node.rounds.synchronous import SynchronousRound
from daa_node.spot_checks.copies import Update
from daa_node.spot_checks.usefulness import Usefulness
from tests.daa_node.rounds.test_rehearsal import (
    AGGREGATION_S,
    NODES,
    Scene,
    all_are_here,
    set_of,
)


@dataclass
class Measuring:
    scene: Scene
    damaged: bool = False
    execs: list[int] = field(default_factory=list)  # that were sent when it was asked

    def __call__(self, number: int, updates: Sequence[Update], seed: Digest) -> list[Usefulness]:
        self.execs.append(len(self.scene.agreement.execs()))
        if self.damaged:
            raise PeerFault("bad_update", "damaged")
        return [Usefulness(number, 1.0, at / 10, 0.5, 0.5) for at in range(len(updates))]


def scene_of(damaged: bool = False) -> tuple[Scene, Measuring]:
    scene = Scene()
    measuring = Measuring(scene, damaged)
    scene.context = replace(scene.context, rules=replace(scene.context.rules, measure=measuring))
    scene.walk = SynchronousRound(scene.context, None, all_are_here)
    return scene, measuring


async def walked(scene: Scene, weights: tuple[int, ...]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.walk.run)
        await trio.testing.wait_all_tasks_blocked()
        scene.hear_all()
        scene.agreement.decide(replace(set_of(4), weights=weights))
        await trio.sleep(AGGREGATION_S + 1)
        nursery.cancel_scope.cancel()


async def test_what_counts_is_measured_once_our_exec_is_out(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scene, measuring = scene_of()
    await walked(scene, (5_120, 0, 5_120, 5_120))
    assert measuring.execs == [1]
    told = [e for e in scene.events.tail() if e["name"] == events.UPDATE_MEASURED]
    assert [e["author"] for e in told] == [NODES[at].hex() for at in (0, 2, 3)]
    assert [e["cosine"] for e in told] == [0.0, 0.1, 0.2]
    log = scene.context.spot_checks.usefulness
    assert [one.cosine for one in log.of(NODES[3])] == [0.2]
    assert log.of(NODES[1]) == ()


async def test_what_was_damaged_since_costs_a_measure_and_no_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scene, measuring = scene_of(damaged=True)
    await walked(scene, (5_120,) * 4)
    assert measuring.execs == [1]
    assert len(scene.agreement.execs()) == 1
    assert not [e for e in scene.events.tail() if e["name"] == events.UPDATE_MEASURED]
