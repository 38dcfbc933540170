"""One validator's machine, hand-fed: each rule that scripts and bad worlds do not single out."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from daa_consensus.bft import effects as do
from daa_consensus.bft import events as on
from daa_consensus.bft.ballots import VIEWS_AHEAD_MAX, VIEWS_BEHIND_MAX
from daa_consensus.bft.messages import AbortPayload, Block, EmptyPayload, Payload
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.safety import Record
from daa_consensus.bft.state import Restored, Simplex
from daa_consensus.errors import BadMessage, NoQuorum
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import BlockId, ChainId, Digest, NodeId, ValidatorSetRoot
from tests.daa_consensus.bft.simulation import (
    CHAIN,
    DELTA_NS,
    GENESIS,
    committee_of,
    domain_of,
    empty_set,
    result_of,
    sign,
)

COMMITTEE = committee_of([1] * 4)
DOMAIN = domain_of(COMMITTEE)
EVERYBODY = [v.node_id for v in COMMITTEE.validators]


def leader(view: int) -> NodeId:
    return COMMITTEE.leader(DOMAIN, view)


def others(*besides: NodeId) -> list[NodeId]:
    return [name for name in EVERYBODY if name not in besides]


class Bench:
    """One machine of four, stepped at one moment; keeps what it wanted done."""

    def __init__(self, me: NodeId | None, restored: Restored | None = None) -> None:
        self.now_ns = 0
        self.machine = Simplex(
            CHAIN, COMMITTEE, me, Timing(DELTA_NS), 100, restored or Restored(GENESIS)
        )
        self.step(on.Tick())

    def step(self, event: on.Event, after_ns: int = 0) -> list[do.Effect]:
        self.now_ns += after_ns
        return self.machine.step(self.now_ns, event)

    def signs(self, event: on.Event, after_ns: int = 0) -> list[tuple[Kind, int]]:
        effects = self.step(event, after_ns)
        return [
            (effect.statement.kind, effect.statement.view)
            for effect in effects
            if isinstance(effect, do.SignAndSend)
        ]

    def votes(self, kind: Kind, who: Iterable[NodeId], block: Block | int) -> list[do.Effect]:
        found: list[do.Effect] = []
        for signer in who:
            found += self.step(on.VoteArrived(vote(kind, signer, block)))
        return found

    @property
    def blocks_held(self) -> int:
        return len(self.machine.known.chain._blocks)


def statement_of(kind: Kind, block: Block | int) -> Statement:
    if isinstance(block, int):
        return Statement(DOMAIN, kind, block, 0, None)
    return Statement(DOMAIN, kind, block.view, block.height, block.id)


def vote(kind: Kind, signer: NodeId, block: Block | int) -> Signed:
    return sign(statement_of(kind, block), signer)


def certificate(kind: Kind, block: Block | int, who: Iterable[NodeId] | None = None) -> Certificate:
    names = list(who) if who is not None else EVERYBODY[:3]
    return Certificate(statement_of(kind, block), tuple((name, b"s") for name in names))


def child(parent: Block, payload: Payload, view: int = 0, height: int | None = None) -> Block:
    above = parent.height if height is None else height
    return Block(CHAIN, 0, view or parent.view + 1, above, parent.id, parent.view, payload)


def proposal(block: Block, by: NodeId | None = None) -> on.ProposalArrived:
    signer = by or leader(block.view)
    return on.ProposalArrived(vote(Kind.PROPOSAL, signer, block), block)


SET_1 = child(GENESIS, empty_set(1), height=1)
RESULT_1 = child(SET_1, result_of(SET_1))
FOLLOWER = others(leader(1), leader(2), leader(3))[0]


def exec_certified(block: Block = SET_1) -> on.ExecCertified:
    result = result_of(block)
    return on.ExecCertified(block.height, result.vertex_id, result.result_root)


def open_round(me: NodeId | None = FOLLOWER) -> Bench:
    """A machine for which set 1 is final in view 1, and that stands in view 2."""
    bench = Bench(me)
    bench.step(on.CertificateArrived(certificate(Kind.FINALIZE, SET_1), SET_1))
    assert bench.machine.known.chain.tip == SET_1
    assert bench.machine.known.view == 2
    return bench


def test_a_judged_proposal_is_notarized_once() -> None:
    bench = Bench(FOLLOWER)
    assert bench.signs(proposal(SET_1)) == []
    assert bench.signs(on.Judged(SET_1.id, True)) == [(Kind.NOTARIZE, 1)]
    assert bench.signs(on.Judged(SET_1.id, True)) == []
    assert bench.signs(proposal(SET_1)) == []


def test_a_set_that_the_host_refuses_is_nullified_at_once_with_its_reason() -> None:
    bench = Bench(FOLLOWER)
    bench.step(proposal(SET_1))
    effects = bench.step(on.Judged(SET_1.id, False, "omits an acknowledged offer"))
    assert do.GaveUp(1, "omits an acknowledged offer") in effects
    assert [e.statement.kind for e in effects if isinstance(e, do.SignAndSend)] == [Kind.NULLIFY]


def test_only_the_leader_of_a_view_proposes_in_it() -> None:
    bench = Bench(FOLLOWER)
    with pytest.raises(BadMessage, match="does not lead"):
        bench.step(proposal(SET_1, by=others(leader(1))[0]))
    assert bench.blocks_held == 1


def test_of_two_proposals_the_first_counts_and_both_are_evidence() -> None:
    bench = Bench(FOLLOWER)
    rival = replace(SET_1, payload=empty_set(1, weight=1))
    bench.step(proposal(SET_1))
    effects = bench.step(proposal(rival))
    assert [e.evidence.offender for e in effects if isinstance(e, do.Accuse)] == [leader(1)]
    assert bench.signs(on.Judged(SET_1.id, True)) == [(Kind.NOTARIZE, 1)]
    assert bench.machine.known.chain.get(rival.id) is None


@pytest.mark.parametrize(
    "event",
    [
        on.ProposalArrived(vote(Kind.PROPOSAL, leader(1), RESULT_1), SET_1),
        on.ProposalArrived(vote(Kind.NOTARIZE, leader(1), SET_1), SET_1),
        proposal(replace(SET_1, chain_id=ChainId(b"x" * 32))),
        on.VoteArrived(vote(Kind.PROPOSAL, leader(1), SET_1)),
        on.VoteArrived(vote(Kind.NOTARIZE, NodeId(b"stranger" * 4), SET_1)),
        on.VoteArrived(
            sign(
                replace(
                    statement_of(Kind.NULLIFY, 1),
                    domain=replace(DOMAIN, validator_set_root=ValidatorSetRoot(b"r" * 32)),
                ),
                EVERYBODY[0],
            )
        ),
        on.CertificateArrived(certificate(Kind.NOTARIZE, SET_1), RESULT_1),
        on.CertificateArrived(certificate(Kind.PROPOSAL, SET_1), SET_1),
    ],
)
def test_what_no_honest_node_sends_is_refused_and_changes_nothing(event: on.Event) -> None:
    bench = Bench(FOLLOWER)
    with pytest.raises(BadMessage):
        bench.step(event)
    assert bench.blocks_held == 1
    assert bench.step(on.Tick()) == []
    assert bench.signs(proposal(SET_1)) == []
    assert bench.signs(on.Judged(SET_1.id, True)) == [(Kind.NOTARIZE, 1)]


def test_a_certificate_under_a_quorum_is_refused() -> None:
    bench = Bench(FOLLOWER)
    for who in (EVERYBODY[:2], [EVERYBODY[0]] * 3, [*EVERYBODY[:2], NodeId(b"stranger" * 4)]):
        with pytest.raises(NoQuorum):
            bench.step(on.CertificateArrived(certificate(Kind.NULLIFY, 1, who), None))
    assert bench.machine.known.view == 1


def test_every_notarization_enters_the_next_view_even_without_data() -> None:
    bench = Bench(FOLLOWER)
    bench.step(proposal(SET_1))
    effects = bench.votes(Kind.NOTARIZE, others(FOLLOWER), SET_1)
    assert bench.machine.known.view == 2
    assert not [e for e in effects if isinstance(e, do.SignAndSend)]


def test_finalize_waits_for_the_data_and_is_signed_while_no_later_vote_is() -> None:
    bench = Bench(FOLLOWER)
    bench.step(proposal(SET_1))
    bench.votes(Kind.NOTARIZE, others(FOLLOWER), SET_1)
    assert bench.signs(on.DataHeld(SET_1.id)) == [(Kind.FINALIZE, 1)]


def test_finalize_comes_too_late_once_a_later_view_has_a_vote() -> None:
    bench = Bench(FOLLOWER)
    bench.step(proposal(SET_1))
    bench.votes(Kind.NOTARIZE, others(FOLLOWER), SET_1)
    assert bench.signs(proposal(child(SET_1, EmptyPayload()))) == [(Kind.NOTARIZE, 2)]
    assert bench.signs(on.DataHeld(SET_1.id)) == []


def test_who_sent_nullify_sends_no_finalize() -> None:
    bench = Bench(FOLLOWER)
    bench.step(on.RoundReady(1))
    assert bench.signs(on.Tick(), after_ns=2 * DELTA_NS) == [(Kind.NULLIFY, 1)]
    bench.step(proposal(SET_1))
    bench.step(on.DataHeld(SET_1.id))
    effects = bench.votes(Kind.NOTARIZE, others(FOLLOWER), SET_1)
    assert bench.machine.known.view == 2
    assert not [e for e in effects if isinstance(e, do.SignAndSend)]


def test_a_parent_over_a_view_that_is_not_nullified_waits_for_certificates() -> None:
    bench = Bench(FOLLOWER)
    bench.step(on.CertificateArrived(certificate(Kind.NULLIFY, 2), None))
    assert bench.machine.known.view == 3
    late = child(GENESIS, empty_set(1), view=3, height=1)
    effects = bench.step(proposal(late))
    assert do.FetchCertificates(leader(3), 0, 1, 2) in effects
    bench.step(on.CertificateArrived(certificate(Kind.NULLIFY, 1), None))
    assert bench.signs(on.Judged(late.id, True)) == [(Kind.NOTARIZE, 3)]


def test_what_no_quorum_notarized_is_never_fetched() -> None:
    bench = Bench(FOLLOWER)
    bench.step(on.CertificateArrived(certificate(Kind.NULLIFY, 1), None))
    invented = replace(SET_1, payload=empty_set(1, weight=7))
    effects = bench.step(proposal(child(invented, EmptyPayload())))
    assert not [e for e in effects if isinstance(e, do.FetchBlock)]
    effects = bench.step(on.BlockArrived(invented))
    assert bench.machine.known.chain.get(invented.id) is None


def test_only_blocks_that_were_asked_for_are_taken() -> None:
    bench = Bench(FOLLOWER)
    bench.step(on.BlockArrived(SET_1))
    assert bench.blocks_held == 1
    effects = bench.votes(Kind.NOTARIZE, others(FOLLOWER), SET_1)
    asked = [e for e in effects if isinstance(e, do.FetchBlock)]
    assert {e.block_id for e in asked} == {SET_1.id}
    bench.step(on.BlockArrived(SET_1))
    assert bench.machine.known.chain.get(SET_1.id) == SET_1


def test_a_result_waits_for_its_execution_certificate() -> None:
    bench = open_round()
    assert bench.signs(proposal(RESULT_1)) == []
    assert bench.signs(exec_certified()) == [(Kind.NOTARIZE, 2)]


def test_a_result_against_the_execution_certificate_is_refused() -> None:
    bench = open_round()
    bench.step(exec_certified())
    wrong = replace(result_of(SET_1), result_root=Digest(b"r" * 32))
    assert bench.signs(proposal(child(SET_1, wrong))) == [(Kind.NULLIFY, 2)]


def test_an_abort_is_refused_by_who_holds_an_exec_quorum_even_past_the_deadline() -> None:
    abort = child(SET_1, AbortPayload(1))
    bench = open_round()
    bench.step(on.AbortDue(1))
    bench.step(exec_certified())
    assert bench.signs(proposal(abort)) == [(Kind.NULLIFY, 2)]
    patient = open_round()
    assert patient.signs(proposal(abort)) == []
    assert patient.signs(on.AbortDue(1)) == [(Kind.NOTARIZE, 2)]


def test_parked_machines_have_no_deadline_and_open_for_what_there_is_to_decide() -> None:
    cases: list[tuple[Bench, on.Event]] = [
        (Bench(FOLLOWER), on.RoundReady(1)),
        (open_round(), exec_certified()),
        (open_round(), on.AbortDue(1)),
    ]
    for bench, event in cases:
        assert bench.machine.deadline_ns is None
        bench.step(event)
        assert bench.machine.deadline_ns is not None


def test_old_news_opens_nothing() -> None:
    bench = open_round()
    old: list[on.Event] = [on.RoundReady(1), on.AbortDue(0), on.ExecSigned(1)]
    for event in old:
        bench.step(event)
        assert bench.machine.deadline_ns is None


def test_more_than_f_weight_speaking_of_a_view_opens_it_early() -> None:
    bench = Bench(FOLLOWER)
    one, another = others(FOLLOWER)[:2]
    bench.votes(Kind.NULLIFY, [one], 1)
    assert bench.machine.deadline_ns is None
    bench.votes(Kind.NULLIFY, [one], 2)
    assert bench.machine.deadline_ns is None
    bench.votes(Kind.NULLIFY, [another], 1)
    assert bench.machine.deadline_ns is not None


def test_positions_ahead_open_a_view_but_finalizations_and_strangers_do_not() -> None:
    bench = Bench(FOLLOWER)
    names = others(FOLLOWER)
    for name in (names[0], NodeId(b"stranger" * 4), NodeId(b"s" * 32)):
        bench.step(on.PeerPosition(name, 0, 9, 8))
    bench.votes(Kind.FINALIZE, [names[1]], SET_1)
    assert bench.machine.deadline_ns is None
    bench.step(on.PeerPosition(names[1], 0, 1, 0))  # no further than this node itself
    assert bench.machine.deadline_ns is None
    bench.step(on.PeerPosition(names[1], 0, 2, 0))
    assert bench.machine.deadline_ns is not None


def test_events_that_change_nothing_hide_no_timer_that_passed_meanwhile() -> None:
    bench = Bench(FOLLOWER)
    bench.step(on.RoundReady(1))
    again = on.VoteArrived(vote(Kind.NULLIFY, others(FOLLOWER)[0], 1))
    wrong = on.VoteArrived(vote(Kind.NULLIFY, NodeId(b"stranger" * 4), 1))
    bench.step(again)
    for _ in range(20):  # more often than a delta, and each a little late
        due_ns = bench.machine.deadline_ns
        assert due_ns is not None
        late_ns = due_ns - bench.now_ns + 1
        assert bench.step(again, late_ns) == []
        with pytest.raises(BadMessage):
            bench.step(wrong, 1)
        assert bench.machine.deadline_ns == due_ns
        bench.step(on.Tick())
    assert bench.machine.known.ballots.views() == [1]
    assert bench.machine._voter.record.nullified


def test_votes_far_ahead_are_not_remembered() -> None:
    bench = Bench(FOLLOWER)
    for view in range(1, 500):
        bench.votes(Kind.NULLIFY, others(FOLLOWER)[:1], view)
    assert max(bench.machine.known.ballots.views()) == 1 + VIEWS_AHEAD_MAX


def test_votes_of_views_long_over_are_forgotten_and_their_certificates_kept() -> None:
    bench = Bench(FOLLOWER)
    for view in range(1, 31):
        bench.votes(Kind.NULLIFY, others(FOLLOWER), view)
    known = bench.machine.known
    assert known.view == 31
    remembered = {v for v in known.ballots.views() if known.ballots.mine(others(FOLLOWER)[0], v)}
    assert remembered == set(range(31 - VIEWS_BEHIND_MAX, 31))
    assert len(known.ballots.certificates(1, 30)) == 30


def test_one_message_a_kind_sender_and_view_is_remembered() -> None:
    bench = Bench(FOLLOWER)
    signer = others(FOLLOWER)[0]
    for weight in range(50):
        bench.votes(Kind.NOTARIZE, [signer], replace(SET_1, payload=empty_set(1, weight)))
    assert len(bench.machine.known.ballots.mine(signer, 1)) == 1


def test_an_observer_follows_and_signs_nothing() -> None:
    bench = Bench(None)
    bench.step(on.RoundReady(1))
    assert bench.signs(proposal(SET_1)) == []
    assert bench.signs(on.Judged(SET_1.id, True)) == []
    bench.step(on.DataHeld(SET_1.id))
    bench.votes(Kind.NOTARIZE, EVERYBODY, SET_1)
    effects = bench.votes(Kind.FINALIZE, EVERYBODY, SET_1)
    assert any(isinstance(e, do.Finalized) and e.blocks == (SET_1,) for e in effects)
    assert bench.signs(on.Tick(), after_ns=10 * DELTA_NS) == []


def test_a_node_far_behind_catches_up_from_finalizations_in_order() -> None:
    bench = Bench(FOLLOWER)
    block, heights = GENESIS, []
    for round_ in range(1, 40):
        decided = child(block, empty_set(round_), height=round_)
        block = child(decided, result_of(decided))
        for final in (decided, block):
            event = on.CertificateArrived(certificate(Kind.FINALIZE, final), final)
            effects = bench.step(event)
            assert any(isinstance(e, do.Finalized) and e.blocks == (final,) for e in effects)
        heights.append(bench.machine.known.chain.tip.height)
    assert heights == list(range(1, 40))
    assert bench.blocks_held == 1


def test_a_node_behind_walks_back_from_one_finalization() -> None:
    bench = Bench(FOLLOWER)
    chain, block = [], GENESIS
    for round_ in range(1, 30):
        decided = child(block, empty_set(round_), height=round_)
        block = child(decided, result_of(decided))
        chain += [decided, block]
    effects = bench.step(on.CertificateArrived(certificate(Kind.FINALIZE, block), block))
    by_id = {b.id: b for b in chain}
    final: list[Block] = []
    while not final:
        wanted = [e.block_id for e in effects if isinstance(e, do.FetchBlock)]
        effects = bench.step(on.BlockArrived(by_id[wanted[-1]]))
        final = [b for e in effects if isinstance(e, do.Finalized) for b in e.blocks]
    assert final == chain


def test_a_page_of_checkpoints_is_final_at_once_though_a_walk_from_far_ahead_is_under_way() -> None:
    bench = Bench(FOLLOWER)
    chain, block = [], GENESIS
    for round_ in range(1, 10):
        decided = child(block, empty_set(round_), height=round_)
        block = child(decided, result_of(decided))
        chain += [decided, block]
    # A peer's finalization, too far ahead to be walked back from before the pages come.
    effects = bench.step(on.CertificateArrived(certificate(Kind.FINALIZE, block), block))
    assert not any(isinstance(e, do.Finalized) for e in effects)
    for page in (chain[:4], chain[4:8]):
        *below, newest = page
        event = on.CertificateArrived(certificate(Kind.FINALIZE, newest), newest, tuple(below))
        finals = [e for e in bench.step(event) if isinstance(e, do.Finalized)]
        assert [e.blocks for e in finals] == [tuple(page)]


def test_an_offer_goes_to_who_stays_behind_for_a_delta_and_once_a_delta() -> None:
    bench = open_round()
    behind = on.PeerPosition(others(FOLLOWER)[0], 0, 1, 0)

    def offers(after_ns: int) -> int:
        return sum(isinstance(e, do.Offer) for e in bench.step(behind, after_ns))

    given = [offers(after_ns) for after_ns in (0, DELTA_NS // 2, DELTA_NS // 2, 1, DELTA_NS)]
    assert given == [0, 0, 1, 0, 1]


def test_who_merely_lags_and_then_moves_is_offered_nothing() -> None:
    bench = open_round()
    peer = others(FOLLOWER)[0]
    for view in range(2, 40):
        bench.step(on.PeerPosition(peer, 0, view - 1, view - 2), DELTA_NS // 2)
        position = on.PeerPosition(peer, 0, view, view - 1)
        effects = bench.step(position, DELTA_NS)
        assert not [e for e in effects if isinstance(e, do.Offer)]
        block = child(bench.machine.known.chain.tip, EmptyPayload())
        bench.step(on.CertificateArrived(certificate(Kind.FINALIZE, block), block))


def test_a_restarted_node_contradicts_nothing_it_signed() -> None:
    rival = BlockId(b"r" * 32)
    for record in (Record(0, 1, notarized=rival), Record(0, 1, nullified=True), Record(0, 2)):
        bench = Bench(FOLLOWER, Restored(GENESIS, record=record))
        bench.step(proposal(SET_1))
        assert bench.signs(on.Judged(SET_1.id, True)) == []


def test_a_guard_ahead_of_the_chain_keeps_the_node_silent_until_it_has_caught_up() -> None:
    bench = Bench(FOLLOWER, Restored(GENESIS, record=Record(3, 50)))
    bench.step(on.RoundReady(1))
    bench.step(proposal(SET_1))
    assert bench.signs(on.Judged(SET_1.id, True)) == []
    assert bench.signs(on.Tick(), after_ns=9 * DELTA_NS) == []


def test_a_vote_from_a_later_view_on_is_said_by_an_empty_record() -> None:
    """What a rejoined node's host does: it may vote from a given view on."""
    bench = Bench(FOLLOWER, Restored(GENESIS, record=Record(0, 3)))
    assert bench.machine.known.view == 3
    bench.step(on.RoundReady(1))
    # two views are over above the newest final block: the leader timer has doubled twice
    assert bench.signs(on.Tick(), after_ns=8 * DELTA_NS) == [(Kind.NULLIFY, 3)]


