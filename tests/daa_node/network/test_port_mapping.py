"""A router is asked once nobody can dial us, again before its promise ends, and told at the end."""

import time
from typing import Any

import pytest
import trio

from daa_node.errors import Unavailable
from daa_node.network.port_mapping import (
    AGAIN_S,
    CLOSE_TIMEOUT_S,
    LEASE_S,
    REFRESH_S,
    UNSURE_S,
    PortMapping,
)
from daa_node.network.reachability import Reach
from daa_node.observability.events import EventLog
from daa_node.seams import Address


class World:
    """A router, and what members found."""

    def __init__(self, outside: str = "8.8.4.4", seen_at: tuple[str, ...] = ("8.8.4.4",)) -> None:
        self.reach, self.is_unsure = Reach.UNREACHABLE, False
        self.outside, self.seen = outside, list(seen_at)
        self.unsure: list[str] = []  # where one member alone sees us
        self.listens = [
            Address("/ip4/127.0.0.1/tcp/7/p2p/x"),
            Address("/ip4/192.168.1.2/tcp/4001/p2p/x"),
        ]
        self.asked: list[float] = []
        self.closed: list[int] = []
        self.claimed: list[tuple[str | None, int]] = []
        self.refusing: Exception | None = None
        self.closing_s = 0.0
        self.events = EventLog(time.time_ns)
        world: Any = self
        self.mapping = PortMapping(world, world, world, self.events)

    def addresses(self) -> list[Address]:
        return self.listens

    def seen_at(self) -> list[str]:
        return [*self.unsure, *self.seen]

    def surely_seen_at(self) -> set[str]:
        return {*self.seen}

    def claim(self, host: str | None, port: int) -> None:
        self.claimed.append((host, port))

    async def open_port(self, port: int, seconds: int) -> tuple[str, int]:
        assert (port, seconds) == (4001, LEASE_S)
        self.asked.append(trio.current_time())
        if self.refusing is not None:
            raise self.refusing
        return self.outside, port + 1

    async def close_port(self, outside: int) -> None:
        await trio.sleep(self.closing_s)
        self.closed.append(outside)

    async def live(self, for_s: float) -> None:
        with trio.move_on_after(for_s):
            await self.mapping.run()

    def told(self) -> list[str]:
        return [event["name"] for event in self.events.tail()]


async def test_a_port_is_claimed_refreshed_and_closed_at_the_end(autojump_clock: object) -> None:
    world = World()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.mapping.run)
        await trio.sleep(10)
        # what was proven stands first from now on, with the port outside
        world.listens.insert(0, Address("/ip4/8.8.4.4/tcp/4002/p2p/x"))
        world.reach = Reach.DIRECT
        await trio.sleep(2 * LEASE_S)
        nursery.cancel_scope.cancel()
    assert world.asked == [REFRESH_S * turn for turn in range(5)]
    assert world.claimed == [("8.8.4.4", 4002), (None, 0)]
    assert world.closed == [4002]
    assert world.told() == ["port_opened"]


async def test_nobody_is_asked_as_long_as_others_may_be_able_to_dial_us(
    autojump_clock: object,
) -> None:
    world = World()
    for world.reach in (Reach.UNKNOWN, Reach.DIRECT):  # the operator insists on the first one
        await world.live(LEASE_S)
    world.reach, world.is_unsure = Reach.UNKNOWN, True
    await world.live(UNSURE_S - 5)
    assert not world.asked
    assert world.closed == []


async def test_where_too_few_members_say_for_long_the_router_is_asked_all_the_same(
    autojump_clock: object,
) -> None:
    world = World(seen_at=())
    world.reach, world.is_unsure = Reach.UNKNOWN, True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.mapping.run)
        await trio.sleep(UNSURE_S / 2)
        world.is_unsure = False  # others have come, and gone again
        await trio.sleep(2)
        world.is_unsure = True
        await trio.sleep(UNSURE_S - 5)
        assert not world.asked
        await trio.sleep(10)
        assert len(world.asked) == 1
        assert world.claimed == [("8.8.4.4", 4002)]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("outside", "seen_at", "why"),
    [
        ("100.64.1.2", ("8.8.4.4",), "a private one, and members see us at 8.8.4.4: another"),
        ("192.168.0.2", (), "a private one: another router"),
        ("8.8.8.8", ("8.8.4.4",), "not ours, and members see us at 8.8.4.4"),
    ],
)
async def test_a_router_behind_another_one_is_told_of_and_its_port_is_closed(
    outside: str, seen_at: tuple[str, ...], why: str, autojump_clock: object
) -> None:
    world = World(outside, seen_at)
    await world.live(2 * AGAIN_S + 10)
    assert len(world.asked) == 3
    assert world.closed == [4002] * 3
    assert all(host is None for host, _ in world.claimed)
    assert why in world.mapping.standing()["why"]
    assert world.mapping.standing()["open"] is None
    assert world.told() == ["port_refused"]


