"""All the outside there is: everything a node cannot compute passes through one of these.

`adapters/` is reality, simnet the other world. Intervals and timeouts use trio's own clock, which a
simulation replaces; `Clock` is wall time, for expiry dates only.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NewType, Protocol, TypeVar

import trio

from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.errors import PeerFault

PeerId = NewType("PeerId", str)  # libp2p's base58 text form of the Ed25519 key's multihash
Address = NewType("Address", str)  # a multiaddr, with /p2p/<peer id> where the peer is known
T = TypeVar("T")


class Clock(Protocol):
    def wall_ns(self) -> int:
        """Unix time in nanoseconds."""


class Entropy(Protocol):
    def bytes(self, size_bytes: int) -> bytes: ...


class Offload(Protocol):
    """Runs what would block the event loop: a thread in reality, inline in simulation."""

    async def run(self, work: Callable[[], T]) -> T: ...


class ByteStream(Protocol):
    """Reliable ordered bytes to one authenticated peer; trio.BrokenResourceError when cut."""

    @property
    def peer_id(self) -> PeerId: ...

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None: ...

    async def receive_some(self, size_bytes_max: int) -> bytes:
        """At least one byte, or b"" at the end."""

    async def aclose(self) -> None:
        """Its end, behind all that was sent; cuts it where sending or receiving was given up."""


StreamHandler = Callable[[ByteStream], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Announcement:
    """One gossip message: `source` made it, `payload` is at most wire.limits.GOSSIP_BYTES_MAX."""

    source: PeerId
    payload: bytes
    forwarder: PeerId  # who passed it on to us; the source itself at the first hop


# Whether an announcement may be news, before its signature is checked: False drops it at no cost.
GossipFilter = Callable[[Announcement], bool]
# What is its source's for certain: True passes it on, False drops it. Raises PeerFault, which is
# held against the forwarder, for what every honest node refuses, wherever it stands and whatever
# its clock says.
GossipJudge = Callable[[Announcement], bool]


# Ranks a DHT record by its key and payload: None refuses it, of two the higher rank stays.
RecordJudge = Callable[[str, bytes], int | None]
# Runs once for every newly connected peer; True admits it, until its last connection ends.
Door = Callable[[PeerId], Awaitable[bool]]
OnFault = Callable[[PeerId, PeerFault], None]
IsMember = Callable[[PeerId], bool]  # at this moment, by the chain


BELL_TOKEN_BYTES = 32


class Transport(Protocol):
    """Authenticated streams, small gossip and the DHT. Bulk bytes go over BulkTransport instead."""

    @property
    def peer_id(self) -> PeerId: ...

    def addresses(self) -> list[Address]:
        """Where others can dial us, with our peer id."""

    async def dial(self, address: Address) -> PeerId:
        """Connect, or reuse a connection. Raises Unavailable.

        An address without a peer id is of whoever answers there: the answer tells who, which may
        be ourselves.
        """

    async def hang_up(self, peer_id: PeerId) -> None: ...

    def keep_visitor(self, peer_id: PeerId, protocol: str) -> bool:
        """Let a connected peer stay that no door has let in, served this open protocol alone.

        Until its last connection ends, it pays together with all other visitors, and is none of
        `connected`. False if it has gone, or a door has let it in.
        """

    def connected(self) -> list[PeerId]:
        """Whom we may have to do with as nodes."""

    def network_of(self, peer_id: PeerId) -> str:
        """Where a connected peer is: one IPv4 address or IPv6 /64, what one customer holds."""

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        """Raises Unavailable when not connected, or when the peer does not speak `protocol`."""

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        """Handlers run in the transport's nursery; what they raise ends that stream only."""

    def guard(
        self,
        door: Door,
        open_protocols: frozenset[str],
        on_fault: OnFault,
        is_member: IsMember,
    ) -> None:
        """Serve a peer nothing but `open_protocols` until `door` admits it; else hang up on it.

        `on_fault` is told what a peer does wrong in the transport's own protocols. Who is no member
        shares with all others who are none what may be asked of the transport. Set before `run`;
        without it everybody is admitted, as a member.
        """

    def set_record_judge(self, judge: RecordJudge) -> None:
        """Without one the DHT stores nothing."""

    def join_topic(self, topic: str, may_be_news: GossipFilter, judge: GossipJudge) -> None: ...

    async def publish(self, topic: str, payload: bytes) -> None: ...

    async def put_record(self, key: str, payload: bytes) -> None:
        """Store under the chain's own DHT namespace. Raises Unavailable."""

    async def get_record(self, key: str) -> bytes | None: ...

    async def provide(self, key: str) -> None:
        """Tell the DHT that we hold what `key` names, and again until newer keys push it out.

        Raises Unavailable when nobody has noted it yet.
        """

    async def find_providers(self, key: str, count_max: int) -> list[PeerId]:
        """Who says that it holds what `key` names: hints, never proofs, and not ourselves."""


