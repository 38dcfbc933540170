"""Follow what others have certified, a page at a time: whom to ask, and what to do with its answer.

    page asked for --checked--> deltas fetched and replayed --> published by the job runner
                                deltas that nobody keeps,
                                or that we need not have    --> passed over, see state_sync

Whoever brings a block in the least time is asked first, and others as well once it lets us wait.
An answer may be late, and bring one block: who is asked by its name alone could so lead a laggard
at a pace at which it never arrives. A cost is seconds a block, smoothed, and what brings nothing
costs its seconds and a timeout's. Who was never asked costs nothing; so a cost is kept as long as
its node is a member, and who is none yet, or no more, is asked after all who are.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import trio

from daa_consensus.bft.messages import Block
from daa_dag.checkpoint import Vertex
from daa_dag.ids import NodeId, VertexId
from daa_dag.retention import Retention
from daa_node.checkpoints import epochs
from daa_node.checkpoints.pages import check_page
from daa_node.checkpoints.publish import Page
from daa_node.errors import NotHeld, PeerFault, Unavailable
from daa_node.identity.validators import Validators
from daa_node.network.requests import ANSWER_TIMEOUT_S
from daa_node.network.turns import in_turn_of
from daa_node.observability.events import DECISION
from daa_node.rounds.epochs_ahead import EpochsAhead
from daa_node.rounds.job_runner import ChainPosition, JobRunner, RunnerParts
from daa_node.rounds.state_sync import StateSync, step_to

# Then the next is asked as well: a stream and a question take four times across the world at most.
PATIENCE_S = 3.0

Bring = Callable[[NodeId], Awaitable[Page | None]]


def far_behind(
    told_height: Callable[[], int], retention: Callable[[], Retention], snapshot_every: int
) -> Callable[[Vertex], bool]:
    """Who keeps a few vertices needs no more; who has none yet, and keeps few, still less."""

    def is_far(newest: Vertex) -> bool:
        kept = retention().vertices_restorable
        behind = told_height() - newest.height
        return kept is not None and behind > (kept if newest.height else 2 * snapshot_every)

    return is_far


class CatchUp:
    """One node's. Members within reach are asked, and before and after them whoever may know."""

    def __init__(
        self,
        runner: JobRunner,
        parts: RunnerParts,
        scouted: Callable[[Block], Mapping[NodeId, Page]],
        holders: Callable[[Sequence[VertexId]], Awaitable[list[NodeId]]],
        is_far: Callable[[Vertex], bool] = lambda _newest: False,
    ) -> None:
        """`scouted`: pages right above the tip that somebody brought when no member was heard.

        `holders`: nodes that claim to hold one of these vertices, for when no member can help.
        `is_far`: whether a whole state of the others is nearer than all the deltas up to it.
        """
        self._runner = runner
        self._parts = parts
        self._scouted = scouted
        self._holders = holders
        self._is_far = is_far
        self._cost_s: dict[NodeId, float] = {}  # of a block, by who was asked and is a member
        self._ahead = EpochsAhead()
        self._patience_s = PATIENCE_S  # with whom is asked first; longer where pages take longer

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
        tip, validators = await parts.chain.resume_point(), parts.agreement.validators
        scouted, failures = self._scouted(tip), list[str]()

        async def take(node: NodeId) -> Page:
            check_page(scouted[node], tip, runner.newest, validators.copy())
            return scouted[node]

        async def ask(node: NodeId) -> Page | None:
            return await self._ask(node, tip, runner.newest, validators)

        async def ask_by_ends(node: NodeId) -> Page | None:
            """Of an old epoch it may have no more than what proves its end."""
            found = await self._ask_epochs(node, tip, runner.newest, validators)
            self._ahead.keep(node, found[1:])
            return found[0] if found else None

        async def follow_one_of(nodes: Iterable[NodeId], bring: Bring = ask) -> bool:
            left = list(nodes)
            while left:
                brought, left = await self._first_pages(left, bring, failures)
                for node, page in brought:
                    try:
                        await self._follow(node, page)
                        return True
                    except PeerFault as fault:
                        parts.fault(node, fault)
                        failures.append(str(fault))
                    except Unavailable as failure:
                        failures.append(str(failure))
                    self._note(node, ANSWER_TIMEOUT_S)
            return False

        if await follow_one_of(scouted, take):
            return
        resolution = parts.agreement.outcomes.resolution(runner.round + 1)
        result = None if resolution is None else resolution.result
        if resolution is not None and result is None and await runner.publish_abort(resolution):
            return
        members = self._members()
        if await follow_one_of(members):
            return
        if resolution is None and await follow_one_of(members, ask_by_ends):
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

    async def _first_pages(
        self,
        nodes: Sequence[NodeId],
        bring: Bring,
        failures: list[str],
        nays_max: int | None = None,
    ) -> tuple[list[tuple[NodeId, Page]], list[NodeId]]:
        """What the first of these bring at the same moment, and who has not answered until then.

        Nothing when all have failed or have none, or so many say that they have none.

        Each is asked once those before it have answered, or have let us wait: for longer and
        longer, so that a slow link does not carry many answers. Who says that it has none may have
        one soon, and is asked again until the others have answered too.
        """
        left, nays, longest_s = list(nodes), 0, 0.0
        brought: list[tuple[NodeId, Page]] = []

        async def ask(node: NodeId, answered: trio.Event) -> None:
            nonlocal nays, longest_s
            page, has_none, began_s = None, False, trio.current_time()
            try:
                page = await bring(node)
                has_none = page is None
            except PeerFault as fault:
                self._parts.fault(node, fault)
                failures.append(str(fault))
            except Unavailable as failure:
                failures.append(str(failure))
            took_s = trio.current_time() - began_s
            if page is None:
                self._note(node, ANSWER_TIMEOUT_S)
                longest_s = max(longest_s, took_s)
            else:
                brought.append((node, page))
                # Another one's copy is on its way for so long at most, where all are as slow; and
                # who takes all the time that we give it has less with each page.
                self._patience_s = max(PATIENCE_S, took_s - PATIENCE_S)
            if not answered.is_set():
                left.remove(node)
                nays += has_none
            if brought or not left or nays == nays_max:
                nursery.cancel_scope.cancel()
                return
            answered.set()
            if has_none:
                await trio.sleep(PATIENCE_S)
                nursery.start_soon(ask, node, answered)

        async with trio.open_nursery() as nursery:
            patience_s = self._patience_s
            for node in nodes:
                answered = trio.Event()
                nursery.start_soon(ask, node, answered)
                with trio.move_on_after(patience_s) as waiting:
                    await answered.wait()
                if waiting.cancelled_caught:
                    patience_s *= 2
        if not brought:
            self._patience_s = max(self._patience_s, longest_s)
        return brought, left

    async def _follow(self, member: NodeId, page: Page) -> None:
        """Publish the member's page, checked. Raises as follow_on does, and PeerFault."""
        runner, parts = self._runner, self._parts
        tip = await parts.chain.resume_point()
        assert runner.state is not None
        if epochs.is_long(page):  # so many deltas at once would fill a disk with states
            await self._cross(member, page, tip)
            return
        if self._is_far(runner.newest) and await self._passed_over(member, page, tip):
            return
        states = [runner.state]
        try:
            for vertex, _ in page.vertices:
                reached = await step_to(vertex, states[-1], parts.peers, parts.trainer, member)
                states.append(reached)
        except NotHeld:
            await self._cross(member, page, tip)
        else:
            await runner.follow(page, states[1:])

    async def _passed_over(self, member: NodeId, page: Page, tip: Block) -> bool:
        """Whether a whole state was there to go on from; else deltas lead on, as ever."""
        try:
            await self._cross(member, page, tip)
        except Unavailable as failure:
            why = f"no whole state is to be had now: {failure}"
            self._parts.events.emit(DECISION, decision="replay", reason=why)
            return False
        return True

    async def _cross(self, member: NodeId, page: Page, tip: Block) -> None:
        """Land above what we need not, or cannot, replay. Raises as StateSync.run does."""
        runner, parts = self._runner, self._parts
        assert runner.state is not None
        start = ChainPosition(tip, runner.newest, runner.state, runner.round)
        validators = parts.agreement.validators.copy()
        sync = StateSync(parts, validators, runner.snapshots.every, start, self._next_page)
        await runner.land(await sync.run(page, member), sync.gap.pages())

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
        self, tip: Block, parent: Vertex, validators: Validators, nays_max: int | None
    ) -> Page | None:
        """What follows `tip` at a member; None if so many say that there is no more, or all do.

        While a whole state is nearer than deltas, old epochs come many at once.
        """
        ahead = self._ahead.take(tip)
        if ahead is not None:
            node, page = ahead
            try:
                check_page(page, tip, parent, validators.copy())
                return page
            except PeerFault as fault:
                self._ahead.clear()
                self._parts.fault(node, fault)
        beyond: dict[NodeId, list[Page]] = {}

        async def ask_by_ends(node: NodeId) -> Page | None:
            found = await self._ask_epochs(node, tip, parent, validators)
            beyond[node] = found[1:]
            return found[0] if found else None

        async def ask_page(node: NodeId) -> Page | None:
            return await self._ask(node, tip, parent, validators)

        async def ask_both(node: NodeId) -> Page | None:
            with suppress(Unavailable):  # it may have a page
                found = await ask_by_ends(node)
                if found is not None:
                    return found
            return await ask_page(node)

        # Who wants all deltas takes pages, as long as there are any.
        ways = [ask_both] if self._is_far(parent) else [ask_page, ask_by_ends]
        brought: list[tuple[NodeId, Page]] = []
        for ask in ways:
            if not brought:
                brought, _ = await self._first_pages(self._members(), ask, [], nays_max)
        if not brought:
            return None
        node, page = brought[0]
        self._ahead.keep(node, beyond.get(node, []))
        return page

    async def _ask_epochs(
        self, node: NodeId, tip: Block, parent: Vertex, validators: Validators
    ) -> list[Page]:
        """Epochs right above `tip` there, the first of them judged. Raises as Peers.ask_epochs."""
        began_s, blocks = trio.current_time(), 0
        try:
            found = await self._parts.peers.ask_epochs(node, tip, validators)
            if found:
                check_page(found[0], tip, parent, validators.copy())
                blocks = sum(len(page.blocks) for page in found)
            return found
        finally:
            self._note(node, (trio.current_time() - began_s) / max(1, blocks))

    def _note(self, node: NodeId, cost_s: float) -> None:
        before_s = self._cost_s.get(node)
        self._cost_s[node] = cost_s if before_s is None else (before_s + cost_s) / 2
