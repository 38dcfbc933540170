"""Who is relayed is asked for a hole, one after another, by one of the two, and not for ever."""

import time
from typing import Any

import pytest
import trio

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault, Unavailable
from daa_node.network import hole_punching
from daa_node.network.hole_punching import PUNCH_TIMEOUT_S, SETTLE_S, WAITS_S, HolePunching
from daa_node.observability.events import EventLog
from daa_node.seams import PeerId
from daa_node.wire.framing import TRUNCATED

AFTER, LATER = PeerId("b"), PeerId("c")
BEFORE = PeerId("A")


class World:
    """We are "a"; all others here are relayed."""

    peer_id = PeerId("a")

    def __init__(self, *here: PeerId) -> None:
        self.here = list(here)
        self.asked: list[tuple[float, PeerId]] = []
        self.failing: dict[PeerId, Exception] = {}
        self.never_ends: set[PeerId] = set()
        self.punched: set[PeerId] = set()
        self.members: set[PeerId] = set()
        self.blamed: list[PeerId] = []
        self.looked_up: set[PeerId] = set()
        self.events = EventLog(time.time_ns)
        world: Any = self
        self.punching = HolePunching(
            world,
            world,
            self.is_relayed,
            lambda peer: NodeId(peer.encode()),
            lambda peer: peer in self.members,
            lambda peer, _: self.blamed.append(peer),
            self.events,
        )

    def connected(self) -> list[PeerId]:
        return self.here

    async def punch(self, peer_id: PeerId) -> None:
        self.asked.append((trio.current_time(), peer_id))
        if peer_id in self.failing:
            raise self.failing[peer_id]
        if peer_id in self.never_ends:
            await trio.sleep_forever()
        self.punched.add(peer_id)

    def told(self, name: str, *fields: str) -> list[tuple[Any, ...]]:
        """Of each such event."""
        events = [event for event in self.events.tail() if event["name"] == name]
        return [tuple(event[field] for field in fields) for event in events]

    def is_punched(self, peer_id: PeerId) -> bool:
        return peer_id in self.punched

    def is_relayed(self, peer_id: PeerId) -> bool:
        self.looked_up.add(peer_id)
        return peer_id not in self.punched

    async def live(self, for_s: float) -> None:
        with trio.move_on_after(for_s):
            await self.punching.run()


async def test_the_smaller_of_two_asks_and_both_tell_of_it(autojump_clock: object) -> None:
    world = World(BEFORE, AFTER, LATER)
    await world.live(20)
    assert [peer for _, peer in world.asked] == [AFTER, LATER]
    world.punched.add(BEFORE)  # it asked us
    await world.live(5)
    told = world.told("hole_punched", "peer_id", "node_id")
    assert told == [(peer, peer.encode().hex()) for peer in (AFTER, LATER, BEFORE)]
    assert world.punching.standing()["punched"] == [BEFORE, AFTER, LATER]


async def test_who_is_relayed_has_a_reason_before_anything_has_failed() -> None:
    world = World(BEFORE, AFTER)
    assert world.punching.why_none(BEFORE) == "no hole yet: that node is to ask for one"
    assert world.punching.why_none(AFTER) == "no hole yet: it is tried soon"


async def test_what_fails_is_tried_less_and_less_often_also_when_it_comes_again(
    autojump_clock: object,
) -> None:
    world = World(AFTER)
    world.failing[AFTER] = Unavailable("another port each time")
    await world.live(10)
    assert len(world.asked) == 1
    for here in ([], [AFTER]):
        world.here = here
        await world.live(WAITS_S[0] / 4)
    assert len(world.asked) == 1
    await world.live(sum(WAITS_S) + WAITS_S[-1] + 60)
    waits = [
        late - early for (early, _), (late, _) in zip(world.asked, world.asked[1:], strict=False)
    ]
    assert waits == pytest.approx([*WAITS_S, WAITS_S[-1]], abs=3)
    assert world.punching.standing()["not_punched"] == {AFTER: "another port each time"}
    assert world.punching.why_none(AFTER) == "no hole: another port each time"
    assert not world.blamed
    told = world.told("hole_failed", "peer_id", "node_id", "why", "failures")
    names = AFTER, AFTER.encode().hex(), "another port each time"
    assert told == [(*names, failures) for failures in range(1, len(world.asked) + 1)]


