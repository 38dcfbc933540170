"""A real little chain: four validators with real keys, a few thousand parameters, real deltas."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import trio

from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    OfferBody,
    Payload,
    ResultPayload,
    SetPayload,
    genesis_block,
)
from daa_consensus.committee import Committee, Validator
from daa_consensus.membership import Membership
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag.checkpoint import Vertex, result_root
from daa_dag.chunking import Manifest, cut, manifest_of
from daa_dag.ids import BlobRoot, ChainId, Digest, NodeId, digest_of
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.contents import ChainFacts
from daa_node.checkpoints.publish import Page, genesis_vertex, publish_all, vertex_of
from daa_node.checkpoints.replay import ReplayedState, StateRules
from daa_node.identity.keys import NodeKeys
from daa_node.seams import StateRef, SteppedState
from daa_node.tensors import Int32Array, TensorSpec, slots_of
from daa_node.updates.compression.codec import codec_named, encode
from daa_node.updates.compression.delta import DENSE
from daa_node.updates.initial_weights import TensorInit, initial_weights
from daa_node.updates.outer_step import OuterRates
from tests.daa_node.inline import Inline

KEYS = sorted((NodeKeys.from_seed(b"v%d" % i) for i in range(4)), key=lambda keys: keys.node_id)
STRANGERS = [NodeKeys.from_seed(b"stranger %d" % i) for i in range(4)]
TENSORS = (
    TensorSpec("embedding", (40, 16)),
    TensorSpec("head.weight", (16, 48)),
    TensorSpec("b", ()),
)
CHAIN_ID = ChainId(bytes(digest_of(b"a little chain")))
EPOCH_ROUNDS = 3
SNAPSHOT_EVERY = 2


def first_weights() -> Int32Array:
    return initial_weights(b"seed", [TensorInit(spec, std=1 << 18) for spec in TENSORS])


def first_pieces() -> Iterator[Int32Array]:
    """Each tensor is smaller than a chunk."""
    weights_D = first_weights()
    return (weights_D[slot.start : slot.stop] for slot in slots_of(TENSORS))


RULES = StateRules(TENSORS, first_pieces, OuterRates((7, 10), (6, 10)), DENSE)
COMMITTEE = Committee(tuple(Validator(keys.node_id, 1) for keys in KEYS))
WEIGHTS = (1000,) * 3  # as the plan of this network says


def set_fault(
    parent: Vertex,
    contributors: Sequence[NodeId],
    committee: Committee,
    vouchers: Mapping[NodeId, NodeId | None],
    decided: SetPayload,
) -> str | None:
    said = (decided.rule, decided.f_agg, decided.weights)
    return None if said == ("trimmed_mean", 1, WEIGHTS) else f"weights {decided.weights}"


FACTS = ChainFacts(
    chain_id=CHAIN_ID,
    first=Membership(COMMITTEE),
    public_keys={keys.node_id: keys.ml_dsa_public_key for keys in KEYS},
    contributors=frozenset(keys.node_id for keys in KEYS),
    epoch_rounds=EPOCH_ROUNDS,
    states=RULES,
    set_fault=set_fault,
)


def certificate_of(statement: Statement, signers: Sequence[NodeKeys]) -> Certificate:
    """Signed in earnest, whoever signs."""
    pairs = [
        (keys.node_id, keys.sign(statement.sign_bytes(), statement.context)) for keys in signers
    ]
    return Certificate(statement, tuple(sorted(pairs)))


def delta_of(round_number: int) -> bytes:
    random = np.random.default_rng(round_number)
    values_D = random.standard_normal(RULES.parameter_count, np.float32) * np.float32(1e-3)
    return encode(codec_named("int8"), values_D).tobytes()


@dataclass(frozen=True)
class Headers:
    """New blocks, those above an epoch's last one that only carry the proof, and the proof."""

    blocks: tuple[Block, ...]
    trailing: tuple[Block, ...]
    certificate: Certificate


@dataclass(frozen=True)
class Round:
    """What one round of the maker added."""

    headers: Headers
    certified: tuple[Vertex, Certificate] | None


