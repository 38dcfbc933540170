"""Members that come, go, change keys and stakes while the world is bad: no fork, no vote of who is
no member, the same committees everywhere, and all move on once the world has healed."""

import os
import random

import pytest

from daa_consensus.operations import Join, Leave, Rotate, Stake
from tests.daa_consensus.bft.members import Churn
from tests.daa_consensus.bft.simulation import DELTA_NS, Faults, World
from tests.daa_consensus.bft.test_interleavings import run_and_heal

SEEDS = int(os.environ.get("DAA_SIMPLEX_SEEDS", "200"))
BATCH = 25


def changing_world(seed: int) -> World:
    rng = random.Random(f"members/{seed}")
    size = rng.choice([4, 4, 5, 7])
    faults = Faults(
        heal_ns=rng.randrange(60, 160) * DELTA_NS,
        loss_percent=rng.choice([0, 5, 20]),
        double_percent=rng.choice([0, 10, 30]),
        crash_percent=rng.choice([0, 30, 80]),
        part_percent=rng.choice([0, 10, 30]),
        delay_max_ns=rng.choice([DELTA_NS // 2, 3 * DELTA_NS]),
        data_max_ns=rng.choice([DELTA_NS // 4, 3 * DELTA_NS]),
        lose_exec_percent=rng.choice([0, 10]),
    )
    traitors = tuple(rng.sample(range(size), rng.choice([0, 1])))
    return World(
        seed,
        [1] * size,
        faults,
        traitors,
        epoch_rounds=rng.choice([1, 2, 3]),
        churn=Churn(rng.choice([1, 3]), rng.choice([40, 80])),
    )


@pytest.mark.parametrize(
    "batch",
    [0, *(pytest.param(first, marks=pytest.mark.long) for first in range(BATCH, SEEDS, BATCH))],
)
def test_no_fork_and_progress_while_members_come_and_go(batch: int) -> None:
    applied, expelled = set(), 0
    for seed in range(batch, batch + BATCH):
        world = changing_world(seed)
        try:
            run_and_heal(world)
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure
        assert world.members.convicted <= world.traitors
        expelled += sum(len(epoch.expelled) for epoch in world.members.epochs)
        applied |= {type(action) for action in world.members.applied}
    assert applied == {Join, Leave, Rotate, Stake}
    assert expelled