def test_steps_never_go_back_in_time() -> None:
    bench = Bench(FOLLOWER)
    bench.machine.step(10 * DELTA_NS, on.RoundReady(1))
    bench.machine.step(0, on.Tick())
    assert bench.machine.deadline_ns is not None
    assert bench.machine.deadline_ns > 10 * DELTA_NS


@pytest.mark.parametrize(("executed", "aborts"), [(0, True), (1, False)])
def test_who_signed_an_exec_in_an_earlier_life_helps_no_abort_of_its_round(
    executed: int, aborts: bool
) -> None:
    decided = Block(CHAIN, 0, 1, 1, GENESIS.id, 0, empty_set(1))
    restored = Restored(decided, tip_open=True, executed=executed)
    proposer, voter = (Bench(name, restored) for name in (leader(2), others(leader(2))[0]))
    proposed = [kind for kind, _ in proposer.signs(on.AbortDue(1))]
    assert (Kind.PROPOSAL in proposed) == aborts
    abort = Block(CHAIN, 0, 2, 1, decided.id, 1, AbortPayload(1))
    voter.step(on.AbortDue(1))
    word = sign(Statement(DOMAIN, Kind.PROPOSAL, 2, 1, abort.id), leader(2))
    assert ((Kind.NOTARIZE, 2) in voter.signs(on.ProposalArrived(word, abort))) == aborts
