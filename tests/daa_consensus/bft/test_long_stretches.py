"""Thousands of views without a final block: what is certified stays, and nothing else does."""

from collections.abc import Iterator

from daa_consensus.bft import effects as do
from daa_consensus.bft import events as on
from daa_consensus.bft.ballots import VIEWS_AHEAD_MAX, VIEWS_BEHIND_MAX
from daa_consensus.bft.messages import Block, EmptyPayload
from daa_consensus.votes import Kind
from tests.daa_consensus.bft.simulation import GENESIS, empty_set
from tests.daa_consensus.bft.test_state import (
    FOLLOWER,
    SET_1,
    Bench,
    certificate,
    child,
    leader,
    proposal,
)

STRETCH = 5_000  # views; at 0.5 s a delta, and patience at its cap, half a day
RUN = 64  # ancestors that come along with a block that was asked for


def empties_above(block: Block, count: int) -> list[Block]:
    blocks: list[Block] = []
    for _ in range(count):
        block = child(block, EmptyPayload())
        blocks.append(block)
    return blocks


def notarized(bench: Bench, blocks: list[Block]) -> None:
    for block in blocks:
        bench.step(on.CertificateArrived(certificate(Kind.NOTARIZE, block), block))


def finalized(effects: list[do.Effect]) -> list[Block]:
    return [block for e in effects if isinstance(e, do.Finalized) for block in e.blocks]


def test_a_set_below_thousands_of_empty_blocks_becomes_final_once_its_data_is_there() -> None:
    bench = Bench(FOLLOWER)
    stretch = [SET_1, *empties_above(SET_1, STRETCH)]
    notarized(bench, stretch)
    signed = bench.signs(on.DataHeld(SET_1.id))
    assert (Kind.FINALIZE, stretch[-1].view) in signed
    top = stretch[-1]
    effects = bench.step(on.CertificateArrived(certificate(Kind.FINALIZE, top), top))
    assert finalized(effects) == stretch
    assert bench.blocks_held == 1


def test_who_was_away_for_thousands_of_views_gets_them_in_runs_and_finalizes_with_the_others() -> (
    None
):
    bench = Bench(FOLLOWER)
    stretch = [SET_1, *empties_above(SET_1, STRETCH)]
    place = {block.id: index for index, block in enumerate(stretch)}
    top = stretch[-1]
    effects = bench.step(on.CertificateArrived(certificate(Kind.NOTARIZE, top), top))
    asked = 0
    while fetches := [e for e in effects if isinstance(e, do.FetchBlock)]:
        (wanted,) = fetches
        asked += 1
        at = place[wanted.block_id]
        below = tuple(reversed(stretch[max(1, at - RUN) : at]))
        effects = bench.step(on.BlockArrived(stretch[at], below))
    assert asked <= STRETCH // RUN + 2
    assert (Kind.FINALIZE, top.view) in bench.signs(on.DataHeld(SET_1.id))


def test_what_comes_along_with_a_block_must_stand_below_it() -> None:
    bench = Bench(FOLLOWER)
    one, two, three = empties_above(SET_1, 3)
    bench.step(on.CertificateArrived(certificate(Kind.NOTARIZE, three), three))
    bench.step(on.BlockArrived(two, (child(GENESIS, EmptyPayload()), one)))
    held = bench.machine.known.chain
    assert (held.get(two.id), held.get(one.id)) == (two, None)
    bench.step(on.BlockArrived(one, (SET_1,)))
    assert held.get(SET_1.id) == SET_1


def test_signatures_of_views_below_the_newest_notarized_block_are_let_go() -> None:
    bench = Bench(FOLLOWER)
    notarized(bench, [SET_1, *empties_above(SET_1, 200)])
    known = bench.machine.known
    assert len(known.ballots.views()) <= VIEWS_BEHIND_MAX + 1
    assert len(known.ballots.notarized) == 202  # who stood on what is still known
    offered = known.certificates(0, 1, known.view)
    assert offered[-1].statement.view == known.view - 1


def nullified(bench: Bench, views: range) -> Iterator[int]:
    for view in views:
        yield view
        bench.step(on.CertificateArrived(certificate(Kind.NULLIFY, view), None))


def test_whatever_leads_from_the_newest_notarized_block_here_can_be_shown_however_long_ago() -> (
    None
):
    """Else who lacks it can judge no proposal any more, and everybody may lack it."""
    bench = Bench(FOLLOWER)
    notarized(bench, [SET_1])
    last = SET_1.view + 5 * VIEWS_BEHIND_MAX
    for _ in nullified(bench, range(SET_1.view + 1, last + 1)):
        pass
    known = bench.machine.known
    shown = [known.certificates(0, view, view) for view in range(SET_1.view, last + 1)]
    kinds = [[c.statement.kind for c in certificates] for certificates in shown]
    assert kinds == [[Kind.NOTARIZE], *[[Kind.NULLIFY]] * (last - SET_1.view)]


def test_what_leaders_proposed_and_nobody_notarized_is_let_go() -> None:
    bench = Bench(FOLLOWER)
    previous: Block = GENESIS
    for view in nullified(bench, range(1, 300)):
        if leader(view) != FOLLOWER:
            previous = child(previous, empty_set(1, weight=view), view=view, height=1)
            bench.step(proposal(previous))  # each names the one before as its parent
        assert bench.blocks_held <= VIEWS_BEHIND_MAX + VIEWS_AHEAD_MAX + 2


def test_what_is_said_of_views_long_over_is_not_remembered() -> None:
    bench = Bench(FOLLOWER)
    for _ in nullified(bench, range(1, 300)):
        pass
    known = bench.machine.known
    before = known.ballots.senders(1)
    for view in range(1, 300 - VIEWS_BEHIND_MAX):
        bench.votes(Kind.NULLIFY, [leader(view)], view)
        bench.votes(Kind.FINALIZE, [leader(view)], child(GENESIS, EmptyPayload(), view=view))
        if leader(view) != FOLLOWER:
            bench.step(proposal(child(GENESIS, empty_set(1), view=view, height=1)))
    assert bench.blocks_held == 1
    assert known.ballots.senders(1) == before


def test_who_lacks_one_nullification_of_many_asks_from_there_on() -> None:
    """The answer has few certificates, the oldest first: it must not be of those that are held."""
    bench = Bench(FOLLOWER)
    for view in nullified(bench, range(1, 60)):
        if view == 40:
            break  # this one is lacking
    for _ in nullified(bench, range(41, 60)):
        pass
    late = child(GENESIS, empty_set(1), view=60, height=1)
    effects = bench.step(proposal(late))
    assert do.FetchCertificates(leader(60), 0, 40, 59) in effects


def test_a_leader_that_lacks_one_nullification_of_many_asks_from_there_on() -> None:
    view = next(v for v in range(60, 70) if leader(v) == FOLLOWER)
    bench = Bench(FOLLOWER)
    for at in nullified(bench, range(1, 60)):
        if at == 40:
            break
    for _ in nullified(bench, range(41, view)):
        pass
    effects = bench.step(on.RoundReady(1))
    asked = [e for e in effects if isinstance(e, do.FetchCertificates)]
    assert [(e.first_view, e.last_view) for e in asked] == [(40, view - 1)]
