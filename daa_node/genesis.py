"""What a network is: its job, who takes part, and the chain id that is the digest of both.

`Job` is what a person writes in YAML; a `Genesis` adds the validators, and trainers, who contribute
and do not vote. Their signed records prove that keys belong together. The chain id covers the body:
job, validators, trainers, contributors, and a nonce, so that the same job of the same nodes, begun
anew, is another chain, and no statement of one counts in the other. It covers no record: that
proves itself, and its addresses may change. A genesis file has a record of each validator and
trainer, and travels to every host as it is.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from daa_consensus.bft.messages import SetPayload
from daa_consensus.committee import (
    CONTRIBUTORS_MAX,
    VALIDATORS_MAX,
    Committee,
    Domain,
    Validator,
)
from daa_consensus.membership import Membership
from daa_consensus.protocol_words import SPOKEN
from daa_consensus.roll import fixed
from daa_dag import canonical
from daa_dag.checkpoint import Vertex
from daa_dag.chunking import cut
from daa_dag.ids import ChainId, Digest, NodeId, node_id_of, tagged_digest
from daa_node.agreement.config import AgreementConfig
from daa_node.checkpoints.config import CheckpointsConfig
from daa_node.checkpoints.contents import ChainFacts
from daa_node.checkpoints.replay import StateRules
from daa_node.errors import PeerFault, UserError
from daa_node.identity.entries import TrainerEntry, ValidatorEntry
from daa_node.identity.record import RECORD_BYTES_MAX, NodeRecord, SignedRecord, decode_record
from daa_node.identity.roll_history import ROUNDS_KEPT
from daa_node.identity.validators import Validators
from daa_node.rounds.config import EndConfig, RoundsConfig
from daa_node.rounds.plan import RoundRules
from daa_node.rounds.trainers import TrainersConfig
from daa_node.seams import Address, PeerId
from daa_node.spot_checks.checks import CheckRules
from daa_node.spot_checks.config import SpotChecksConfig
from daa_node.spot_checks.copies import Likeness, Update, compare
from daa_node.spot_checks.lot import Lot
from daa_node.spot_checks.usefulness import Usefulness, measured
from daa_node.training.boundaries import boundary_chunks
from daa_node.training.config import EvaluationConfig, InnerConfig
from daa_node.training.data_config import DataConfig
from daa_node.training.genesis_state import genesis_pieces
from daa_node.training.model_config import ModelConfig
from daa_node.training.revealed import step_bytes, why_unchecked
from daa_node.updates.compression.codec import codec_named, sizes_of
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.outer_step import OuterRates

SCHEMA_VERSION = 6
GENESIS_BYTES_MAX = 16 * 1024 * 1024  # 20 kB a validator, six times over
NONCE_BYTES = 32
GENESIS_REQUEST = "genesis"  # the name of the request that a node answers with its own
_HEX32 = "^[0-9a-f]{64}$"


class Job(BaseModel):
    """What a network trains and by which rules; the content of JOB.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern="^[a-z0-9][a-z0-9-]{0,62}$", description="a-z, digits and dashes")
    seed: int = Field(0, ge=0, lt=2**63, description="of the initial weights and the data order")
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    inner: InnerConfig = InnerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    updates: UpdatesConfig = UpdatesConfig()
    rounds: RoundsConfig = RoundsConfig()
    trainers: TrainersConfig = TrainersConfig()
    agreement: AgreementConfig = AgreementConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    spot_checks: SpotChecksConfig = SpotChecksConfig()
    end: EndConfig

    @model_validator(mode="after")
    def _can_be_disputed(self) -> Self:
        why = self.spot_checks.why_too_long(self.rounds.inner_steps_max)
        if why is None and (self.spot_checks.is_on or self.data.reveal):
            why = self.updates.why_uncheckable(self.data.reveal)
        if why is not None:
            raise ValueError(why)
        return self

    @model_validator(mode="after")
    def _size_fits(self) -> Self:
        if self.model.is_known:
            count = self.model.parameter_count()
            why = self.rounds.why_too_short(count) or self.updates.why_too_fine(count)
            if why is not None:
                raise ValueError(why)
        return self

    @model_validator(mode="after")
    def _data_fit(self) -> Self:
        why = self.data.why_unfit(self.model)
        if why is not None:
            raise ValueError(why)
        why = why_unchecked(self.data, self.spot_checks.is_on, self.revealed_bytes)
        if why is not None:
            raise ValueError(why)
        return self

    @property
    def revealed_bytes(self) -> int:
        """Of the batches that a boundary shows; 0 where it shows none."""
        steps = self.spot_checks.segment_steps(self.rounds.inner_steps_max)
        return steps * step_bytes(self.data, self.model, self.inner.batch_size)

    @property
    def tokens_per_step(self) -> int:
        """Tokens (or pictures) of one inner step of one contributor."""
        return self.inner.batch_size * self.data.predictions_each(self.model)


