"""The newest whole states have enough copies: whoever lacks one and is next in line fetches it.

Nobody coordinates it. Each member has a place in line for each state, by a digest of the vertex and
its own name, so all who see the same members see the same line. Who has the state answers, and if
it is one of the first in line counts who else has it, for `status`. Who lacks it asks the first in
line; if too few of them hold it, and fewer that lack it stand before us than there are copies
missing, it is ours to fetch. Whoever stands before us may have no room, want no copy, or lie: at
the next look nobody waits for them any more. Two who see different members make a copy too many, or
one too few until the next look.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import trio

from daa_dag import canonical
from daa_dag.checkpoint import Vertex
from daa_dag.errors import DagError
from daa_dag.ids import DIGEST_BYTES, BlobRoot, NodeId, VertexId, digest_of
from daa_node.checkpoints.chain import ChainStore, state_manifest
from daa_node.checkpoints.held import is_whole
from daa_node.checkpoints.layout import MANIFESTS
from daa_node.checkpoints.quota import Quota
from daa_node.checkpoints.repair import Lenders
from daa_node.checkpoints.snapshot_files import snapshot_writes
from daa_node.errors import PeerFault, StorageFailed, Unavailable
from daa_node.network.blob_exchange import Want
from daa_node.network.blob_server import SNAPSHOTS
from daa_node.network.requests import Answer, Requests
from daa_node.observability import events
from daa_node.observability.events import EventLog
from daa_node.seams import PeerId

REQUEST = (
    "snapshots"  # the request's name: vertex ids, answered by whether each one's state is here
)
ASKED_IDS_MAX = 4
ANSWER_BYTES_MAX = 16 * ASKED_IDS_MAX
ANSWER_COST_BYTES = 32 * 1024  # of our disk: the vertices
COPYING = "copying"  # a kind of the work store: states on their way
COPIES = 3  # of each: two may be lost in one night
NEWEST = 2  # whole states that are looked after: who comes back lands on one of these
IN_LINE_MAX = 4 * COPIES  # members that are asked about one state
LOOK_EVERY_S = 600.0  # a state that is lost in between is one of COPIES
FETCH_S_MAX = 3600.0  # what has come by then is taken up by the next look


@dataclass(frozen=True, slots=True)
class Wanted:
    """A whole state that there should be copies of, and who else holds it, as far as we know."""

    vertex: Vertex
    holders: tuple[NodeId, ...]
    is_ours: bool  # to fetch


@dataclass(frozen=True, slots=True)
class Counted:
    """What a look has found of one state."""

    height: int
    is_here: bool
    copies: int | None  # ours among them, COPIES at the most; None: others count them


def in_line(vertex_id: VertexId, members: Sequence[NodeId]) -> list[NodeId]:
    """Who should hold the vertex's state, first of all (rendezvous hashing, Thaler 1998)."""
    return sorted(members, key=lambda node: digest_of(vertex_id + node))


