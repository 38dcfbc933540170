"""The loop of a node: monitor, reason, act, reflect, adapt, one turn a round.

    measure -> Snapshot --decide--> Behaviour --act--> Happened --reflect--> Lesson -> Policy

Measuring and acting touch the world; the three in between are pure functions. Every decision is on
the event log with its reason, and `daa-node status` shows the newest.
"""

from dataclasses import replace
from functools import partial
from typing import assert_never

import trio

from daa_dag.ids import NodeId
from daa_node.autonomy.absences import Absences
from daa_node.autonomy.adapt import LESSONS_LOOKED_AT, Lessons, adapt, reflect
from daa_node.autonomy.monitor import Monitor, Snapshot
from daa_node.autonomy.policy import Policy
from daa_node.autonomy.reason import (
    RECENT_ROUNDS,
    Action,
    Behaviour,
    Decision,
    Gathering,
    Presence,
    decide,
    quorum_lacking,
    round_stalled,
    stop_waiting,
    who_is_expected,
    without_the_low,
)
from daa_node.errors import TrainerFailed, Unavailable
from daa_node.observability import events
from daa_node.observability.events import EventLog
from daa_node.rounds.catch_up import CatchUp
from daa_node.rounds.closing import MayClose
from daa_node.rounds.collect import Collection
from daa_node.rounds.job_runner import JobRunner
from daa_node.rounds.plan import Plan
from daa_node.rounds.synchronous import Happened, Work

WAIT_CHECK_S = 0.25  # how often a waiting node looks again
CATCH_UP_RETRY_S = 0.5
# Of a round's steps so many may be taken while updates travel, and are late by that, before those
# who are waited for cost the others more than they bring.
LATE_SHARE = 0.75


