"""What strangers ask lies with their connections; members are told until enough have heard."""

from types import SimpleNamespace
from typing import cast

import pytest
import trio

from daa_node.agreement.doorstep import Doorstep
from daa_node.errors import Unavailable, UserError
from daa_node.network.requests import Requests
from daa_node.seams import PeerId

ALICE, BOB, CAROL = (PeerId(name) for name in ("alice", "bob", "carol"))


class World:
    """Members that answer, refuse, or say nothing."""

    def __init__(self, *silent: PeerId, refuses: tuple[PeerId, ...] = ()) -> None:
        self.connected = [ALICE, BOB, CAROL]
        self.heard: list[tuple[PeerId, str, bytes]] = []

        async def ask(peer_id: PeerId, name: str, payload: bytes, _bytes_max: int) -> bytes:
            if peer_id in silent:
                await trio.sleep_forever()
            if peer_id in refuses:
                raise Unavailable("no room")
            self.heard.append((peer_id, name, payload))
            return b""

        requests = cast(Requests, SimpleNamespace(ask=ask))
        self.doorstep = Doorstep[str](
            requests, lambda: list(self.connected), lambda: self.connected
        )


def test_each_has_one_place_which_goes_with_its_connection() -> None:
    world = World()
    doorstep = world.doorstep
    assert doorstep.put(ALICE, "first")
    assert not doorstep.put(ALICE, "second")
    assert doorstep.put(BOB, "other")
    assert doorstep.here() == [(ALICE, "second"), (BOB, "other")]
    world.connected.remove(ALICE)
    assert doorstep.here() == [(BOB, "other")]
    doorstep.put(CAROL, "third")  # what lay there of who has gone is forgotten
    world.connected.append(ALICE)
    assert doorstep.here() == [(BOB, "other"), (CAROL, "third")]
    assert doorstep.put(ALICE, "again")


async def test_who_says_nothing_is_not_waited_for_once_enough_have_heard(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World(CAROL)
    with trio.fail_after(1):
        await world.doorstep.tell_members("word", b"x", are_enough=lambda heard: len(heard) == 2)
    assert sorted(world.heard) == [(peer, "word", b"x") for peer in (ALICE, BOB)]
    began_s = trio.current_time()
    await world.doorstep.tell_members("word", b"x", within_s=5)
    assert trio.current_time() - began_s == pytest.approx(5)


async def test_that_nobody_takes_it_is_said_with_a_reason() -> None:
    world = World(refuses=(ALICE, BOB, CAROL))
    with pytest.raises(UserError, match="has taken this: .*no room"):
        await world.doorstep.tell_members("word", b"x")
    world.connected.clear()
    with pytest.raises(UserError, match="no member of the network has taken this. "):
        await world.doorstep.tell_members("word", b"x")
