"""Blocks, their payloads, and the wire form of everything that validators sign.

Every object has one canonical list form. Decoders accept exactly that form, with sizes bounded by
functions of the number of validators and contributors (`Limits`), and raise BadMessage for anything
else. Signatures are not checked here: the host does that before a machine sees the message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, assert_never

from daa_consensus.bft import values
from daa_consensus.bft.limits import OPENED_MAX, SNAPSHOTS_MAX, Limits
from daa_consensus.committee import Domain
from daa_consensus.errors import BadMessage
from daa_consensus.operations import OPERATION_BYTES_MAX
from daa_consensus.votes import SIGNATURE_BYTES_MAX, Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import (
    DIGEST_BYTES,
    BlobRoot,
    BlockId,
    ChainId,
    ContributionRoot,
    Digest,
    NodeId,
    ValidatorSetRoot,
    VertexId,
    tagged_digest,
)

NO_BLOCK = BlockId(bytes(DIGEST_BYTES))  # the parent of the genesis block
ACCUSED_PARTS = ("names", "step", "segment", "seal")  # of a contribution, that do not follow
VIEW_KINDS = frozenset({Kind.PROPOSAL, Kind.NOTARIZE, Kind.NULLIFY, Kind.FINALIZE})


@dataclass(frozen=True)
class OfferBody:
    """What one author says of its contribution to one round; `root` names the contribution."""

    round: int
    author: NodeId
    base_vertex_id: VertexId
    blob_root: BlobRoot
    size_bytes: int
    codec: str
    steps: int
    tokens: int
    us_per_step: int
    upload_bytes_per_s: int
    base_loss_micronats: int
    snapshot_roots: tuple[Digest, ...]

    def as_value(self) -> canonical.Value:
        return [
            self.round,
            self.author,
            self.base_vertex_id,
            self.blob_root,
            self.size_bytes,
            self.codec,
            self.steps,
            self.tokens,
            self.us_per_step,
            self.upload_bytes_per_s,
            self.base_loss_micronats,
            list(self.snapshot_roots),
        ]

    @cached_property
    def root(self) -> ContributionRoot:
        return ContributionRoot(tagged_digest("contribution", self.as_value()))


@dataclass(frozen=True, slots=True)
class GenesisPayload:
    vertex_id: VertexId

    def as_value(self) -> canonical.Value:
        return ["genesis", self.vertex_id]


@dataclass(frozen=True, slots=True)
class SetPayload:
    """The contributions of a round, sorted by author, and how they are aggregated."""

    round: int
    offers: tuple[OfferBody, ...]
    weights: tuple[int, ...]  # one an offer
    rule: str
    f_agg: int
    evidence: tuple[bytes, ...]  # see evidence.py
    operations: tuple[bytes, ...]  # canonical membership operations
    ack_ids: tuple[Digest, ...]  # ids of the signed Acks that the proposer relies on

    def as_value(self) -> canonical.Value:
        return [
            "set",
            self.round,
            [offer.as_value() for offer in self.offers],
            list(self.weights),
            self.rule,
            self.f_agg,
            list(self.evidence),
            list(self.operations),
            list(self.ack_ids),
        ]


@dataclass(frozen=True, slots=True)
class ResultPayload:
    """Round `round` ended in this vertex; the execution certificate travels beside the block."""

    round: int
    vertex_id: VertexId
    result_root: Digest

    def as_value(self) -> canonical.Value:
        return ["result", self.round, self.vertex_id, self.result_root]


@dataclass(frozen=True, slots=True)
class AbortPayload:
    """Round `round` changes nothing."""

    round: int

    def as_value(self) -> canonical.Value:
        return ["abort", self.round]


@dataclass(frozen=True, slots=True)
class EmptyPayload:
    """Closes a stuck finalization: finalizing this block finalizes its ancestors."""

    def as_value(self) -> canonical.Value:
        return ["empty"]


Payload: TypeAlias = GenesisPayload | SetPayload | ResultPayload | AbortPayload | EmptyPayload


@dataclass(frozen=True)
class Block:
    """`height` is the round of the newest set at or below the block."""

    chain_id: ChainId
    epoch: int
    view: int
    height: int
    parent_id: BlockId
    parent_view: int
    payload: Payload

    @cached_property
    def id(self) -> BlockId:
        return BlockId(tagged_digest("block", self.as_value()))

    def as_value(self) -> canonical.Value:
        return [
            self.chain_id,
            self.epoch,
            self.view,
            self.height,
            self.parent_id,
            self.parent_view,
            self.payload.as_value(),
        ]


def genesis_block(chain_id: ChainId, vertex_id: VertexId) -> Block:
    """The block that every chain starts from: final by definition, in view 0."""
    return Block(chain_id, 0, 0, 0, NO_BLOCK, 0, GenesisPayload(vertex_id))


def encode_block(block: Block) -> bytes:
    return canonical.encode(block.as_value())


def decode_block(payload: bytes, limits: Limits) -> Block:
    """Raises BadMessage. Membership of a chain is the caller's to check."""
    return block_from_value(_decode(payload, limits.block_bytes_max, "block"), limits)


