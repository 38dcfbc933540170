"""Come back after more rounds than others keep deltas for: take a state that somebody has.

    page --checked--> staged --next page--> ... --no more--> the newest whole state --> published
       ^---------------more by now-------------------------------gone by now-+

Headers, certificates and vertices are followed as ever, and nothing of them is trusted; only the
deltas are gone. All pages come first, since members let go of older states before newer ones: to be
told for each of them that it is gone would take as long as the slowest member answers. Then the
newest vertex with a whole state is where it goes on: its roots are certified, and every chunk is
checked against them.
"""

from collections.abc import Awaitable, Callable, Sequence

import trio

from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, NodeId
from daa_node.agreement.outcomes import last_closed
from daa_node.checkpoints.gap import Gap
from daa_node.checkpoints.publish import Page, state_of
from daa_node.checkpoints.restore import Replayer
from daa_node.errors import (
    NotHeld,
    PeerFault,
    StorageFailed,
    TrainerFailed,
    Unavailable,
    UserError,
)
from daa_node.identity.validators import Validators
from daa_node.observability.events import STATE_COMING
from daa_node.rounds.job_runner import ChainPosition, RunnerParts
from daa_node.rounds.peers import Peers
from daa_node.seams import StateRef

# Whole states that are asked for, newest first: a member stores the newest while the next round
# trains, and lets go of the one before no sooner.
LANDINGS_MAX = 2
CLOSING = (ResultPayload, AbortPayload)  # of rounds: where others can be followed from
TOLD_EACH_S = 1.0  # how far it has come


async def step_to(
    vertex: Vertex, base: StateRef, peers: Peers, trainer: Replayer, member: NodeId
) -> StateRef:
    """Fetch the vertex's delta and apply it.

    Raises NotHeld when no reachable member has the delta, else Unavailable and StorageFailed.
    """
    await peers.fetch_delta(vertex.delta_root, member)
    try:
        reached = await trainer.apply_delta(base, vertex.delta_root)
    except TrainerFailed as failure:
        raise Unavailable(f"the trainer cannot replay: {failure}") from failure
    assert reached == state_of(vertex), (
        "a certified delta replays to its certified roots on every machine"
    )
    return reached


