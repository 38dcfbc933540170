"""A copy is void in the round in which it comes; a leader that voids anything else is refused."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import trio
import trio.testing

from daa_consensus.bft.messages import SetPayload
from daa_consensus.votes import Kind
from daa_dag.ids import Digest, NodeId
from daa_node.observability import events
from daa_node.observability.events import Event, EventName
from daa_node.rounds.gather import Gather
from daa_node.rounds.synchronous import SynchronousRound
from daa_node.spot_checks.copies import MILLIONTHS, Likeness, Update
from tests.daa_node.rounds.test_rehearsal import (
    AGGREGATION_S,
    NODES,
    Agreement,
    Scene,
    all_are_here,
    offer_of,
    result_of,
    said,
    set_of,
)

ALICE, BOB, CAROL, DAVE = NODES
FULL = 5_120


@dataclass
class Led(Agreement):
    aborts: list[int] = field(default_factory=list)

    def abort_due(self, round_number: int) -> None:
        self.aborts.append(round_number)


@dataclass
class Copies:
    """A comparison by which some pairs are the same."""

    pairs: list[tuple[NodeId, NodeId]]
    asked: int = 0

    def __call__(self, updates: Sequence[Update], seed: Digest, liars_max: int) -> Likeness:
        count = len(updates)
        assert liars_max == (count == len(NODES))  # of four members one; none of three beside DAVE
        self.asked += 1
        apart = [[MILLIONTHS] * count for _ in range(count)]
        for one, other in self.pairs:
            at, to = NODES.index(one), NODES.index(other)
            if max(at, to) < count:
                apart[at][to] = apart[to][at] = 0
        return Likeness(apart, liars_max)


@dataclass
class Stage:
    scene: Scene
    copies: Copies

    @property
    def agreement(self) -> Led:
        assert isinstance(self.scene.agreement, Led)
        return self.scene.agreement

    def hear(self, order: Sequence[NodeId]) -> None:
        listener = self.agreement.listener
        assert listener is not None
        for author in order:
            listener.hear(said(author, Kind.OFFER, offer_of(author).as_value()))
        roots = sorted(offer_of(author).root for author in NODES)
        for node in NODES[1:]:
            listener.hear(said(node, Kind.ACK, [*roots]))

    def words(self, name: EventName) -> list[Event]:
        return [each for each in self.scene.events.tail() if each["name"] == name]


@asynccontextmanager
async def walking(
    *pairs: tuple[NodeId, NodeId], trainers: Sequence[NodeId] = ()
) -> AsyncIterator[Stage]:
    scene = Scene()
    scene.agreement = Led()
    copies = Copies([*pairs])
    rules, plan = replace(scene.context.rules, compare=copies), scene.context.plan
    shares = tuple(replace(each, votes=each.author not in trainers) for each in plan.shares)
    scene.context = replace(
        scene.context,
        agreement=scene.agreement,  # type: ignore[arg-type]
        rules=rules,
        plan=replace(plan, shares=shares),
    )
    scene.walk = SynchronousRound(scene.context, None, all_are_here)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.walk.run)
        await trio.testing.wait_all_tasks_blocked()
        yield Stage(scene, copies)
        nursery.cancel_scope.cancel()


def voiding(*authors: NodeId) -> SetPayload:
    payload = set_of(4)
    weights = tuple(0 if node in authors else FULL for node in NODES)
    return replace(payload, weights=weights)


async def proposed(stage: Stage) -> tuple[int, ...]:
    assert stage.agreement.listener is not None
    await trio.sleep(1)
    return (await stage.agreement.listener.proposal()).weights


async def test_a_leader_voids_what_it_heard_of_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with walking((BOB, DAVE)) as stage:
        stage.hear([ALICE, BOB, CAROL, DAVE])
        assert await proposed(stage) == (FULL, FULL, FULL, 0)
    async with walking((BOB, DAVE)) as stage:
        stage.hear([DAVE, CAROL, BOB, ALICE])
        assert await proposed(stage) == (FULL, 0, FULL, FULL)


async def test_a_trainer_counts_nothing_where_too_few_came_and_is_no_copy_for_that(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Three members and a trainer do not hold off two: whoever leads or votes sees it alike."""
    async with walking(trainers=[DAVE]) as stage:
        stage.hear(NODES)
        listener = stage.agreement.listener
        assert listener is not None
        assert stage.scene.context.rules.f_agg(stage.scene.context.plan) == 1
        await trio.sleep(1)
        assert (await listener.proposal()).weights == (FULL, FULL, FULL, 0)
        assert await listener.judge(voiding(DAVE)) is None
        assert await listener.judge(voiding()) is not None
        wronged = await listener.judge(voiding(BOB, DAVE))
        assert str(wronged).startswith(f"no weight for {BOB.hex()[:8]}: ")


async def test_a_leader_never_voids_its_own(autojump_clock: trio.testing.MockClock) -> None:
    """After a restart it may hear of all at once, its own among the last."""
    async with walking((ALICE, DAVE)) as stage:
        stage.hear([DAVE, CAROL, BOB, ALICE])
        assert await proposed(stage) == (FULL, FULL, FULL, 0)


