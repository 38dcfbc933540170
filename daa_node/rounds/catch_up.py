"""Follow what others have certified, a page at a time: whom to ask, and what to do with its answer.

    page asked for --checked--> deltas fetched and replayed --> published by the job runner
                                deltas that nobody keeps    --> passed over, see state_sync

Whoever brings a block in the least time is asked first. An answer may take as long as a request
may, and bring one block: who is asked by its name alone could so lead a laggard at a pace at which
it never arrives. A cost is seconds a block, smoothed, and what brings nothing costs its seconds and
a timeout's. Who was never asked costs nothing; so a cost is kept as long as its node is a member,
and who is none yet, or no more, is asked after all who are.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import trio

from daa_consensus.bft.messages import Block
from daa_dag.checkpoint import Vertex
from daa_dag.ids import NodeId, VertexId
from daa_node.checkpoints.pages import check_page
from daa_node.checkpoints.publish import Page
from daa_node.errors import NotHeld, PeerFault, Unavailable
from daa_node.identity.validators import Validators
from daa_node.network.requests import ANSWER_TIMEOUT_S
from daa_node.network.turns import in_turn_of
from daa_node.rounds.job_runner import ChainPosition, JobRunner, RunnerParts
from daa_node.rounds.state_sync import StateSync, step_to


class CatchUp:
    """One node's. Members within reach are asked, and before and after them whoever may know."""

    def __init__(
        self,
        runner: JobRunner,
        parts: RunnerParts,
        scouted: Callable[[Block], Mapping[NodeId, Page]],
        holders: Callable[[Sequence[VertexId]], Awaitable[list[NodeId]]],
    ) -> None:
        """`scouted`: pages right above the tip that somebody brought when no member was heard.

        `holders`: nodes that claim to hold one of these vertices, for when no member can help.
        """
        self._runner = runner
        self._parts = parts
        self._scouted = scouted
        self._holders = holders
        self._cost_s: dict[NodeId, float] = {}  # of a block, by who was asked and is a member

    async def follow_on(self) -> None:
        """Follow the others for one page, or end one round that nobody has published.

        Raises Unavailable if neither is possible, StorageFailed or TrainerFailed.
        """
        runner, parts = self._runner, self._parts
        runner.phase = "catching_up"
        await runner.snapshots.store()
        if runner.state is None:
            await runner.restore_state()
            return
        failures: list[str] = []
        scouted = self._scouted(await parts.chain.resume_point())

        async def follow_one_of(nodes: Iterable[NodeId]) -> bool:
            for node in nodes:
                try:
                    if await self._follow(node, scouted.get(node)):
                        return True
                except PeerFault as fault:
                    parts.fault(node, fault)
                    failures.append(str(fault))
                except Unavailable as failure:
                    failures.append(str(failure))
                self._note(node, ANSWER_TIMEOUT_S)
            return False

        if await follow_one_of(scouted):
            return
        resolution = parts.agreement.outcomes.resolution(runner.round + 1)
        result = None if resolution is None else resolution.result
        if resolution is not None and result is None and await runner.publish_abort(resolution):
            return
        members = self._members()
        # A member that stalls must not cost its timeout every page.
        if await follow_one_of(members):
            return
        wanted = [runner.newest.vertex_id]
        if resolution is not None and result is not None:
            if await runner.execute(resolution):
                return
            wanted.append(result.vertex_id)
        holders = await self._holders(wanted)
        if await follow_one_of(node for node in holders if node not in members):
            return
        raise Unavailable("; ".join(failures) or "nobody has more than we do")

    async def _follow(self, member: NodeId, page: Page | None) -> bool:
        """Follow the member's page, asked for unless it is at hand; False if it has none."""
        runner, parts = self._runner, self._parts
        tip, validators = await parts.chain.resume_point(), parts.agreement.validators
        if page is None:
            page = await self._ask(member, tip, runner.newest, validators)
        else:
            check_page(page, tip, runner.newest, validators.copy())
        if page is None:
            return False
        assert runner.state is not None
        states = [runner.state]
        try:
            for vertex, _ in page.vertices:
                reached = await step_to(vertex, states[-1], parts.peers, parts.trainer, member)
                states.append(reached)
        except NotHeld:
            start = ChainPosition(tip, runner.newest, runner.state, runner.round)
            sync = StateSync(
                parts, validators.copy(), runner.snapshots.every, start, self._next_page
            )
            await runner.land(await sync.run(page, member), sync.gap.pages())
        else:
            await runner.follow(page, states[1:])
        return True

    def _members(self) -> list[NodeId]:
        """Those within reach: who votes, the cheapest first, then the others in the same way.

        Where costs are equal each node has an order of its own.
        """
        agreement, members = self._parts.agreement, self._parts.peers.reachable()
        validators = agreement.validators
        # Whoever goes is still known by its cost when it comes back.
        known = members | validators.listeners
        self._cost_s = {node: cost for node, cost in self._cost_s.items() if node in known}
        # One member can bring in ever new names that wait to join, and nobody has asked them yet.
        votes = validators.now.committee.stake_of

        def rank(node: NodeId) -> tuple[bool, float]:
            return node not in votes, self._cost_s.get(node, 0.0)

        return sorted(in_turn_of(agreement.me, members), key=rank)

    async def _ask(
        self, node: NodeId, tip: Block, parent: Vertex, validators: Validators
    ) -> Page | None:
        """What follows `tip` there, as check_page judges it. Raises as Peers.ask_page does."""
        began_s, blocks = trio.current_time(), 0
        try:
            page = await self._parts.peers.ask_page(node, tip, validators)
            if page is not None:
                check_page(page, tip, parent, validators.copy())
                blocks = len(page.blocks)
            return page
        finally:
            self._note(node, (trio.current_time() - began_s) / max(1, blocks))

    async def _next_page(
        self, tip: Block, parent: Vertex, validators: Validators, asked_max: int | None
    ) -> Page | None:
        """What follows `tip` at the first member that has more; None if none of those asked has."""
        for node in self._members()[:asked_max]:
            try:
                page = await self._ask(node, tip, parent, validators)
            except (PeerFault, Unavailable) as failure:
                if isinstance(failure, PeerFault):
                    self._parts.fault(node, failure)
                self._note(node, ANSWER_TIMEOUT_S)
                continue
            if page is not None:
                return page
        return None

    def _note(self, node: NodeId, cost_s: float) -> None:
        before_s = self._cost_s.get(node)
        self._cost_s[node] = cost_s if before_s is None else (before_s + cost_s) / 2
