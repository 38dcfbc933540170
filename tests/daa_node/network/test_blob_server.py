"""The serving end of a bulk session: it gives what is asked, refuses by name, bears garbage."""

import random
from pathlib import Path

import pytest
import trio
import trio.testing

from daa_dag.chunking import manifest_of
from daa_dag.ids import BlobRoot, NodeId
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.errors import PeerFault, StorageFailed
from daa_node.network import blob_server
from daa_node.network.blob_server import (
    MANIFESTS,
    OPEN_BLOBS_MAX,
    OPEN_BYTES_A_CHUNK,
    SNAPSHOTS,
    BlobServer,
)
from daa_node.network.chunk_looks import CHUNKS, LOOK_HOLDS_S
from daa_node.network.config import NetworkConfig
from daa_node.seams import IDLE_TIMEOUT_S, FrameStream, PeerId
from daa_node.wire.blob_messages import (
    PIECE_BYTES,
    Answer,
    Chunks,
    ChunksRequest,
    FindRequest,
    Found,
    Refusal,
    Refused,
    decode_answer,
    encode_request,
)
from tests.daa_node.network.bulk_stage import (
    CHUNK_COUNT,
    KIND,
    MANIFEST,
    MemoryBulk,
    chunk,
    fill,
)
from tests.daa_node.network.limited_link import Link


async def converse(server: BlobServer, *requests: bytes) -> list[bytes]:
    """The frames that a session with these requests brings; faults are raised."""
    answers: list[bytes] = []
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        raised: list[PeerFault] = []

        async def guarded(stream: FrameStream) -> None:
            try:
                await server.serve(stream)
            except PeerFault as fault:
                raised.append(fault)

        bulk.add("server", guarded)
        stream = await bulk.open(PeerId("server"))
        for request in requests:
            await stream.send_frame(request)
            frame = await stream.receive_frame()
            if frame is not None:
                answers.append(frame)
        await stream.aclose()
    if raised:
        raise raised[0]
    return answers


class Asker:
    """A peer that asks once."""

    def __init__(self, name: bytes, request: bytes) -> None:
        self.node_id = NodeId(name * 32)
        self._asks = [request]
        self.frames: list[bytes] = []

    async def receive_frame(self, within_s: float = IDLE_TIMEOUT_S) -> bytes | None:
        return self._asks.pop() if self._asks else None

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        self.frames.append(bytes(payload))

    @property
    def answer(self) -> Answer:
        return decode_answer(self.frames[0])

    async def aclose(self) -> None: ...


async def shelf(tmp_path: Path) -> DiskBlobStore:
    store = DiskBlobStore(tmp_path / "shelf")
    await fill(await store.begin_blob(KIND, MANIFEST))
    return store


async def test_the_server_gives_what_is_asked_and_nothing_else(tmp_path: Path) -> None:
    server = BlobServer({KIND: await shelf(tmp_path)}, None, bool)
    (frame,) = await converse(server, encode_request(ChunksRequest(KIND, MANIFEST.root, (1, 10))))
    answer = decode_answer(frame)
    assert isinstance(answer, Chunks)
    assert [bytes(p) for p in answer.payloads if p is not None] == [chunk(1), chunk(10)]
    assert server.sent_bytes == len(frame)


async def test_what_may_not_be_shown_is_named_and_not_given(tmp_path: Path) -> None:
    store = await shelf(tmp_path)
    server = BlobServer({KIND: store}, None, lambda _: True)
    server.may_show = lambda kind, root: (kind, root) != (KIND, MANIFEST.root)
    find = encode_request(FindRequest(KIND, MANIFEST.root, with_manifest=True))
    chunks = encode_request(ChunksRequest(KIND, MANIFEST.root, (0,)))
    found, refused = map(decode_answer, await converse(server, find, chunks))
    assert isinstance(found, Found)
    assert refused == Refused(Refusal.UNKNOWN)
    server.may_show = lambda _kind, _root: True
    assert isinstance(decode_answer((await converse(server, chunks))[0]), Chunks)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (ChunksRequest(KIND, BlobRoot(bytes(32)), (0,)), Refusal.UNKNOWN),
        (ChunksRequest("states", MANIFEST.root, (0,)), Refusal.UNKNOWN),
        (ChunksRequest("../keys", MANIFEST.root, (0,)), Refusal.UNKNOWN),
        (FindRequest(SNAPSHOTS, MANIFEST.root, True), Refusal.UNKNOWN),
        (ChunksRequest(KIND, MANIFEST.root, (CHUNK_COUNT,)), Refusal.TOO_MUCH),
        (ChunksRequest(KIND, MANIFEST.root, tuple(range(5))), Refusal.TOO_MUCH),
    ],
)
async def test_what_the_server_will_not_do_it_refuses_by_name(
    tmp_path: Path, request_: ChunksRequest | FindRequest, reason: Refusal
) -> None:
    server = BlobServer({KIND: await shelf(tmp_path)}, None, bool)
    (frame,) = await converse(server, encode_request(request_))
    assert decode_answer(frame) == Refused(reason)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\xc1", b"x" * 5000, b"\x91\xa4find", random.Random(7).randbytes(100)],
)
async def test_garbage_requests_are_faults(tmp_path: Path, garbage: bytes) -> None:
    with pytest.raises(PeerFault, match="malformed"):
        await converse(BlobServer({}, None, bool), garbage)


