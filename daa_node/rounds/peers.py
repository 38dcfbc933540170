"""What a job runner asks of other members: updates, deltas, whole states, pages of checkpoints."""

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass

import trio

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import Block, OfferBody
from daa_dag.chunking import CHUNK_BYTES_MAX, Manifest, cut
from daa_dag.ids import BlobRoot, NodeId
from daa_node.checkpoints import epochs
from daa_node.checkpoints.long_epochs import LongEpochs
from daa_node.checkpoints.pages import REQUEST, page_bytes_max, whole_page
from daa_node.checkpoints.publish import Page
from daa_node.checkpoints.restore import intact
from daa_node.errors import Unavailable
from daa_node.identity.validators import Validators
from daa_node.network.blob_exchange import BlobFetcher, OpenWriter, Want
from daa_node.network.blob_server import SNAPSHOTS
from daa_node.network.contacts import Contacts
from daa_node.network.requests import Requests
from daa_node.network.session_pool import Source
from daa_node.network.turns import in_turn_of
from daa_node.rounds.counted_writer import CountedWriter, OnBytes
from daa_node.seams import BlobStore, BlobWriter
from daa_node.training.boundaries import BOUNDARIES, CLAIMED

# Of two delta each: a stream and the handshake on it take three round trips, a socket one or two,
# the search and the chunks two. The session is kept: the next round's update takes two.
FIRST_FETCH_DELTAS = 14
# A laggard's link may be slow, and a page has few of them; or a window, if that is longer: what
# merges updates that take so long to come is no smaller than one of them.
DELTA_DEADLINE_S = 120.0
BOUNDARY_DEADLINE_S = 60.0  # or a window, if that is longer; its author keeps it for some rounds
STATE_DEADLINE_S = 3600.0  # 4 GB at 1.1 MB/s; the next try takes up what this one has got
# Parts of an epoch are read faster than a member's share of another is earned (see shares). Refused
# so soon, an asker waits for what one part costs, and not for whoever else is out of breath too.
REFUSED_S = 1.0
EARNED_S = 1.0
SLOWEST_BYTES_PER_S = 1.1e6  # a home's link upwards; what is large has as long as it takes there


@dataclass(frozen=True, slots=True)
class Sizes:
    """What bounds an answer: the network's limits, a delta's most bytes, seconds for an update."""

    limits: Limits
    delta_bytes_max: int
    update_deadline_s: float
    boundary_chunks: tuple[int, ...]  # bytes: there is only one way to cut one
    update_chunk_bytes: int = CHUNK_BYTES_MAX  # and an update


def update_deadline_s(window_ms: int, delta_ms: int) -> float:
    """How long one attempt to fetch an update may take.

    A window may be too short for a first fetch over links that are as slow as delta allows. Cut off
    then, it would begin again with each round, and no round would ever be certified.
    """
    return max(window_ms, FIRST_FETCH_DELTAS * delta_ms) / 1e3


def time_for(size_bytes: int, least_s: float) -> float:
    """How long one attempt to fetch so much may take, however large the model is."""
    return max(least_s, size_bytes / SLOWEST_BYTES_PER_S)


