"""One Ack names all that came within a while, and the one that names all waits for nothing."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from daa_consensus.votes import Kind
from daa_node.rounds.gather import ACK_MEMBERS_PER_DELTA, Gather
from tests.daa_node.rounds.test_patience import Asked
from tests.daa_node.rounds.test_rehearsal import NODES, Scene, offer_of, said


def offer(gather: Gather, author_index: int) -> None:
    made = offer_of(NODES[author_index])
    gather.hear(said(made.author, Kind.OFFER, made.as_value()))


@pytest.mark.parametrize("last_comes_too", [True, False])
async def test_one_ack_names_what_came_within_a_while_and_the_last_one_waits_for_nothing(
    autojump_clock: object, last_comes_too: bool
) -> None:
    scene = Scene()
    while_s = scene.agreement.delta_s * len(NODES) / ACK_MEMBERS_PER_DELTA
    gather = Gather(scene.context, Asked())

    def named() -> list[int]:
        return [len(roots) for roots in scene.agreement.acks() if isinstance(roots, list)]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        for author in range(4 if last_comes_too else 3):
            offer(gather, author)
            await trio.sleep(while_s / 8)
        assert named() == ([4] if last_comes_too else [])
        await trio.sleep(2 * while_s)
        assert named() == ([4] if last_comes_too else [3])
        if not last_comes_too:
            offer(gather, 3)
            await trio.sleep(while_s / 8)
            assert named() == [3, 4]
        nursery.cancel_scope.cancel()


async def test_what_was_damaged_since_stays_in_the_acks_that_follow(
    autojump_clock: object,
) -> None:
    scene = Scene()
    gather = Gather(scene.context, Asked())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        offer(gather, 0)
        await trio.sleep(scene.agreement.delta_s)
        gather.collection.lost(offer_of(NODES[0]).root)
        offer(gather, 1)
        await trio.sleep(scene.agreement.delta_s)
        nursery.cancel_scope.cancel()
    both = sorted(offer_of(node).root for node in NODES[:2])
    assert scene.agreement.acks() == [[offer_of(NODES[0]).root], both]


async def test_what_was_shown_and_is_held_is_acked_once_its_author_is_heard(
    autojump_clock: object,
) -> None:
    """Others show it with their Acks, it is fetched, and the Offer comes last."""
    scene = Scene()
    gather, shown = Gather(scene.context, Asked()), offer_of(NODES[0])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        gather.shown([shown], [said(node, Kind.ACK, [shown.root]) for node in NODES[1:]])
        await trio.sleep(scene.agreement.delta_s)
        assert scene.agreement.acks() == []
        offer(gather, 0)
        await trio.sleep(scene.agreement.delta_s)
        assert scene.agreement.acks() == [[shown.root]]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("others_come", [True, False])
async def test_whom_we_shun_we_acknowledge_only_where_too_few_are_left_to_merge(
    autojump_clock: object, others_come: bool
) -> None:
    scene = Scene()
    shunning = cast(Any, SimpleNamespace(shunned=lambda: frozenset({NODES[0]})))
    gather = Gather(replace(scene.context, disputes=shunning), Asked())
    window_s = scene.context.rules.rounds.window_s
    others = [sorted(offer_of(node).root for node in NODES[1:])] if others_come else []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        for author in range(4 if others_come else 1):
            offer(gather, author)
        for node in NODES[1:]:
            gather.hear(said(node, Kind.ACK, *others or [[]]))
        await trio.sleep(window_s / 2)
        assert scene.agreement.acks() == others
        await trio.sleep(window_s / 2)
        nursery.cancel_scope.cancel()
    named = {root for roots in scene.agreement.acks() for root in cast(list[bytes], roots)}
    assert (offer_of(NODES[0]).root in named) == (not others_come)


class Steps(trio.abc.Instrument):
    """How often a task ran."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_an_ack_that_changes_nothing_here_wakes_nobody(autojump_clock: object) -> None:
    scene, steps, acks = Scene(), Steps(), 20
    gather = Gather(scene.context, Asked())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        nursery.start_soon(gather.expected)  # as whoever would execute the set beforehand
        offer(gather, 0)
        await trio.sleep(scene.agreement.delta_s)
        trio.lowlevel.add_instrument(steps)
        for _ in range(acks):
            gather.hear(said(NODES[1], Kind.ACK, [offer_of(NODES[0]).root]))
            await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(steps)
        nursery.cancel_scope.cancel()
    assert steps.count <= acks + 1  # our own steps, and the look of a clock
