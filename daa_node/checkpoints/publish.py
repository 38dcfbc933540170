"""From a final result to a checkpoint on disk: make the vertex, store it with all that proves it.

The order of files in a group is the order of reference: blocks before the certificate that makes
them final, a delta before the certificate and the vertex that name it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from daa_consensus.bft.messages import (
    Block,
    SetPayload,
    encode_block,
    encode_certificate,
)
from daa_consensus.roll import EMPTY_ROOT
from daa_consensus.votes import Certificate
from daa_dag.checkpoint import ZERO_ID, Contributor, Vertex
from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, BlockId, Digest, NodeId, ValidatorSetRoot, digest_of
from daa_node.checkpoints.chain import ChainStore, final_block_of
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    DELTAS,
    MANIFESTS,
    UPDATES,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.snapshot_files import snapshot_writes
from daa_node.checkpoints.writes import Write
from daa_node.errors import StorageFailed
from daa_node.identity.validators import Validators
from daa_node.seams import BlobStore, StateRef, SteppedState

# With its execution certificate; None where an epoch is over, and its end alone proves all of it.
Proved = tuple[Vertex, Certificate | None]
LEDGER_ROOT_EMPTY = digest_of(b"daa/v1/ledger/empty")  # until there is a ledger


def genesis_vertex(
    state: StateRef, validator_set_root: ValidatorSetRoot, roll_root: Digest = EMPTY_ROOT
) -> Vertex:
    """Height 0: the initial weights, which nobody has to certify."""
    return Vertex(
        parents=(),
        height=0,
        training_round=0,
        decided_block=BlockId(ZERO_ID),
        contributors=(),
        rule="genesis",
        f_agg=0,
        delta_root=BlobRoot(ZERO_ID),
        model_root=state.model_root,
        outer_state_root=state.outer_root,
        ledger_root=LEDGER_ROOT_EMPTY,
        validator_set_root=validator_set_root,
        tokens_total=0,
        roll_root=roll_root,
    )


def vertex_of(
    parent: Vertex,
    set_block: Block,
    stepped: SteppedState,
    validator_set_root: ValidatorSetRoot,
    excluded: Sequence[NodeId] = (),
    roll_root: Digest = EMPTY_ROOT,
) -> Vertex:
    """The one vertex that follows from a final set and its execution on top of `parent`.

    `validator_set_root` is that of the set's epoch; `excluded` are those members and trainers,
    sorted, who stand convicted once the set is final, and `roll_root` is of the roll as it leaves
    it. Pure: every honest node makes the same.
    """
    payload = set_block.payload
    assert isinstance(payload, SetPayload)
    contributors = tuple(
        Contributor(
            author=offer.author,
            contribution_root=offer.root,
            weight=weight,
            steps=offer.steps,
            tokens=offer.tokens,
            us_per_step=offer.us_per_step,
            upload_bytes_per_s=offer.upload_bytes_per_s,
            base_loss_micronats=offer.base_loss_micronats,
        )
        for offer, weight in zip(payload.offers, payload.weights, strict=True)
    )
    return Vertex(
        parents=(parent.vertex_id,),
        height=parent.height + 1,
        training_round=payload.round,
        decided_block=set_block.id,
        contributors=contributors,
        rule=payload.rule,
        f_agg=payload.f_agg,
        delta_root=stepped.delta_root,
        model_root=stepped.state.model_root,
        outer_state_root=stepped.state.outer_root,
        ledger_root=parent.ledger_root,
        validator_set_root=validator_set_root,
        tokens_total=parent.tokens_total + _tokens_that_count(payload),
        excluded=tuple(excluded),
        roll_root=roll_root,
    )


def _tokens_that_count(payload: SetPayload) -> int:
    """Of a copy nobody has trained."""
    pairs = zip(payload.offers, payload.weights, strict=True)
    return sum(offer.tokens for offer, weight in pairs if weight)


def vertex_on(parent: Vertex, set_block: Block, stepped: SteppedState, known: Validators) -> Vertex:
    """The same, by what is known of validators. Raises ConsensusError for bad evidence."""
    root = known.domain(set_block.epoch).validator_set_root
    convicted, roll_root = known.convicted_by(set_block), known.roll_root_above(set_block)
    return vertex_of(parent, set_block, stepped, root, convicted, roll_root)


def state_of(vertex: Vertex) -> StateRef:
    return StateRef(vertex.model_root, vertex.outer_state_root)


def step_of(vertex: Vertex) -> SteppedState:
    """What the execution came to that the vertex certifies."""
    return SteppedState(state_of(vertex), vertex.delta_root)


@dataclass(frozen=True, slots=True)
class Page:
    """What follows a block: headers oldest first, their finalization, certified vertices.

    A chain grows by one at a time, of our own making or shown by a member. Blocks above an epoch's
    last one only carry the proof; there are none when an earlier page had them.
    """

    blocks: tuple[Block, ...]
    certificate: Certificate
    vertices: tuple[Proved, ...]  # of all results among them, lowest first


async def publish_all(chain: ChainStore, page: Page, snapshot_every: int | None) -> None:
    """Store all of the page or nothing of it.

    Each vertex's delta lies whole in the work store under "updates", and so do its states under
    "states" when a snapshot is due; with `snapshot_every` None the caller adds it (see snapshots).
    The caller has verified everything. Durable once this returns. Raises StorageFailed; then
    nothing of what was half written remains after the next start.
    """
    # One group: a result that is final here without its vertex would leave a node that restarts
    # there with headers that its model has not followed.
    record, name = chain.groups.record, final_name(final_block_of(page.certificate))
    together = [record(BLOCKS, block.id.hex(), encode_block(block)) for block in page.blocks]
    together.append(record(CERTIFICATES, name, encode_certificate(page.certificate)))
    snapshots: list[list[Write]] = []
    for vertex, certificate in page.vertices:
        together += await _vertex_writes(chain, vertex, certificate)
        if snapshot_every is not None and vertex.height % snapshot_every == 0:
            snapshots.append(await snapshot_writes(chain, vertex))
    await chain.groups.add([together, *snapshots])
    for vertex, _ in page.vertices:
        await chain.heights.add(vertex)
    if page.blocks:
        chain.advance(page.blocks[-1], page.certificate)


async def _vertex_writes(
    chain: ChainStore, vertex: Vertex, certificate: Certificate | None
) -> list[Write]:
    writes, record, vertex_id = (
        await delta_writes(chain, vertex),
        chain.groups.record,
        vertex.vertex_id,
    )
    if certificate is not None:
        proof = encode_certificate(certificate)
        writes.append(record(CERTIFICATES, exec_name(vertex_id), proof))
    return [*writes, record(VERTICES, vertex_id.hex(), vertex.encode())]


async def delta_writes(chain: ChainStore, vertex: Vertex) -> list[Write]:
    """Of the vertex's delta, which lies in the work store. Raises StorageFailed."""
    manifest = await chain.work.blob_manifest(UPDATES, vertex.delta_root)
    if manifest is None:
        raise StorageFailed(f"work/{UPDATES}/{vertex.delta_root.hex()}, the delta, is missing")

    async def copy_delta() -> None:
        await copy_blob(chain.work, UPDATES, chain.store, DELTAS, manifest)

    return [
        Write(f"{MANIFESTS}/{manifest.root.hex()}", _nothing),  # comes with the blob
        Write(f"{DELTAS}/{manifest.root.hex()}", copy_delta),
    ]


async def copy_blob(
    source: BlobStore,
    source_kind: str,
    target: BlobStore,
    target_kind: str,
    manifest: Manifest,
    anew: bool = False,
) -> None:
    """Copy a blob between stores, every chunk verified on the way. Raises StorageFailed.

    `anew`: what the target has of it is damaged.
    """
    writer = await target.begin_blob(target_kind, manifest, anew)
    for index in writer.missing():
        payload = await source.read_chunk(source_kind, manifest.root, index)
        if digest_of(payload) != manifest.digests[index]:
            raise StorageFailed(f"{source_kind}/{manifest.root.hex()} is damaged in chunk {index}")
        await writer.write_chunk(index, payload)
    await writer.commit()


async def _nothing() -> None:
    """Some files come with another one of their group."""
