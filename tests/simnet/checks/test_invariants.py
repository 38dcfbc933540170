"""The watch sees what no world should ever show it: each invariant breaks at what it forbids."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    Payload,
    ResultPayload,
    SetPayload,
    genesis_block,
)
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import BlockId, ChainId, Digest, NodeId, VertexId
from simnet.checks import invariants
from simnet.checks.invariants import Broken, Watch

CHAIN = ChainId(b"c" * 32)
GENESIS = genesis_block(CHAIN, VertexId(bytes(32)))
NODES = [NodeId(bytes([65 + i]) * 32) for i in range(4)]
COMMITTEE = Committee(tuple(Validator(node, 1) for node in NODES))
DOMAIN = Domain(CHAIN, 0, COMMITTEE.root)
A, B = BlockId(b"a" * 32), BlockId(b"b" * 32)


def watch() -> Watch:
    fresh = Watch(GENESIS, COMMITTEE, epoch_rounds=10)
    fresh.started(1, GENESIS, (0, 0), whole=True)
    fresh.started(2, GENESIS, (0, 0), whole=True)
    return fresh


def certificate(kind: Kind, view: int, value: BlockId | None, signers: int = 3) -> Certificate:
    pairs = tuple((node, b"s") for node in NODES[:signers])
    return Certificate(Statement(DOMAIN, kind, view, 0 if value is None else 1, value), pairs)


def block(parent: Block, payload: Payload, height: int, view: int | None = None) -> Block:
    at = parent.view + 1 if view is None else view
    return Block(CHAIN, 0, at, height, parent.id, parent.view, payload)


def set_of(round_: int, flavour: int = 0) -> SetPayload:
    return SetPayload(round_, (), (), "mean", flavour, (), (), ())


def finalize(to: Watch, *blocks: Block) -> None:
    for each in blocks:
        to.final(each)
    to.certificate(certificate(Kind.FINALIZE, blocks[-1].view, blocks[-1].id))


def say(to: Watch, kind: Kind, view: int, value: BlockId | None) -> None:
    height = 0 if value is None else 1
    to.word(0, Signed(Statement(DOMAIN, kind, view, height, value), NODES[0], b"s"))


SET = block(GENESIS, set_of(1), 1)
RESULT = block(SET, ResultPayload(1, VertexId(b"v" * 32), Digest(b"r" * 32)), 1)
OTHER_SET = block(GENESIS, set_of(1, flavour=1), 1)


def notarize(to: Watch, vote_for: Block, by_leader: bool = True) -> None:
    to.notarizes(0, vote_for, by_leader)


def on_what_nobody_notarized(to: Watch) -> None:
    notarize(to, RESULT)


def past_a_view_that_stands(to: Watch) -> None:
    notarize(to, block(GENESIS, EmptyPayload(), 0, view=2))


def for_a_block_of_another_leader(to: Watch) -> None:
    notarize(to, SET, by_leader=False)


def what_a_vote_stood_on_is_gone(to: Watch) -> None:
    to.relies(1, (0, 5), (0, 4))
    to.relies(1, (1, 5), (0, 4))
    to.relies(1, (0, 5), (0, 3))


def asks_with_a_nonce_of_before(to: Watch) -> None:
    rejoin = Signed(Statement(DOMAIN, Kind.REJOIN, 0, 0, bytes(32)), NODES[0], b"s")
    for _ in range(2):
        to.remembers(0, (0, 0))
        to.word(0, rejoin)
        to.word(0, rejoin)


def two_vertices(to: Watch) -> None:
    to.executed(1, VertexId(b"w" * 32))
    finalize(to, SET, RESULT)


def fork(to: Watch) -> None:
    finalize(to, SET)
    finalize(to, block(GENESIS, set_of(1, 1), 1, 2))


def not_on_the_one_below(to: Watch) -> None:
    finalize(to, RESULT)


def second_set(to: Watch) -> None:
    finalize(to, SET, block(SET, set_of(2), 2))


def closes_what_is_closed(to: Watch) -> None:
    finalize(to, SET, RESULT, block(RESULT, AbortPayload(1), 1))


def evidence_twice_in_a_set(to: Watch) -> None:
    finalize(to, block(GENESIS, replace(set_of(1), evidence=(b"e", b"e")), 1))


def evidence_again(to: Watch) -> None:
    first = block(GENESIS, replace(set_of(1), evidence=(b"e",)), 1)
    result = block(first, ResultPayload(1, VertexId(b"v" * 32), Digest(b"r" * 32)), 1)
    finalize(to, first, result)
    finalize(to, block(result, replace(set_of(2), evidence=(b"f", b"e")), 2))


def wrong_epoch(to: Watch) -> None:
    to.epoch_rounds = 1
    finalize(to, SET, RESULT, block(RESULT, set_of(2), 2))


def starts_from_nowhere(to: Watch) -> None:
    to.started(1, SET, (0, 1), whole=True)


def two_notarized(to: Watch) -> None:
    to.certificate(certificate(Kind.NOTARIZE, 5, A))
    to.certificate(certificate(Kind.NOTARIZE, 5, B))


def nullified_then_finalized(to: Watch) -> None:
    to.certificate(certificate(Kind.NULLIFY, 5, None))
    to.certificate(certificate(Kind.FINALIZE, 5, A))


def finalized_then_nullified(to: Watch) -> None:
    to.certificate(certificate(Kind.FINALIZE, 5, A))
    to.certificate(certificate(Kind.NULLIFY, 5, None))


def no_quorum(to: Watch) -> None:
    to.certificate(certificate(Kind.NOTARIZE, 5, A, signers=2))


def two_words(to: Watch) -> None:
    say(to, Kind.NOTARIZE, 3, A)
    say(to, Kind.NOTARIZE, 3, B)


def forgets_what_is_final(to: Watch) -> None:
    finalize(to, SET)
    to.kept(1, certificate(Kind.FINALIZE, SET.view, SET.id))
    to.started(1, GENESIS, (0, 0), whole=True)


def votes_without_a_log(to: Watch) -> None:
    say(to, Kind.NOTARIZE, 3, A)
    to.remembers(0, (0, 0))
    say(to, Kind.NULLIFY, 9, None)


def votes_too_early(to: Watch) -> None:
    say(to, Kind.NOTARIZE, 1, A)
    to.remembers(0, (0, 0))
    finalize(to, SET)
    to.rejoined(0, SET)
    say(to, Kind.NULLIFY, SET.view + 1, None)


def stale_rejoin(to: Watch) -> None:
    finalize(to, SET)
    to.remembers(0, (0, 0))
    to.rejoined(0, SET)


def decides_nothing_for_long(to: Watch) -> None:
    below = GENESIS
    for view in range(1, invariants.EMPTY_BLOCKS_MAX + 2):
        below = block(below, EmptyPayload(), 0, view)
        to.final(below)


def a_stranger_votes(to: Watch) -> None:
    to.word(0, Signed(Statement(DOMAIN, Kind.NULLIFY, 3, 0, None), NodeId(b"X" * 32), b"s"))


@pytest.mark.parametrize(
    ("name", "happens"),
    [
        (invariants.ONE_VERTEX, two_vertices),
        (invariants.ONE_CHAIN, fork),
        (invariants.ONE_CHAIN, not_on_the_one_below),
        (invariants.ONE_CHAIN, second_set),
        (invariants.ONE_CHAIN, closes_what_is_closed),
        (invariants.ONE_CHAIN, wrong_epoch),
        (invariants.ONE_CHAIN, starts_from_nowhere),
        (invariants.LISTED_ONCE, evidence_twice_in_a_set),
        (invariants.LISTED_ONCE, evidence_again),
        (invariants.ONE_ENDING, two_notarized),
        (invariants.ONE_ENDING, nullified_then_finalized),
        (invariants.ONE_ENDING, finalized_then_nullified),
        (invariants.FRUITFUL, decides_nothing_for_long),
        (invariants.NO_STRANGER, a_stranger_votes),
        (invariants.QUORUMS, no_quorum),
        (invariants.ONE_STATEMENT, two_words),
        (invariants.JUSTIFIED, on_what_nobody_notarized),
        (invariants.JUSTIFIED, past_a_view_that_stands),
        (invariants.JUSTIFIED, for_a_block_of_another_leader),
        (invariants.NOTHING_LOST, forgets_what_is_final),
        (invariants.NOTHING_LOST, what_a_vote_stood_on_is_gone),
        (invariants.LATE_ENOUGH, asks_with_a_nonce_of_before),
        (invariants.LATE_ENOUGH, votes_without_a_log),
        (invariants.LATE_ENOUGH, votes_too_early),
        (invariants.LATE_ENOUGH, stale_rejoin),
    ],
)
def test_what_must_not_happen_is_seen(name: str, happens: Callable[[Watch], None]) -> None:
    with pytest.raises(Broken) as found:
        happens(watch())
    assert found.value.name == name


def test_what_may_happen_breaks_nothing() -> None:
    to = watch()
    to.certificate(certificate(Kind.NULLIFY, SET.view, None))  # its descendants make it final
    finalize(to, SET, RESULT)
    finalize(to, SET, RESULT)  # somebody else says so, too
    for _ in range(2):
        say(to, Kind.NOTARIZE, 3, A)
    say(to, Kind.FINALIZE, 3, A)
    to.remembers(0, (0, 3))
    say(to, Kind.NULLIFY, 4, None)
    assert to.chain == [GENESIS, SET, RESULT]


def test_an_outcome_lists_every_invariant_and_names_the_broken_one() -> None:
    listed = invariants.verdicts(Broken(invariants.ONE_STATEMENT, "twice"))
    assert [i.name for i in listed] == list(invariants.ALL)
    assert [i.detail for i in listed if not i.ok] == ["twice"]


def test_a_vote_may_stand_on_what_is_notarized_or_final_over_nullified_views() -> None:
    to = watch()
    notarize(to, SET)
    to.certificate(certificate(Kind.NOTARIZE, SET.view, SET.id))
    to.certificate(certificate(Kind.NULLIFY, SET.view + 1, None))
    notarize(to, block(SET, EmptyPayload(), 1, view=SET.view + 2))
