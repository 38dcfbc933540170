"""What a member keeps and who works on it, in memory: journal, guard, stores, and a trainer.

Updates and states are blobs of a few bytes; a state is the digest of what went into it.
"""

from collections.abc import Collection, Sequence
from typing import cast

import trio

from daa_dag import canonical
from daa_dag.chunking import Manifest, manifest_of
from daa_dag.ids import BlobRoot, Digest, tagged_digest
from daa_node.errors import StorageFailed, TrainerFailed
from daa_node.seams import (
    AggregateOrder,
    BlobStore,
    CanaryStep,
    SealedUpdate,
    SegmentCheck,
    SegmentOrder,
    StateRef,
    SteppedState,
    Tally,
    TrainOrder,
)

TRAIN_S = 0.5
STEP_S = 0.05
STEPS, TOKENS_PER_STEP = 4, 16
UPDATE_BYTES = 40
LOG = "log"  # what a disk calls the journal and its guard


class Sizes:
    """Of what lies in a store."""

    def __init__(self, store: "MemoryStore") -> None:
        self._store = store

    def total(self) -> int:
        return sum(map(len, (*self._store.records.values(), *self._store.blobs.values())))


class MemoryStore:
    """A BlobStore. What its `Disk` refuses to write is refused here too."""

    def __init__(self, disk: "Disk") -> None:
        self._disk = disk
        self.records: dict[tuple[str, str], bytes] = {}
        self.blobs: dict[tuple[str, BlobRoot], bytes] = {}
        self.tally: Tally = Sizes(self)

    async def put_record(
        self, kind: str, name: str, payload: bytes, durable: bool = True, anew: bool = False
    ) -> None:
        await trio.sleep(self._disk.slow_s.get(kind, 0.0))
        self._disk.check(kind)
        self.records[kind, name] = payload

    async def get_record(self, kind: str, name: str) -> bytes | None:
        return self.records.get((kind, name))

    async def has_record(self, kind: str, name: str) -> bool:
        return (kind, name) in self.records

    async def pack(self, kinds: Sequence[str], files_min: int, but: Collection[str] = ()) -> int:
        return 0  # it has no files

    async def merge_packs(self) -> int:
        return 0

    async def record_names(self, kind: str, packed: bool = True) -> list[str]:
        return [name for held, name in self.records if held == kind]

    async def packed_count(self, kind: str, but: Collection[str]) -> int:
        return 0

    async def delete_record(self, kind: str, name: str) -> None:
        self.records.pop((kind, name), None)

    async def settle(self, kinds: Sequence[str]) -> None:
        """It forgets nothing."""

    async def begin_blob(self, kind: str, manifest: Manifest, anew: bool = False) -> "MemoryWriter":
        return MemoryWriter(self, kind, manifest)

    async def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        blob = self.blobs.get((kind, root))
        return None if blob is None else whole(blob)

    async def read_chunk(self, kind: str, root: BlobRoot, index: int) -> bytes:
        return self.blobs[kind, root]

    async def view_blob(self, kind: str, root: BlobRoot) -> memoryview:
        return memoryview(self.blobs[kind, root])

    async def make_durable(self, kind: str, root: BlobRoot) -> None:
        await trio.lowlevel.checkpoint()
        self._disk.check(kind)

    async def blob_roots(self, kind: str) -> list[BlobRoot]:
        return [root for held, root in self.blobs if held == kind]

    async def delete_blob(self, kind: str, root: BlobRoot) -> None:
        self.blobs.pop((kind, root), None)

    def put_blob(self, kind: str, blob: bytes) -> BlobRoot:
        self._disk.check(kind)
        manifest = whole(blob)
        self.blobs[kind, manifest.root] = blob
        self.records["manifests", manifest.root.hex()] = manifest.encode()
        return manifest.root