async def test_a_copy_counts_where_the_rule_would_not_hold_without_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Else who copies could abort each round in which somebody is away."""
    async with walking((BOB, DAVE), (ALICE, CAROL)) as stage:
        stage.hear(NODES)
        assert await proposed(stage) == (FULL,) * 4


async def test_a_justified_set_is_executed_without_the_copy(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with walking((BOB, DAVE)) as stage:
        stage.hear(NODES)
        await trio.sleep(1)
        assert await stage.scene.judged(voiding(DAVE)) is None
        await trio.testing.wait_all_tasks_blocked()
        stage.agreement.decide(voiding(DAVE))
        await trio.sleep(AGGREGATION_S + 0.1)
        assert [[u.author for u in o.updates] for o in stage.scene.trainer.orders] == [
            [ALICE, BOB, CAROL]
        ]
        assert stage.scene.walk.happened.stepped == result_of(3)
        assert len(stage.agreement.execs()) == 1
        (found,) = stage.words(events.COPY_FOUND)
        assert found["author"] == DAVE.hex()
        assert found["root"] == offer_of(DAVE).root.hex()
        assert found["origin"] == BOB.hex()
        assert found["origin_root"] == offer_of(BOB).root.hex()
        assert found["voided"] is True


async def test_a_set_that_voids_no_copy_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with walking((BOB, DAVE)) as stage:
        stage.hear(NODES)
        await trio.sleep(1)
        assert "no copy" in str(await stage.scene.judged(voiding(CAROL)))
        assert "no weight" in str(await stage.scene.judged(voiding(BOB, DAVE)))
        assert await stage.scene.judged(voiding(*NODES)) is not None


async def test_a_set_that_leaves_too_few_for_its_rule_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Else a leader could have rounds aborted in which somebody copies."""
    async with walking((BOB, DAVE), (ALICE, CAROL)) as stage:
        stage.hear(NODES)
        await trio.sleep(1)
        assert "trimmed_mean" in str(await stage.scene.judged(voiding(CAROL, DAVE)))


async def test_a_set_that_voids_the_first_of_two_is_refused_however_often_it_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nobody's work is void unless more than liars can be heard of its copy first."""
    async with walking((BOB, DAVE)) as stage:
        stage.hear(NODES)
        await trio.sleep(1)
        for _ in range(4):
            assert "came first" in str(await stage.scene.judged(voiding(BOB)))
        assert await stage.scene.judged(voiding(DAVE)) is None


async def test_who_has_heard_of_neither_itself_has_no_opinion(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What somebody shows comes in no order."""
    async with walking((BOB, DAVE)) as stage:
        assert stage.agreement.listener is not None
        roots = sorted(offer_of(author).root for author in NODES)
        acks = [said(node, Kind.ACK, [*roots]) for node in NODES[1:]]
        stage.agreement.listener.shown([offer_of(author) for author in NODES], acks)
        await trio.sleep(1)
        assert await stage.scene.judged(voiding(BOB)) is None
        assert await stage.scene.judged(voiding(DAVE)) is None


async def test_after_two_sets_in_vain_a_copy_counts(autojump_clock: trio.testing.MockClock) -> None:
    """Where honest nodes heard of the two in another order, no such set may find a quorum."""
    async with walking((BOB, DAVE)) as stage:
        stage.hear(NODES)
        await trio.sleep(1)
        for _ in range(3):
            await stage.scene.judged(voiding(BOB))  # a liar's
        assert await proposed(stage) == (FULL, FULL, FULL, 0)
        assert await stage.scene.judged(voiding(DAVE)) is None
        assert await proposed(stage) == (FULL,) * 4
        assert await stage.scene.judged(voiding(DAVE)) is None
        stage.agreement.decide(set_of(4))
        await trio.sleep(0.1)
        (found,) = stage.words(events.COPY_FOUND)
        assert (found["author"], found["origin"]) == (DAVE.hex(), BOB.hex())
        assert found["voided"] is False


async def test_nothing_is_compared_where_a_set_voids_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with walking((BOB, DAVE)) as stage:
        stage.hear(NODES)
        await trio.sleep(1)
        assert await stage.scene.judged(set_of(4)) is None
        assert stage.copies.asked == 0


async def test_a_set_of_nothing_is_proposed_and_judged_as_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scene = Scene()
    copies = Copies([])
    rules = replace(scene.context.rules, compare=copies)
    gather = Gather(replace(scene.context, rules=rules), lambda *_: "nobody is there")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather._close)
        nothing = await gather.proposal()
        assert nothing.offers == ()
        assert await gather.judge(nothing) is None
        nursery.cancel_scope.cancel()
    assert copies.asked == 0


async def test_who_does_not_hold_all_voids_nobody_and_judges_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scene = Scene()
    copies = Copies([(BOB, DAVE)])
    rules = replace(scene.context.rules, compare=copies)
    gather = Gather(replace(scene.context, rules=rules), all_are_here)
    # Nothing is fetched, as it does not run.
    for node in NODES:
        gather.hear(said(node, Kind.OFFER, offer_of(node).as_value()))
    roots = sorted(offer_of(author).root for author in NODES)
    for node in NODES[1:]:
        gather.hear(said(node, Kind.ACK, [*roots]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather._close)
        started_s = trio.current_time()
        assert (await gather.proposal()).weights == (FULL,) * 4
        assert trio.current_time() - started_s <= scene.context.agreement.delta_s
        with trio.move_on_after(100):
            await gather.judge(voiding(DAVE))
            raise AssertionError("judged")
        nursery.cancel_scope.cancel()
    assert copies.asked == 0