class Doorbell(Protocol):
    """Shows whether a port can be dialled: who dials it says a token, and is answered nothing."""

    is_dialable: bool  # as far as we have found; True at first. What cannot be, is told nobody.
    outside: Address | None  # where our router lets others in, without our peer id

    def awaiting(self, token: bytes) -> AbstractContextManager[trio.Event]:
        """Set once somebody has said this token at one of our ports; only within the context."""

    async def ring(self, host: str, port: int, token: bytes) -> None:
        """Say the token there, if it can be dialled; nobody learns whether."""

    def host_of(self, peer_id: PeerId) -> str:
        """The IP address that a connected peer's connection comes from. Raises Unavailable."""


class Circuits(Protocol):
    """Connections through a relay, which sees sealed bytes alone."""

    async def reserve(self, relay: PeerId) -> float:
        """For how many seconds a connected relay lets others reach us through it.

        Raises Unavailable when it does not, PeerFault for what is no answer.
        """

    def is_promised(self, relay: PeerId) -> bool:
        """Whether the connection is there on which it promised that: else it has forgotten."""

    def is_relayed(self, peer_id: PeerId) -> bool:
        """Whether we are connected with it through a relay."""


IDLE_TIMEOUT_S = 120.0  # without a frame a session is over


class FrameStream(Protocol):
    """Sealed frames of the bulk channel: AEAD, ordered, at most wire.limits.FRAME_BYTES_MAX."""

    @property
    def node_id(self) -> NodeId: ...

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None: ...

    async def receive_frame(self, within_s: float = IDLE_TIMEOUT_S) -> bytes | None:
        """None at a clean end. Raises PeerFault for a frame that does not open or is too large.

        Raises Unavailable when none begins `within_s`, or one that has begun comes to no end.
        """

    async def aclose(self) -> None: ...


FrameHandler = Callable[[FrameStream], Awaitable[None]]


class BulkTransport(Protocol):
    async def open(self, peer_id: PeerId) -> FrameStream:
        """A fresh session with a connected peer. Raises Unavailable or PeerFault."""

    def set_handler(self, handler: FrameHandler, is_member: IsMember) -> None:
        """Who is no member gives way to members where sessions are scarce."""


class BlobWriter(Protocol):
    """A blob on its way to disk; what was written survives a crash and is resumed."""

    def missing(self) -> list[int]:
        """Indices of the chunks still wanted, ascending."""

    async def write_chunk(self, index: int, payload: bytes) -> None:
        """Caller has verified the chunk against the manifest. Raises StorageFailed."""

    async def write_chunks(self, chunks: Sequence[tuple[int, bytes | memoryview]]) -> None:
        """The same for several (index, payload), in one trip to the disk. Raises StorageFailed."""

    async def read_into(self, indices: Sequence[int], target: memoryview) -> None:
        """Of what was written, those chunks one after another. Raises StorageFailed.

        Once it is committed, too, for as long as the blob lies there.
        """

    async def commit(self, durable: bool = True) -> None:
        """Visible once this returns; needs missing() == []. Raises StorageFailed.

        Raises Unavailable where bytes are not all that must come, as in simulated bulk.
        """


class Tally(Protocol):
    """How much lies in a store."""

    def total(self) -> int:
        """Of all that is whole, packs included, in bytes; cheap. Raises StorageFailed."""