async def test_a_chunk_that_the_disk_damaged_is_not_here(tmp_path: Path) -> None:
    store = await shelf(tmp_path)
    path = store.directory.path_of(KIND, MANIFEST.root)
    with open(path, "r+b") as file:
        file.write(b"flipped")
    server = BlobServer({KIND: store}, None, bool)
    (frame,) = await converse(server, encode_request(ChunksRequest(KIND, MANIFEST.root, (0, 1))))
    answer = decode_answer(frame)
    assert isinstance(answer, Chunks)
    assert answer.payloads[0] is None
    assert answer.payloads[1] is not None
    assert bytes(answer.payloads[1]) == chunk(1)
    assert server.damaged_chunks == 1


async def test_a_blob_deleted_while_it_is_served_is_refused_as_unknown(tmp_path: Path) -> None:
    store = await shelf(tmp_path)
    server = BlobServer({KIND: store}, None, bool)
    request = encode_request(ChunksRequest(KIND, MANIFEST.root, (0,)))
    await converse(server, request)
    await store.delete_blob(KIND, MANIFEST.root)
    (frame,) = await converse(server, request)
    assert decode_answer(frame) == Refused(Refusal.UNKNOWN)
    # and when it is back, it is hashed again before anything of it is served
    await fill(await store.begin_blob(KIND, MANIFEST))
    with open(store.directory.path_of(KIND, MANIFEST.root), "r+b") as file:
        file.write(b"flipped")
    (frame,) = await converse(server, request)
    assert decode_answer(frame) == Chunks((None,))