class Body(BaseModel):
    """Everything that the chain id covers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nonce: str = Field(pattern=_HEX32, description="of this network alone")
    job: Job
    validators: tuple[ValidatorEntry, ...] = Field(min_length=1, max_length=VALIDATORS_MAX)
    trainers: tuple[TrainerEntry, ...] = ()
    contributors: tuple[str, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if not self.job.model.is_known:
            kind = self.job.model.kind
            raise ValueError(f"job.model.built: this key is required of a model of kind {kind}")
        for what, entries in (("validators", self.validators), ("trainers", self.trainers)):
            names = [entry.node_id for entry in entries]
            if names != sorted(set(names)):
                raise ValueError(f"{what} are distinct and sorted by node_id")
        ids = [entry.node_id for entry in self.everybody]
        if len(set(ids)) != len(ids):
            raise ValueError("a validator contributes already: it is no trainer besides")
        if len({entry.peer_id for entry in self.everybody}) != len(ids):
            raise ValueError("two of them share a peer_id")
        if len(ids) > CONTRIBUTORS_MAX:
            raise ValueError(f"{len(ids)} validators and trainers, at most {CONTRIBUTORS_MAX}")
        for entry in self.everybody:
            if node_id_of(bytes.fromhex(entry.ml_dsa_public_key)).hex() != entry.node_id:
                raise ValueError(f"node_id {entry.node_id[:16]} does not follow from its key")
        if list(self.contributors) != sorted(set(self.contributors) & set(ids)):
            raise ValueError("contributors are validators or trainers, distinct and sorted")
        training = {entry.node_id for entry in self.trainers}
        if not training <= set(self.contributors):
            raise ValueError("every trainer is a contributor")
        unnamed = self.job.data.unnamed()
        if unnamed:
            raise ValueError(
                f"job.data: {', '.join(unnamed)}: no digest, and hosts could not tell whether all "
                "of them have the same file; `daa-node genesis digest FILE` prints it"
            )
        why = self.job.trainers.why_unfit(
            len(self.contributors) - len(training), len(training), self.job.updates
        )
        if why is not None:
            raise ValueError(f"job.{why}")
        return self

    @property
    def everybody(self) -> tuple[TrainerEntry, ...]:
        """Who takes part, with a vote or without."""
        return (*self.validators, *self.trainers)


@dataclass(frozen=True)
class Genesis:
    """A network's immutable beginning. Build one with `create` or `parse`, which check it."""

    body: Body
    records: tuple[bytes, ...]  # a signed NodeRecord of each, validators first: where to find it

    @property
    def job(self) -> Job:
        return self.body.job

    @cached_property
    def chain_id(self) -> ChainId:
        return ChainId(tagged_digest("genesis", _canonical(self.body.model_dump(mode="json"))))

    @cached_property
    def committee(self) -> Committee:
        return Committee(
            tuple(
                Validator(NodeId(bytes.fromhex(entry.node_id)), entry.stake)
                for entry in self.body.validators
            )
        )

    def domain(self, epoch: int) -> Domain:
        """What signatures of `epoch` are bound to while the validators are the first ones."""
        return Domain(self.chain_id, epoch, self.committee.root)

    @property
    def membership(self) -> Membership:
        """Of the first epoch."""
        return Membership(
            self.committee,
            objection_epochs=self.job.agreement.objection_epochs,
            roll=fixed(self.job.trainers.rules, {t.name: t.keys for t in self.body.trainers}),
        )

    def validators(self, speaks: range = SPOKEN) -> Validators:
        """The history of validators as it begins; the chain leads it on."""
        made = Validators(
            self.chain_id,
            self.job.agreement.epoch_rounds,
            self.membership,
            self.public_keys,
            self.peer_ids,
            self.contributors,
        )
        made.rolls.rounds_kept, made.speaks = ROUNDS_KEPT, speaks
        return made

    @cached_property
    def trainers(self) -> frozenset[NodeId]:
        """Who contributes and does not vote."""
        return frozenset(NodeId(bytes.fromhex(entry.node_id)) for entry in self.body.trainers)

    @cached_property
    def contributors(self) -> tuple[NodeId, ...]:
        return tuple(NodeId(bytes.fromhex(text)) for text in self.body.contributors)

    @cached_property
    def public_keys(self) -> Mapping[NodeId, bytes]:
        """ML-DSA-65 public keys by node id."""
        return {
            NodeId(bytes.fromhex(entry.node_id)): bytes.fromhex(entry.ml_dsa_public_key)
            for entry in self.body.everybody
        }

    @cached_property
    def peer_ids(self) -> Mapping[NodeId, PeerId]:
        return {
            NodeId(bytes.fromhex(entry.node_id)): PeerId(entry.peer_id)
            for entry in self.body.everybody
        }

    @cached_property
    def signed_records(self) -> tuple[SignedRecord, ...]:
        return tuple(decode_record(payload) for payload in self.records)

    def bootstrap(self) -> list[Address]:
        """Every address that the records gave when the genesis was made."""
        return [address for addresses in self.addresses.values() for address in addresses]

    @cached_property
    def addresses(self) -> Mapping[PeerId, tuple[Address, ...]]:
        """Where the records say that everybody is; what they say themselves overrules it."""
        return {s.record.peer_id: s.record.addresses for s in self.signed_records}

    def as_text(self) -> str:
        """The file's content."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "chain_id": self.chain_id.hex(),
            "body": self.body.model_dump(mode="json"),
            "records": [payload.hex() for payload in self.records],
        }
        return json.dumps(document, indent=1) + "\n"


def create(
    job: Job,
    records: Sequence[tuple[str, bytes]],
    nonce: bytes,
    stakes: Sequence[int] | None = None,
    trainers: Sequence[tuple[str, bytes]] = (),
) -> Genesis:
    """A genesis whose validators are the nodes of `records`: (where it came from, bytes) each.

    `nonce` is 32 bytes that no other network has. `stakes` are in the order of the records; without
    them each has one. `trainers` are records of those that contribute and do not vote. Every record
    is checked by both of its signatures. Raises UserError that names the record.
    """
    nodes, places = dict[str, tuple[NodeRecord, bytes]](), dict[str, str]()
    for place, payload in (*records, *trainers):
        try:
            record = decode_record(payload).record
        except PeerFault as fault:
            raise UserError(f"{place}: this is not a valid node record: {fault}") from None
        name = record.node_id.hex()
        if name in nodes:
            raise UserError(f"{place}: the same node as {places[name]}; one part, one node")
        places[name], nodes[name] = place, (record, payload)
    voting = dict(zip(list(nodes)[: len(records)], stakes or [1] * len(records), strict=True))
    ordered = (*sorted(voting), *sorted(nodes.keys() - voting.keys()))
    try:
        body = Body(
            nonce=nonce.hex(),
            job=job,
            validators=tuple(
                ValidatorEntry.of(nodes[name][0], stake=voting[name]) for name in sorted(voting)
            ),
            trainers=tuple(TrainerEntry.of(nodes[name][0]) for name in ordered[len(voting) :]),
            contributors=tuple(sorted(nodes)),
        )
    except ValidationError as invalid:
        raise UserError(f"this makes no network: {words_of(invalid)}") from None
    made = Genesis(body, tuple(nodes[name][1] for name in ordered))
    liars, members = made.committee.liars_max, len(records)
    if (why := job.trainers.why_outvoted(liars, members, job.updates)) is not None:
        raise UserError(f"this makes no network: job.{why}")
    return made


def check_rules_of(job: Job) -> CheckRules:
    """How contributions are checked."""
    checks, updates = job.spot_checks, job.updates
    return CheckRules(
        Lot(checks.share, checks.checkers),
        checks.segment_steps(job.rounds.inner_steps_max),
        checks.tolerance,
        boundary_chunks(job.model.parameter_count(), updates.error_feedback, job.revealed_bytes),
        job.model.is_canonical and not job.data.reveal,
        len(cut([job.revealed_bytes])) if job.revealed_bytes else 0,
    )


def round_rules(job: Job) -> RoundRules:
    """By which a round of this job is planned, and its updates and sets are judged."""
    updates, parameter_count = job.updates, job.model.parameter_count()
    norm_cap_squared = updates.norm_cap_squared

    def check_update(blob: memoryview, codec: str) -> None:
        codec_named(codec).check(blob, parameter_count, norm_cap_squared)

    def compare_updates(updates: Sequence[Update], seed: Digest, liars_max: int) -> Likeness:
        return compare(updates, parameter_count, seed, liars_max)

    def measure_updates(
        round_number: int, updates: Sequence[Update], seed: Digest
    ) -> Sequence[Usefulness]:
        return measured(round_number, updates, parameter_count, seed)

    return RoundRules(
        rounds=job.rounds,
        tokens_per_step=job.tokens_per_step,
        rule=updates.rule,
        f_agg_among=updates.f_agg_among,
        codec=updates.codec,
        codec_sizes=sizes_of(updates.codecs, parameter_count),
        check_update=check_update,
        compare=compare_updates,
        measure=measure_updates,
        segment_steps=job.spot_checks.segment_steps(job.rounds.inner_steps_max),
        train_on=updates.train_on,
    )


def chain_facts(made: Genesis) -> ChainFacts:
    """What a verifier of this network's chain goes by."""
    job, rules = made.job, round_rules(made.job)

    def set_fault(
        parent: Vertex,
        contributors: Sequence[NodeId],
        committee: Committee,
        vouchers: Mapping[NodeId, NodeId | None],
        decided: SetPayload,
    ) -> str | None:
        plan = rules.plan(parent, contributors, decided.round - 1, committee, vouchers)
        return rules.unplanned(plan, decided)

    return ChainFacts(
        chain_id=made.chain_id,
        first=made.membership,
        public_keys=made.public_keys,
        contributors=frozenset(made.contributors),
        epoch_rounds=job.agreement.epoch_rounds,
        states=StateRules(
            tensors=job.model.tensors(),
            first_weights=lambda: genesis_pieces(job.model, job.seed),
            rates=OuterRates(job.updates.outer_lr, job.updates.outer_momentum),
            delta_format=job.updates.delta_format,
            first_root=job.model.first_root,
        ),
        set_fault=set_fault,
    )


