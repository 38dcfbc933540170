"""One node's life, in order; what it is made of is told in `wiring`.

    open chain -> load signer -> restore machine -> open doors -> loop until ended or drained

The order of start-up matters: nothing is signed before the log and guard were read, and no door
opens before every handler is set.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from daa_node.agreement.wan_bft import WanBft, see_others_through, until_hopeless
from daa_node.api.readiness import Condition
from daa_node.api.trainers import TrainerHandlers
from daa_node.api_wiring import set_operator_desk
from daa_node.autonomy.loop import AutonomyLoop
from daa_node.chronicle.chronicler import Chronicler
from daa_node.errors import TrainerFailed
from daa_node.genesis import chain_facts
from daa_node.node_parts import NodeParts
from daa_node.observability import events
from daa_node.rounds.job_runner import JobRunner
from daa_node.wiring import Wiring

T = TypeVar("T")

START_TRIES_MAX = 5  # workers that die while they make or restore the first state


async def run_node(parts: NodeParts) -> str:
    """Run until the job has ended and the node is told to stop, or it is drained; why it ended."""
    return await _Node(parts).run()


class _Node:
    """From its start to its end."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts
        self._wiring = Wiring(parts)
        self._drain = trio.Event()
        self._ended_because: str | None = None

    async def run(self) -> str:
        parts, wiring = self._parts, self._wiring
        states = chain_facts(parts.genesis).states
        if states.first_root is not None:
            await wiring.open_chain(states.first_state)
        else:
            await wiring.open_chain(await _outliving_workers(parts.trainer.initial_state))
        agreement = await wiring.restore_agreement()
        await wiring.kept_health.load()
        await wiring.limits.load()
        await wiring.withdrawal.load()
        disputes, canaries = wiring.make_disputes(agreement)
        runner, scout, catch_up = await wiring.make_runner(agreement, disputes)
        loop = wiring.make_loop(runner, catch_up, agreement, self._drain)
        membership_requests = wiring.make_membership_requests(agreement)
        membership_requests.serve()
        enrolments, invitations = wiring.make_enrolments(agreement)
        enrolments.serve()
        await invitations.load()
        gossip = wiring.make_gossip()
        discovery = wiring.open_doors(runner, gossip)
        handlers = wiring.handlers(
            *(runner, loop, agreement, disputes, membership_requests, self._ended, self._drain)
        )
        of_trainers = TrainerHandlers(enrolments)
        parts.control.set_handlers(
            handlers.by_command() | of_trainers.by_command() | invitations.by_command()
        )
        set_operator_desk(parts, handlers, runner, lambda: self._condition(runner, loop, agreement))
        chronicler = self._chronicler()
        async with trio.open_nursery() as nursery:
            await parts.start_outside(nursery)
            if chronicler is not None:
                await nursery.start(chronicler.run)
            parts.events.emit(
                events.NODE_STARTED, node_id=parts.keys.node_id, chain_id=parts.genesis.chain_id
            )
            await nursery.start(gossip.run)
            nursery.start_soon(discovery.run, parts.genesis.addresses)
            nursery.start_soon(gossip.announce_heads, lambda: runner.newest.height)
            nursery.start_soon(wiring.holders.tell, lambda: runner.newest.vertex_id)
            nursery.start_soon(agreement.run)
            nursery.start_soon(wiring.relaying.run)
            nursery.start_soon(scout.run)
            nursery.start_soon(runner.snapshots.packing.keep)
            nursery.start_soon(runner.snapshots.scrub.run)
            nursery.start_soon(wiring.history.run)
            nursery.start_soon(wiring.spot_checks.run)
            nursery.start_soon(disputes.run)
            nursery.start_soon(wiring.kept_health.run)
            nursery.start_soon(wiring.limits.run)
            job, trains = parts.genesis.job, parts.config.trainer.contribute
            if job.spot_checks.is_on and job.model.is_canonical and trains:
                nursery.start_soon(canaries.run)
            nursery.start_soon(membership_requests.run)
            nursery.start_soon(wiring.make_word(agreement).run)
            nursery.start_soon(invitations.run)
            nursery.start_soon(enrolments.run)
            if wiring.volunteers is not None:
                nursery.start_soon(wiring.volunteers.run)
            reason = await self._live(loop, runner, agreement)
            nursery.cancel_scope.cancel()
        await wiring.kept_health.save()
        await wiring.limits.save()
        if chronicler is not None:
            await chronicler.end()
        parts.events.emit(events.NODE_STOPPED, reason=reason)
        return reason

    def _chronicler(self) -> Chronicler | None:
        parts = self._parts
        if parts.history is None:
            return None
        around = parts.offload, parts.clock, parts.events, parts.keys.node_id
        return Chronicler(parts.history, self._wiring.chain, *around)

    def _ended(self) -> str | None:
        return self._ended_because

    def _condition(self, runner: JobRunner, loop: AutonomyLoop, agreement: WanBft) -> Condition:
        return Condition(
            phase=runner.phase,
            is_draining=self._drain.is_set(),
            quarantine=agreement.quarantine(),
            waiting=loop.waiting(),
            has_trainer=self._parts.trainer.pid is not None,
        )

    async def _live(self, loop: AutonomyLoop, runner: JobRunner, agreement: WanBft) -> str:
        """The loop, then, when the job is done, serve others until told to stop."""
        reason = "drained in the middle of a round"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.watch_others)
            nursery.start_soon(self._end_drain, nursery.cancel_scope)
            await self._wiring.make_first_weights().bring()
            await _outliving_workers(runner.restore_state)
            await runner.recall()
            reason = await loop.run()
            await runner.snapshots.store()
            if self._drain.is_set():
                await see_others_through(agreement, self._wiring.contacts.members)
            nursery.cancel_scope.cancel()
        if not self._drain.is_set():
            runner.phase = "done"
            self._ended_because = reason
            self._parts.events.emit(events.JOB_ENDED, reason=reason)
            await self._drain.wait()
        return reason

    async def _end_drain(self, loop_scope: trio.CancelScope) -> None:
        await self._drain.wait()
        contacts, committee = self._wiring.contacts, self._wiring.validators.now.committee
        # no epoch begins while a round drains
        await until_hopeless(
            lambda: committee.weight(contacts.members_and_us()) >= committee.quorum
        )
        loop_scope.cancel()


async def _outliving_workers(verb: Callable[[], Awaitable[T]]) -> T:
    """What the trainer answers, asked again when its worker dies. Raises TrainerFailed."""
    for _ in range(START_TRIES_MAX - 1):
        try:
            return await verb()
        except TrainerFailed:
            continue  # the supervisor has told why, and starts another one
    return await verb()