async def test_a_snapshot_pruned_while_it_is_served_is_soon_refused_as_unknown(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    store = DiskBlobStore(tmp_path)
    await store.put_record(MANIFESTS, MANIFEST.root.hex(), MANIFEST.encode())
    await store.put_record(CHUNKS, MANIFEST.digests[0].hex(), chunk(0))
    server = BlobServer({}, store, bool)
    request = encode_request(FindRequest(SNAPSHOTS, MANIFEST.root, False))
    (frame,) = await converse(server, request)
    assert decode_answer(frame) == Found(1)
    await store.delete_record(MANIFESTS, MANIFEST.root.hex())  # the chunk is another's too
    mock_clock.jump(LOOK_HOLDS_S + 0.1)
    (frame,) = await converse(server, request)
    assert decode_answer(frame) == Refused(Refusal.UNKNOWN)


async def test_a_guest_that_asks_for_a_long_manifest_can_read_its_first_piece(
    tmp_path: Path,
) -> None:
    """Pieces are cut anywhere: what a frame says of itself must be in its first."""
    manifest = manifest_of(bytes(3_000), [1] * 3_000)
    assert len(manifest.encode()) > PIECE_BYTES
    store = DiskBlobStore(tmp_path)
    await store.put_record(MANIFESTS, manifest.root.hex(), manifest.encode())
    guest = Asker(b"g", encode_request(FindRequest(SNAPSHOTS, manifest.root, True)))
    await BlobServer({}, store, lambda _node_id: False).serve(guest)
    found, following = guest.answer, b"".join(guest.frames[1:])
    assert isinstance(found, Found)
    assert found.following_bytes == len(following)
    assert found.manifest + following == manifest.encode()


async def test_two_that_ask_at_once_for_a_pruned_snapshot_are_both_refused(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    """Any two guests may: what their handler raised beside that ended the daemon."""
    store = DiskBlobStore(tmp_path)
    await store.put_record(MANIFESTS, MANIFEST.root.hex(), MANIFEST.encode())
    server = BlobServer({}, store, lambda _node_id: False)
    request = encode_request(FindRequest(SNAPSHOTS, MANIFEST.root, False))
    (frame,) = await converse(server, request)
    await store.delete_record(MANIFESTS, MANIFEST.root.hex())
    mock_clock.jump(LOOK_HOLDS_S + 0.1)
    guests = [Asker(name, request) for name in (b"a", b"b", b"c")]
    async with trio.open_nursery() as nursery:
        for guest in guests:
            nursery.start_soon(server.serve, guest)
    assert [guest.answer for guest in guests] == 3 * [Refused(Refusal.UNKNOWN)]


async def test_open_manifests_are_bounded_by_what_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = [manifest_of(bytes([name]) * 100, [1] * 100) for name in range(4)]
    store = DiskBlobStore(tmp_path)
    for manifest in manifests:
        await store.put_record(MANIFESTS, manifest.root.hex(), manifest.encode())
    server = BlobServer({}, store, bool)
    monkeypatch.setattr(blob_server, "OPEN_BYTES_MAX", 2 * 100 * OPEN_BYTES_A_CHUNK)
    finds = [encode_request(FindRequest(SNAPSHOTS, each.root, True)) for each in manifests]
    for frame in await converse(server, *finds, finds[0]):
        assert isinstance(decode_answer(frame), Found)
    assert [root for _, root in server._open] == [manifests[3].root, manifests[0].root]
    monkeypatch.setattr(blob_server, "OPEN_BYTES_MAX", 1)
    await converse(server, finds[1])  # it is served all the same
    assert [root for _, root in server._open] == [manifests[1].root]


class FailingStore(DiskBlobStore):
    """Its directory can be listed no longer."""

    async def record_names(self, kind: str, packed: bool = True) -> list[str]:
        raise StorageFailed(f"{kind} cannot be listed")


async def test_a_disk_that_fails_while_it_is_listed_costs_its_asker_an_answer(
    tmp_path: Path,
) -> None:
    store = FailingStore(tmp_path)
    await store.put_record(MANIFESTS, MANIFEST.root.hex(), MANIFEST.encode())
    request = encode_request(FindRequest(SNAPSHOTS, MANIFEST.root, False))
    (frame,) = await converse(BlobServer({}, store, bool), request)
    assert decode_answer(frame) == Refused(Refusal.DAMAGED)


class SlowTaker(Asker):
    """It takes two seconds to take the answer, or as many as one says."""

    def __init__(self, name: bytes = b"s", takes_s: float = 2.0) -> None:
        super().__init__(name, encode_request(FindRequest(KIND, MANIFEST.root, False)))
        self._takes_s = takes_s

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        await trio.sleep(self._takes_s)


async def test_the_time_of_peers_served_at_once_counts_once(autojump_clock: object) -> None:
    """Else a link that three share would be measured as three times slower than it is."""
    server = BlobServer({}, None, bool)
    async with trio.open_nursery() as nursery:
        for name in (b"a", b"b", b"c"):
            nursery.start_soon(server.serve, SlowTaker(name))
    assert server.upload.sending_s == 2.0
    await server.serve(SlowTaker())
    assert server.upload.sending_s == 4.0


async def test_a_cap_that_is_lowered_counts_at_once_in_what_a_link_is_taken_for(
    autojump_clock: object,
) -> None:
    """Else a node would plan by what it sent in the weeks before, and come too late."""
    server, link = BlobServer({}, None, bool), Link()
    server.limits = link.limits
    await server.serve(SlowTaker(takes_s=1e-6))
    measured = server.upload.bytes_per_s
    assert measured is not None
    assert measured > 1e6
    link.settings = NetworkConfig(upload_mbit_s=2.0)
    assert server.upload.bytes_per_s == 250_000
    link.settings = NetworkConfig(upload_mbit_s=1e6)
    assert server.upload.bytes_per_s == measured


async def test_who_waits_to_join_beside_its_sponsor_makes_no_link_look_thin(
    autojump_clock: object,
) -> None:
    """The two that take forever would else be all that a link is measured by."""
    voters = {NodeId(name * 32) for name in (b"a", b"b", b"t")}
    server = BlobServer({}, None, bool, votes=voters.__contains__)
    for name in (b"a", b"b"):
        await server.serve(SlowTaker(name))
    honest = server.upload.bytes_per_s
    assert honest
    async with trio.open_nursery() as nursery:
        for name in (b"t", b"n"):  # a traitor, and the newcomer that it sponsors
            nursery.start_soon(server.serve, SlowTaker(name, 1e6))
        await trio.sleep(3600.0)
        assert server.upload.bytes_per_s == pytest.approx(honest)
        nursery.cancel_scope.cancel()


class Listed(DiskBlobStore):
    """Counts who looks through a directory."""

    looks = 0

    async def record_names(self, kind: str, packed: bool = True) -> list[str]:
        self.looks += 1
        return await super().record_names(kind, packed)


async def test_who_asks_for_one_state_after_the_other_has_the_chunks_listed_once(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    """More than stay open here: each was a look through all that lies here, 20 ms of 20,000."""
    store, roots = Listed(tmp_path), list[BlobRoot]()

    async def publish(number: int) -> None:
        payload = b"state %d" % number
        manifest = manifest_of(payload, [3, len(payload) - 3])
        for part, digest in zip((payload[:3], payload[3:]), manifest.digests, strict=True):
            await store.put_record(CHUNKS, digest.hex(), part)
        await store.put_record(MANIFESTS, manifest.root.hex(), manifest.encode())
        roots.append(manifest.root)

    for number in range(OPEN_BLOBS_MAX + 2):
        await publish(number)
    server = BlobServer({}, store, bool)

    async def find_all() -> list[Answer]:
        requests = [encode_request(FindRequest(SNAPSHOTS, root, False)) for root in roots]
        return [decode_answer(frame) for frame in await converse(server, *requests)]

    assert await find_all() == await find_all() == [Found(None)] * len(roots)
    assert store.looks == 1
    mock_clock.jump(1.0)
    await publish(99)
    assert await find_all() == [Found(None)] * len(roots)  # what is new is seen at once
    assert store.looks == 2
    mock_clock.jump(LOOK_HOLDS_S + 0.1)
    await store.delete_record(CHUNKS, manifest_of(b"state 99", [3, 5]).digests[1].hex())
    assert (await find_all())[-1] == Found(1)
    assert store.looks == 3


async def test_who_asks_again_and_again_for_half_a_state_has_the_chunks_listed_now_and_then(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    store = Listed(tmp_path)
    await store.put_record(MANIFESTS, MANIFEST.root.hex(), MANIFEST.encode())
    await store.put_record(CHUNKS, MANIFEST.digests[0].hex(), chunk(0))
    server = BlobServer({}, store, bool)
    request = encode_request(FindRequest(SNAPSHOTS, MANIFEST.root, False))
    for looks in (1, 2):
        for _ in range(4):
            frames = await converse(server, request, request)
            assert [decode_answer(frame) for frame in frames] == [Found(1)] * 2
            mock_clock.jump(LOOK_HOLDS_S / 5)
        assert store.looks == looks
        mock_clock.jump(LOOK_HOLDS_S)


async def test_a_look_for_one_state_is_believed_no_longer_for_another_that_it_showed(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    store, requests = DiskBlobStore(tmp_path), list[bytes]()
    for payload in (b"one", b"two"):
        manifest = manifest_of(payload, [3])
        await store.put_record(CHUNKS, manifest.digests[0].hex(), payload)
        await store.put_record(MANIFESTS, manifest.root.hex(), manifest.encode())
        requests.append(encode_request(FindRequest(SNAPSHOTS, manifest.root, False)))
    server = BlobServer({}, store, bool)
    for request in requests:
        (frame,) = await converse(server, request)
        assert decode_answer(frame) == Found(None)
        mock_clock.jump(LOOK_HOLDS_S * 3 / 4)
    await store.delete_record(MANIFESTS, manifest.root.hex())
    (frame,) = await converse(server, requests[1])
    assert decode_answer(frame) == Refused(Refusal.UNKNOWN)


async def test_names_of_chunks_are_let_go_of_once_somebody_asks_for_anything_later(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    store = DiskBlobStore(tmp_path)
    await store.put_record(MANIFESTS, MANIFEST.root.hex(), MANIFEST.encode())
    await store.put_record(CHUNKS, MANIFEST.digests[0].hex(), chunk(0))
    server = BlobServer({}, store, bool)
    await converse(server, encode_request(FindRequest(SNAPSHOTS, MANIFEST.root, False)))
    assert server._looks is not None
    other = encode_request(FindRequest("updates", MANIFEST.root, False))
    for jump_s, are_held in ((LOOK_HOLDS_S / 2, True), (LOOK_HOLDS_S, False)):
        mock_clock.jump(jump_s)
        await converse(server, other)
        assert bool(server._looks._names) is are_held
