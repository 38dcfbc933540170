"""What answers weigh shares access links evenly: against closed forms, in the run's own time."""

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps

import pytest
import trio

from daa_dag.ids import BlobRoot
from daa_node.errors import Unavailable
from simnet.nodes.virtual import scheduling
from simnet.nodes.virtual.freight import Freight, Load
from simnet.nodes.virtual.network import UNACKNOWLEDGED_S_MAX, Network, Ways
from simnet.nodes.virtual.scheduling import at
from simnet.world.determinism import Streams, Trace
from simnet.world.links import MS, LinkModel

MB = 1_000_000


class Roads:
    """Loads between nodes of these rates, up and down, on links without a latency."""

    def __init__(self, *rates: tuple[float, float], link: LinkModel | None = None) -> None:
        model = link or LinkModel()
        ways = Ways(lambda _a, _b: model, lambda _node: (None, None), Streams(0))
        self.network = Network(ways, Trace())
        self.stopped: set[int] = set()
        self.freight = Freight(
            self.network, rates.__getitem__, self.stopped.__contains__, lambda real: real
        )

    def send(self, sender: int, receiver: int, size_bytes: int) -> Load:
        return self.freight.load((sender, receiver), _root(sender), size_bytes)


def _root(sender: int) -> BlobRoot:
    return BlobRoot(bytes([sender]) * 32)


async def over_s(loads: Sequence[Load]) -> list[float]:
    """When each of them was over."""
    found = [0.0] * len(loads)

    async def watch(place: int, load: Load) -> None:
        await load.over.wait()
        found[place] = trio.current_time()

    async with trio.open_nursery() as watching:
        for place, load in enumerate(loads):
            watching.start_soon(watch, place, load)
    return found


def in_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        scheduling.run(lambda _processes: test(), 1)

    return run


@in_virtual_time
async def test_an_author_serves_each_of_the_others_over_its_own_link() -> None:
    roads = Roads(*[(1 * MB, 100 * MB)] * 4)
    loads = [roads.send(0, node, 2 * MB) for node in (1, 2, 3)]
    assert await over_s(loads) == pytest.approx([6.0] * 3)
    assert roads.freight.sent_bytes[0] == pytest.approx(6 * MB)
    assert roads.freight.received_bytes[2] == pytest.approx(2 * MB)


@in_virtual_time
async def test_a_thin_receiver_is_late_alone() -> None:
    thick = (10 * MB, 100 * MB)
    roads = Roads(thick, thick, thick, (10 * MB, 0.5 * MB))
    loads = [roads.send(0, 3, MB), roads.send(1, 3, MB), roads.send(0, 2, MB), roads.send(1, 0, MB)]
    # two megabytes at half a one a second; of the authors' links the others have what that leaves
    rest_s = 1 / (10 - 0.25)
    assert await over_s(loads) == pytest.approx([4.0, 4.0, rest_s, rest_s])


@in_virtual_time
async def test_no_stream_is_faster_than_a_window_each_round_trip() -> None:
    roads = Roads((1e12, 1e12), (1e12, 1e12), link=LinkModel(latency_ns=500 * MS))
    assert await over_s([roads.send(0, 1, 80 * 2**20)]) == pytest.approx([10.0])


@in_virtual_time
async def test_each_session_that_waits_for_an_answer_has_a_window_of_its_own() -> None:
    roads = Roads((1e12, 1e12), (1e12, 1e12), link=LinkModel(latency_ns=500 * MS))
    roads.freight.asking[0, 1] = 4
    assert await over_s([roads.send(0, 1, 80 * 2**20)]) == pytest.approx([2.5])


@in_virtual_time
async def test_what_thin_links_leave_of_a_fat_one_is_shared_by_the_rest() -> None:
    roads = Roads((9 * MB, MB), (MB, MB), (MB, 6 * MB), (MB, 100 * MB))
    loads = [roads.send(0, node, size * MB) for node, size in ((1, 1), (2, 4), (3, 4))]
    assert await over_s(loads) == pytest.approx([1.0, 1.0, 1.0])


@in_virtual_time
async def test_a_part_arrives_with_its_weight_or_is_lost_with_its_sender() -> None:
    roads = Roads((MB, MB), (MB, MB))
    await roads.freight.bring((0, 1), _root(0), 2 * MB)
    assert trio.current_time() == pytest.approx(2.0)
    at(2_500_000_000, lambda: roads.freight.cut(0))
    with pytest.raises(Unavailable, match="cut off"):
        await roads.freight.bring((0, 1), _root(0), 2 * MB)
    await roads.freight.bring((0, 1), _root(0), 2 * MB)  # a quarter of it was there
    assert trio.current_time() == pytest.approx(4.0)


@in_virtual_time
async def test_what_a_cut_holds_up_goes_on_where_it_stood() -> None:
    roads = Roads((MB, MB), (MB, MB))
    load = roads.send(0, 1, 2 * MB)
    at(10**9, lambda: roads.network.block((1, 0)))  # one way: no answer comes
    at(11 * 10**9, lambda: roads.network.unblock((1, 0)))
    assert await over_s([load]) == pytest.approx([12.0])
    assert not load.is_lost


@in_virtual_time
async def test_a_stopped_sender_sends_nothing() -> None:
    roads = Roads((MB, MB), (MB, MB))
    load = roads.send(0, 1, 2 * MB)

    def stop(stops: bool) -> None:
        (roads.stopped.add if stops else roads.stopped.discard)(0)
        roads.network.on_change()

    at(10**9, lambda: stop(True))
    at(5 * 10**9, lambda: stop(False))
    assert await over_s([load]) == pytest.approx([6.0])


@in_virtual_time
async def test_what_is_held_up_for_too_long_is_lost_and_its_half_need_not_come_again() -> None:
    roads = Roads((MB, MB), (MB, MB))
    load = roads.send(0, 1, 2 * MB)
    at(10**9, lambda: roads.network.block((0, 1)))
    assert await over_s([load]) == pytest.approx([1.0 + UNACKNOWLEDGED_S_MAX])
    assert load.is_lost
    with pytest.raises(Unavailable, match="cut off"):
        await roads.freight.arrived(1, _root(0))
    roads.network.unblock((0, 1))
    began_s = trio.current_time()
    assert await over_s([roads.send(0, 1, 2 * MB)]) == pytest.approx([began_s + 1.0])
    await roads.freight.arrived(1, _root(0))


@in_virtual_time
async def test_a_load_is_lost_with_either_end_and_with_who_waits_for_it() -> None:
    roads = Roads(*[(MB, MB)] * 3)
    one, other, third = roads.send(0, 1, MB), roads.send(1, 2, MB), roads.send(2, 0, MB)
    roads.freight.cut(0)
    assert (one.is_lost, other.is_lost, third.is_lost) == (True, False, True)
    with trio.move_on_after(0.5):
        await roads.freight.arrived(2, _root(1))
    assert other.is_lost