class MemoryWriter:
    """A blob of one chunk on its way in."""

    def __init__(self, store: MemoryStore, kind: str, manifest: Manifest) -> None:
        self._store, self._kind, self._root = store, kind, manifest.root

    def missing(self) -> list[int]:
        return [] if (self._kind, self._root) in self._store.blobs else [0]

    async def write_chunk(self, index: int, payload: bytes) -> None:
        await trio.lowlevel.checkpoint()
        assert self._store.put_blob(self._kind, payload) == self._root

    async def read_into(self, indices: Sequence[int], target: memoryview) -> None:
        raise StorageFailed("it has one chunk, and gives none of it before it is whole")

    async def commit(self, durable: bool = True) -> None:
        assert not self.missing()


class Disk:
    """What survives a member: its journal, guard and stores."""

    def __init__(self) -> None:
        self.refuses: set[str] = set()  # kinds of records and blobs; LOG for journal and guard
        self.slow_s: dict[str, float] = {}  # how long a record of a kind takes
        self.log: list[bytes] = []
        self.guard: bytes | None = None
        self.chain, self.work = MemoryStore(self), MemoryStore(self)

    def check(self, kind: str) -> None:
        if kind in self.refuses:
            raise StorageFailed("no space left on device")

    async def load(self) -> list[bytes]:
        return list(self.log)

    async def append(self, record: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.check(LOG)
        self.log.append(record)

    async def rewrite(self, records: list[bytes]) -> None:
        self.check(LOG)
        self.log = list(records)

    async def read_guard(self) -> bytes | None:
        return self.guard

    async def write_guard(self, payload: bytes) -> None:
        self.check(LOG)
        self.guard = payload


def whole(blob: bytes) -> Manifest:
    return manifest_of(blob, [len(blob)])


class FakeTrainer:
    """Blobs of a few bytes; a state is the digest of what went into it."""

    def __init__(self, work: MemoryStore) -> None:
        self._work = work
        self.fails = 0  # so many aggregations to come
        self.blocked_until_s = 0.0  # no aggregation ends before

    async def initial_state(self) -> StateRef:
        return self._state(b"first")

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate:
        await trio.sleep(TRAIN_S)
        blob = tagged_digest("update", [order.author, order.round]) + bytes(UPDATE_BYTES - 32)
        root = self._work.put_blob("updates", blob)
        tokens = order.steps_max * TOKENS_PER_STEP
        return SealedUpdate(root, len(blob), "int8", order.steps_max, tokens, 1_000, 2.0, (), 0.0)

    async def keep_boundaries(self, roots: Sequence[Digest]) -> None:
        assert not roots, "it makes none"

    async def check_segment(self, order: SegmentOrder) -> SegmentCheck:
        raise TrainerFailed("its blobs hold nothing that was trained")

    async def canary(self, step: int) -> CanaryStep:
        raise TrainerFailed("it takes no steps")

    async def aggregate_and_step(self, order: AggregateOrder) -> SteppedState:
        await trio.sleep_until(max(trio.current_time() + STEP_S, self.blocked_until_s))
        if self.fails:
            self.fails -= 1
            raise TrainerFailed("killed by a test")
        assert all(("updates", update.blob_root) in self._work.blobs for update in order.updates)
        roots: list[canonical.Value] = [[u.author, u.blob_root] for u in order.updates]
        delta_root = self._work.put_blob("updates", tagged_digest("delta", roots))
        return SteppedState(await self.apply_delta(order.base, delta_root), delta_root)

    async def apply_delta(self, base: StateRef, delta_root: BlobRoot) -> StateRef:
        return self._state(tagged_digest("state", [base.model_root, delta_root]))

    async def evaluate(self, state: StateRef) -> float:
        return 2.0

    def _state(self, name: bytes) -> StateRef:
        model = self._work.put_blob("states", b"model" + name)
        return StateRef(model, self._work.put_blob("states", b"outer" + name))


def work_store() -> BlobStore:
    """A new one, as whoever asks for small records takes it."""
    return cast(BlobStore, Disk().work)