def block_from_value(value: object, limits: Limits) -> Block:
    """Raises BadMessage unless `value` is the list form of a block."""
    match value:
        case [chain_id, epoch, view, height, parent_id, parent_view, list() as body]:
            pass
        case _:
            raise BadMessage("a block is a list of seven fields")
    block = Block(
        ChainId(values.digest(chain_id, "chain id")),
        values.number(epoch, "epoch"),
        values.number(view, "view"),
        values.number(height, "height"),
        BlockId(values.digest(parent_id, "parent id")),
        values.number(parent_view, "parent view"),
        _payload_from(body, limits),
    )
    if isinstance(block.payload, GenesisPayload):
        if block != genesis_block(block.chain_id, block.payload.vertex_id):
            raise BadMessage("a genesis block with a view, a parent, an epoch or a height")
    elif block.parent_view >= block.view:
        raise BadMessage(f"block of view {block.view} on a parent of view {block.parent_view}")
    return block


def _payload_from(body: list[object], limits: Limits) -> Payload:
    match body:
        case ["genesis", vertex_id]:
            return GenesisPayload(VertexId(values.digest(vertex_id, "vertex id")))
        case ["set", *fields] if len(fields) == 8:
            return _set_from(fields, limits)
        case ["result", round_, vertex_id, result_root]:
            return ResultPayload(
                values.number(round_, "round"),
                VertexId(values.digest(vertex_id, "vertex id")),
                Digest(values.digest(result_root, "result root")),
            )
        case ["abort", round_]:
            return AbortPayload(values.number(round_, "round"))
        case ["empty"]:
            return EmptyPayload()
        case _:
            raise BadMessage("no payload has this form")


def _set_from(fields: list[object], limits: Limits) -> SetPayload:
    round_, offers, weights, rule, f_agg, evidence, operations, ack_ids = fields
    n = limits.validators
    made = SetPayload(
        values.number(round_, "round"),
        tuple(offer_from_value(o) for o in values.listed(offers, limits.contributors, "offers")),
        tuple(
            values.number(w, "weight")
            for w in values.listed(weights, limits.contributors, "weights")
        ),
        values.word(rule, "rule"),
        values.number(f_agg, "f_agg"),
        tuple(
            values.sized(e, limits.evidence_bytes_max, "evidence")
            for e in values.listed(evidence, n, "evidence")
        ),
        tuple(
            values.sized(o, OPERATION_BYTES_MAX, "operation")
            for o in values.listed(operations, limits.operations_max, "operations")
        ),
        tuple(Digest(values.digest(a, "ack id")) for a in values.listed(ack_ids, n, "ack ids")),
    )
    if sum(map(len, made.evidence)) > limits.evidence_total_bytes_max:
        raise BadMessage(f"a set carries {limits.evidence_total_bytes_max} bytes of evidence")
    if sum(map(len, made.operations)) > limits.operations_total_bytes_max:
        raise BadMessage(f"a set carries {limits.operations_total_bytes_max} bytes of operations")
    authors = [offer.author for offer in made.offers]
    if authors != sorted(set(authors)):
        raise BadMessage("the offers of a set are sorted by author, one each")
    if any(offer.round != made.round for offer in made.offers):
        raise BadMessage(f"an offer of another round in the set of round {made.round}")
    if len(made.weights) != len(made.offers):
        raise BadMessage(f"{len(made.weights)} weights for {len(made.offers)} offers")
    if list(made.ack_ids) != sorted(set(made.ack_ids)):
        raise BadMessage("ack ids are sorted and distinct")
    return made


