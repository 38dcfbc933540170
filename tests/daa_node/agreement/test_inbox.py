"""Whoever waits for an event gets it when it comes, and a Tick at its deadline, not later."""

import random

import pytest
import trio
import trio.testing

from daa_consensus.bft.events import RoundReady, Tick
from daa_node.agreement.inbox import Inbox


@pytest.mark.parametrize("seed", range(10))
async def test_a_deadline_that_moves_to_and_fro_is_kept_and_no_event_waits(
    seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    """One alarm serves all deadlines: those before it, after it, and those that are over."""
    chance, inbox, came_s = random.Random(seed), Inbox(), dict[int, float]()
    ticks = 0

    async def bring() -> None:
        for number in range(200):
            await trio.sleep(chance.choice((0.0, 0.5, 1.0, 3.0)))
            came_s[number] = trio.current_time()
            if chance.random() < 0.5:
                inbox.step_with(RoundReady(number))
            else:
                await inbox.deliver(None, RoundReady(number))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox.run)
        nursery.start_soon(bring)
        while len(came_s) < 200 or inbox._first or inbox._arrived:
            began_s = trio.current_time()
            in_s = chance.choice((-1.0, 0.0, 0.25, 1.0, 2.0, 50.0, None))
            due_s = began_s + 1e3 if in_s is None else max(began_s, began_s + in_s)
            _, event = await inbox.next(None if in_s is None else round((began_s + in_s) * 1e9))
            if isinstance(event, Tick):
                assert trio.current_time() == pytest.approx(due_s)
                ticks += 1
                await trio.sleep(0.25)  # a deadline that is over must not stop the clock
                continue
            assert isinstance(event, RoundReady)
            assert trio.current_time() == max(began_s, came_s.pop(event.round, began_s))
            came_s[event.round] = trio.current_time()
            if chance.random() < 0.2:
                await trio.sleep(chance.choice((0.25, 5.0)))  # it is we who are busy
        nursery.cancel_scope.cancel()
    assert ticks > 20
