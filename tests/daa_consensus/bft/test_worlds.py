"""Whole committees in good and in chosen bad circumstances."""

import pytest

from daa_consensus.bft.messages import AbortPayload, ResultPayload, SetPayload
from tests.daa_consensus.bft.simulation import DELTA_NS, Faults, World, node_id


def kinds(world: World) -> list[str]:
    return [type(block.payload).__name__ for block in world.final[1:]]


@pytest.mark.parametrize("stakes", [[1], [1, 1], [1, 1, 1], [3, 1], [1] * 4, [4, 3, 2, 2, 1]])
def test_committees_of_any_size_decide_rounds(stakes: list[int]) -> None:
    world = World(5, stakes, Faults(), epoch_rounds=3)
    world.run(120 * DELTA_NS)
    assert world.final[-1].height >= 12
    assert all(host.disk.chain[-1].height >= 11 for host in world.hosts)


def test_a_quiet_world_decides_two_blocks_a_round_and_aborts_nothing() -> None:
    world = World(2, [1] * 4, Faults(), epoch_rounds=4)
    world.run(200 * DELTA_NS)
    assert set(kinds(world)) <= {"SetPayload", "ResultPayload", "EmptyPayload"}
    assert kinds(world).count("EmptyPayload") <= len(world.final) // 10
    assert not [e for host in world.hosts for e in host.evidence]


@pytest.mark.parametrize("victim", range(4))
def test_three_of_four_go_on_and_the_fourth_comes_back(victim: int) -> None:
    world = World(11, [1] * 4, Faults())
    world.run(10 * DELTA_NS)
    world.hosts[victim].crash()
    before = world.final[-1].height
    world.run(300 * DELTA_NS)
    assert world.final[-1].height >= before + 10
    world.hosts[victim].start()
    world.hosts[victim]._broadcast_position()
    world.run(400 * DELTA_NS)
    assert world.hosts[victim].disk.chain[-1].height >= world.final[-1].height - 1


def test_two_of_four_decide_nothing_and_lose_nothing() -> None:
    world = World(4, [1] * 4, Faults())
    world.run(20 * DELTA_NS)
    for victim in world.hosts[:2]:
        victim.crash()
    world.run(30 * DELTA_NS)
    stuck_at = len(world.final)
    world.run(300 * DELTA_NS)
    assert len(world.final) == stuck_at
    for victim in world.hosts[:2]:
        victim.start()
    world.run(900 * DELTA_NS)
    assert world.final[-1].height >= world.final[stuck_at - 1].height + 3


@pytest.mark.parametrize("seed", range(12))
def test_everybody_may_be_killed_at_once_at_any_moment(seed: int) -> None:
    """Only what is on the disks survives: the guards, and the certificates that were kept."""
    world = World(seed, [1] * 4, Faults(data_max_ns=4 * DELTA_NS), epoch_rounds=2)
    for stop in range(1, 8):
        world.run((stop * 23 + seed) * DELTA_NS + seed * 77)
        for host in world.hosts:
            host.crash()
        for host in world.hosts:
            host.start()
    before = world.final[-1].height
    world.run(world.now_ns + 300 * DELTA_NS)
    assert all(host.disk.chain[-1].height >= before + 3 for host in world.hosts)


def test_views_that_were_skipped_before_a_crash_of_all_can_be_proved_after_it() -> None:
    world = World(6, [1] * 4, Faults())
    world.run(0)
    leader = world.committee.leader(world.hosts[0].machine.known.domain, 1)
    silent = next(host for host in world.hosts if host.me == leader)
    silent.crash()
    world.run(
        200 * DELTA_NS,
        done=lambda: all(h.machine.known.view >= 2 for h in world.hosts if h is not silent),
    )
    assert len(world.final) == 1
    for host in world.hosts:
        host.crash()
        host.start()
    world.run(400 * DELTA_NS)
    assert world.final[-1].height >= 3


def test_an_observer_ends_up_with_the_same_chain() -> None:
    world = World(3, [1] * 4, Faults(), observers=1)
    world.run(20 * DELTA_NS)
    validators, observer = world.hosts[:4], world.hosts[4]
    for host in validators:
        host._broadcast_position()
    world.run(150 * DELTA_NS)
    for host in (*validators, observer):  # hellos, a delta apart, as on a connection
        host._broadcast_position()
    world.run(153 * DELTA_NS)
    for host in (*validators, observer):
        host._broadcast_position()
    world.run(160 * DELTA_NS)
    assert observer.disk.chain[-1].height >= world.final[-1].height - 3
    assert observer.disk.chain[-1].height > 5


def test_rounds_that_too_few_can_execute_in_time_are_aborted_or_end_late_but_end() -> None:
    world = World(8, [1] * 4, Faults(lose_exec_percent=50))
    world.run(1_500 * DELTA_NS)
    endings = {type(b.payload) for b in world.final[1:]}
    assert endings >= {SetPayload, ResultPayload, AbortPayload}
    assert world.final[-1].height >= 15


def test_the_stake_of_the_heavy_counts_not_their_number() -> None:
    world = World(9, [5, 1, 1, 1], Faults())
    world.run(10 * DELTA_NS)
    world.hosts[2].crash()
    world.hosts[3].crash()
    before = world.final[-1].height
    world.run(250 * DELTA_NS)
    assert world.final[-1].height >= before + 3  # 6 of 8 is a quorum
    world.hosts[0].crash()
    world.run(260 * DELTA_NS)
    stuck_at = len(world.final)
    world.run(400 * DELTA_NS)
    assert len(world.final) == stuck_at
    assert world.hosts[0].me == node_id(0)
