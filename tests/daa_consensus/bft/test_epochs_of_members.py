"""One machine, and chosen worlds, at the boundary where the committee changes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from daa_consensus.bft import effects as do
from daa_consensus.bft import events as on
from daa_consensus.bft.messages import Block
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.safety import Record
from daa_consensus.bft.state import Restored, Simplex
from daa_consensus.committee import Committee
from daa_consensus.errors import BadMessage, NoQuorum
from daa_consensus.membership import Membership
from daa_consensus.operations import Action, Approve, Join, Leave, Rotate, encode_operation
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag.ids import NodeId
from tests.daa_consensus.bft.members import Churn, operation_of
from tests.daa_consensus.bft.simulation import (
    CHAIN,
    DELTA_NS,
    GENESIS,
    Faults,
    Node,
    World,
    committee_of,
    domain_of,
    empty_set,
    node_id,
    result_of,
    sign,
)

FOUR = committee_of([1] * 4)
FIVE = committee_of([1] * 5)
NEWCOMER = node_id(4)


def join_words() -> tuple[bytes, ...]:
    join = operation_of(Join(NEWCOMER, 1, b"keys"), 4)
    words = [operation_of(Approve(v.node_id, join.request.id), 4) for v in FOUR.validators]
    return tuple(encode_operation(operation) for operation in (join, *words))


JOINING = replace(empty_set(1), operations=join_words())
SET_1 = Block(CHAIN, 0, 1, 1, GENESIS.id, 0, JOINING)
RESULT_1 = Block(CHAIN, 0, 2, 1, SET_1.id, 1, result_of(SET_1))
SET_2 = Block(CHAIN, 1, 3, 2, RESULT_1.id, 2, empty_set(2))


def certificate(kind: Kind, block: Block, committee: Committee, count: int) -> Certificate:
    domain = domain_of(committee, block.epoch)
    statement = Statement(domain, kind, block.view, block.height, block.id)
    return Certificate(statement, tuple((v.node_id, b"s") for v in committee.validators[:count]))


def machine(me: NodeId | None, restored: Restored | None = None) -> Simplex:
    made = Simplex(CHAIN, FOUR, me, Timing(DELTA_NS), 1, restored or Restored(GENESIS))
    made.step(0, on.Tick())
    return made


def closing(below: Sequence[Block] = (SET_1,)) -> on.CertificateArrived:
    return on.CertificateArrived(certificate(Kind.FINALIZE, RESULT_1, FOUR, 3), RESULT_1, (*below,))


def test_the_next_epoch_counts_by_its_own_committee_from_its_first_view() -> None:
    here = machine(node_id(0))
    here.step(0, closing())
    assert here.known.committee == FIVE
    assert here.known.slot == (1, 3)
    with pytest.raises(NoQuorum):
        here.step(0, on.CertificateArrived(certificate(Kind.NOTARIZE, SET_2, FIVE, 3), SET_2))
    with pytest.raises(BadMessage):
        here.step(0, on.CertificateArrived(certificate(Kind.NOTARIZE, SET_2, FOUR, 4), SET_2))
    here.step(0, on.CertificateArrived(certificate(Kind.NOTARIZE, SET_2, FIVE, 4), SET_2))
    assert here.known.slot == (1, 4)


def test_nothing_changes_before_the_closing_is_final() -> None:
    here = machine(node_id(0))
    here.step(0, on.CertificateArrived(certificate(Kind.FINALIZE, SET_1, FOUR, 3), SET_1))
    here.step(0, on.CertificateArrived(certificate(Kind.NOTARIZE, RESULT_1, FOUR, 3), RESULT_1))
    assert here.known.committee == FOUR
    assert len(here.known.membership.waiting) == 1


def test_blocks_that_no_quorum_of_ours_made_final_lead_us_into_no_committee() -> None:
    """The blocks would make a committee whose certificate they come with; that proves nothing."""
    here = machine(node_id(0))
    forged = on.CertificateArrived(
        certificate(Kind.FINALIZE, SET_2, FIVE, 5), SET_2, (SET_1, RESULT_1)
    )
    assert not [e for e in here.step(0, forged) if isinstance(e, do.Finalized | do.FetchBlock)]
    assert here.known.chain.tip == GENESIS
    here.step(0, closing())
    here.step(0, forged)
    assert here.known.chain.tip == SET_2


def test_a_later_certificate_of_the_same_committee_vouches_for_all_below_it() -> None:
    quiet = replace(JOINING, operations=())
    first = Block(CHAIN, 0, 1, 1, GENESIS.id, 0, quiet)
    closed = Block(CHAIN, 0, 2, 1, first.id, 1, result_of(first))
    second = Block(CHAIN, 1, 3, 2, closed.id, 2, empty_set(2))
    here = machine(node_id(0))
    later = certificate(Kind.FINALIZE, second, FOUR, 3)
    here.step(0, on.CertificateArrived(later, second, (first, closed)))
    assert here.known.chain.tip == second
    assert here.known.slot[0] == 1


def test_who_missed_the_end_of_an_epoch_is_offered_what_closed_it_before_anything_newer() -> None:
    here = machine(node_id(0))
    here.step(0, closing())
    here.step(0, on.CertificateArrived(certificate(Kind.FINALIZE, SET_2, FIVE, 4), SET_2))
    behind = on.PeerPosition(node_id(3), 0, 2, 1)
    here.step(0, behind)
    offers = [e for e in here.step(2 * DELTA_NS, behind) if isinstance(e, do.Offer)]
    offered = [(c.statement.domain.epoch, block) for c, block in offers[0].certificates]
    assert offered == [(0, RESULT_1), (1, SET_2)]


def test_a_joiner_watches_until_its_first_epoch_and_votes_from_its_first_view() -> None:
    here = machine(NEWCOMER)
    early = Statement(domain_of(FOUR), Kind.PROPOSAL, 1, 1, SET_1.id)
    leader = FOUR.leader(domain_of(FOUR), 1)
    effects = here.step(0, on.ProposalArrived(sign(early, leader), SET_1))
    assert not [e for e in effects if isinstance(e, do.SignAndSend)]
    here.step(0, closing())
    here.step(0, on.RoundReady(2))
    effects = here.step(2 * DELTA_NS, on.Tick())
    said = [e.statement for e in effects if isinstance(e, do.SignAndSend)]
    assert [(s.domain.epoch, s.view) for s in said] == [(1, 3)]


def test_a_vote_of_who_has_left_and_a_word_of_another_set_are_refused() -> None:
    here = machine(node_id(0))
    here.step(0, closing())
    other_set = Statement(domain_of(FOUR, 1), Kind.NULLIFY, 3, 0, None)
    stranger = Statement(domain_of(FIVE, 1), Kind.NULLIFY, 3, 0, None)
    for statement, signer in ((other_set, node_id(1)), (stranger, node_id(9))):
        with pytest.raises(BadMessage):
            here.step(0, on.VoteArrived(sign(statement, signer)))
    old = Statement(domain_of(FOUR, 0), Kind.NULLIFY, 2, 0, None)
    assert not here.step(0, on.VoteArrived(sign(old, node_id(1))))


def test_a_restart_between_the_asking_and_the_boundary_forgets_nothing() -> None:
    waiting = Membership(FOUR).decided([operation_of(Leave(node_id(3)), 4)])
    here = machine(node_id(0), Restored(SET_1, tip_open=True, membership=waiting))
    here.step(0, on.CertificateArrived(certificate(Kind.FINALIZE, RESULT_1, FOUR, 3), RESULT_1))
    assert node_id(3) not in here.known.committee.stake_of


def test_votes_in_an_epoch_above_the_chain_on_disk_count_again_once_it_is_reached() -> None:
    """Others' certificates led it there, and the crash came before it had published a round.

    Nobody else has a vote that was durable and not sent yet, nor may it be given again.
    """
    nothing = Statement(domain_of(FIVE, 1), Kind.NULLIFY, 3, 0, None)
    below = Certificate(nothing, tuple((v.node_id, b"s") for v in FIVE.validators[:4]))
    own = sign(replace(nothing, view=4), node_id(0))
    record = Record(1, 4, nullified=True)
    here = machine(
        node_id(0), Restored(GENESIS, kept=((below, None),), record=record, own_messages=(own,))
    )
    here.step(0, closing())
    assert here.known.slot == (1, 4)
    assert here.known.certificates(1, 3, 3) == [below]
    effects = here.step(9 * DELTA_NS, on.Tick())
    assert [e.messages for e in effects if isinstance(e, do.Resend)] == [(own,)]


def ask(world: World, action: Action) -> None:
    """Everybody hears of it and agrees."""
    made = operation_of(action, world.members.now.epoch + 8)
    approvals = [Approve(name, made.request.id) for name in world.members.now.committee.stake_of]
    words = [operation_of(approve, made.request.expires_epoch) for approve in approvals]
    world.members.pool += [made, *words]


def run_until_member(world: World, name: NodeId, is_member: bool) -> None:
    def done() -> bool:
        return (name in world.members.now.committee.stake_of) is is_member

    world.run(world.now_ns + 400 * DELTA_NS, done)
    assert done()


def host_of(world: World, name: NodeId) -> Node:
    return next(host for host in world.hosts if host.me == name)


def test_join_leave_and_rotation_in_a_running_network() -> None:
    world = World(1, [1] * 4, Faults(), epoch_rounds=2, churn=Churn(2, 1))
    world.run(10 * DELTA_NS)
    ask(world, Join(NEWCOMER, 1, b"keys"))
    run_until_member(world, NEWCOMER, True)
    ask(world, Leave(node_id(0)))
    run_until_member(world, node_id(0), False)
    ask(world, Rotate(node_id(1), node_id(5), b"keys"))
    run_until_member(world, node_id(5), True)
    before = world.final[-1].height
    world.run(world.now_ns + 100 * DELTA_NS)
    assert world.final[-1].height >= before + 6
    for name, votes in ((NEWCOMER, True), (node_id(5), True), (node_id(0), False)):
        last_epoch = max(host_of(world, name).disk.record.epoch, 0)
        assert (last_epoch >= world.members.now.epoch - 1) is votes


def test_who_slept_over_many_boundaries_follows_them_one_by_one() -> None:
    world = World(2, [1] * 5, Faults(), epoch_rounds=1, churn=Churn(5, 80))
    world.run(10 * DELTA_NS)
    sleeper = host_of(world, node_id(9))
    sleeper.crash()
    world.run(400 * DELTA_NS, lambda: len(world.members.applied) >= 8)
    asleep = {v.node_id for v in committee_of([1] * 5).validators}
    assert asleep != set(world.members.now.committee.stake_of)
    sleeper.start()
    goal = world.final[-1].height
    world.run(world.now_ns + 400 * DELTA_NS, lambda: sleeper.disk.chain[-1].height >= goal)
    assert sleeper.disk.chain[-1].height >= goal
    assert len(sleeper.disk.closings) >= 8


@pytest.mark.parametrize("seed", range(8))
def test_everybody_may_be_killed_at_once_around_a_boundary(seed: int) -> None:
    faults = Faults(data_max_ns=2 * DELTA_NS)
    world = World(seed, [1] * 4, faults, epoch_rounds=1, churn=Churn(2, 80))
    for stop in range(1, 12):
        world.run((stop * 13 + seed) * DELTA_NS + seed * 77)
        for host in world.hosts:
            host.crash()
        for host in world.hosts:
            host.start()
    before = world.final[-1].height
    world.run(world.now_ns + 300 * DELTA_NS)
    assert all(host.disk.chain[-1].height >= before + 3 for host in world.hosts)
    assert world.members.applied
