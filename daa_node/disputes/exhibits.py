"""What disputes are about, states and updates, here for as long as somebody here needs it.

They come from the author, which keeps them for checks, or from the accuser, which has brought them
here for the same dispute. Several may need one: the last to let go of it drops it.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence

import trio

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.checkpoints.publish import copy_blob
from daa_node.disputes.decided_sets import Drawn
from daa_node.errors import NodeError, PeerFault, StorageFailed, Unavailable
from daa_node.observability.events import STORAGE_FAILED, EventLog
from daa_node.seams import BlobStore, SegmentOrder
from daa_node.training.boundaries import BOUNDARIES, CLAIMED, DISPUTED

UPDATES = "updates"  # the kind of blobs that contributions are
# (root, node, on which of its shelves, on which of ours, whether a state); raises NodeError
Fetch = Callable[[BlobRoot, NodeId, str, str, bool], Awaitable[None]]


class Exhibits:
    """On a shelf of their own in the work store."""

    def __init__(self, store: BlobStore, fetch: Fetch, events: EventLog) -> None:
        self._store = store
        self._fetch = fetch
        self._events = events
        self._users: Counter[Digest] = Counter()

    async def bring(
        self, order: SegmentOrder, author: NodeId, accuser: NodeId | None = None
    ) -> list[Digest]:
        """Have what the order takes here, until these roots are let go. Raises NodeError.

        A PeerFault is the author's: what it has committed to is no state of this job. If it raises,
        nothing is held.
        """
        wanted = [(order.start_root, BOUNDARIES), (order.end_root, BOUNDARIES)]
        if order.sealed is not None:
            wanted.append((order.sealed.blob_root, UPDATES))
        # An accuser has brought the states here, and wants to be believed.
        before = [] if accuser is None else [(accuser, DISPUTED)]
        return await self._hold(wanted, lambda kind: [*before, (author, kind)])

    async def bring_states(
        self, roots: Iterable[BlobRoot], sources: Sequence[tuple[NodeId, str]]
    ) -> list[Digest]:
        """Have these states here, from whoever of `sources` has them on that shelf. As above."""
        return await self._hold([(root, BOUNDARIES) for root in roots], lambda _kind: sources)

    async def _hold(
        self,
        wanted: Iterable[tuple[BlobRoot, str]],
        sources: Callable[[str], Sequence[tuple[NodeId, str]]],
    ) -> list[Digest]:
        held = list[Digest]()
        try:
            for root, kind in wanted:
                self._users[Digest(root)] += 1
                held.append(Digest(root))
                await self._bring(root, kind, sources(kind))
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.let_go(held)
            raise
        return held

    async def _bring(
        self, root: BlobRoot, kind: str, sources: Sequence[tuple[NodeId, str]]
    ) -> None:
        for shelf in (kind, CLAIMED):  # it is ours, or we have just checked it
            ours = await self._store.blob_manifest(shelf, root)
            if ours is not None and await self._store.blob_manifest(DISPUTED, root) is None:
                await copy_blob(self._store, shelf, self._store, DISPUTED, ours)
        failure: NodeError = Unavailable("there is nobody to ask")
        for node, shelf in sources:
            try:
                return await self._fetch(root, node, shelf, DISPUTED, kind == BOUNDARIES)
            except (StorageFailed, PeerFault):
                raise
            except NodeError as why:
                failure = why
        raise failure

    def hold(self, root: Digest) -> None:
        """What our own replay has led to, and has put on the shelf, until it is let go."""
        self._users[root] += 1

    async def drop_claimed(self, drawn: Drawn) -> None:
        """What a check has left here of a segment."""
        for root in {*drawn.ends, drawn.draw.offer.snapshot_roots[-1]}:
            await self._drop(BlobRoot(root), CLAIMED)

    async def let_go(self, roots: Iterable[Digest]) -> None:
        """Each was brought once by the caller."""
        for root in roots:
            self._users[root] -= 1
            if self._users[root] <= 0:
                del self._users[root]
                await self._drop(BlobRoot(root), DISPUTED)

    async def clear(self) -> None:
        """What an earlier process has left. Raises StorageFailed."""
        for root in await self._store.blob_roots(DISPUTED):
            await self._store.delete_blob(DISPUTED, root)

    async def _drop(self, root: BlobRoot, shelf: str) -> None:
        try:
            await self._store.delete_blob(shelf, root)
        except StorageFailed as failure:
            self._events.emit(STORAGE_FAILED, detail=str(failure))