class BlobStore(Protocol):
    """Named small records, and large blobs of chunks. Puts are atomic; durable ones are synced."""

    tally: Tally

    async def put_record(
        self, kind: str, name: str, payload: bytes, durable: bool = True, anew: bool = False
    ) -> None:
        """`anew`: in the place of a damaged one, in a pack too, which is there until then."""

    async def get_record(self, kind: str, name: str) -> bytes | None: ...

    async def has_record(self, kind: str, name: str) -> bool: ...

    async def record_names(self, kind: str, packed: bool = True) -> list[str]:
        """Of all, or of those that `pack` has not moved."""

    async def packed_count(self, kind: str, but: Collection[str]) -> int:
        """How many records of the kind `pack` has moved, but for these names."""

    async def delete_record(self, kind: str, name: str) -> None: ...

    async def settle(self, kinds: Sequence[str]) -> None:
        """What was deleted of these kinds stays so over a power cut. Raises StorageFailed."""

    async def pack(self, kinds: Sequence[str], files_min: int, but: Collection[str] = ()) -> int:
        """Move records and small blobs of these kinds into few files if they are so many.

        How many it moved; those of `but` (`kind/name`) stay. Nobody who reads sees a difference,
        and nothing is lost at any moment: they are deleted where they were once they are durable
        elsewhere. Whatever moves is durable. Nothing of these kinds may be written or deleted
        meanwhile. Raises StorageFailed.
        """

    async def merge_packs(self) -> int:
        """Make one of several of those files, if they have become many; how many they were.

        May take long; everything may be read and written meanwhile. Raises StorageFailed.
        """

    async def begin_blob(self, kind: str, manifest: Manifest, anew: bool = False) -> BlobWriter:
        """`anew`: what is there is damaged, and stays until the commit takes its place."""

    async def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        """The manifest of a committed blob; None if it is damaged, or we do not hold the blob.

        Of a blob that was not made durable, a crash may leave other bytes than the manifest names.
        """

    async def read_chunk(self, kind: str, root: BlobRoot, index: int) -> bytes:
        """One chunk of a committed blob, as stored (the caller verifies). Raises StorageFailed."""

    async def read_into(
        self, kind: str, root: BlobRoot, indices: Sequence[int], target: memoryview
    ) -> None:
        """Those chunks one after another, filling `target`, in one trip. Raises StorageFailed."""

    async def view_blob(self, kind: str, root: BlobRoot) -> memoryview:
        """The whole of a committed blob, mapped and not loaded; not to be used once it is deleted.

        Raises StorageFailed.
        """

    async def make_durable(self, kind: str, root: BlobRoot) -> None:
        """Sync a blob that was committed without; its bytes are hashed again first.

        Raises StorageFailed, and deletes the blob if a crash left it damaged.
        """

    async def blob_roots(self, kind: str) -> list[BlobRoot]:
        """Of all that takes room: also of what a power cut has left without a manifest."""

    async def delete_blob(self, kind: str, root: BlobRoot) -> None: ...


class Journal(Protocol):
    """An append-only log beside one guard file. Nothing is sent before both are durable."""

    async def load(self) -> list[bytes]:
        """Every whole record in order; an incomplete last record is cut off for good."""

    async def append(self, record: bytes) -> None:
        """Durable (fdatasync) once this returns. Raises StorageFailed."""

    async def rewrite(self, records: list[bytes]) -> None:
        """Replace the whole log, atomically and durably once this returns. Raises StorageFailed."""

    async def read_guard(self) -> bytes | None:
        """The payload last written; None when there is no guard, b"" when its bytes are damaged."""

    async def write_guard(self, payload: bytes) -> None:
        """Replaced atomically and durably once this returns. Raises StorageFailed."""


@dataclass(frozen=True, slots=True)
class StateRef:
    """A model state by the roots of its two blobs: int32 weights and int32 outer momentum."""

    model_root: BlobRoot
    outer_root: BlobRoot


@dataclass(frozen=True, slots=True)
class TrainOrder:
    base: StateRef
    seed: Digest  # of the parent vertex: batches are a pure function of it, epoch, author and step
    round: int
    author: NodeId
    steps_max: int
    stop_after_s: float  # the worker ends early, at a step's boundary, rather than be late
    codec: str
    first_step: int  # inner steps taken by this author before, for the learning-rate schedule
    # The newest round whose certified set holds an update of this author, -1 if none does: what
    # later updates left behind is dropped with them.
    merged_round: int = -1
    segment_steps: int = 0  # from boundary to boundary (see training.boundaries); 0: there are none
    ahead_max: int = 0  # steps of the next round before its order, where the job trains on


