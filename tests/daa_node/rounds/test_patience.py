"""Patience begins when a quorum holds what most made; before, when it holds our own update."""

from collections.abc import Iterable

import pytest
import trio
import trio.testing

from daa_consensus.votes import Kind, Signed
from daa_dag.ids import NodeId
from daa_node.rounds.closing import CLOSE_CHECK_S, CLOSE_CHECK_SHARE
from daa_node.rounds.collect import Collection
from daa_node.rounds.gather import Gather
from tests.daa_node.rounds.test_rehearsal import NODES, Scene, offer_of, said


class Asked:
    """A closing rule that never closes and remembers since when it was asked to be patient."""

    def __init__(self) -> None:
        self.since_s: float | None = None
        self.times = 0

    def __call__(self, collection: Collection, elapsed_s: float, since_s: float | None) -> None:
        self.since_s = since_s
        self.times += 1


def acknowledge(gather: Gather, authors: Iterable[NodeId]) -> None:
    """Their offers, and a quorum's Acks of them."""
    offers = [offer_of(author) for author in authors]
    for offer in offers:
        gather.hear(said(offer.author, Kind.OFFER, offer.as_value()))
    for node in NODES[1:]:
        gather.hear(said(node, Kind.ACK, sorted(offer.root for offer in offers)))


async def test_who_uploads_for_long_is_patient_only_then(autojump_clock: object) -> None:
    asked, scene = Asked(), Scene()
    gather = Gather(scene.context, asked)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        gather.closing.own_ready()
        await trio.sleep(30.0)
        assert asked.since_s is None
        acknowledge(gather, NODES[:1])
        await trio.sleep(2.0)
        assert asked.since_s == pytest.approx(2.0, abs=0.1)
        assert gather.closing.spread_s == 0.0
        nursery.cancel_scope.cancel()


async def test_an_update_that_nobody_gets_holds_up_until_half_are_there(
    autojump_clock: object,
) -> None:
    asked, scene = Asked(), Scene()
    gather = Gather(scene.context, asked)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        gather.closing.own_ready()
        acknowledge(gather, NODES[1:3])
        await trio.sleep(5.0)
        assert asked.since_s is None
        acknowledge(gather, NODES[1:4])
        await trio.sleep(2.0)
        assert asked.since_s == pytest.approx(2.0, abs=0.1)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("makes_one", [True, False])
async def test_who_is_done_first_is_patient_from_when_most_are(
    makes_one: bool, autojump_clock: object
) -> None:
    asked, scene = Asked(), Scene()
    gather = Gather(scene.context, asked)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        (gather.closing.own_ready if makes_one else gather.closing.own_missing)()
        acknowledge(gather, NODES[:1])
        await trio.sleep(5.0)
        assert asked.since_s == pytest.approx(5.0, abs=0.3)
        acknowledge(gather, NODES[:3])
        await trio.sleep(2.0)
        assert asked.since_s == pytest.approx(2.0, abs=0.1)
        assert gather.closing.spread_s == (0.0 if makes_one else None)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("comes", [True, False])
async def test_who_stays_away_teaches_nobody_less_patience_with_the_slowest(
    comes: bool, autojump_clock: object
) -> None:
    scene = Scene()
    gather = Gather(scene.context, Asked())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        here = NODES[3:] if comes else []
        acknowledge(gather, here)
        for node, after_s in zip(NODES[:3], (40.0, 10.0, 6.0), strict=True):
            await trio.sleep(after_s)
            if node == NODES[0]:
                gather.closing.own_ready()
            acknowledge(gather, here := [*here, node])
        await trio.testing.wait_all_tasks_blocked()
        assert gather.closing.spread_s == pytest.approx(6.0, abs=0.1)
        nursery.cancel_scope.cancel()


async def test_the_closing_rule_is_asked_when_more_counts_and_not_at_every_word(
    mock_clock: trio.testing.MockClock,
) -> None:
    asked, scene = Asked(), Scene()
    gather = Gather(scene.context, asked)
    offers = [offer_of(author) for author in NODES]

    async def asks_for(*words: Signed) -> int:
        before = asked.times
        for word in words:
            gather.hear(word)
            await trio.testing.wait_all_tasks_blocked()
        return asked.times - before

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        await trio.testing.wait_all_tasks_blocked()
        assert asked.times == 1
        roots = sorted(offer.root for offer in offers)
        assert not await asks_for(
            *(said(offer.author, Kind.OFFER, offer.as_value()) for offer in offers),
            *(said(node, Kind.ACK, roots) for node in NODES[1:3]),
        )
        assert await asks_for(said(NODES[3], Kind.ACK, roots[:1])) == 1
        assert await asks_for(said(NODES[3], Kind.ACK, roots)) == 1
        mock_clock.jump(scene.context.rules.rounds.window_s)
        await trio.testing.wait_all_tasks_blocked()
        assert asked.times == 4
        nursery.cancel_scope.cancel()


async def test_the_closing_rule_is_asked_at_the_windows_end_and_not_before(
    autojump_clock: object,
) -> None:
    asked, scene = Asked(), Scene()
    scene.agreement.round_began_s = trio.current_time() - 20.0  # others have been in it for so long
    gather = Gather(scene.context, asked)
    window_s = scene.context.rules.rounds.window_s
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        await trio.sleep(window_s - 20.1)
        assert asked.times == 1
        await trio.sleep(0.2)
        assert asked.times >= 2
        nursery.cancel_scope.cancel()


async def test_who_has_waited_for_long_asks_more_seldom_and_is_a_twentieth_late_at_most(
    autojump_clock: object,
) -> None:
    asked, scene = Asked(), Scene()
    gather = Gather(scene.context, asked)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        gather.closing.own_ready()
        acknowledge(gather, NODES[:1])
        began_s = trio.current_time()
        for waited_s in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
            await trio.sleep_until(began_s + waited_s)
            assert asked.since_s is not None
            late_s = waited_s - asked.since_s
            assert late_s <= max(CLOSE_CHECK_S, CLOSE_CHECK_SHARE * waited_s) + 0.001
        assert asked.times < 90  # a twentieth of a second each would be 320
        nursery.cancel_scope.cancel()
