"""What the others say of themselves counts as far as somebody honest surely says it."""

import random

import pytest

from daa_consensus.committee import Committee, Validator
from daa_dag.ids import NodeId
from daa_node.agreement.messages import Position
from daa_node.agreement.positions import STANDS_KEPT, Positions, believed

NODES = [NodeId(bytes([65 + k]) * 32) for k in range(7)]
SEVEN = Committee(tuple(Validator(node, 1) for node in NODES))  # two of them may lie
HOUR_MS = 3_600_000


def at(resolved_round: int, round_age_ms: int) -> Position:
    return Position(0, 3, 2, resolved_round, round_age_ms)


def positions_of(*positions: Position, heard_s: float = 100.0) -> Positions:
    heard = Positions()
    for node, position in zip(NODES, positions, strict=False):
        heard.note(node, position, heard_s)
    return heard


def test_an_age_is_believed_once_more_say_it_than_may_lie_and_is_counted_on_from_then() -> None:
    assert positions_of(at(4, 9_000), at(4, 8_000)).round_age_s(5, SEVEN, 100.0) == 0.0
    three = positions_of(at(4, 9_000), at(4, 8_000), at(4, 7_000))
    assert three.round_age_s(5, SEVEN, 100.0) == 7.0
    assert three.round_age_s(5, SEVEN, 160.0) == 67.0


def test_two_liars_of_seven_make_no_round_older_than_somebody_honest_says() -> None:
    old = positions_of(at(4, HOUR_MS), at(4, HOUR_MS), at(4, 6_000), at(4, 5_000))
    assert old.round_age_s(5, SEVEN, 100.0) == 6.0
    young = positions_of(at(4, 1), at(4, 1), at(4, 6_000), at(4, 5_000), at(4, 5_500))
    assert young.round_age_s(5, SEVEN, 100.0) == 5.0


def test_ages_of_other_rounds_and_of_who_is_in_none_say_nothing() -> None:
    heard = positions_of(at(3, 50_000), at(5, 50_000), at(4, 0), at(4, 9_000), at(4, 9_000))
    assert heard.round_age_s(5, SEVEN, 160.0) == 0.0


def test_a_newer_word_replaces_the_one_before_also_when_a_round_ends() -> None:
    heard = positions_of(*[at(4, 9_000)] * 3)
    assert heard.round_age_s(5, SEVEN, 100.0) == 9.0
    heard.note(NODES[0], at(5, 0), 101.0)
    assert heard.round_age_s(5, SEVEN, 101.0) == 0.0
    assert heard.position_of(NODES[0]) == at(5, 0)
    assert heard.position_of(NODES[6]) is None
    assert heard.latest(1) == [NODES[0]]


def test_ever_new_names_are_bounded_and_push_out_nobody_who_speaks() -> None:
    """A member sponsors one Join after the other, and whoever waits to join may write messages."""
    heard = Positions()
    for number in range(10 * STANDS_KEPT):
        heard.note(NodeId(number.to_bytes(32)), at(9, 1), 100.0 + number)
        if number % 100 == 0:
            for node in NODES:
                heard.note(node, at(4, 9_000), 100.0 + number)
    assert len(heard.heard_since(0.0)) <= STANDS_KEPT
    assert heard.resolved_round(SEVEN) == 4


@pytest.mark.parametrize("seed", range(20))
def test_what_is_believed_is_the_greatest_claim_that_a_blocking_weight_reaches(seed: int) -> None:
    """Against the plain definition, with stakes, and strangers who weigh nothing."""
    chance = random.Random(seed)
    committee = Committee(tuple(Validator(n, chance.randint(1, 9)) for n in NODES[:6]))
    claims = {node: chance.randint(0, 5) for node in NODES if chance.random() < 0.7}
    reached = [
        claim
        for claim in claims.values()
        if committee.weight({n for n, c in claims.items() if c >= claim}) >= committee.blocking
    ]
    assert believed(claims, committee) == max(reached, default=None)
