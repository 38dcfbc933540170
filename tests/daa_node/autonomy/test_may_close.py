"""Until when a round waits for members that say that they never train, and take it back."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import trio

from daa_consensus.votes import Kind
from daa_dag.ids import NodeId
from daa_node.agreement.wan_bft import WanBft
from daa_node.autonomy.absences import MISSED_MAX
from daa_node.autonomy.loop import AutonomyLoop
from daa_node.autonomy.monitor import Monitor
from daa_node.autonomy.policy import Policy
from daa_node.autonomy.reason import decide
from daa_node.errors import UserError
from daa_node.network.contacts import Contacts
from daa_node.network.upload_meter import UploadMeter
from daa_node.observability.events import EventLog
from daa_node.rounds.catch_up import CatchUp
from daa_node.rounds.closing import MayClose
from daa_node.rounds.collect import Collection
from daa_node.rounds.job_runner import JobRunner
from daa_node.rounds.synchronous import Happened, Work
from tests.daa_node.autonomy.test_reason import READY
from tests.daa_node.rounds.test_rehearsal import COMMITTEE, NODES, ROUND, Scene, offer_of, said

RunRound = Callable[[Work | None, MayClose], Awaitable[Happened]]


def loop_of(says: set[NodeId], run_round: RunRound | None = None) -> AutonomyLoop:
    """All are here, and these say that they never train."""
    context = Scene().context
    runner = SimpleNamespace(
        history=SimpleNamespace(records=[]),
        plan=lambda: context.plan,
        rules=context.rules,
        run_round=run_round,
    )
    monitor = SimpleNamespace(
        reachable=lambda: set(NODES),
        who_never_train=lambda nodes: nodes & says,
        is_last=lambda _node: False,
        meters=SimpleNamespace(us_per_step=SimpleNamespace(value=None)),
    )
    return AutonomyLoop(
        cast(JobRunner, runner),
        cast(CatchUp, None),
        cast(Monitor, monitor),
        EventLog(time.time_ns),
    )


def begun(says: set[NodeId], missed: int = 0, in_vain: int = 0) -> MayClose:
    """A round in which all are here, and in which these say that they never train.

    The last of them has `missed` so many rounds, and in so many of them it offered `in_vain`.
    """
    loop = loop_of(says)
    for at in range(missed):
        offered = set(NODES if at < in_vain else NODES[:3])
        loop._absences.note(set(NODES), set(NODES[:3]), set(NODES), offered)
    return loop._may_close(READY)


def collected(count: int) -> Collection:
    collection = Collection(Scene().context.plan, COMMITTEE, {"int8": 1_000}.get)
    offers = [offer_of(node) for node in NODES[:count]]
    for offer in offers:
        collection.offer(offer)
    for node in NODES[1:]:
        collection.ack(said(node, Kind.ACK, sorted(offer.root for offer in offers)))
    return collection


async def test_a_word_given_once_holds_for_the_round() -> None:
    for first in ({NODES[3]}, set[NodeId]()):
        says = set(first)
        may_close = begun(says)
        says.clear()
        waits = may_close(collected(3), 1.0, 0.0) is None
        assert waits == (not first)
        says.add(NODES[3])
        assert may_close(collected(3), 1.0, 0.0) == "all 3 contributions are acknowledged"
        says.clear()
        assert may_close(collected(3), 1.0, 0.0) == "all 3 contributions are acknowledged"


async def test_who_misses_round_after_round_is_not_waited_for_unless_its_offer_is_here() -> None:
    assert begun(set(), MISSED_MAX - 1)(collected(3), 1.0, 0.0) is None
    may_close = begun(set(), MISSED_MAX)
    assert may_close(collected(3), 1.0, 0.0) == "all 3 contributions are acknowledged"
    offered = collected(3)
    offered.offer(offer_of(NODES[3]))
    assert may_close(offered, 1.0, 0.0) is None
    assert may_close(collected(4), 1.0, 0.0) == "all 4 contributions are acknowledged"


async def test_who_offers_in_each_round_and_never_brings_it_is_not_waited_for_either() -> None:
    """A signature a round would cost all others a second of each: half of it where it is short."""
    offered = collected(3)
    offered.offer(offer_of(NODES[3]))
    assert begun(set(), MISSED_MAX, MISSED_MAX - 1)(offered, 1.0, 0.0) is None
    may_close = begun(set(), MISSED_MAX, MISSED_MAX)
    assert may_close(offered, 1.0, 0.0) == "all 3 contributions are acknowledged"
    assert may_close(collected(4), 1.0, 0.0) == "all 4 contributions are acknowledged"


async def after_rounds(looked: list[bool]) -> AutonomyLoop:
    """So many rounds that the last member offers for, as far as one has `looked`, and misses."""
    looks = iter(looked)

    async def run_round(_work: Work | None, may_close: MayClose) -> Happened:
        if next(looks):
            offered = collected(3)
            offered.offer(offer_of(NODES[3]))
            may_close(offered, 1.0, 0.0)
        contributors = [offer_of(node) for node in NODES[:3]]
        return Happened(ROUND, own_included=True, contributors=contributors)

    loop = loop_of(set(), run_round)
    for _ in looked:
        await loop._one_round(READY, decide(READY, Policy()))
    return loop


async def test_what_a_round_came_to_is_held_against_who_missed_it_and_offered_in_vain() -> None:
    offered = collected(3)
    offered.offer(offer_of(NODES[3]))
    loop = await after_rounds([True] * (MISSED_MAX - 1))
    assert loop._may_close(READY)(collected(3), 1.0, 0.0) is None
    loop = await after_rounds([False] + [True] * (MISSED_MAX - 1))
    assert loop._may_close(READY)(collected(3), 1.0, 0.0) is not None
    assert loop._may_close(READY)(offered, 1.0, 0.0) is None
    loop = await after_rounds([True] * MISSED_MAX)
    assert loop._may_close(READY)(offered, 1.0, 0.0) is not None


async def test_an_offer_is_in_vain_in_its_own_round_alone() -> None:
    """A set may be decided before we have looked at who offers."""
    offered = collected(3)
    offered.offer(offer_of(NODES[3]))
    loop = await after_rounds([True] + [False] * (MISSED_MAX - 1))
    assert loop._may_close(READY)(offered, 1.0, 0.0) is None


async def test_where_too_few_train_for_the_rule_all_are_waited_for_until_the_window_ends() -> None:
    says = set(NODES[2:])
    may_close = begun(says)
    for count in (0, 2):
        assert may_close(collected(count), 9.9, 9.0) is None
        told = may_close(collected(count), 10.0, 9.0)
        assert told == f"the window of 10.0 s ended with {count} of 4 contributions"
    says.update(NODES)  # nobody trains
    assert may_close(collected(0), 9.9, None) is None
    assert may_close(collected(4), 1.0, 0.0) == "all 4 contributions are acknowledged"


async def test_a_node_counts_itself_among_those_who_never_train_by_its_settings() -> None:
    contacts = SimpleNamespace(who_never_train=lambda nodes: nodes & {NODES[3]})
    agreement = SimpleNamespace(me=NODES[0])
    monitor = Monitor(
        cast(JobRunner, None),
        cast(WanBft, agreement),
        cast(Contacts, contacts),
        cast(UploadMeter, None),
        lambda: True,
        trio.Event(),
    )
    assert monitor.who_never_train(set(NODES)) == {NODES[3]}
    monitor.trains = False
    assert monitor.who_never_train(set(NODES)) == {NODES[0], NODES[3]}
    assert monitor.who_never_train(set(NODES[1:3])) == set()


async def test_a_job_that_has_ended_on_another_past_than_is_trusted_is_refused() -> None:
    async def check_anchor() -> None:
        raise UserError("another past")

    monitor = SimpleNamespace(measure=lambda: replace(READY, job_ended="9 rounds are done"))
    loop = AutonomyLoop(
        cast(JobRunner, SimpleNamespace(check_anchor=check_anchor)),
        cast(CatchUp, None),
        cast(Monitor, monitor),
        EventLog(time.time_ns),
    )
    with pytest.raises(UserError, match="another past"):
        await loop.run()
