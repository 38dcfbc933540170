"""From a scenario to a genesis: what the simulated network trains, and who its validators are.

Keys come from the seed, so that chain ids and everything below them do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from daa_consensus.committee import CONTRIBUTORS_MAX
from daa_node import genesis
from daa_node.errors import UserError
from daa_node.genesis import Genesis
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import (
    RECORD_LIFETIME_NS,
    NodeRecord,
    Role,
    encode_record,
    sign_record,
)
from daa_node.seams import Address
from daa_node.training.config import TrainingJob
from simnet.nodes.virtual.cheap_signatures import CheapKeys
from simnet.nodes.virtual.network import PORT, host_of
from simnet.nodes.virtual.steady_signatures import steady_signer_of
from simnet.nodes.virtual.third_party import EPOCH_S
from simnet.world.adversaries.disguise import Liar, liars_of
from simnet.world.determinism import Streams
from simnet.world.job import job_of
from simnet.world.links import NS
from simnet.world.scenario import Scenario

BATCH_MAX = 65_536  # what a genesis allows


@dataclass(frozen=True, slots=True)
class Founding:
    """A network before its first start: node `i` of the scenario has `keys[i]`.

    Observers are not in the genesis. `liars` lie, each as its own entry says.
    """

    genesis: Genesis
    keys: tuple[NodeKeys, ...]
    liars: Mapping[int, Liar]
    real_keys: set[bytes] = field(default_factory=set)  # whose signatures are, in every fidelity

    @property
    def numbers(self) -> dict[str, int]:
        """Node numbers by peer id, and by node id in hex."""
        numbers: dict[str, int] = {keys.peer_id: n for n, keys in enumerate(self.keys)}
        numbers.update((keys.node_id.hex(), n) for n, keys in enumerate(self.keys))
        return numbers

    @property
    def training(self) -> TrainingJob:
        job = self.genesis.job
        return TrainingJob(
            model=job.model,
            data=job.data,
            inner=job.inner,
            evaluation=job.evaluation,
            updates=job.updates,
            seed=job.seed,
        )


def found(scenario: Scenario, streams: Streams) -> Founding:
    """Raises UserError for what this fidelity cannot do."""
    check(scenario)
    is_light = scenario.fidelity == "light"
    keys_of = CheapKeys(streams).of if is_light else partial(_steady_keys, streams)
    keys = tuple(keys_of(str(node)) for node in range(scenario.node_count))
    groups = [scenario.group_of(node) for node in range(scenario.node_count)]
    voting = [node for node, group in enumerate(groups) if group.role == "validator"]
    records = [(f"node {node}", _record(node, keys[node])) for node in voting]
    stakes = [groups[node].stake for node in voting]
    training = [node for node, group in enumerate(groups) if group.role == "trainer"]
    beside = [(f"node {node}", _record(node, keys[node])) for node in training]
    nonce = streams.bytes("network", genesis.NONCE_BYTES)
    made = genesis.create(job_of(scenario), records, nonce, stakes, beside)
    return Founding(made, keys, liars_of(scenario, keys, keys_of))


def check(scenario: Scenario) -> None:
    """Raises UserError for what this fidelity cannot do."""
    work = scenario.work
    if scenario.is_nominal and scenario.adversaries:
        raise UserError("an update that holds nothing cannot be poisoned: model: mlp")
    if scenario.is_nominal and work.tokens_per_step > BATCH_MAX:
        raise UserError(f"work.tokens_per_step {work.tokens_per_step}: at most {BATCH_MAX}")
    contributing = sum(group.count for group in scenario.nodes if group.role != "observer")
    if contributing > CONTRIBUTORS_MAX:
        raise UserError(
            f"{contributing} nodes vote or train, and a network has {CONTRIBUTORS_MAX} validators "
            "and trainers at most"
        )


def address_of(node: int, keys: NodeKeys) -> Address:
    return Address(f"/ip4/{host_of(node)}/tcp/{PORT}/p2p/{keys.peer_id}")


def _steady_keys(streams: Streams, whose: str) -> NodeKeys:
    return NodeKeys.from_seed(streams.bytes(f"keys {whose}"), steady_signer_of)


def _record(node: int, keys: NodeKeys) -> bytes:
    now_ns = EPOCH_S * NS
    record = NodeRecord(
        ml_dsa_public_key=keys.ml_dsa_public_key,
        ml_kem_public_key=keys.ml_kem_public_key,
        peer_id=keys.peer_id,
        addresses=(address_of(node, keys),),
        role=Role.CLOUD,
        capabilities=(),
        sequence=0,
        issued_ns=now_ns,
        expiry_ns=now_ns + RECORD_LIFETIME_NS,
    )
    return encode_record(sign_record(record, keys))
