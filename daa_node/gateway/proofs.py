"""Pieces of the chain's proofs: signatures of certificates, links of vertices, chunks of snapshots.

All are read from our own disk, as certified, by lot. One entry in SPOILT_EVERY is spoilt: a bit of
it is turned, so that who does not look cannot say which.
"""

from collections.abc import Callable, Mapping, Sequence

from daa_dag.checkpoint import Vertex
from daa_dag.ids import NodeId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import CHUNKS
from daa_node.checkpoints.shown_proofs import shown_exec
from daa_node.gateway.piece import Piece
from daa_node.wire.limits import MIB
from daa_node.wire.volunteer_messages import TaskKind

Draw = Callable[[str], int]
SPOILT_EVERY = 6
SIGNATURES_MAX = 16  # of a piece: 40 ms in a page that has to do without a native library
VERTICES_MAX = 16
CHUNKS_MAX = 8
CHUNKS_BYTES_MAX = MIB
NEWEST_SNAPSHOTS = 4  # among which one is drawn


class Certificates:
    """Who has signed that a vertex was executed."""

    kind = TaskKind.CERTIFICATE

    def __init__(
        self, chain: ChainStore, public_keys: Callable[[], Mapping[NodeId, bytes]]
    ) -> None:
        self._chain = chain
        self._public_keys = public_keys

    @property
    def has_some(self) -> bool:
        return len(self._chain.heights) > 1  # the genesis has no certificate

    async def make(self, draw: Draw) -> Piece | None:
        """Of a vertex, some of its signatures. Raises StorageFailed."""
        vertex = await _drawn_vertex(self._chain, draw, lowest=1)
        certificate = await shown_exec(self._chain, vertex.vertex_id)
        if certificate is None:
            return None
        keys = self._public_keys()
        signed = [
            (keys[who], signature) for who, signature in certificate.signatures if who in keys
        ]
        first = draw("signature") % max(1, len(signed) - SIGNATURES_MAX + 1)
        chosen = signed[first : first + SIGNATURES_MAX]
        if not chosen:
            return None
        planted, signatures = _spoil([signature for _, signature in chosen], draw)
        pairs = zip((key for key, _ in chosen), signatures, strict=True)
        statement = certificate.statement
        return Piece(
            self.kind,
            {"height": vertex.height},
            [statement.sign_bytes(), statement.context],
            [part for pair in pairs for part in pair],
            planted,
        )


class Links:
    """Vertices that stand on each other."""

    kind = TaskKind.DAG

    def __init__(self, chain: ChainStore) -> None:
        self._chain = chain

    @property
    def has_some(self) -> bool:
        return len(self._chain.heights) > 1

    async def make(self, draw: Draw) -> Piece | None:
        """A run of the chain. Raises StorageFailed."""
        top = await _drawn_vertex(self._chain, draw, lowest=1)
        run = [top]
        while len(run) < VERTICES_MAX and run[-1].parents:
            parent = await self._chain.vertex(run[-1].parents[0])
            if parent is None:
                break
            run.append(parent)
        run.reverse()
        ids = [bytes(vertex.vertex_id) for vertex in run]
        planted, spoilt = _spoil(ids, draw)
        # who follows a spoilt id does not stand on it either
        followers = {entry + 1 for entry in planted if entry + 1 < len(run)}
        about = {"height": run[0].height, "to_height": top.height}
        encoded = [vertex.encode() for vertex in run]
        return Piece(self.kind, about, spoilt, encoded, planted | followers)


class SnapshotChunks:
    """Chunks of a state that the chain keeps whole."""

    kind = TaskKind.CHUNKS

    def __init__(self, chain: ChainStore, snapshot_every: int) -> None:
        self._chain = chain
        self._every = snapshot_every

    @property
    def has_some(self) -> bool:
        return len(self._chain.heights) > self._every

    async def make(self, draw: Draw) -> Piece | None:
        """Of a snapshot, some neighbouring chunks. Raises StorageFailed."""
        found = await self._snapshot(draw)
        if found is None:
            return None
        height, digests = found
        chunks: list[bytes] = []
        first = draw("chunk") % len(digests)
        for digest in digests[first : first + CHUNKS_MAX]:
            payload = await self._chain.store.get_record(CHUNKS, digest.hex())
            if payload is None or sum(map(len, chunks)) + len(payload) > CHUNKS_BYTES_MAX:
                break
            chunks.append(payload)
        if not chunks:
            return None
        planted, named = _spoil(digests[first : first + len(chunks)], draw)
        return Piece(self.kind, {"height": height}, named, chunks, planted)

    async def _snapshot(self, draw: Draw) -> tuple[int, Sequence[bytes]] | None:
        """The height of one, and the digests of weights or momentum."""
        tip = (await self._chain.newest()).height
        back = draw("snapshot") % NEWEST_SNAPSHOTS
        height = (tip // self._every - back) * self._every
        vertex_id = await self._chain.heights.at(height) if height > 0 else None
        vertex = None if vertex_id is None else await self._chain.vertex(vertex_id)
        manifests = None if vertex is None else await self._chain.snapshot(vertex)
        return None if manifests is None else (height, manifests[draw("vector") % 2].digests)


async def _drawn_vertex(chain: ChainStore, draw: Draw, lowest: int) -> Vertex:
    """One of those held, each second time the newest. Raises StorageFailed."""
    newest = await chain.newest()
    height = lowest + draw("height") % max(1, newest.height - lowest + 1)
    vertex_id = await chain.heights.at(height)
    if draw("newest") % 2 == 0 or vertex_id is None:
        return newest
    return await chain.vertex(vertex_id) or newest


def _spoil(entries: Sequence[bytes], draw: Draw) -> tuple[frozenset[int], list[bytes]]:
    """Which ones are spoilt now, and all of them."""
    planted = frozenset(n for n in range(len(entries)) if draw("spoil") % SPOILT_EVERY == 0)
    return planted, [
        _turned(entry, draw("bit")) if n in planted else bytes(entry)
        for n, entry in enumerate(entries)
    ]


def _turned(entry: bytes, lot: int) -> bytes:
    """With one bit turned."""
    at = lot // 8 % len(entry)
    return entry[:at] + bytes([entry[at] ^ 1 << lot % 8]) + entry[at + 1 :]
