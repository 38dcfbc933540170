"""Fetch one contribution, check it, and keep it: what an Ack promises."""

from collections.abc import Callable, Sequence
from functools import partial

import trio

from daa_consensus.bft.messages import OfferBody
from daa_dag.chunking import manifest_of
from daa_dag.errors import Malformed
from daa_dag.ids import BlobRoot, NodeId
from daa_node.errors import PeerFault, StorageFailed, Unavailable
from daa_node.network.turns import in_turn_of
from daa_node.observability import events
from daa_node.rounds.collect import Candidate, Collection
from daa_node.rounds.context import RoundContext

FETCH_RETRY_WAIT_S = 0.25  # first wait after a failed fetch; doubled
FETCH_RETRIES_MAX = 6  # about 16 s in all; then only a decided set makes us try again


class Holding:
    """The fetches of one round; `tell` is called when one more contribution is held."""

    def __init__(
        self, context: RoundContext, collection: Collection, tell: Callable[[], object]
    ) -> None:
        self._context = context
        self._collection = collection
        self._tell = tell

    async def hold(self, candidate: Candidate) -> None:
        """Fetch, check and store one contribution; a bad one costs its author, nobody else."""
        if candidate.held or candidate.fetching or candidate.refused:
            return
        candidate.fetching = True
        try:
            await self._fetch_and_check(candidate)
        finally:
            candidate.fetching = False

    async def _fetch_and_check(self, candidate: Candidate) -> None:
        context, contribution = self._context, candidate.contribution
        wait_s = FETCH_RETRY_WAIT_S
        for attempt in range(FETCH_RETRIES_MAX):
            # After a restart nobody may be left whose Ack names it.
            sources = partial(self._holders, contribution, anybody=attempt > 0)
            try:
                await self._store_durably(contribution, sources)
                await self._check(contribution)
            except (Unavailable, StorageFailed) as failure:
                if isinstance(failure, StorageFailed):  # no Ack for what is not stored
                    context.events.emit(events.STORAGE_FAILED, detail=str(failure))
                await trio.sleep(wait_s)
                wait_s *= 2
                continue
            except PeerFault as fault:
                self._collection.refuse(contribution.root)
                context.fault(contribution.author, fault)
                context.events.emit(
                    events.OFFER_REFUSED,
                    round=contribution.round,
                    author=contribution.author,
                    reason=str(fault),
                )
                return
            self._collection.held(contribution.root)
            context.events.emit(
                events.OFFER_ACKED, round=contribution.round, author=contribution.author
            )
            self._tell()
            return

    def _holders(self, contribution: OfferBody, anybody: bool) -> list[NodeId]:
        """Who has it, by now: its author may give it to some only, and stall the others."""
        holders = {contribution.author, *self._collection.acks.ackers_of(contribution.root)}
        if anybody:
            holders |= self._context.committee.stake_of.keys()
        return in_turn_of(self._context.me, holders - {self._context.me})

    async def _check(self, contribution: OfferBody) -> None:
        """Raises PeerFault for what its author made wrong, StorageFailed for what our disk did."""
        context, root = self._context, contribution.blob_root
        view = await context.store.view_blob("updates", root)
        try:
            await context.offload.run(partial(context.rules.check_update, view, contribution.codec))
        except PeerFault:
            if await self._was_damaged(root):
                raise StorageFailed(f"updates/{root.hex()} was damaged") from None
            raise

    async def look_again(self, contribution: OfferBody) -> bool:
        """Hash what lies here: a bit that turned since the Ack would make us sign a wrong result.

        Whether it was damaged, and has to be fetched again. Raises StorageFailed when what is
        damaged cannot even be deleted.
        """
        root = contribution.blob_root
        if not await self._was_damaged(root):
            return False
        detail = f"updates/{root.hex()} was damaged"
        self._context.events.emit(events.STORAGE_FAILED, detail=detail)
        self._collection.lost(contribution.root)
        return True

    async def _was_damaged(self, root: BlobRoot) -> bool:
        """Whether other bytes lie here than the root says, or none; they are deleted then.

        Raises StorageFailed when they cannot be.
        """
        store = self._context.store
        try:
            manifest = await store.blob_manifest("updates", root)
            view = await store.view_blob("updates", root)
        except StorageFailed:
            manifest = None
        if manifest is not None:
            sizes = manifest.sizes
            if await self._context.offload.run(lambda: _root_of(view, sizes)) == root:
                return False
        await store.delete_blob("updates", root)
        return True

    async def _store_durably(
        self, contribution: OfferBody, sources: Callable[[], list[NodeId]]
    ) -> None:
        """As an Ack promises. Raises Unavailable, PeerFault or StorageFailed."""
        context, root = self._context, contribution.blob_root
        if await context.store.blob_manifest("updates", root) is not None:
            # Our own: offered before it was synced, so that the others need not wait for our disk.
            await context.store.make_durable("updates", root)
            return
        # Our own too: an Offer outlives the loss of our work directory, as others hold it.
        started_s = trio.current_time()
        await context.peers.fetch_update(contribution, sources)
        context.events.emit(
            events.BLOB_FETCHED,
            root=root,
            size_bytes=contribution.size_bytes,
            wall_s=round(trio.current_time() - started_s, 4),
        )


def _root_of(blob: memoryview, sizes: Sequence[int]) -> BlobRoot | None:
    """The root of what lies there; None if it has another length."""
    try:
        return manifest_of(blob, sizes).root
    except Malformed:
        return None