def parse(name: str, text: str) -> Genesis:
    """The genesis in the file called `name`, checked whole. Raises UserError."""
    if len(text) > GENESIS_BYTES_MAX:
        raise UserError(
            f"{name}: {len(text)} characters; a genesis has {GENESIS_BYTES_MAX} at most"
        )
    document = _document(name, text)
    version = document.get("schema_version")
    if type(version) is int and version != SCHEMA_VERSION:
        remedy = "update this program" if version > SCHEMA_VERSION else "use an older program"
        raise UserError(
            f"{name} has schema version {version}, this program reads {SCHEMA_VERSION}: {remedy}"
        )
    if version != SCHEMA_VERSION:
        raise UserError(f"{name} is no genesis file: make one with `daa-node genesis create`")
    try:
        body = Body.model_validate(document.get("body"))
        records = tuple(_record_bytes(item) for item in document.get("records", []))
    except ValidationError as invalid:
        raise UserError(f"{name}: {words_of(invalid)}") from None
    except (ValueError, TypeError) as invalid:
        raise UserError(f"{name}: records: {invalid}") from None
    genesis = Genesis(body, records)
    if document.get("chain_id") != genesis.chain_id.hex():
        raise UserError(
            f"{name} was changed after it was made: it says chain {document.get('chain_id')}, its "
            f"body is chain {genesis.chain_id.hex()}; copy it again from where it was created"
        )
    _check_records(name, genesis)
    return genesis


