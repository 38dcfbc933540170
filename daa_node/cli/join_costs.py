"""What joining a network costs: bytes to fetch, and bytes on disk. Estimates, on the high side."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from daa_dag.retention import Retention
from daa_node.checkpoints.quota import within_bytes
from daa_node.cli import report
from daa_node.errors import UserError
from daa_node.genesis import Genesis, round_rules
from daa_node.identity.keys import ML_DSA_SIGNATURE_BYTES
from daa_node.tensors import GRID_ITEM_BYTES
from daa_node.training.boundaries import boundary_chunks, boundary_steps
from daa_node.updates.compression.codec import codec_named

# Of a round a quorum signs the result, and now and then what makes its blocks final.
CERTIFICATES_A_ROUND = 2
HEADERS_BYTES = 2048  # of a round: its set and its result
STATES_HELD = 3  # of the newest vertex, the one below, and one that is on its way
ROUNDS_HELD = 4  # whose updates and boundaries somebody may still ask for
INNER_VECTORS = 3  # fp32: two moments, and what sealing left over
FP32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Costs:
    parts: Mapping[str, int]  # bytes to fetch before the first round, by what they are
    disk_bytes: int
    least_bytes: int  # of these, where as little is kept as may be
    round_bytes: int  # to fetch in each round

    @property
    def download_bytes(self) -> int:
        return sum(self.parts.values())


def costs_of(made: Genesis, retention: Retention, next_round: int) -> Costs:
    """For who begins at the genesis, where `next_round` comes next."""
    job, rounds = made.job, max(0, next_round - 1)
    count, every = job.model.parameter_count(), job.checkpoints.snapshot_every
    state_bytes = 2 * count * GRID_ITEM_BYTES  # weights and outer momentum
    delta_bytes = job.updates.delta_format.size_bytes_max(count)
    update_bytes = codec_named(job.updates.codec).encoded_size_bytes(count)
    proof_bytes = rounds * (
        CERTIFICATES_A_ROUND * made.committee.quorum * ML_DSA_SIGNATURE_BYTES + HEADERS_BYTES
    )
    kept = within_bytes(retention, delta_bytes, state_bytes, every).vertices_restorable
    is_leapt = kept is not None and rounds > 2 * every
    parts = {"genesis": len(made.as_text())}
    if is_leapt:
        parts["the newest whole state"] = state_bytes
    parts["deltas above it" if is_leapt else "deltas"] = delta_bytes * (
        every if is_leapt else rounds
    )
    parts["proofs"] = proof_bytes
    segments = boundary_steps(job.rounds.inner_steps_max, round_rules(job).segment_steps)
    boundary_bytes = sum(boundary_chunks(count, job.updates.error_feedback)) * len(segments)
    peers = len(made.contributors)
    always_bytes = (
        (STATES_HELD + 1) * state_bytes
        + INNER_VECTORS * FP32_BYTES * count
        + ROUNDS_HELD * (boundary_bytes + peers * update_bytes)
    )

    def disk_bytes(heights: int, proofs: int) -> int:
        return always_bytes + proofs + -(-heights // every) * state_bytes + heights * delta_bytes

    heights = rounds if kept is None else kept + every
    least_bytes = disk_bytes(every, _least_proofs(made, retention, rounds) or proof_bytes)
    return Costs(parts, disk_bytes(heights, proof_bytes), least_bytes, peers * update_bytes)


def check_room(directory: Path, needed_bytes: int, free_bytes: int) -> None:
    """Raise UserError where a disk has no room for a network."""
    if free_bytes < needed_bytes:
        raise UserError(
            f"there is no room: {report.size(needed_bytes)} are needed in "
            f"{directory.resolve()}, {report.size(free_bytes)} are free. Make room, or "
            "give a --dir on another disk",
            exit_code=1,
        )


def check_quota(bytes_max: int | None, costs: Costs) -> None:
    """Raise UserError for a bound that nothing of this network fits into."""
    if bytes_max is not None and bytes_max < costs.least_bytes:
        raise UserError(
            f"storage.bytes_max is {report.size(bytes_max)} here, and this network needs "
            f"{report.size(costs.least_bytes)} at the least: its proofs, its newest states and "
            "what a round leaves. Nothing was fetched. Give it more, or leave it out"
        )


def _least_proofs(made: Genesis, retention: Retention, rounds: int) -> int | None:
    """Bytes of one certificate an epoch, and all of the newest ones; None if all are kept."""
    if retention.epochs_whole is None:
        return None
    each = made.job.agreement.epoch_rounds
    whole = min(rounds, (retention.epochs_whole + 1) * each)
    certificates = rounds // each + whole * CERTIFICATES_A_ROUND
    signatures = certificates * made.committee.quorum * ML_DSA_SIGNATURE_BYTES
    return rounds * HEADERS_BYTES + signatures