async def test_who_failed_and_has_gone_is_forgotten_once_it_might_be_asked_again(
    autojump_clock: object,
) -> None:
    world = World(AFTER)
    world.failing[AFTER] = Unavailable("another port each time")
    await world.live(5)
    world.here = []
    await world.live(WAITS_S[0] - 5)
    assert world.punching.standing()["not_punched"] == {AFTER: "another port each time"}
    await world.live(5)
    assert world.punching.standing()["not_punched"] == {}


async def test_who_leaves_before_it_is_asked_takes_no_place(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hole_punching, "TRIES_KEPT_MAX", 1)
    world = World(AFTER)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.live, 20)
        await trio.sleep(1.5)
        assert world.punching.why_none(AFTER) == "no hole yet: it is tried soon"
        world.here = [LATER]
    assert world.asked == [(2 + SETTLE_S, LATER)]


async def test_the_wait_begins_where_the_failure_has_ended(autojump_clock: object) -> None:
    world = World(AFTER)
    world.never_ends.add(AFTER)
    await world.live(SETTLE_S + PUNCH_TIMEOUT_S + WAITS_S[0] + 10)
    first, second = (at_s for at_s, _ in world.asked)
    assert second - first == pytest.approx(PUNCH_TIMEOUT_S + WAITS_S[0], abs=2)


async def test_who_goes_away_in_the_middle_of_a_word_has_told_no_lie(
    autojump_clock: object,
) -> None:
    world = World(AFTER)
    world.failing[AFTER] = PeerFault(TRUNCATED, "the stream ended")
    await world.live(10)
    assert not world.blamed
    assert world.punching.standing()["not_punched"] == {AFTER: f"{world.failing[AFTER]}"}


async def test_who_talks_nonsense_is_blamed_and_who_never_ends_holds_up_nobody_for_long(
    autojump_clock: object,
) -> None:
    world = World(AFTER, LATER)
    world.failing[AFTER] = PeerFault("punch-malformed", "no word of punching")
    await world.live(WAITS_S[0])
    assert world.blamed == [AFTER]
    assert LATER in world.punched


async def test_who_has_gone_is_asked_for_nothing_and_who_never_ends_has_failed(
    autojump_clock: object,
) -> None:
    world = World(AFTER, LATER)
    world.failing[AFTER] = Unavailable("another port each time")
    world.never_ends.add(LATER)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.live, 10 * WAITS_S[0])
        await trio.sleep(WAITS_S[0] - 1)
        world.here.remove(AFTER)
    assert [peer for _, peer in world.asked].count(AFTER) == 1
    assert "no end within 60 s" in world.punching.why_none(LATER)


async def test_members_come_before_strangers_that_came_first(autojump_clock: object) -> None:
    world = World(AFTER, LATER)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.live, 20)
        await trio.sleep(2.5)  # both are known by now, and neither is due
        member = PeerId("d")
        world.here.append(member)
        world.members |= {LATER, member}
    assert [peer for _, peer in world.asked] == [LATER, AFTER, member]


async def test_who_was_not_tried_yet_comes_before_who_is_due_again(autojump_clock: object) -> None:
    world = World(AFTER)
    world.failing[AFTER] = Unavailable("another port each time")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.live, 30)
        await trio.sleep(WAITS_S[0] + 0.5)
        world.here.append(LATER)
    first, *others = world.asked
    assert first[1] == AFTER
    assert [peer for _, peer in others] == [LATER, AFTER]
    assert others[0][0] == first[0] + WAITS_S[0]  # both were due at this look


async def test_a_hole_that_ends_is_punched_anew(autojump_clock: object) -> None:
    world = World(AFTER)
    await world.live(10)
    world.punched.clear()
    await world.live(10)
    assert [peer for _, peer in world.asked] == [AFTER, AFTER]


async def test_no_more_peers_are_kept_in_mind_than_there_may_be(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hole_punching, "TRIES_KEPT_MAX", 2)
    world = World(AFTER, LATER, PeerId("d"))
    for peer in world.here:
        world.failing[peer] = Unavailable("no")
    await world.live(WAITS_S[0])
    assert len(world.asked) == 2


async def test_of_who_asks_us_nothing_is_looked_up_and_nobody_kept_from_a_place(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hole_punching, "TRIES_KEPT_MAX", 1)
    world = World(BEFORE, AFTER)
    await world.live(20)
    assert [peer for _, peer in world.asked] == [AFTER]
    assert world.looked_up == {AFTER}


async def test_who_is_punched_is_not_looked_up(autojump_clock: object) -> None:
    world = World(AFTER)
    world.punched.add(AFTER)
    await world.live(5)
    assert not world.looked_up