def offer_from_value(value: object) -> OfferBody:
    """Raises BadMessage unless `value` is the list form of an offer body."""
    if not isinstance(value, list) or len(value) != 12:
        raise BadMessage("an offer is a list of twelve fields")
    round_, author, base, blob, size, codec, steps, tokens, us, upload, loss, snapshots = value
    return OfferBody(
        round=values.number(round_, "round"),
        author=NodeId(values.digest(author, "author")),
        base_vertex_id=VertexId(values.digest(base, "base vertex")),
        blob_root=BlobRoot(values.digest(blob, "blob root")),
        size_bytes=values.number(size, "size"),
        codec=values.word(codec, "codec"),
        steps=values.number(steps, "steps"),
        tokens=values.number(tokens, "tokens"),
        us_per_step=values.number(us, "microseconds a step"),
        upload_bytes_per_s=values.number(upload, "upload speed"),
        base_loss_micronats=values.number(loss, "loss"),
        snapshot_roots=tuple(
            Digest(values.digest(s, "snapshot root"))
            for s in values.listed(snapshots, SNAPSHOTS_MAX, "roots")
        ),
    )


def encode_signed(signed: Signed) -> bytes:
    return canonical.encode(signed_value(signed))


def signed_value(signed: Signed) -> canonical.Value:
    return [*_statement_fields(signed.statement), signed.signer, signed.signature]


def decode_signed(payload: bytes, limits: Limits) -> Signed:
    """Raises BadMessage. Neither the signature nor the domain has been checked."""
    return signed_from_value(_decode(payload, limits.signed_bytes_max, "message"), limits)


def signed_from_value(value: object, limits: Limits) -> Signed:
    """Raises BadMessage unless `value` is the list form of a signed statement."""
    if not isinstance(value, list) or len(value) != 9:
        raise BadMessage("a signed message is a list of nine fields")
    *fields, signer, signature = value
    return Signed(
        statement_from_fields(fields, limits),
        NodeId(values.digest(signer, "signer")),
        values.sized(signature, SIGNATURE_BYTES_MAX, "signature"),
    )


def encode_certificate(certificate: Certificate) -> bytes:
    return canonical.encode(certificate_value(certificate))


def certificate_value(certificate: Certificate) -> canonical.Value:
    pairs = [[signer, signature] for signer, signature in certificate.signatures]
    return [*_statement_fields(certificate.statement), pairs]


def decode_certificate(payload: bytes, limits: Limits) -> Certificate:
    """Raises BadMessage. Signatures, weight and domain are still to be checked."""
    value = _decode(payload, limits.certificate_bytes_max, "certificate")
    return certificate_from_value(value, limits)


def certificate_from_value(value: object, limits: Limits) -> Certificate:
    """Raises BadMessage unless `value` is the list form of a certificate, signers sorted."""
    if not isinstance(value, list) or len(value) != 8:
        raise BadMessage("a certificate is a list of eight fields")
    *fields, pairs = value
    signatures = []
    for pair in values.listed(pairs, limits.validators, "signatures"):
        if not isinstance(pair, list) or len(pair) != 2:
            raise BadMessage("a certificate lists pairs of signer and signature")
        signer = NodeId(values.digest(pair[0], "signer"))
        signatures.append((signer, values.sized(pair[1], SIGNATURE_BYTES_MAX, "signature")))
    signers = [signer for signer, _ in signatures]
    if signers != sorted(set(signers)):
        raise BadMessage("the signers of a certificate are sorted and distinct")
    return Certificate(statement_from_fields(fields, limits), tuple(signatures))