class Replication:
    """One node's part in it."""

    def __init__(
        self,
        me: NodeId,
        chain: ChainStore,
        lenders: Lenders,
        quota: Quota,
        snapshot_every: int,
        log: EventLog,
    ) -> None:
        self._me = me
        self._chain = chain
        self._lenders = lenders
        self._quota = quota
        self._every = snapshot_every
        self._log = log
        self._broken = frozenset[VertexId]()  # at the last look: manifests are here, chunks are not
        self._begun = set[BlobRoot]()  # of states on their way, in this process
        self._told = frozenset[VertexId]()  # that could not be had: said once
        # At the last look too few held them, and it was for others to fetch them.
        self._left = frozenset[VertexId]()
        self._counted: tuple[Counted, ...] = ()  # by the newest look, newest state first
        self._coming: int | None = None  # the height of a state that is being fetched

    def told(self) -> dict[str, object]:
        """As `status` has it."""
        states = [
            {
                "height": one.height,
                "here": one.is_here,
                "coming": one.height == self._coming,
                "copies": one.copies,
            }
            for one in self._counted
        ]
        return {"wanted": COPIES, "states": states}

    def serve(self, requests: Requests) -> None:
        """Answer who asks from now on."""
        requests.register(REQUEST, self._answer)

    async def _answer(self, _peer_id: PeerId, body: bytes) -> Answer:
        return Answer(await self.answer(body), ANSWER_COST_BYTES)

    async def answer(self, body: bytes) -> bytes:
        """Which of these vertices have a whole state here. Raises PeerFault and StorageFailed."""
        held = [await self._shows(vertex_id) for vertex_id in asked_vertices(body)]
        return canonical.encode(list(held))

    async def _shows(self, vertex_id: VertexId) -> bool:
        """As `_holds`, by names alone.

        Manifests of a large model take long to read, and any member may ask again and again.
        """
        vertex = None if vertex_id in self._broken else await self._chain.vertex(vertex_id)
        has = self._chain.store.has_record
        roots = () if vertex is None else (vertex.model_root, vertex.outer_state_root)
        return vertex is not None and all([await has(MANIFESTS, root.hex()) for root in roots])

    async def run(self, wait_s: float) -> None:
        """Look now and then, after `wait_s` at first. Until cancelled."""
        await trio.sleep(wait_s)
        while True:
            try:
                await self.look()
            except StorageFailed as failure:
                self._log.emit(events.STORAGE_FAILED, detail=str(failure))
            await trio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Fetch what is ours to fetch. Raises StorageFailed."""
        vertices = await self._newest()
        self._broken = frozenset([v.vertex_id for v in vertices if await self._is_broken(v)])
        self._told &= {vertex.vertex_id for vertex in vertices}
        await self._tidy(vertices)
        left, wanted = set[VertexId](), list[Wanted]()
        counted = dict[int, Counted]()
        for vertex in vertices:
            is_here = await self._holds(vertex.vertex_id)
            found = await self._judge(vertex, is_here)
            copies = None if found is None else len(found.holders) + is_here
            counted[vertex.height] = Counted(vertex.height, is_here, copies)
            if found is None or is_here:
                continue
            if found.is_ours:
                wanted.append(found)
            elif len(found.holders) < COPIES:
                left.add(vertex.vertex_id)
        self._counted = tuple(counted.values())
        self._left = frozenset(left)
        for one in wanted:
            if await self._fetch(one):
                height = one.vertex.height
                counted[height] = Counted(height, True, len(one.holders) + 1)
                self._counted = tuple(counted.values())

    async def _is_broken(self, vertex: Vertex) -> bool:
        """Whether some of its state is here, and some is lost or damaged."""
        try:
            manifests = await self._chain.snapshot(vertex)
            return manifests is not None and not await is_whole(self._chain, manifests)
        except StorageFailed:
            return True

    async def _tidy(self, vertices: Sequence[Vertex]) -> None:
        """What came for a state that nobody needs copies of any more takes room."""
        wanted = {root for v in vertices for root in (v.model_root, v.outer_state_root)}
        for root in {*await self._chain.work.blob_roots(COPYING), *self._begun} - wanted:
            await self._chain.work.delete_blob(COPYING, root)
        self._begun &= wanted

    async def _newest(self) -> list[Vertex]:
        """Those whose states should have copies by now: the newest may be on its way to disk."""
        newest, retention = await self._chain.newest(), self._quota.retention
        top, found = newest.height - 1, list[Vertex]()
        lowest = top - top % self._every
        # What our own policy lets go of, we would fetch again and again.
        if retention.bytes_max is None:
            lowest -= (NEWEST - 1) * self._every
            if retention.vertices_restorable is not None:
                oldest = newest.height - retention.vertices_restorable + 1
                lowest = max(lowest, oldest - oldest % self._every)  # where what is kept stands
        for height in range(top - top % self._every, max(0, lowest - 1), -self._every):
            vertex_id = await self._chain.heights.at(height)
            vertex = None if vertex_id is None else await self._chain.vertex(vertex_id)
            if vertex is not None:
                found.append(vertex)
        return found

    async def _holds(self, vertex_id: VertexId) -> bool:
        vertex = None if vertex_id in self._broken else await self._chain.vertex(vertex_id)
        return vertex is not None and await self._chain.snapshot(vertex) is not None

    async def _judge(self, vertex: Vertex, is_here: bool) -> Wanted | None:
        """Ask the first in line; as many as can change what we do, or tell.

        None: the state is here, and others count who has it. So however many members there are,
        few are asked by all of them.
        """
        members = [*self._lenders.members(), self._me]
        body = canonical.encode([vertex.vertex_id])
        holders, lacking_before, is_before = list[NodeId](), 0, True
        first = in_line(vertex.vertex_id, members)[:IN_LINE_MAX]
        if is_here and self._me not in first:
            return None
        for node in first:
            if node == self._me:
                is_before = False
            elif await self._is_held_by(node, body):
                holders.append(node)
            else:
                lacking_before += is_before
            if len(holders) + is_here >= COPIES:
                break
        if vertex.vertex_id in self._left:
            lacking_before = 0  # they have had their look
        is_ours = not is_before and lacking_before < COPIES - len(holders)
        return Wanted(vertex, tuple(holders), is_ours)

    async def _is_held_by(self, node: NodeId, body: bytes) -> bool:
        """False for whoever does not answer: a copy that cannot be had is none."""
        try:
            payload = await self._lenders.ask(node, REQUEST, body, ANSWER_BYTES_MAX)
            return decode_held(payload)
        except Unavailable:
            return False
        except PeerFault as fault:
            self._lenders.fault(node, fault)
            return False

    async def _fetch(self, wanted: Wanted) -> bool:
        """Into the work store, then into the chain as one group; whether it came."""
        vertex, chain, work = wanted.vertex, self._chain, self._chain.work
        size_bytes = self._lenders.state_bytes
        if not self._quota.room_for(4 * size_bytes):  # on its way, and in the chain
            self._tell(wanted, "storage.bytes_max has no room for a copy")
            return False
        roots = (vertex.model_root, vertex.outer_state_root)
        started_s, self._coming = trio.current_time(), vertex.height
        try:
            for root in roots:
                self._begun.add(root)
                await self._lenders.fetch(
                    Want(SNAPSHOTS, root, size_bytes),
                    lambda manifest: work.begin_blob(COPYING, manifest),
                    FETCH_S_MAX,
                    wanted.holders,
                )
        except (Unavailable, PeerFault) as failure:
            self._tell(wanted, str(failure))
            return False
        finally:
            self._coming = None
        await chain.groups.drop([f"{MANIFESTS}/{r.hex()}" for r in roots if await self._rots(r)])
        await chain.groups.add([await snapshot_writes(chain, vertex, COPYING)])
        for root in roots:
            await work.delete_blob(COPYING, root)
        self._broken -= {vertex.vertex_id}
        wall_s = round(trio.current_time() - started_s, 4)
        self._log.emit(
            events.SNAPSHOT_COPIED,
            height=vertex.height,
            holders=len(wanted.holders),
            wall_s=wall_s,
        )
        return True

    async def _rots(self, root: BlobRoot) -> bool:
        """Whether a manifest is here, and no good one."""
        try:
            await state_manifest(self._chain.store, root)
        except StorageFailed:
            return True
        return False

    def _tell(self, wanted: Wanted, why: str) -> None:
        vertex = wanted.vertex
        if vertex.vertex_id not in self._told:
            self._told |= {vertex.vertex_id}
            holders = len(wanted.holders)
            self._log.emit(events.COPIES_LACK, height=vertex.height, holders=holders, why=why)


def asked_vertices(body: bytes) -> list[VertexId]:
    """Raises PeerFault("malformed")."""
    try:
        value = canonical.decode(body, len(body))
    except DagError as fault:
        raise PeerFault("malformed", f"snapshots: {fault}") from None
    if not isinstance(value, list) or not 0 < len(value) <= ASKED_IDS_MAX:
        raise PeerFault("malformed", f"snapshots of 1 to {ASKED_IDS_MAX} vertices are asked for")
    found = [VertexId(one) for one in value if isinstance(one, bytes) and len(one) == DIGEST_BYTES]
    if len(found) != len(value):
        raise PeerFault("malformed", "snapshots are asked for by vertex ids")
    return found


def decode_held(payload: bytes) -> bool:
    """Whether it says that the one vertex's state is there. Raises PeerFault("malformed")."""
    try:
        match canonical.decode(payload, ANSWER_BYTES_MAX):
            case [bool(held)]:
                return held
            case _:
                raise PeerFault("malformed", "no answer for one vertex")
    except DagError as fault:
        raise PeerFault("malformed", f"snapshots: {fault}") from None