def _document(name: str, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as broken:
        where = f"{name}:{broken.lineno}:{broken.colno}"
        raise UserError(f"{where}: error: this is not JSON: {broken.msg}") from None
    except RecursionError:
        raise UserError(f"{name}: nested too deeply for a genesis") from None
    except ValueError:  # Python reads no number of thousands of digits
        raise UserError(f"{name}: a number in it is too long for a genesis") from None
    if not isinstance(document, dict):
        raise UserError(f"{name} is no genesis file: make one with `daa-node genesis create`")
    return document


def _check_records(name: str, genesis: Genesis) -> None:
    """One of each node, signed by it: whoever hands the file on leaves out no address."""
    known = {entry.node_id: entry for entry in genesis.body.everybody}
    try:
        records = genesis.signed_records
    except PeerFault as fault:
        raise UserError(f"{name}: a node record in it is not valid: {fault}") from None
    found: set[str] = set()
    for signed in records:
        node = signed.record.node_id.hex()
        entry = known.get(node)
        if entry is None or entry.peer_id != signed.record.peer_id:
            raise UserError(f"{name}: the record of node {node[:16]} fits nobody of the body")
        if node in found:
            raise UserError(
                f"{name} has two records of node {node[:16]}; take it from another host"
            )
        found.add(node)
    for node in sorted(known.keys() - found):
        raise UserError(
            f"{name} lacks the record of node {node[:16]}, which says where that is; take it "
            "from another host of the network"
        )


def _record_bytes(item: Any) -> bytes:
    payload = bytes.fromhex(item)
    if len(payload) > RECORD_BYTES_MAX:
        raise ValueError(f"a record of {len(payload)} bytes, at most {RECORD_BYTES_MAX}")
    return payload


def _canonical(value: Any) -> canonical.Value:
    """Floats as the shortest text that reads back to them: the encoding has no floats."""
    match value:
        case float():
            return repr(value)
        case dict():
            return {key: _canonical(item) for key, item in value.items()}
        case list() | tuple():
            return [_canonical(item) for item in value]
        case None | bool() | int() | str():
            return value
        case _:
            raise AssertionError(f"a genesis holds no {type(value).__name__}")


def words_of(invalid: ValidationError) -> str:
    """All that is wrong, in one line."""
    return "; ".join(
        f"{'.'.join(map(str, error['loc'])) or 'body'}: "
        f"{error['msg'].removeprefix('Value error, ')}"
        for error in invalid.errors()
    )