def _statement_fields(statement: Statement) -> list[canonical.Value]:
    d = statement.domain
    return [
        d.chain_id,
        d.epoch,
        d.validator_set_root,
        str(statement.kind),
        statement.view,
        statement.height,
        statement.value,
    ]


def statement_from_fields(fields: Sequence[object], limits: Limits) -> Statement:
    """Raises BadMessage unless the fields are those that are signed, in their order."""
    chain_id, epoch, set_root, kind, view, height, value = fields
    try:
        known = Kind(values.word(kind, "kind"))
    except ValueError:
        raise BadMessage(f"unknown kind {kind!r}") from None
    domain = Domain(
        ChainId(values.digest(chain_id, "chain id")),
        values.number(epoch, "epoch"),
        ValidatorSetRoot(values.digest(set_root, "validator set root")),
    )
    statement = Statement(
        domain,
        known,
        values.number(view, "view"),
        values.number(height, "height"),
        _statement_value(known, value, limits),
    )
    if (known not in VIEW_KINDS) != (statement.view == 0):
        raise BadMessage(f"{known} in view {statement.view}")
    if known in (Kind.NULLIFY, Kind.REJOIN) and statement.height != 0:
        raise BadMessage(f"{known} at height {statement.height}")
    return statement


def _statement_value(kind: Kind, value: object, limits: Limits) -> canonical.Value:
    match kind:
        case Kind.PROPOSAL | Kind.NOTARIZE | Kind.FINALIZE | Kind.REJOIN:
            return values.digest(value, "value")
        case Kind.NULLIFY:
            if value is not None:
                raise BadMessage("a Nullify has no value")
            return None
        case Kind.OFFER:
            return offer_from_value(value).as_value()
        case Kind.EXEC:
            vertex_id, result_root = values.listed(value, 2, "exec", at_least=2)
            return [
                values.digest(vertex_id, "vertex id"),
                values.digest(result_root, "result root"),
            ]
        case Kind.OPENING:
            contribution, segment, opened = values.listed(value, 3, "opening", at_least=3)
            return [
                values.digest(contribution, "contribution"),
                values.number(segment, "segment"),
                [
                    values.digest(root, "state")
                    for root in values.listed(opened, OPENED_MAX, "states", at_least=2)
                ],
            ]
        case Kind.ACCUSATION:
            contribution, part, opening, step = values.listed(value, 4, "accusation", at_least=4)
            if part not in ACCUSED_PARTS:
                raise BadMessage("nobody is accused of that")
            return [
                values.digest(contribution, "contribution"),
                part,
                values.digest(opening, "opening"),
                values.number(step, "step"),
            ]
        case Kind.VERDICT:
            convicted, accusation = values.listed(value, 2, "verdict", at_least=2)
            return [
                values.digest(convicted, "whom it convicts"),
                values.digest(accusation, "accusation"),
            ]
        case Kind.ACK:
            roots = [
                values.digest(r, "root") for r in values.listed(value, limits.contributors, "acks")
            ]
            if roots != sorted(set(roots)):
                raise BadMessage("an Ack lists distinct roots in order")
            return roots
        case Kind.MEMBERSHIP:
            raise BadMessage("a membership request travels as an operation")
        case _:
            assert_never(kind)


def _decode(payload: bytes, size_bytes_max: int, what: str) -> object:
    try:
        value: object = canonical.decode(payload, size_bytes_max)
    except DagError as fault:
        raise BadMessage(f"{what}: {fault}") from None
    return value
