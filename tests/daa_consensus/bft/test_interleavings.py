"""Machines in a bad world: whatever is lost, doubled, parted, crashed or betrayed, no two final
chains differ, no honest node contradicts itself, and all move on once the world has healed."""

import os
import random

import pytest

from daa_consensus.bft.evidence import conflict
from daa_consensus.votes import Signed
from tests.daa_consensus.bft.simulation import DELTA_NS, Faults, World, node_id

SEEDS = int(os.environ.get("DAA_SIMPLEX_SEEDS", "300"))
BATCH = 25
HEALED_DELTAS = 1_500  # a few views at the longest patience, 96 delta each


def bad_world(seed: int) -> World:
    rng = random.Random(f"faults/{seed}")
    size = rng.choice([4, 4, 4, 7])
    faults = Faults(
        heal_ns=rng.randrange(15, 40) * DELTA_NS,
        loss_percent=rng.choice([0, 5, 20, 40]),
        double_percent=rng.choice([0, 10, 30]),
        crash_percent=rng.choice([0, 30, 80]),
        part_percent=rng.choice([0, 30, 80]),
        delay_max_ns=rng.choice([DELTA_NS // 2, 3 * DELTA_NS, 10 * DELTA_NS]),
        data_max_ns=rng.choice([DELTA_NS // 4, 6 * DELTA_NS]),
        lose_exec_percent=rng.choice([0, 30]),
    )
    traitors = tuple(rng.sample(range(size), rng.choice([0, (size - 1) // 3])))
    return World(seed, [1] * size, faults, traitors, epoch_rounds=rng.choice([1, 2, 5]))


def run_and_heal(world: World) -> None:
    """Run to the end of the faults, then until every honest node has two more rounds."""
    world.run(world.faults.heal_ns)
    goal = world.final[-1].height + 2

    def done() -> bool:
        return all(host.disk.chain[-1].height >= goal for host in world.honest)

    world.run(world.now_ns + HEALED_DELTAS * DELTA_NS, done)
    heights = [host.disk.chain[-1].height for host in world.honest]
    assert done(), f"stuck at {heights}, goal {goal}"


@pytest.mark.parametrize("batch", range(0, SEEDS, BATCH))
def test_no_fork_and_progress_after_healing(batch: int) -> None:
    for seed in range(batch, batch + BATCH):
        try:
            run_and_heal(bad_world(seed))
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = bad_world(3), bad_world(3)
    run_and_heal(first)
    run_and_heal(second)
    assert [b.id for b in first.final] == [b.id for b in second.final]
    assert first.delivered == second.delivered


def test_only_traitors_are_ever_accused_and_they_are() -> None:
    accused = set()
    for seed in range(40):
        world = bad_world(seed)
        world.run(world.faults.heal_ns)
        for host in world.honest:
            for evidence in host.evidence:
                assert evidence.offender in world.traitors, f"seed {seed}"
                first, second = evidence.parts
                assert isinstance(first, Signed)
                assert isinstance(second, Signed)
                assert conflict(first, second) == evidence
                accused.add(evidence.offence)
    assert "finalize and nullify in one view" in accused
    assert "two notarize in one slot" in accused
    assert "two proposal in one slot" in accused
    assert "finalize of one block, notarize of another" in accused


def test_a_traitor_that_leads_two_ways_costs_its_own_view_only() -> None:
    world = World(7, [1] * 4, Faults(), traitors=(2,))
    world.run(400 * DELTA_NS)
    assert world.final[-1].height >= 20
    assert node_id(2) in {e.offender for host in world.honest for e in host.evidence}