async def test_one_member_alone_does_not_say_that_the_router_s_address_is_ours(
    autojump_clock: object,
) -> None:
    world = World("100.64.1.2")
    world.unsure = ["100.64.1.2"]
    await world.live(10)
    assert world.told() == ["port_refused"]
    assert world.mapping.standing()["why"].endswith(
        "is a private one, and members see us at 8.8.4.4: another router is before it"
    )
    few = World(seen_at=())
    few.unsure = ["8.8.4.4"]  # nobody else has looked yet
    await few.live(10)
    assert few.told() == ["port_opened"]


async def test_a_home_that_gets_another_address_is_claimed_there_as_soon_as_members_see_it(
    autojump_clock: object,
) -> None:
    world = World()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.mapping.run)
        await trio.sleep(10)
        world.reach, world.outside = Reach.DIRECT, "8.8.4.5"
        await trio.sleep(60)  # nobody has noticed yet
        assert world.asked == [0]
        world.seen = ["8.8.4.5"]
        await trio.sleep(10)
        assert world.claimed == [("8.8.4.4", 4002), ("8.8.4.5", 4002)]
        assert world.closed == []
        nursery.cancel_scope.cancel()


async def test_a_host_that_has_another_address_at_home_has_its_port_opened_there(
    autojump_clock: object,
) -> None:
    world = World()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.mapping.run)
        await trio.sleep(10)
        world.listens.append(Address("/ip4/172.17.0.1/tcp/4001/p2p/x"))  # a bridge to containers
        await trio.sleep(10)
        assert (len(world.asked), world.closed) == (1, [])
        world.listens[1] = Address("/ip4/192.168.1.7/tcp/4001/p2p/x")  # from the air to the wire
        await trio.sleep(10)
        assert world.closed == [4002]
        assert world.claimed == [("8.8.4.4", 4002), (None, 0), ("8.8.4.4", 4002)]
        nursery.cancel_scope.cancel()


async def test_a_new_address_that_the_router_tells_before_members_do_is_claimed_soon(
    autojump_clock: object,
) -> None:
    world = World()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.mapping.run)
        await trio.sleep(10)
        world.outside = "8.8.4.5"
        await trio.sleep(REFRESH_S)  # the router is asked, and seems to be behind another one
        assert world.claimed == [("8.8.4.4", 4002), (None, 0)]
        world.seen = ["8.8.4.5"]
        await trio.sleep(10)
        assert world.claimed == [("8.8.4.4", 4002), (None, 0), ("8.8.4.5", 4002)]
        nursery.cancel_scope.cancel()


async def test_a_member_that_sees_us_where_we_were_seen_no_longer_changes_nothing(
    autojump_clock: object,
) -> None:
    """Fewer places, or the same in another order, are none that are new."""
    world = World(seen_at=("8.8.4.4", "8.8.4.5"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.mapping.run)
        await trio.sleep(10)
        for world.seen in (["8.8.4.4"], ["8.8.4.5", "8.8.4.4"], []):
            await trio.sleep(10)
        assert world.asked == [0]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("closing_s", "held_up_s", "closed"),
    [(CLOSE_TIMEOUT_S - 1, CLOSE_TIMEOUT_S - 1, [4002]), (60.0, CLOSE_TIMEOUT_S, [])],
    ids=["slow", "silent"],
)
async def test_who_is_stopped_closes_its_port_and_waits_for_no_silent_router(
    closing_s: float, held_up_s: float, closed: list[int], autojump_clock: object
) -> None:
    world = World()
    world.closing_s = closing_s
    began_s = trio.current_time()
    await world.live(10)
    assert trio.current_time() - began_s == pytest.approx(10 + held_up_s)
    assert world.closed == closed


async def test_a_router_that_refuses_is_asked_again_much_later(autojump_clock: object) -> None:
    world = World()
    world.refusing = Unavailable("no router answers to UPnP")
    await world.live(AGAIN_S - 5)
    assert len(world.asked) == 1
    world.refusing = None
    await world.live(10)
    assert world.mapping.standing()["why"] == "the router lets others in at 8.8.4.4:4002"


async def test_who_listens_for_its_own_host_alone_asks_nobody(autojump_clock: object) -> None:
    world = World()
    del world.listens[1]
    await world.live(AGAIN_S)
    assert not world.asked
