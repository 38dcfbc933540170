"""A job ends by rounds, tokens or loss, and no minority of contributors ends it early."""

from dataclasses import replace

from daa_dag.checkpoint import Vertex
from daa_node.rounds.config import EndConfig
from daa_node.rounds.plan import why_ended
from tests.daa_node.rounds.test_plan import ALICE, BOB, CAROL, PARENT, contributor


def with_losses(*micronats: int) -> Vertex:
    authors = (ALICE, BOB, CAROL)[: len(micronats)]
    facts = [
        replace(contributor(author, 1), base_loss_micronats=loss)
        for author, loss in zip(authors, micronats, strict=True)
    ]
    return replace(PARENT, contributors=tuple(facts))


def test_the_first_rule_that_is_met_ends_the_job_and_says_which() -> None:
    vertex = replace(PARENT, height=7, tokens_total=900)
    assert why_ended(vertex, EndConfig(rounds=8, tokens=901)) is None
    assert why_ended(vertex, EndConfig(rounds=7)) == "7 rounds are done"
    assert why_ended(vertex, EndConfig(tokens=900)) == "900 tokens are done"


def test_the_loss_ends_the_job_when_most_contributors_measured_it() -> None:
    rules = EndConfig(target_loss=2.5)
    reason = why_ended(with_losses(2_400_000, 2_450_000, 2_600_000), rules)
    assert reason == "the held-out loss fell to 2.4500 nats"
    assert why_ended(with_losses(2_400_000, 2_550_000, 2_600_000), rules) is None


def test_a_minority_that_claims_a_low_loss_ends_nothing() -> None:
    rules = EndConfig(target_loss=2.5)
    assert why_ended(with_losses(1, 3_000_000, 3_000_000), rules) is None
    assert why_ended(with_losses(1, 3_000_000), rules) is None


def test_who_could_not_measure_does_not_count() -> None:
    rules = EndConfig(target_loss=2.5)
    assert why_ended(with_losses(0, 0, 1), rules) is None
    assert why_ended(with_losses(0, 2_400_000, 2_400_000), rules) is not None
    assert why_ended(with_losses(), rules) is None
