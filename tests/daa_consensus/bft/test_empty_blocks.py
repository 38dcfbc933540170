"""One validator is down or sends no Finalize, one honest node's data is late: nothing can be final.

Empty blocks are notarized meanwhile. They must come ever more slowly, however many there are the
block must become final once the data is there, and everything must be as fast as before from then
on. No liar is needed for any of this.
"""

import pytest

from daa_consensus.bft.messages import EmptyPayload
from tests.daa_consensus.bft.simulation import DELTA_NS, Faults, World

LATE_NS = 1_000 * DELTA_NS
# 0.5 s a delta: eight minutes. With patience at its cap an empty block comes after 16 delta; where
# one is down, one view in four comes to nothing after 96.
EMPTIES_MAX = {True: 30, False: 75}


def stuck_world(seed: int, down: bool, late_ns: int = LATE_NS) -> World:
    faults = Faults(late=(2,), late_ns=late_ns, withholding=() if down else (3,))
    world = World(seed, [1] * 4, faults)
    world.run(0)
    if down:
        world.hosts[3].crash()
    return world


def until_round(world: World, height: int, within_ns: int) -> None:
    world.run(within_ns, done=lambda: world.final[-1].height >= height)


def empties(world: World) -> int:
    return sum(isinstance(block.payload, EmptyPayload) for block in world.final)


@pytest.mark.parametrize("down", [True, False], ids=["one-is-down", "one-withholds-finalize"])
@pytest.mark.parametrize("seed", range(4))
def test_empty_blocks_above_a_set_whose_data_is_late_come_ever_more_slowly(
    seed: int, down: bool
) -> None:
    world = stuck_world(seed, down)
    until_round(world, 1, 2 * LATE_NS)
    assert world.final[-1].height == 1, "the data came, and nothing became final"
    assert world.now_ns <= LATE_NS + 150 * DELTA_NS  # one view of the longest patience and a half
    assert empties(world) <= EMPTIES_MAX[down], f"{empties(world)} empty blocks in 1,000 delta"


@pytest.mark.parametrize("down", [True, False], ids=["one-is-down", "one-withholds-finalize"])
def test_after_the_late_data_rounds_are_as_fast_as_before(down: bool) -> None:
    world = stuck_world(1, down)
    until_round(world, 1, 2 * LATE_NS)
    world.faults.late = ()
    healed_ns = world.now_ns
    until_round(world, 11, healed_ns + 400 * DELTA_NS)
    assert world.final[-1].height >= 11, f"{world.final[-1].height - 1} rounds in 400 delta"