class Peers:
    """The members of the network, as far as rounds need them."""

    def __init__(
        self,
        fetcher: BlobFetcher,
        requests: Requests,
        contacts: Contacts,
        work: BlobStore,
        sizes: Sizes,
        sent_bytes: Callable[[BlobRoot], int] = lambda _root: 0,
        note_own: Callable[[BlobRoot], None] = lambda _root: None,
    ) -> None:
        """`sent_bytes`: how much of an update's chunks we have sent; `note_own`: it is ours."""
        self.note_own = note_own
        self.sent_bytes = sent_bytes
        self._fetcher = fetcher
        self._requests = requests
        self._contacts = contacts
        self._work = work
        self._sizes = sizes
        self._long_epochs = LongEpochs()
        self.reachable = contacts.members  # with whom we have a connection, without ourselves

    def who_never_train(self, nodes: Set[NodeId]) -> set[NodeId]:
        """Of these, those who say so themselves."""
        return self._contacts.who_never_train(nodes)

    async def fetch_update(self, offer: OfferBody, nodes: Callable[[], Collection[NodeId]]) -> None:
        """The offer's blob, whole and checked, into the work store. Raises as fetch_blob does.

        Cut into chunks of a byte each, it would cost whoever fetches it seconds of work.
        """
        sizes = tuple(cut([offer.size_bytes], self._sizes.update_chunk_bytes))
        await self._fetcher.fetch_blob(
            Want("updates", offer.blob_root, offer.size_bytes, sizes=sizes),
            self._sources(nodes()),
            self._work,
            self._sizes.update_deadline_s,
            lambda: self._sources(nodes()),
        )

    async def fetch_boundary(
        self,
        root: BlobRoot,
        node: NodeId,
        kind: str = BOUNDARIES,
        shelf: str = CLAIMED,
        is_state: bool = True,
    ) -> None:
        """A state that its author committed to, from its shelf `kind` or from that of another.

        Or, if it is none, its update. Raises as fetch_blob does; a PeerFault is that of whoever
        committed to what is no state of this job.
        """
        if await intact(self._work, shelf, root):
            return
        await self._fetch_boundary(
            root, node, kind, lambda manifest: self._work.begin_blob(shelf, manifest), is_state
        )

    async def fetch_boundary_manifest(self, root: BlobRoot, author: NodeId) -> Manifest:
        """Its manifest alone. Raises as fetch_blob does."""
        return await self._fetch_boundary(root, author, BOUNDARIES, _nothing_of, is_state=True)

    async def _fetch_boundary(
        self, root: BlobRoot, node: NodeId, kind: str, open_writer: OpenWriter, is_state: bool
    ) -> Manifest:
        chunks = self._sizes.boundary_chunks
        sizes = chunks if is_state else None
        want = Want(kind, root, sum(chunks), sizes=sizes, durable=False)
        deadline_s = max(time_for(sum(chunks), BOUNDARY_DEADLINE_S), self._sizes.update_deadline_s)
        return await self._fetcher.fetch(want, self._sources([node]), open_writer, deadline_s)

    async def fetch_delta(self, root: BlobRoot, node: NodeId) -> None:
        """A certified delta into the work store, where publishing takes it from.

        Raises NotHeld when no reachable member has it, as far as one honest can tell; else
        Unavailable, and StorageFailed.
        """
        if await intact(self._work, "updates", root):
            return
        await self._fetcher.fetch(
            Want("deltas", root, self._sizes.delta_bytes_max),
            self._members_after(node),
            lambda manifest: self._work.begin_blob("updates", manifest),
            max(
                time_for(self._sizes.delta_bytes_max, DELTA_DEADLINE_S),
                self._sizes.update_deadline_s,
            ),
            are_enough=self._contacts.one_is_honest,
        )

    async def fetch_state(
        self,
        root: BlobRoot,
        size_bytes: int,
        node: NodeId,
        on_bytes: OnBytes = lambda _bytes: None,
    ) -> None:
        """Certified weights or momentum into the work store, out of the members' snapshots.

        `on_bytes` is told how many more are here: at first what an earlier try has left. Raises as
        fetch_delta does.
        """
        if await intact(self._work, "states", root):
            on_bytes(size_bytes)
            return

        async def open_writer(manifest: Manifest) -> BlobWriter:
            return CountedWriter(
                await self._work.begin_blob("states", manifest), manifest, on_bytes
            )

        await self._fetcher.fetch(
            Want(SNAPSHOTS, root, size_bytes),
            self._members_after(node),
            open_writer,
            time_for(size_bytes, STATE_DEADLINE_S),
            are_enough=self._contacts.one_is_honest,
        )

    async def ask_page(self, node: NodeId, tip: Block, validators: Validators) -> Page | None:
        """What follows `tip` at `node`, however much it is. Raises Unavailable or PeerFault.

        `validators` are those of the blocks up to the tip.
        """
        peer_id = self._contacts.peer_of(node)
        if peer_id is None:
            raise Unavailable(f"{node.hex()[:8]} is not connected")
        self._long_epochs.stand_on(tip)
        bytes_max = page_bytes_max(self._sizes.limits)

        async def ask(body: bytes) -> bytes:
            return await self._requests.ask(peer_id, REQUEST, body, bytes_max)

        return await whole_page(ask, tip, validators)

    async def ask_epochs(self, node: NodeId, tip: Block, validators: Validators) -> list[Page]:
        """Epochs that are over, right above `tip`, each by one certificate; nothing verified.

        `validators` as in `ask_page`. Raises Unavailable or PeerFault.
        """
        peer_id = self._contacts.peer_of(node)
        if peer_id is None:
            raise Unavailable(f"{node.hex()[:8]} is not connected")
        bytes_max = epochs.answer_bytes_max(validators.limits)

        async def ask(body: bytes) -> bytes:
            began_s = trio.current_time()
            try:
                return await self._requests.ask(peer_id, epochs.REQUEST, body, bytes_max)
            except Unavailable:
                if trio.current_time() - began_s > REFUSED_S:
                    raise
            await trio.sleep(EARNED_S)
            return await self._requests.ask(peer_id, epochs.REQUEST, body, bytes_max)

        return await self._long_epochs.shown(ask, tip, validators)

    def _members_after(self, node: NodeId) -> list[Source]:
        """That one, then the members within reach, by turns of our own."""
        return self._sources([node, *in_turn_of(self._contacts.me, self.reachable() - {node})])

    def _sources(self, nodes: Collection[NodeId]) -> list[Source]:
        found = [(node, self._contacts.peer_of(node)) for node in nodes]
        return [Source(node, peer_id) for node, peer_id in found if peer_id is not None]


class _Nothing:
    """A BlobWriter for whoever wants to see the manifest alone."""

    def missing(self) -> list[int]:
        return []

    async def write_chunk(self, index: int, payload: bytes) -> None:
        """Never called: nothing is missing."""

    async def write_chunks(self, chunks: Sequence[tuple[int, bytes | memoryview]]) -> None:
        """As little."""

    async def read_into(self, indices: Sequence[int], target: memoryview) -> None:
        """Never called, either."""

    async def commit(self, durable: bool = True) -> None:
        """There is nothing to keep."""


async def _nothing_of(_manifest: Manifest) -> _Nothing:
    return _Nothing()
