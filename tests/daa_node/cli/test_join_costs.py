"""What joining costs is told on the high side, and follows the job."""

from dataclasses import replace
from pathlib import Path

import pytest

from daa_consensus.committee import Committee, Validator
from daa_consensus.roll import Admission
from daa_dag.ids import NodeId
from daa_dag.retention import Retention
from daa_node import genesis
from daa_node.cli.join_costs import Others, costs_of, kept_bytes, signers_max
from daa_node.genesis import Genesis

GOLDEN = (Path(__file__).parents[2] / "golden" / "genesis.json").read_text()
MADE = genesis.parse("genesis.json", GOLDEN)
STATE_BYTES = 8 * MADE.job.model.parameter_count()
A_YEAR = 525_600  # rounds of a minute; in docs/performance.md, "Months of history"


def with_updates(**given: object) -> Genesis:
    updates = MADE.job.updates.model_copy(update=given)
    checks = MADE.job.spot_checks.model_copy(update={"share": (0, 1)})
    job = MADE.job.model_copy(update={"updates": updates, "spot_checks": checks})
    return with_job(job)


def with_job(job: genesis.Job) -> Genesis:
    return replace(MADE, body=MADE.body.model_copy(update={"job": job}))


def test_far_behind_a_whole_state_is_fetched_and_not_every_delta() -> None:
    few, many = (costs_of(MADE, Retention(32), number) for number in (301, 3001))
    assert few.parts["the newest whole state"] == STATE_BYTES
    assert few.parts["deltas above it"] < 2 * STATE_BYTES
    assert few.download_bytes - few.parts["proofs"] == many.download_bytes - many.parts["proofs"]
    assert many.disk_bytes > few.disk_bytes > few.download_bytes


def test_who_keeps_every_delta_fetches_every_delta() -> None:
    costs = costs_of(MADE, Retention(None), 301)
    assert "the newest whole state" not in costs.parts
    assert costs.parts["deltas"] > 30 * STATE_BYTES
    assert costs.disk_bytes > costs.download_bytes


def test_where_nothing_was_trained_yet_nothing_is_fetched_but_the_genesis() -> None:
    costs = costs_of(MADE, Retention(32), 1)
    assert costs.download_bytes == len(GOLDEN)


def test_a_bound_leaves_out_what_would_go_again() -> None:
    """An archive with little room fetches a whole state; the least that it needs is told too."""
    free = costs_of(MADE, Retention(None), 3001)
    tight = costs_of(MADE, Retention(None, bytes_max=free.disk_bytes // 4), 3001)
    assert "the newest whole state" in tight.parts
    assert tight.disk_bytes < free.disk_bytes // 2
    assert tight.least_bytes <= tight.disk_bytes


def test_who_lets_old_proofs_go_needs_less_than_who_was_there_for_all_of_them() -> None:
    assert kept_bytes(MADE, Retention(8, 2), A_YEAR) < kept_bytes(MADE, Retention(8), A_YEAR) / 3


@pytest.mark.parametrize(("history", "gb"), [(32, 3.0), (None, 12.3)])
def test_proofs_of_a_year_are_told_as_they_were_measured(history: int | None, gb: float) -> None:
    """One certificate an epoch to who takes a state; else one a result, and one of some rounds."""
    told = costs_of(MADE, Retention(history), A_YEAR + 1).parts["proofs"]
    assert told < 1.2 * gb * 1e9
    if history is not None:
        assert told > gb * 1e9


def test_epochs_that_are_too_long_for_one_certificate_come_in_pages() -> None:
    agreement = MADE.job.agreement.model_copy(update={"epoch_rounds": 100_000})
    made = with_job(MADE.job.model_copy(update={"agreement": agreement}))
    by_pages, leapt = (
        costs_of(made, Retention(kept), A_YEAR + 1).parts["proofs"] for kept in (None, 32)
    )
    assert leapt == by_pages


def test_a_round_brings_the_updates_of_all_who_contribute_and_not_of_founders_alone() -> None:
    founders, with_trainers = (
        costs_of(MADE, Retention(32), 301, Others(4, trainers)).round_parts for trainers in (0, 20)
    )
    each = founders["updates of 4 others"] // 4
    assert with_trainers["updates of 24 others"] == 24 * each
    assert with_trainers["votes and offers"] > founders["votes and offers"]


def test_one_other_is_told_as_one() -> None:
    for count, told in ((1, "updates of 1 other"), (2, "updates of 2 others")):
        assert told in costs_of(MADE, Retention(32), 301, Others(count, 0)).round_parts


def test_of_more_than_a_round_has_a_lot_picks() -> None:
    rules = {"admission": Admission.OPEN, "contributors_max": 8}
    trainers = MADE.job.trainers.model_copy(update=rules)
    made = with_job(MADE.job.model_copy(update={"trainers": trainers}))
    parts = costs_of(made, Retention(32), 301, Others(4, 20)).round_parts
    assert "updates of 7 others" in parts


def test_who_trains_on_without_a_vote_fetches_a_delta_and_no_updates() -> None:
    made = with_updates(train_on=True)
    parts = costs_of(made, Retention(32), 301, Others(4, 20)).round_parts
    count = MADE.job.model.parameter_count()
    assert parts["delta"] == made.job.updates.delta_format.size_bytes_max(count)
    assert parts.keys() == {"delta", "votes and offers"}


def test_sparse_updates_are_told_as_sparse() -> None:
    made = with_updates(codec="top_k", rule="mean")
    dense = costs_of(MADE, Retention(32), 301, Others(4, 20)).round_parts["updates of 24 others"]
    sparse = costs_of(made, Retention(32), 301, Others(4, 20)).round_parts["updates of 24 others"]
    assert sparse < dense / 16


@pytest.mark.parametrize(
    ("stakes", "now", "signers"),
    [((1,) * 4, 4, 3), ((10,) * 4, 4, 3), ((30, 1, 1, 1), 4, 4), ((1,) * 4, 20, 14), ((7,), 1, 1)],
)
def test_a_certificate_has_signatures_of_so_many_and_not_of_so_much_stake(
    stakes: tuple[int, ...], now: int, signers: int
) -> None:
    ids = [NodeId(bytes([number]) * 32) for number in range(len(stakes))]
    pairs = zip(ids, stakes, strict=True)
    committee = Committee(tuple(Validator(name, stake) for name, stake in pairs))
    assert signers_max(committee, now) == signers