@dataclass(frozen=True, slots=True)
class SealedUpdate:
    blob_root: BlobRoot  # committed in the blob store under kind "updates"
    size_bytes: int
    codec: str
    steps: int
    tokens: int
    us_per_step: int
    loss_nats: float  # mean training loss of the inner steps
    snapshot_roots: tuple[Digest, ...]  # of the round's boundaries, in the order of their steps
    seal_s: float  # from the last inner step to the blob in the store


@dataclass(frozen=True, slots=True)
class WeightedUpdate:
    """One member of a decided set; sets are sorted by author."""

    author: NodeId
    blob_root: BlobRoot
    codec: str
    weight: int  # used by rules with a weighted formula only


@dataclass(frozen=True, slots=True)
class AggregateOrder:
    base: StateRef
    updates: tuple[WeightedUpdate, ...]
    rule: str
    f_agg: int


@dataclass(frozen=True, slots=True)
class SteppedState:
    state: StateRef  # committed in the blob store under kind "states"
    delta_root: BlobRoot  # the agreed aggregate, committed under kind "updates"


@dataclass(frozen=True, slots=True)
class SealedClaim:
    """What a round's last boundary is said to have been sealed into."""

    base: StateRef | None  # None: the weights of the first boundary, which names prove to be it
    last_root: BlobRoot  # committed in the blob store under the order's `shelf`
    blob_root: BlobRoot  # committed in the blob store under kind "updates"; with no base, as above
    codec: str


@dataclass(frozen=True, slots=True)
class SegmentOrder:
    """Some steps of somebody's round, to be taken again. See training.boundaries for the blobs."""

    seed: Digest  # these three as in the author's own order
    round: int
    author: NodeId
    first_step: int
    step: int  # of the round, that the segment begins with
    steps: int  # in the segment
    start_root: BlobRoot  # both boundaries are committed in the blob store under kind `shelf`
    end_root: BlobRoot
    sealed: SealedClaim | None  # None: the steps alone
    # By canonical kernels, to the same bits everywhere (training.exact_replay): steps unsealed, or
    # no step and the seal of the whole round, from its first boundary and its last.
    exact: bool = False
    shelf: str = "claimed"
    origin_root: BlobRoot | None = None  # of exact steps: where the way is counted from, else start


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """How far a claim is from what follows from where it starts: relative L2, maybe infinite."""

    weights: float  # over how far the author says that they moved; so the two moments
    first: float
    second: float
    residual: float  # that sealing left, over its own length; without a seal, the segment's end's
    sealed: float | None  # the update, decoded
    steps_agree: bool  # the moments have as many steps more as the segment


@dataclass(frozen=True, slots=True)
class CanaryStep:
    """A step that every node takes alike, by one node's device. See training.canary."""

    device: str  # its kind, in words: what numbers of equal devices have in common
    distance: float  # from where canonical kernels lead: relative L2, maybe infinite
    repeats: bool  # taken twice, it comes to the same bits


class Trainer(Protocol):
    """The worker, in verbs. Every verb raises TrainerFailed; none leaves half a blob behind."""

    async def initial_state(self) -> StateRef:
        """The genesis weights, a pure function of the genesis."""

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate: ...

    async def keep_boundaries(self, roots: Sequence[Digest]) -> None:
        """Commit these boundaries of the update sealed last under kind "boundaries".

        Apart from the sealing, so that no Offer waits for it: whoever dies in between finds them
        after its restart. What is committed already stays. Raises TrainerFailed if one of them is
        neither here nor there, StorageFailed, too.
        """

    async def check_segment(self, order: SegmentOrder) -> SegmentCheck:
        """Leaves no trace in our own training; ends at a step's boundary when cancelled.

        Raises TrainerFailed for a boundary whose size is not this job's, too.
        """

    async def open_segment(self, order: SegmentOrder) -> tuple[Digest, ...]:
        """Take the steps again, and commit the state after each but the last under kind `shelf`.

        The roots of these states. Leaves no other trace, like `check_segment`. Raises
        StorageFailed, too.
        """

    async def canary(self, step: int) -> CanaryStep:
        """Take the step of that index from the genesis on. Leaves no trace in our own training.

        Ends soon when cancelled.
        """

    async def aggregate_and_step(self, order: AggregateOrder) -> SteppedState: ...

    async def apply_delta(self, base: StateRef, delta_root: BlobRoot) -> StateRef:
        """Replay one agreed aggregate: what aggregate_and_step does after the aggregation."""

    async def evaluate(self, state: StateRef) -> float:
        """Held-out loss in nats a byte."""
