"""Patience begins when a quorum holds our own update: the others' take the same way."""

from collections.abc import Iterable

import pytest
import trio
import trio.testing

from daa_consensus.votes import Kind, Signed
from daa_dag.ids import NodeId
from daa_node.rounds.closing import CALM_CHECK_S
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
        mock_clock.jump(CALM_CHECK_S)
        await trio.testing.wait_all_tasks_blocked()
        assert asked.times == 4
        nursery.cancel_scope.cancel()
