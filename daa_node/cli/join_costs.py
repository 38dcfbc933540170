"""What joining a network costs: bytes to fetch, and bytes on disk. Estimates, on the high side.

Proofs are counted as they come (checkpoints.epochs, checkpoints.pages): one certificate of an epoch
that is over to who takes a whole state, page by page to who follows every delta. What a round
brings was measured, see docs/performance.md, "Joining".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from daa_consensus.committee import FAULT_TOLERANT_MIN, Committee
from daa_dag.retention import Retention
from daa_node.checkpoints.long_epochs import HELD_BYTES_MAX
from daa_node.checkpoints.quota import within_bytes
from daa_node.checkpoints.writes import LOOSE_MAX
from daa_node.cli import report
from daa_node.errors import UserError
from daa_node.genesis import Genesis, round_rules
from daa_node.identity.keys import ML_DSA_SIGNATURE_BYTES
from daa_node.tensors import GRID_ITEM_BYTES
from daa_node.training.boundaries import boundary_chunks, boundary_steps
from daa_node.updates.compression.codec import codec_named

# Of a round that came by itself a quorum signs the result, and what makes its blocks final.
CERTIFICATES_A_ROUND = 2
PAGE_ROUNDS = 3  # or four: one finalization makes them final
# Of a round: its blocks and its vertex, and in both each contributor, which names its boundaries.
HEADERS_BYTES, CONTRIBUTOR_BYTES, BOUNDARY_NAME_BYTES = 1800, 230, 34
# What one other sends in a round: a validator 11 to 14 signatures' bytes of votes, Acks and
# certificates, whoever contributes an offer of 4.9 kB.
VALIDATOR_LETTERS_BYTES = 15 * ML_DSA_SIGNATURE_BYTES
OFFER_LETTER_BYTES = 5000
CHECK_BOUNDARIES = 3  # at most: both ends of a segment, and where its author left off before
# Proofs on their way lie in pages and in packs; what waits for its pack has blocks of the disk.
PROOF_COPIES, WAITING_BYTES = 2, 2 * LOOSE_MAX * 4096
STATES_HELD = 3  # of the newest vertex, the one below, and one that is on its way
ROUNDS_HELD = 4  # whose updates and boundaries somebody may still ask for
INNER_VECTORS = 3  # fp32: two moments, and what sealing left over
FP32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Others:
    """Who is there beside this node, which is about to train without a vote."""

    validators: int
    trainers: int

    def contributing(self, made: Genesis) -> int:
        """Of these, how many are in one round at most."""
        room = made.job.trainers.rules.contributors_max - 1
        return min(self.validators + self.trainers, max(self.validators, room))


@dataclass(frozen=True, slots=True)
class Costs:
    parts: Mapping[str, int]  # bytes to fetch before the first round, by what they are
    disk_bytes: int
    least_bytes: int  # of these, where as little is kept as may be
    round_parts: Mapping[str, int]  # bytes to fetch in each round, by what they are

    @property
    def download_bytes(self) -> int:
        return sum(self.parts.values())

    @property
    def round_bytes(self) -> int:
        return sum(self.round_parts.values())


def costs_of(
    made: Genesis, retention: Retention, next_round: int, others: Others | None = None
) -> Costs:
    """For who begins at the genesis, where `next_round` comes next.

    `others`: as the network is now; None: as its genesis names them.
    """
    sums = _Sums(made, others or Others(len(made.committee.validators), len(made.trainers)))
    rounds, every = max(0, next_round - 1), made.job.checkpoints.snapshot_every
    kept = sums.kept(retention)
    is_leapt = kept is not None and rounds > 2 * every
    parts = {"genesis": len(made.as_text())}
    if is_leapt:
        parts["the newest whole state"] = sums.state_bytes
    deltas_bytes = sums.delta_bytes * (every if is_leapt else rounds)
    parts["deltas above it" if is_leapt else "deltas"] = deltas_bytes
    proofs = sums.proofs_by_epochs(rounds) if is_leapt else sums.proofs_by_pages(rounds)
    parts["proofs"] = proofs
    heights = rounds if kept is None else kept + every
    coming_bytes = sums.state_bytes * STATES_HELD + deltas_bytes + PROOF_COPIES * proofs
    coming_bytes += min(proofs, WAITING_BYTES)
    disk_bytes = max(coming_bytes, sums.disk_bytes(heights, proofs))
    least = min(proofs, sums.least_proofs(retention, rounds))
    return Costs(parts, disk_bytes, sums.disk_bytes(every, least), sums.round_parts())


def kept_bytes(made: Genesis, retention: Retention, rounds: int) -> int:
    """On the disk of who was there for so many rounds."""
    sums = _Sums(made, Others(len(made.committee.validators), len(made.trainers)))
    kept = sums.kept(retention)
    heights = rounds if kept is None else kept + made.job.checkpoints.snapshot_every
    return sums.disk_bytes(heights, sums.least_proofs(retention, rounds))


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


class _Sums:
    """What one network's parts have, in bytes."""

    def __init__(self, made: Genesis, others: Others) -> None:
        job = made.job
        self._made, self._others = made, others
        self._count = count = job.model.parameter_count()
        self._every, self._epoch_rounds = (
            job.checkpoints.snapshot_every,
            job.agreement.epoch_rounds,
        )
        self.state_bytes = 2 * count * GRID_ITEM_BYTES  # weights and outer momentum
        self.delta_bytes = job.updates.delta_format.size_bytes_max(count)
        self._update_bytes = codec_named(job.updates.codec).encoded_size_bytes(count)
        self._boundary_bytes = sum(boundary_chunks(count, job.updates.error_feedback))
        steps_max, segment_steps = job.rounds.inner_steps_max, round_rules(job).segment_steps
        self._boundaries = len(boundary_steps(steps_max, segment_steps))
        signers = signers_max(made.committee, others.validators)
        self._certificate_bytes = signers * ML_DSA_SIGNATURE_BYTES
        each = CONTRIBUTOR_BYTES + self._boundaries * BOUNDARY_NAME_BYTES
        self._headers_bytes = HEADERS_BYTES + (others.contributing(made) + 1) * each
        self._are_epochs_long = self._headers_bytes * self._epoch_rounds > HELD_BYTES_MAX

    def kept(self, retention: Retention) -> int | None:
        """How many vertices can be restored; None: all."""
        within = within_bytes(retention, self.delta_bytes, self.state_bytes, self._every)
        return within.vertices_restorable

    def proofs_by_epochs(self, rounds: int) -> int:
        """One certificate of each epoch, and page by page what is of the newest one.

        An epoch that nobody holds at once comes in pages, and nothing of it is let go (thinning).
        """
        if self._are_epochs_long:
            return self.proofs_by_pages(rounds)
        return self._proofs(rounds, min(rounds, self._epoch_rounds))

    def proofs_by_pages(self, rounds: int) -> int:
        certificates = rounds + -(-rounds // PAGE_ROUNDS)
        return rounds * self._headers_bytes + certificates * self._certificate_bytes

    def least_proofs(self, retention: Retention, rounds: int) -> int:
        """Of rounds that came by themselves: of old epochs one each, if these are let go."""
        if retention.epochs_whole is None or self._are_epochs_long:
            return self._proofs(rounds, rounds)
        return self._proofs(rounds, (retention.epochs_whole + 1) * self._epoch_rounds)

    def disk_bytes(self, heights: int, proofs_bytes: int) -> int:
        """With states and deltas of so many vertices."""
        states = (STATES_HELD + 1 + -(-heights // self._every)) * self.state_bytes
        return (
            states
            + INNER_VECTORS * FP32_BYTES * self._count
            + ROUNDS_HELD * (self._boundary_bytes * self._boundaries + self._updates_bytes())
            + heights * self.delta_bytes
            + proofs_bytes
        )

    def round_parts(self) -> dict[str, int]:
        job, others = self._made.job, self._others
        there = others.contributing(self._made)
        letters = others.validators * VALIDATOR_LETTERS_BYTES + there * OFFER_LETTER_BYTES
        if job.updates.train_on:  # who does not vote merges nothing, see RoundRules.are_merged_by
            parts = {"delta": self.delta_bytes}
        else:
            parts = {f"updates of {there} other{'s' * (there != 1)}": self._updates_bytes()}
        parts["votes and offers"] = letters
        share, whole = job.spot_checks.share
        checks = CHECK_BOUNDARIES * self._boundary_bytes * job.spot_checks.checkers
        if there and share:  # everybody contributes, and everybody is drawn alike to check others
            parts["spot checks"] = checks * share // whole
        return parts

    def _updates_bytes(self) -> int:
        return self._others.contributing(self._made) * self._update_bytes

    def _proofs(self, rounds: int, whole: int) -> int:
        """With one certificate an epoch, and all of the newest `whole` rounds."""
        whole = min(rounds, whole)
        light = -(-(rounds - whole) // self._epoch_rounds)
        certificates = light + whole * CERTIFICATES_A_ROUND
        return rounds * self._headers_bytes + certificates * self._certificate_bytes


def signers_max(committee: Committee, validators: int) -> int:
    """The most that it takes to be a quorum: of the genesis, or of so many of equal stake."""
    weight, count = 0, 0
    for stake in sorted(committee.stake_of.values()):
        count += weight < committee.quorum
        weight += stake
    equal = 2 * validators // 3 + 1 if validators >= FAULT_TOLERANT_MIN else validators
    return max(count, equal)