class StateSync:
    """One state sync from `start`; pages, states and deltas come from whoever has them."""

    def __init__(
        self,
        parts: RunnerParts,
        validators: Validators,
        snapshot_every: int,
        start: ChainPosition,
        next_page: Callable[[Block, Vertex, Validators, int | None], Awaitable[Page | None]],
    ) -> None:
        """`validators` are those up to the start, and are led on.

        `next_page` asks who may know what follows a block and the newest vertex there; None if none
        does, or so many (None: all) say so. It has checked what it returns: a fault is of who
        brought it.
        """
        self._parts = parts
        self._validators = validators
        self._snapshot_every = snapshot_every
        self._start = start
        self._next_page = next_page
        self._tip, self._newest, self._closed = start.tip, start.newest, start.round
        self._vertices: list[Vertex] = []  # from where we may land
        self._sees_anchor = parts.anchor is None
        self._told_s = -TOLD_EACH_S
        self.gap = Gap(parts.chain)

    async def run(self, page: Page, member: NodeId) -> ChainPosition:
        """Follow `page`, whose deltas are gone, and those after it; published once this returns.

        `page` is checked, and `member` brought it. Raises Unavailable, PeerFault and StorageFailed;
        then the chain is as it was.
        """
        await self.gap.begin()
        if self._parts.anchor is not None:
            self._sees_anchor = await self._parts.chain.heights.has(self._parts.anchor)
        following: Page | None = page
        while following is not None and _closes_rounds(following):
            await self._take(following)
            # One that says so is enough: until all have told it, a state may be gone.
            following = await self._more(1)
            if following is not None and _closes_rounds(following):
                continue
            self._check_anchor()
            for place in self._landings(self._vertices):
                floor, above = self._vertices[place], self._vertices[place + 1 :]
                state = await self._land(floor, above, member)
                if state is not None:
                    return ChainPosition(self._tip, self._newest, state, self._closed)
            # The others have gone on meanwhile, and let go of what we asked for.
            following = await self._more(None)
        raise Unavailable(
            f"nobody reachable has the deltas above height {self._start.newest.height}, nor a "
            f"whole state up to height {self._newest.height}: waiting for a member that does"
        )

    async def _more(self, nays_max: int | None) -> Page | None:
        return await self._next_page(self._tip, self._newest, self._validators, nays_max)

    async def _take(self, page: Page) -> None:
        self._validators.follow(page.blocks)
        await self.gap.stage(page)
        self._tip = [block for block in page.blocks if isinstance(block.payload, CLOSING)][-1]
        self._closed = max(self._closed, last_closed(page.blocks))
        self._vertices += [vertex for vertex, _ in page.vertices]
        anchor = self._parts.anchor
        self._sees_anchor |= any(vertex.vertex_id == anchor for vertex, _ in page.vertices)
        if self._vertices:
            self._newest = self._vertices[-1]
            self._vertices = self._vertices[min(self._landings(self._vertices), default=0) :]
            self._tell(self._newest.height, 0, 0)

    def _check_anchor(self) -> None:
        """Raises UserError: nothing of such a past is taken in."""
        if not self._sees_anchor and self._parts.anchor is not None:
            raise UserError(
                f"the chain that members show, up to height {self._newest.height}, does not hold "
                f"the vertex {self._parts.anchor.hex()} that you trust: they show another past, or "
                "the id is of another network. Nothing of it was taken. Ask whoever gave you the "
                "id, and the invite",
                exit_code=1,
            )

    def _tell(self, height: int, here_bytes: int, due_bytes: int) -> None:
        now_s = trio.current_time()
        if now_s - self._told_s >= TOLD_EACH_S or (due_bytes and here_bytes == due_bytes):
            self._told_s = now_s
            log = self._parts.events
            log.emit(STATE_COMING, height=height, bytes=here_bytes, bytes_due=due_bytes)

    def _landings(self, vertices: Sequence[Vertex]) -> list[int]:
        """Where in `vertices` those are that we may land at, newest first."""
        whole = [i for i, v in enumerate(vertices) if v.height % self._snapshot_every == 0]
        return whole[: -LANDINGS_MAX - 1 : -1]

    async def _land(
        self, floor: Vertex, above: Sequence[Vertex], member: NodeId
    ) -> StateRef | None:
        """The newest vertex's state, everything published; None if no way leads over `floor`."""
        if not await self._fetched(floor, member):
            return None
        state = state_of(floor)
        try:
            for vertex in above:
                state = await step_to(vertex, state, self._parts.peers, self._parts.trainer, member)
        except NotHeld:
            return None  # gone since
        await self.gap.publish(floor, above)
        return state

    async def _fetched(self, vertex: Vertex, member: NodeId) -> bool:
        """Have the vertex's state in the work store, whole; False if nobody has it."""
        work, base = self._parts.chain.work, self._start.state
        shape = await work.blob_manifest("states", base.model_root)
        if shape is None:
            raise Unavailable("our own state went away")
        wanted = (vertex.model_root, vertex.outer_state_root)
        size_bytes = shape.size_bytes  # of all states of a network
        failures: list[Unavailable | PeerFault | StorageFailed] = []
        here_bytes = 0

        def note(more_bytes: int) -> None:
            nonlocal here_bytes
            here_bytes += more_bytes
            self._tell(vertex.height, here_bytes, len(wanted) * size_bytes)

        async def fetch(root: BlobRoot) -> None:
            try:
                await self._parts.peers.fetch_state(root, size_bytes, member, note)
            except (Unavailable, PeerFault, StorageFailed) as failure:
                failures.append(failure)
                nursery.cancel_scope.cancel()

        # Both at once: whoever has the newest state alone lets go of it after the next round.
        async with trio.open_nursery() as nursery:
            for root in wanted:
                nursery.start_soon(fetch, root)
        if not failures:
            return True
        if not isinstance(failures[0], NotHeld):
            raise failures[0]
        for root in sorted({*wanted} - {base.model_root, base.outer_root}):
            await work.delete_blob("states", root)
        return False


def _closes_rounds(page: Page) -> bool:
    """Else it brings an epoch's trailing blocks, or an open round: there is no more."""
    return any(isinstance(block.payload, CLOSING) for block in page.blocks)