class ChainMaker:
    """Plays a whole network: decides, executes, certifies; publishing is the code under test."""

    def __init__(
        self,
        directory: Path,
        signers: Sequence[NodeKeys] = tuple(KEYS[:3]),
        epoch_rounds: int = EPOCH_ROUNDS,
    ) -> None:
        self.directory = directory
        self.epoch_rounds = epoch_rounds
        self.chain_directory = directory / "chain"
        self.store = DiskBlobStore(self.chain_directory, offload=Inline())
        self.work = DiskBlobStore(directory / "work", offload=Inline())
        self.chain = ChainStore(self.store, self.work, FACTS.limits)
        self.signers = signers
        self.state = ReplayedState(RULES)
        self.state.start()
        self.first = genesis_vertex(self.state.ref(), COMMITTEE.root)
        self.newest = self.first
        self.genesis = genesis_block(CHAIN_ID, self.first.vertex_id)
        self.tip = self.genesis
        self.delta_of = delta_of
        self.weights = WEIGHTS
        self.validators = FACTS.validators()
        self.evidence: tuple[bytes, ...] = ()
        self.operations: tuple[bytes, ...] = ()
        self.round = 0
        self.view = 0
        self.boundaries_of: Callable[[NodeId], tuple[Digest, ...]] = lambda _author: ()
        self.left_out: set[NodeId] = set()
        self.empty_blocks = 1  # of a round above its set, and above the end of an epoch

    async def open(self) -> None:
        await self.chain.open(self.first, self.genesis)

    def epoch(self, closed_rounds: int) -> int:
        return closed_rounds // self.epoch_rounds

    def block(self, payload: Payload, parent: Block, epoch: int, height: int) -> Block:
        self.view += 2 if isinstance(payload, EmptyPayload) else 1  # some views end in nothing
        return Block(CHAIN_ID, epoch, self.view, height, parent.id, parent.view, payload)

    def empties_on(self, below: Block) -> tuple[Block, ...]:
        """As many empty blocks as `empty_blocks` says."""
        made = [below]
        for _ in range(self.empty_blocks):
            made.append(self.block(EmptyPayload(), made[-1], below.epoch, below.height))
        return tuple(made[1:])

    def finalize(self, block: Block) -> Certificate:
        statement = Statement(
            FACTS.domain(block.epoch), Kind.FINALIZE, block.view, block.height, block.id
        )
        return certificate_of(statement, self.signers)

    def offers(self) -> tuple[OfferBody, ...]:
        return tuple(
            OfferBody(
                round=self.round,
                author=keys.node_id,
                base_vertex_id=self.newest.vertex_id,
                blob_root=BlobRoot(bytes(digest_of(keys.node_id + b"%d" % self.round))),
                size_bytes=100,
                codec="int8",
                steps=10,
                tokens=1000,
                us_per_step=5000,
                upload_bytes_per_s=10**6,
                base_loss_micronats=3_000_000,
                snapshot_roots=self.boundaries_of(keys.node_id),
            )
            for keys in KEYS[:3]
            if keys.node_id not in self.left_out
        )

    async def make_round(
        self, abort: bool = False, change: Callable[[Vertex], Vertex] = lambda vertex: vertex
    ) -> Round:
        """Decide, execute and certify the next round; nothing is published yet."""
        self.round += 1
        epoch = self.epoch(self.round - 1)
        offers = self.offers()
        payload = SetPayload(
            self.round,
            offers,
            self.weights[: len(offers)],
            "trimmed_mean",
            1,
            self.evidence,
            self.operations,
            (),
        )
        set_block = self.block(payload, self.tip, epoch, self.round)
        if abort:
            closing = self.block(AbortPayload(self.round), set_block, epoch, self.round)
            self.tip = closing
            return Round(Headers((set_block, closing), (), self.finalize(closing)), None)
        stepped = await self.step()
        self.validators.follow([set_block])
        convicted = self.validators.convicted_by(set_block)
        vertex = change(vertex_of(self.newest, set_block, stepped, COMMITTEE.root, convicted))
        root = result_root(vertex.model_root, vertex.outer_state_root, vertex.delta_root)
        statement = Statement(
            FACTS.domain(epoch), Kind.EXEC, 0, self.round, [vertex.vertex_id, root]
        )
        result = ResultPayload(self.round, vertex.vertex_id, root)
        empties = self.empties_on(set_block)
        closing = self.block(result, empties[-1], epoch, self.round)
        trailing = self.empties_on(closing) if self.round % self.epoch_rounds == 0 else ()
        final = (closing, *trailing)[-1]
        self.tip = closing  # the next epoch, too, stands on the closing itself
        headers = Headers((set_block, *empties, closing), trailing, self.finalize(final))
        self.newest = vertex
        return Round(headers, (vertex, certificate_of(statement, self.signers)))

    async def step(self) -> SteppedState:
        delta = self.delta_of(self.round)
        manifest = manifest_of(delta, cut([len(delta)]))
        await put_blob(self.work, "updates", manifest, delta)
        self.state.apply(delta)
        weights, momentum = self.state.manifests()
        await put_blob(self.work, "states", weights, self.state.weights_D.tobytes())
        await put_blob(self.work, "states", momentum, self.state.momentum_D.tobytes())
        return SteppedState(StateRef(weights.root, momentum.root), manifest.root)

    async def publish(self, made: Round) -> None:
        await publish(self.chain, made.headers, made.certified)