class AutonomyLoop:
    """Runs until the job has ended or the node is drained; says which."""

    def __init__(
        self,
        runner: JobRunner,
        catch_up: CatchUp,
        monitor: Monitor,
        log: EventLog,
    ) -> None:
        self._runner = runner
        self._catch_up = catch_up
        self._monitor = monitor
        self._log = log
        self._policy = Policy()
        self._lessons = Lessons()
        self.decisions: tuple[Decision, ...] = ()
        self.action = Action.WAIT
        self.is_paused = False  # by the operator
        self._round_began_s: float | None = None  # of the round under way
        self._presence: Presence | None = None  # since it began
        self._absences = Absences()
        self._offered = set[NodeId]()  # who has an update in the round that runs, as it says
        self._ahead_since_s: float | None = None  # we train on, from an update that was merged

    def set_paused(self, paused: bool) -> None:
        """From the next round on: inner steps that are under way are finished, and offered."""
        self.is_paused = paused

    def waiting(self) -> str | None:
        """What the node waits for, if that is what it does; so may a round that is under way."""
        if self.action in (Action.FINISH, Action.DRAIN):
            return None
        lacking = quorum_lacking(self._monitor.reach())
        if lacking is not None:
            return lacking
        if self._round_began_s is not None:
            open_s = trio.current_time() - self._round_began_s
            return round_stalled(self._monitor.measure(), open_s)
        if self.action is not Action.WAIT:
            return None
        return self.decisions[0].reason if self.decisions else "starting"

    async def run(self) -> str:
        """Why it ended: "drained", or what ended the job.

        Raises UserError where the chain is not the one that this node was told to trust.
        """
        while True:
            snapshot = self._measured()
            behaviour = decide(snapshot, self._policy)
            self._note(behaviour)
            match behaviour.action:
                case Action.DRAIN:
                    return "drained"
                case Action.FINISH:
                    await self._runner.check_anchor()  # as each round does that is walked
                    return behaviour.decisions[0].reason
                case Action.WAIT:
                    await trio.sleep(WAIT_CHECK_S)
                case Action.CATCH_UP:
                    await self._follow_on()
                case Action.SERVE | Action.TRAIN:
                    await self._one_round(snapshot, behaviour)
                case _:
                    assert_never(behaviour.action)

    def _measured(self) -> Snapshot:
        snapshot = replace(self._monitor.measure(), paused=self.is_paused)
        if self._ahead_since_s is None:
            return snapshot
        return replace(snapshot, ahead_s=trio.current_time() - self._ahead_since_s)

    async def watch_others(self) -> None:
        """Note who goes, and tell of a quorum that is out of reach or back. Until cancelled."""
        told: str | None = None
        while True:
            if self._presence is not None:
                self._presence.look(self._monitor.reachable())
            reach = self._monitor.reach()
            lacking = quorum_lacking(reach)
            if lacking != told:
                self._log.emit(
                    events.QUORUM_WAIT,
                    reachable=reach.weight,
                    total=reach.total,
                    quorum=reach.quorum,
                    waiting=lacking is not None,
                )
                told = lacking
            await self._monitor.contacts_changed()

    async def _follow_on(self) -> None:
        try:
            await self._catch_up.follow_on()
        except (Unavailable, TrainerFailed) as failure:
            self._log.emit(events.DECISION, decision="catch_up again", reason=str(failure))
            await trio.sleep(CATCH_UP_RETRY_S)

    async def _one_round(self, snapshot: Snapshot, behaviour: Behaviour) -> None:
        work = None
        if behaviour.action is Action.TRAIN:
            ready = snapshot.trainer_ready
            work = Work(behaviour.steps, behaviour.codec, behaviour.stop_after_s, awaited=ready)
        us_per_step = self._monitor.meters.us_per_step.value
        planned = {share.author for share in self._runner.plan().shares}
        self._round_began_s = trio.current_time()
        try:
            happened = await self._runner.run_round(work, self._may_close(snapshot))
        finally:
            self._round_began_s = None
        if happened.sealed is not None:
            self._monitor.meters.us_per_step.add(float(happened.sealed.us_per_step))
        if happened.own_included is not None:  # a set was decided
            contributed = {offer.author for offer in happened.contributors}
            reachable = self._monitor.reachable()
            self._absences.note(planned, contributed, reachable, self._offered)
        trains_on = self._runner.rules.train_on and happened.own_included
        self._ahead_since_s = happened.sealed_at_s if trains_on else None
        lesson = reflect(behaviour, us_per_step, happened)
        self._lessons.add(lesson)
        self._log.emit(
            events.LESSON,
            round=lesson.round,
            expected={"trained_s": lesson.trained_s_predicted},
            happened={"trained_s": lesson.trained_s, "spread_s": lesson.spread_s},
        )
        self._adapt(happened)

    def _adapt(self, happened: Happened) -> None:
        policy, reasons = adapt(self._policy, self._lessons.newest(LESSONS_LOOKED_AT))
        for reason in reasons:
            self._log.emit(events.POLICY_ADAPTED, round=happened.round, reason=reason)
        self._policy = policy

    def _may_close(self, snapshot: Snapshot) -> MayClose:
        newest_sets = [
            {NodeId(bytes.fromhex(author)) for author in record.contributors}
            for record in self._runner.history.records[-RECENT_ROUNDS:]
        ]
        presence = self._presence = Presence(self._monitor.reachable(), newest_sets)
        plan = self._runner.plan()
        are_enough = partial(self._runner.rules.are_enough, plan)
        planned = {share.author for share in plan.shares}
        never = self._monitor.who_never_train(planned)
        self._offered = set()

        def may_close(
            collection: Collection, elapsed_s: float, waiting_s: float | None
        ) -> str | None:
            reachable = self._monitor.reachable()
            presence.look(reachable)
            eligible = {offer.author for offer in collection.eligible()}
            shunned = collection.shunned - eligible
            # Said once, it is so for the round: nobody has others wait by taking it back.
            never.update(self._monitor.who_never_train(planned))
            self._offered = collection.authors()
            absent = self._absences.not_awaited(plan.round, self._offered)
            expected = who_is_expected(planned, never | absent, eligible, are_enough)
            low = {node for node in expected if self._monitor.is_last(node)}
            gathering = Gathering(
                elapsed_s=snapshot.round_age_s + elapsed_s,
                waiting_s=waiting_s,
                window_s=snapshot.window_s,
                expected=expected,
                eligible=eligible,
                reachable=reachable - shunned,
                recent=without_the_low(presence.awaited(expected) - shunned, low, expected),
                are_enough=are_enough(eligible),
                offered=collection.authors() - low - shunned,
                idle_after_s=self._idle_after_s(plan, elapsed_s - (waiting_s or 0.0)),
            )
            decision = stop_waiting(gathering, self._policy)
            return None if decision is None else decision.reason

        return may_close

    def _idle_after_s(self, plan: Plan, trained_s: float) -> float:
        """For how long it costs nothing to wait. `trained_s`: what we know if we know no better."""
        if not self._runner.rules.train_on:
            return 0.0
        us_per_step = self._monitor.meters.us_per_step.value
        if us_per_step is not None:
            trained_s = self._runner.rules.rounds.inner_steps_max * us_per_step / 1e6
        return LATE_SHARE * min(trained_s, plan.train_us / 1e6)

    def _note(self, behaviour: Behaviour) -> None:
        """Log decisions when they change: a waiting node would say the same four times a second."""
        if behaviour.decisions != self.decisions:
            for decision in behaviour.decisions:
                self._log.emit(events.DECISION, decision=decision.choice, reason=decision.reason)
        self.decisions, self.action = behaviour.decisions, behaviour.action
