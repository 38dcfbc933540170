"""Serve blobs to peers over bulk sessions: what they ask for, from the shelves we were given.

One request at a time a session: the next is read when the answer is with the kernel, so a peer that
reads slowly costs one frame of memory. A chunk is hashed the first time it is served: what a
damaged disk gives is "not here", and an honest node never looks like a liar.

Each peer is served one answer at a time over all of its sessions: who asks without end has one flow
of our link, as others do, and no more on many sessions. Members are served at once, but for those
that stand low with us: they wait for the others, a moment at most. Strangers wait
for members, a while at most, and for each other: their requests are admitted one after another, at
a pace of work for all together. Their answers leave in pieces, and what they have not taken shares
one room (see untaken).

A blob that we are fetching ourselves is served as far as it has come, to whoever asks for chunks of
it by number, or what there is; to look for it finds nothing before it is whole. One that we fetched
is served so until it lies on a shelf.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

import trio

from daa_dag.chunking import Manifest, decode_manifest
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot, NodeId, digest_of
from daa_dag.spread import mask_of
from daa_node.errors import StorageFailed
from daa_node.network.answering_turns import AnsweringTurns, in_turn, patiently
from daa_node.network.chunk_looks import CHUNKS, LOOK_HOLDS_S, ChunkLooks
from daa_node.network.link_limits import LinkLimits
from daa_node.network.pace import Pace
from daa_node.network.shares import OF_ALL_STRANGERS
from daa_node.network.spreading import SPREAD_KINDS, Part, Spreading
from daa_node.network.untaken import Answer, Piece, Untaken, in_pieces
from daa_node.network.upload_meter import UploadMeter
from daa_node.prompt_lock import PromptLock
from daa_node.seams import BlobStore, FrameStream
from daa_node.wire.blob_messages import (
    ANSWER_BYTES_MAX,
    MANIFEST_BEGINNING_BYTES_MAX,
    PIECE_BYTES,
    ChunksRequest,
    FindRequest,
    Found,
    Refusal,
    Request,
    Shared,
    ShareRequest,
    check_bits,
    decode_request,
    encode_chunks,
    encode_found,
    encode_refused,
    encode_shared,
    lay_out_chunks,
)
from daa_node.wire.limits import FRAME_BYTES_MAX, KIB, MIB

# The kind under which a snapshot's states are served chunk by chunk from records.
SNAPSHOTS = "snapshots"
MANIFESTS = "manifests"  # a kind of records in the store of snapshots, as CHUNKS
OPEN_BLOBS_MAX = 32  # a round touches a few blobs a peer
OPEN_BYTES_MAX = 96 * MIB  # of them all; two of the largest
# A manifest, encoded and decoded, which chunks were hashed, and of a snapshot which are here.
OPEN_BYTES_A_CHUNK = 320
# Answers under construction at once in a busy round; more are made and dropped again.
BUFFERS_KEPT_MAX = 4
# What a stranger's request counts for, in the bytes of network/shares.py (16 KiB are 0.5 ms): a
# manifest of thousands of chunks to decode, a directory to list; a chunk costs little but the link,
# and so does a manifest that was decoded already: hundreds that look on ask for the same ones.
FIND_COST_BYTES = 64 * KIB
OPEN_FIND_COST_BYTES = 16 * KIB  # or as many as the manifest has, if these are more
LISTING_COST_BYTES = 256 * KIB
CHUNK_COST_BYTES = 16 * KIB  # 16 MiB a second
# What a stranger's request may hold until it is taken: an answer, and a piece of it sealed.
HELD_BYTES = FRAME_BYTES_MAX + PIECE_BYTES
# How long a stranger waits while members are served: a round's updates are with all by then.
STRANGER_WAITS_S = 1.0
# And a member that stands low while others are: it needs what we have in time, too.
LAST_WAITS_S = 0.1

Send = Callable[[Piece], Awaitable[None]]


class _Refuse(Exception):
    """Answer with a refusal and go on."""

    def __init__(self, reason: Refusal) -> None:
        self.reason = reason


@dataclass(slots=True)
class _OpenBlob:
    manifest: Manifest
    encoded: bytes
    checked: set[int] = field(default_factory=set)  # chunks whose bytes we have hashed
    have: int | None = None
    listed_s: float = float("-inf")


def _held_bytes(blobs: Iterable[_OpenBlob]) -> int:
    return OPEN_BYTES_A_CHUNK * sum(len(blob.manifest.sizes) for blob in blobs)


class BlobServer:
    """`serve` is the handler of every inbound bulk session."""

    def __init__(
        self,
        shelves: Mapping[str, BlobStore],
        snapshots: BlobStore | None,
        is_member: Callable[[NodeId], bool],
        untaken: Untaken | None = None,
        votes: Callable[[NodeId], bool] | None = None,
        for_members: Set[str] = frozenset(),
        spreading: Spreading | None = None,
    ) -> None:
        """`shelves`: which store holds the blobs of a kind. `snapshots`: records of chunks.

        `votes`: by whom our link is measured, of the members; all of them if not told. Strangers
        are told of the kinds `for_members` that they are not here. Without `spreading` whoever asks
        for a part is told to ask for the whole.
        """
        self.limits: LinkLimits | None = None  # of the link; None: as it bears
        self._spreading = spreading
        self._untaken = untaken or Untaken()
        self._is_member = is_member
        self._votes = votes or is_member
        self._strangers: Pace | None = None  # what all of them together may have
        self._turn = trio.Lock()  # of the stranger who is admitted next
        # Of each peer's sessions: however many it opens, it has one flow of our link, as others.
        self._turns = AnsweringTurns()
        self._members_served = 0  # requests of theirs that are under way
        self._quiet = trio.lowlevel.ParkingLot()  # until none is, or only of who is last
        self.is_last: Callable[[NodeId], bool] = lambda _node_id: False  # of members, after others
        self._firsts_served = 0  # requests of members that are not last
        # Whether a blob's chunks may leave; who may not have them is told that it is not here.
        self.may_show: Callable[[str, BlobRoot], bool] = lambda _kind, _root: True
        self._shelves = shelves
        self._for_members = for_members
        self._snapshots = snapshots
        self._open: OrderedDict[tuple[str, BlobRoot], _OpenBlob] = OrderedDict()
        self._looks = None if snapshots is None else ChunkLooks(snapshots)
        self._buffers: list[bytearray] = []  # for answers; one in use is in nobody's list
        self.damaged_chunks = 0  # found on our own disk while serving
        self.sent_bytes = 0
        # Of what those take who vote. The meter bears one that stalls, and with a member may come
        # another one that it sponsors.
        self.upload = UploadMeter(
            lambda: None if self.limits is None else self.limits.up.bytes_per_s
        )

    async def serve(self, stream: FrameStream) -> None:
        """Until the peer is done. Raises PeerFault for a request that no honest node makes."""
        turn = self._turns.of(stream.node_id)
        while (frame := await stream.receive_frame()) is not None:
            request = decode_request(frame)
            if self._looks is not None:
                self._looks.forget_stale()
            if self._is_member(stream.node_id):
                if isinstance(request, ShareRequest):  # a few bytes, for which nobody waits
                    await self._share(stream, request)
                else:
                    await self._serve_member(stream, request, turn)
                continue
            async with turn:
                await self._admit(request)
                held_bytes = HELD_BYTES if isinstance(request, ChunksRequest) else PIECE_BYTES
                async with self._untaken.room(held_bytes) as answer:
                    send = partial(self._send_pieces, stream, answer)
                    if request.kind in self._for_members or isinstance(request, ShareRequest):
                        await send(encode_refused(Refusal.UNKNOWN))
                    else:
                        await self._answer(send, request, None)

    async def _serve_member(self, stream: FrameStream, request: Request, turn: PromptLock) -> None:
        is_first = not self.is_last(stream.node_id)
        self._members_served += 1
        self._firsts_served += is_first
        try:
            async with in_turn(stream, turn):
                if not is_first:
                    await self._let_others_pass()
                await self._answer(partial(self._send_whole, stream), request, stream.node_id)
        finally:
            self._members_served -= 1
            self._firsts_served -= is_first
            if not self._firsts_served:
                self._quiet.unpark_all()

    async def _share(self, stream: FrameStream, request: ShareRequest) -> None:
        """Of what is not whole here we say what we have of it, and offer all of that."""
        name = request.kind, request.root
        try:
            if self.limits is not None and not self.limits.may_serve(*name):
                raise _Refuse(Refusal.SPENT)
            if self._spreading is None or request.kind not in SPREAD_KINDS:
                raise _Refuse(Refusal.UNKNOWN)
            if not self.may_show(*name):
                raise _Refuse(Refusal.UNKNOWN)
            blob = await self._opened(*name)
            check_bits(request.have, blob.manifest)
            if request.kind == SNAPSHOTS and await self._have(blob) is not None:
                raise _Refuse(Refusal.UNKNOWN)
            shared = await self._spreading.answer(stream.node_id, request, blob.manifest)
            answer = encode_shared(shared)
        except _Refuse as refusal:
            answer = encode_refused(refusal.reason)
            if self._spreading is not None and refusal.reason is Refusal.UNKNOWN:
                part = await self._spreading.part_for(stream.node_id, name)
                if part is not None and self.may_show(*name):
                    answer = encode_shared(Shared(0, mask_of(part.held), ()))
        await self._send_whole(stream, answer)

    async def _let_others_pass(self) -> None:
        with trio.move_on_after(LAST_WAITS_S):
            while self._firsts_served:
                await self._quiet.park()

    async def _answer(self, send: Send, request: Request, member: NodeId | None) -> None:
        try:
            name, limits = (request.kind, request.root), self.limits
            if limits is not None and not limits.may_serve(*name, to_stranger=member is None):
                raise _Refuse(Refusal.SPENT)
            match request:
                case FindRequest():
                    await self._send_found(send, request)
                case ChunksRequest():
                    await self._send_chunks(send, request, member)
                case ShareRequest():
                    raise _Refuse(Refusal.UNKNOWN)
                case _:
                    assert_never(request)
        except _Refuse as refusal:
            await send(encode_refused(refusal.reason))

    async def _admit(self, request: Request) -> None:
        """Return when it is this stranger's turn, and all of them have earned what it costs."""
        if self._strangers is None:
            allowed = OF_ALL_STRANGERS
            self._strangers = Pace(allowed.bytes_per_s, allowed.burst_bytes)
        async with self._turn:
            with trio.move_on_after(STRANGER_WAITS_S):
                while self._members_served:
                    await self._quiet.park()
            await trio.sleep(self._strangers.debt_s)
            self._strangers.spend(self._cost_of(request))

    def _cost_of(self, request: Request) -> int:
        match request:
            case FindRequest(kind=kind, root=root):
                if kind == SNAPSHOTS:
                    return LISTING_COST_BYTES
                blob = self._open.get((kind, root))
                if blob is None:
                    return FIND_COST_BYTES
                return max(OPEN_FIND_COST_BYTES, len(blob.encoded))
            case ChunksRequest(indices=indices):
                return len(indices) * CHUNK_COST_BYTES
            case ShareRequest():
                return CHUNK_COST_BYTES
            case _:
                assert_never(request)

    async def _send_whole(self, stream: FrameStream, frame: Piece) -> None:
        votes = self._votes(stream.node_id)
        weight = len(frame) if self.limits is None else self.limits.weigh(frame)
        with self.upload.sends(stream.node_id, len(frame)) if votes else nullcontext():
            up = None if self.limits is None else self.limits.up
            if up is not None and not up.take_at_once(weight):
                await patiently(stream, partial(up.take, weight))
            self._count(weight, to_stranger=False)
            await stream.send_frame(frame)
        self.sent_bytes += len(frame)

    async def _send_pieces(self, stream: FrameStream, answer: Answer, frame: Piece) -> None:
        weight = len(frame) if self.limits is None else self.limits.weigh(frame)

        async def send(piece: Piece) -> None:
            share = weight * len(piece) // len(frame)
            if self.limits is not None and not self.limits.up.take_at_once(share):
                await self.limits.up.take(share)
            self._count(share, to_stranger=True)
            await stream.send_frame(piece)
            self.sent_bytes += len(piece)

        await answer.send(send, in_pieces(frame))

    def _count(self, weight: int, to_stranger: bool) -> None:
        """As the day's data, before it leaves: who breaks off has had what came before."""
        if self.limits is not None:
            self.limits.count(weight, to_stranger)

    async def _send_found(self, send: Send, request: FindRequest) -> None:
        blob = await self._opened(request.kind, request.root)
        have = await self._have(blob) if request.kind == SNAPSHOTS else None
        manifest = blob.encoded if request.with_manifest else b""
        beginning = manifest[:MANIFEST_BEGINNING_BYTES_MAX]
        rest = memoryview(manifest)[len(beginning) :]
        await send(encode_found(Found(have, beginning, len(rest))))
        for at in range(0, len(rest), FRAME_BYTES_MAX):
            await send(rest[at : at + FRAME_BYTES_MAX])

    async def _send_chunks(self, send: Send, request: ChunksRequest, member: NodeId | None) -> None:
        if not self.may_show(request.kind, request.root):
            raise _Refuse(Refusal.UNKNOWN)
        part = None
        if self._spreading is not None:
            part = self._spreading.under_way.part((request.kind, request.root))
        if part is not None and await self._send_part(send, request, part, member):
            return
        blob = await self._opened(request.kind, request.root)
        count = len(blob.manifest.sizes)
        sizes = [blob.manifest.sizes[index] for index in request.indices if index < count]
        if len(sizes) < len(request.indices) or sum(sizes) > ANSWER_BYTES_MAX:
            raise _Refuse(Refusal.TOO_MUCH)
        if request.kind == SNAPSHOTS:
            await send(encode_chunks([await self._record(blob, i) for i in request.indices]))
            self._note_sent(request, sum(sizes), member)
            return
        buffer = self._buffers.pop() if self._buffers else bytearray(FRAME_BYTES_MAX)
        frame, body = lay_out_chunks(sizes, buffer)
        try:
            await self._shelves[request.kind].read_into(
                request.kind, request.root, request.indices, body
            )
        except StorageFailed:
            # deleted since, or the disk fails: look again next time
            self._open.pop((request.kind, request.root), None)
            raise _Refuse(Refusal.UNKNOWN) from None
        parts: list[bytes | memoryview | None] = []
        for index, size in zip(request.indices, sizes, strict=True):
            parts.append(self._checked(blob, index, body[:size]))
            body = body[size:]
        await send(encode_chunks(parts) if None in parts else frame)
        self._note_sent(request, sum(sizes), member)
        if len(self._buffers) < BUFFERS_KEPT_MAX:
            self._buffers.append(buffer)

    async def _send_part(
        self, send: Send, request: ChunksRequest, part: Part, member: NodeId | None
    ) -> bool:
        """What there is so far; False if it cannot be read: it may be whole, elsewhere, by now."""
        manifest, held = part.manifest, [index for index in request.indices if index in part.held]
        sizes = [manifest.sizes[index] for index in held]
        if sum(sizes) > ANSWER_BYTES_MAX:
            raise _Refuse(Refusal.TOO_MUCH)
        buffer = self._buffers.pop() if self._buffers else bytearray(FRAME_BYTES_MAX)
        frame, body = lay_out_chunks(sizes, buffer)
        try:
            if held:
                await part.writer.read_into(held, body)
        except StorageFailed:
            assert self._spreading is not None, "the part was there"
            self._spreading.under_way.forget((request.kind, request.root))
            return False
        chunks: dict[int, memoryview] = {}
        for index, size in zip(held, sizes, strict=True):
            if index in part.checked or digest_of(body[:size]) == manifest.digests[index]:
                part.checked.add(index)
                chunks[index] = body[:size]
            else:
                self.damaged_chunks += 1
            body = body[size:]
        all_here = len(chunks) == len(request.indices)
        await send(frame if all_here else encode_chunks([chunks.get(i) for i in request.indices]))
        self._note_sent(request, sum(sizes), member)
        if len(self._buffers) < BUFFERS_KEPT_MAX:
            self._buffers.append(buffer)
        return True

    def _note_sent(self, request: ChunksRequest, size_bytes: int, member: NodeId | None) -> None:
        if self._spreading is not None:
            name = request.kind, request.root
            self._spreading.sent(name, member, request.indices, size_bytes)

    async def _record(self, blob: _OpenBlob, index: int) -> bytes | memoryview | None:
        assert self._snapshots is not None
        try:
            name = blob.manifest.digests[index].hex()
            payload = await self._snapshots.get_record(CHUNKS, name)
        except StorageFailed:
            return None
        return None if payload is None else self._checked(blob, index, payload)

    def _checked(
        self, blob: _OpenBlob, index: int, payload: bytes | memoryview
    ) -> bytes | memoryview | None:
        """The payload; None if it is not what its digest says. Each chunk is hashed once."""
        if index not in blob.checked:
            if digest_of(payload) != blob.manifest.digests[index]:
                self.damaged_chunks += 1
                return None
            blob.checked.add(index)
        return payload

    async def _opened(self, kind: str, root: BlobRoot) -> _OpenBlob:
        blob = self._open.get((kind, root))
        if blob is None:
            try:
                manifest = await self._manifest(kind, root)
            except StorageFailed:
                raise _Refuse(Refusal.DAMAGED) from None
            if manifest is None or manifest.root != root:
                raise _Refuse(Refusal.UNKNOWN)
            blob = _OpenBlob(manifest, manifest.encode())
            self._open[(kind, root)] = blob
            while (
                len(self._open) > OPEN_BLOBS_MAX
                or _held_bytes(self._open.values()) > OPEN_BYTES_MAX
            ):
                if len(self._open) == 1:
                    break  # that is being served
                self._open.popitem(last=False)
        self._open.move_to_end((kind, root))
        return blob

    async def _manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        if kind == SNAPSHOTS and self._snapshots is not None:
            payload = await self._snapshots.get_record(MANIFESTS, root.hex())
            try:
                return None if payload is None else decode_manifest(payload)
            except DagError:
                raise _Refuse(Refusal.DAMAGED) from None
        shelf = self._shelves.get(kind)
        return None if shelf is None else await shelf.blob_manifest(kind, root)

    async def _have(self, blob: _OpenBlob) -> int | None:
        """Mask of the chunks of a snapshot that are here; None for all of them."""
        assert self._looks is not None
        now_s = trio.current_time()
        if now_s - blob.listed_s > LOOK_HOLDS_S:
            try:
                kept = await self._manifest(SNAPSHOTS, blob.manifest.root)
                here = await self._looks.mask(blob.manifest, now_s)
            except StorageFailed:
                raise _Refuse(Refusal.DAMAGED) from None
            if kept is None:  # pruned since; others may have found out meanwhile
                self._open.pop((SNAPSHOTS, blob.manifest.root), None)
                raise _Refuse(Refusal.UNKNOWN)
            blob.have = None if here.bit_count() == len(blob.manifest.digests) else here
            blob.listed_s = self._looks.looked_s
        return blob.have