async def publish(
    chain: ChainStore,
    headers: Headers,
    *certified: tuple[Vertex, Certificate] | None,
    snapshot_every: int = SNAPSHOT_EVERY,
) -> None:
    """What rounds that ended in these vertices publish."""
    blocks = (*headers.blocks, *headers.trailing)
    vertices = tuple(pair for pair in certified if pair is not None)
    await publish_all(chain, Page(blocks, headers.certificate, vertices), snapshot_every)


async def put_blob(store: DiskBlobStore, kind: str, manifest: Manifest, payload: bytes) -> None:
    writer = await store.begin_blob(kind, manifest)
    for index in writer.missing():
        at = manifest.offsets[index]
        await writer.write_chunk(index, payload[at : at + manifest.sizes[index]])
    await writer.commit()


async def vertex_at(maker: ChainMaker, height: int) -> Vertex:
    """The one of this height, which is here."""
    vertex_id = await maker.chain.heights.at(height)
    vertex = None if vertex_id is None else await maker.chain.vertex(vertex_id)
    assert vertex is not None
    return vertex


class Replays:
    """The Trainer's two verbs with numpy alone; remembers what it was asked."""

    def __init__(self, maker: ChainMaker) -> None:
        self.work = maker.work
        self.asked: list[str] = []

    async def initial_state(self) -> StateRef:
        self.asked.append("initial")
        state = ReplayedState(RULES)
        state.start()
        return await self._put(state)

    async def apply_delta(self, base: StateRef, delta_root: BlobRoot) -> StateRef:
        self.asked.append("delta")
        state = ReplayedState(RULES)
        weights = await self.work.view_blob("states", base.model_root)
        momentum = await self.work.view_blob("states", base.outer_root)
        state.load([bytes(weights)], [bytes(momentum)])
        state.apply(await self.work.view_blob("updates", delta_root))
        return await self._put(state)

    async def _put(self, state: ReplayedState) -> StateRef:
        weights, momentum = state.manifests()
        await put_blob(self.work, "states", weights, state.weights_D.tobytes())
        await put_blob(self.work, "states", momentum, state.momentum_D.tobytes())
        return StateRef(weights.root, momentum.root)


def make_chain(directory: Path, rounds: int, aborted: Sequence[int] = ()) -> ChainMaker:
    """A published chain of so many rounds."""
    maker = ChainMaker(directory)

    async def run() -> None:
        await maker.open()
        for number in range(1, rounds + 1):
            await maker.publish(await maker.make_round(abort=number in aborted))

    trio.run(run)
    return maker


def files_under(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())
