"""A snapshot leaves one who alone has it about once, however many ask for it, and when."""

import pytest
import trio

from daa_dag.spread import QUIET_S, START_UNKNOWN
from daa_node.network.blob_server import SNAPSHOTS
from daa_node.network.stall import STALL_S
from daa_node.wire.blob_messages import ShareRequest
from tests.daa_node.network.swarm_stage import (
    CHUNK_COUNT,
    MANIFEST,
    World,
    fetch_from_all,
    in_swarm,
    one_uplink_each,
)

RATIO_MAX = 1.3


@pytest.mark.parametrize("chunk_s", [0.01, 0.1])
@pytest.mark.parametrize("receivers", [2, 4, 8, 20])
def test_a_lone_donor_sends_a_snapshot_about_once(receivers: int, chunk_s: float) -> None:
    async def play(world: World) -> None:
        one_uplink_each(world)
        took_s = await fetch_from_all(world, SNAPSHOTS)
        assert 1.0 <= world.author.ratio <= RATIO_MAX
        assert took_s < 5 * CHUNK_COUNT * chunk_s
        assert not any(member.faults for member in world.members.values())

    in_swarm(play, receivers, chunk_s)


@pytest.mark.parametrize("others", [1, 200])
def test_how_many_members_there_are_says_nothing_of_how_many_ask(others: int) -> None:
    """Of two hundred that want it each would get one chunk, and the next when that is passed on."""

    async def play(world: World) -> None:
        for number in range(others):
            world.add(f"other {number}")
        request = ShareRequest(SNAPSHOTS, MANIFEST.root, 0, (), 0)
        first, second = (member.source.node_id for member in world.receivers[:2])
        for node, count in ((first, START_UNKNOWN), (second, START_UNKNOWN // 2)):
            shared = await world.author.spreading.answer(node, request, MANIFEST)
            assert shared.offered.bit_count() == count

    in_swarm(play, receivers=4)


@pytest.mark.parametrize("are_published", [False, True])
@pytest.mark.parametrize("chunk_s", [0.01, 0.1])
@pytest.mark.parametrize("receivers", [2, 4, 8, 20])
def test_a_lone_donor_sends_it_about_once_to_those_who_ask_one_after_the_other(
    receivers: int, chunk_s: float, are_published: bool
) -> None:
    """Each when the one before has half; whoever is whole may have it where it is found, or not."""

    async def play(world: World) -> None:
        one_uplink_each(world)
        for member in world.receivers:
            member.shelf.is_published = are_published
        half_s = CHUNK_COUNT / 2 * chunk_s
        took_s = await fetch_from_all(world, SNAPSHOTS, after_s=half_s)
        assert 1.0 <= world.author.ratio <= RATIO_MAX
        assert took_s < 2 * CHUNK_COUNT * chunk_s

    in_swarm(play, receivers, chunk_s)


@pytest.mark.parametrize("donors", [1, 3])
@pytest.mark.parametrize("chunk_s", [0.01, 0.1])
def test_one_who_asks_alone_has_it_as_quickly_as_a_link_brings_it(
    donors: int, chunk_s: float
) -> None:
    async def play(world: World) -> None:
        more = [world.add_donor(f"donor {number}", chunk_s) for number in range(donors - 1)]
        one_uplink_each(world)
        took_s = await fetch_from_all(world, SNAPSHOTS, donors=more)
        assert took_s < CHUNK_COUNT * chunk_s + 0.05
        assert sum(donor.ratio for donor in (world.author, *more)) == 1.0

    in_swarm(play, receivers=1, chunk_s=chunk_s)


def test_of_several_donors_none_spares_its_link_while_thin_ones_pass_on() -> None:
    """One that sends it once has the rest come from those: of eight copies four, or 50 s."""

    async def play(world: World) -> None:
        more = [world.add_donor(f"donor {number}", 0.1) for number in range(3)]
        for member in world.receivers:
            member.chunk_s = 5.0
        one_uplink_each(world)
        assert await fetch_from_all(world, SNAPSHOTS, donors=more) < 12.0
        assert world.author.ratio > 2.0

    in_swarm(play, receivers=8, chunk_s=0.1)


def test_long_after_others_have_come_one_is_given_all_of_it() -> None:
    """Those before have it still, but a link by now that takes ten times as long for it."""

    async def play(world: World) -> None:
        one_uplink_each(world)
        early, late = world.receivers[:-1], world.receivers[-1]
        await fetch_from_all(world, SNAPSHOTS, askers=early)
        for member in early:
            member.chunk_s = 2.0
        await trio.sleep(QUIET_S + 1)
        assert await fetch_from_all(world, SNAPSHOTS, askers=[late]) < 6.0

    in_swarm(play, receivers=4, chunk_s=0.1)


def test_who_leaves_with_chunks_that_it_promised_holds_nobody_up() -> None:
    async def play(world: World) -> None:
        one_uplink_each(world)
        leaver, others = world.receivers[0], world.receivers[1:]
        scope = trio.CancelScope()

        async def leave() -> None:
            while len(leaver.shelf.writer.chunks) < 4:
                await trio.sleep(0.01)
            scope.cancel()
            leaver.die()

        async def fetch() -> None:
            with scope:
                await leaver.fetch([world.author.source], kind=SNAPSHOTS)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
            nursery.start_soon(fetch)
            assert await fetch_from_all(world, SNAPSHOTS, askers=others) < 2 * STALL_S
        assert leaver.whole_s is None
        assert world.author.ratio <= 1.5  # it had asked for more than had come

    in_swarm(play, receivers=4, chunk_s=0.1)
