"""Disputes from the doubt to the evidence: who lies is convicted, by a quorum, and nobody else."""

from dataclasses import replace

import pytest
import trio

from daa_consensus.bft.evidence import decode_evidence, encode_evidence
from daa_consensus.bft.limits import Limits
from daa_consensus.votes import Signed, Statement
from daa_dag.ids import Digest, NodeId
from daa_node.disputes import court, openings
from daa_node.disputes.charge import (
    Charge,
    Part,
    accusation_statement,
    encode_said,
    opened_states,
    opening_statement,
    verdict_statement,
)
from daa_node.disputes.court import CASES_EACH_MAX
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS, DecidedSets, Drawn
from daa_node.disputes.openings import OPENED_KEPT_MAX, encode_question
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import PeerId
from daa_node.spot_checks.findings import Part as Differing
from tests.daa_node.disputes.little_court import (
    NAMES,
    STEPS,
    World,
    offer_of,
    state_root,
)

LIAR, CHECKER, THIRD, FOURTH = NAMES
LONG_S = 300


def drawn_of(world: World, author: NodeId, round_: int = 1) -> Drawn:
    found = sets_of(world, CHECKER).find(round_, offer_of(author, round_).root)
    assert found is not None
    return found


def sets_of(world: World, name: NodeId) -> DecidedSets:
    return world.members[name].disputes._sets


def signed(statement: Statement, signer: NodeId) -> Signed:
    return Signed(statement, signer, b"signature")


def charge_in(
    world: World, accuser: NodeId, author: NodeId, step: int = 3, round_: int = 1
) -> Charge:
    """As the accuser may bring it, whether it is true or not."""
    drawn, domain = drawn_of(world, author, round_), world.members[author].validators.domain(0)
    between = tuple(state_root(author, number) for number in range(1, STEPS))
    opening = signed(opening_statement(domain, drawn, between), author)
    accusation = signed(accusation_statement(domain, drawn, Part.STEP, opening, step), accuser)
    return Charge(accusation, Part.STEP, opening, drawn, step)


def verdict_on(charge: Charge, signer: NodeId, convicted: NodeId) -> Signed:
    domain = charge.accusation.statement.domain
    return signed(verdict_statement(domain, charge, convicted), signer)


def checkers_of(world: World, author: NodeId) -> tuple[NodeId, ...]:
    return drawn_of(world, author).draw.checkers


@pytest.mark.parametrize("step", [1, 4, STEPS])
async def test_who_has_lied_of_one_step_is_convicted_by_all_the_others(
    step: int, autojump_clock: object
) -> None:
    world = World(wrong_steps={LIAR: {step}}, lies={LIAR: False})
    world.decide(*NAMES)
    accuser = checkers_of(world, LIAR)[0]
    async with world.at_work():
        world.doubt(accuser, LIAR)
        await trio.sleep(LONG_S)
    honest = {NAMES[1], NAMES[2], NAMES[3]}
    assert {name for name, by in world.convicted().items() if by == {LIAR}} >= honest
    assert all(by <= {LIAR} for by in world.convicted().values())
    (accused,) = world.members[accuser].told("doubt_ended")
    assert (accused["outcome"], accused["why"]) == ("accused", f"step {step - 1}")
    replayed = [o for name in honest for o in world.members[name].orders if o.exact]
    assert {(order.step, order.steps) for order in replayed} == {(step - 1, 1)}
    evidence = world.members[accuser].evidence[0]
    assert decode_evidence(encode_evidence(evidence), Limits(4, 4)) == evidence
    assert len(evidence.parts[0].signatures) >= 3  # type: ignore[union-attr]
    assert all(member.shelf == set() for member in world.members.values())


async def test_a_segment_is_halved_and_not_walked(autojump_clock: object) -> None:
    world = World(wrong_steps={LIAR: {6}}, lies={LIAR: False})
    world.decide(*NAMES)
    accuser = checkers_of(world, LIAR)[0]
    async with world.at_work():
        world.doubt(accuser, LIAR)
        await trio.sleep(LONG_S)
    halves = [(o.step, o.steps) for o in world.members[accuser].orders if not o.exact]
    assert halves == [(0, 4), (4, 2), (4, 1)]


@pytest.mark.parametrize(
    ("off", "tolerance", "outcome"),
    [
        (4e-3, 1e-4, "accused"),  # in eight steps less than a judge tolerates, in one more
        (4e-3, 1e-3, "cleared"),  # nobody calibrated: the halves show nothing
        (9e-4, 1e-4, "cleared"),  # too little for a judge, and so for an accusation
    ],
)
async def test_a_calibrated_checker_finds_the_step_and_accuses_of_what_judges_convict(
    off: float, tolerance: float, outcome: str, autojump_clock: object
) -> None:
    world = World(wrong_steps={LIAR: {3}}, lies={LIAR: False}, off=off, tolerance=tolerance)
    world.decide(*NAMES)
    accuser = checkers_of(world, LIAR)[0]
    async with world.at_work():
        world.doubt(accuser, LIAR)
        await trio.sleep(LONG_S)
    assert [each["outcome"] for each in world.members[accuser].told("doubt_ended")] == [outcome]
    convicted = {LIAR} if outcome == "accused" else set()
    assert all(by == convicted for name, by in world.convicted().items() if name != LIAR)


async def test_who_opens_what_is_no_state_is_convicted_of_the_step_before(
    autojump_clock: object,
) -> None:
    world = World(wrong_steps={LIAR: {7}}, shapeless={3, 4, 5})
    world.decide(*NAMES)
    accuser = checkers_of(world, LIAR)[0]
    async with world.at_work():
        world.doubt(accuser, LIAR)
        await trio.sleep(LONG_S)
    (accused,) = world.members[accuser].told("doubt_ended")
    assert (accused["outcome"], accused["why"]) == ("accused", "step 2")
    assert all(by == {LIAR} for name, by in world.convicted().items() if name != LIAR)


async def test_who_cannot_repeat_its_own_training_signs_no_opening(autojump_clock: object) -> None:
    """Its last step would not follow from where it has come to now, and a liar could ask for it."""
    world = World(repeats_itself=False)
    world.decide(*NAMES)
    asked_by = checkers_of(world, THIRD)[0]
    handler, question = (
        world.members[THIRD].handlers[openings.REQUEST],
        encode_question(drawn_of(world, THIRD)),
    )
    async with world.at_work():
        for _ in range(5):
            assert await handler(PeerId(asked_by.hex()), question) == b""
            await trio.sleep(10)
    assert world.members[THIRD].told("segment_opened") == []


async def test_who_cannot_repeat_its_own_training_tries_it_a_few_times_only(
    autojump_clock: object,
) -> None:
    world = World(repeats_itself=False)
    world.decide(*NAMES)
    handler = world.members[THIRD].handlers[openings.REQUEST]
    drawn = drawn_of(world, THIRD)
    async with world.at_work():
        for _ in range(10):
            asker = PeerId(drawn.draw.checkers[0].hex())
            assert await handler(asker, encode_question(drawn)) == b""
            await trio.sleep(60)
    assert len(world.members[THIRD].told("trainer_refused")) == openings.TRIES_MAX


async def test_one_accusers_cases_hold_up_nobody_elses(autojump_clock: object) -> None:
    """Nothing of what it accuses others of can be had, and each try takes a while."""
    world = World(wrong_steps={LIAR: {3}}, lies={LIAR: False}, hides={FOURTH})
    for round_ in range(1, 9):
        world.decide(*NAMES, round_=round_)
    accuser = next(n for n in checkers_of(world, LIAR) if n != FOURTH)
    judge = next(n for n in (CHECKER, THIRD) if n != accuser)
    brought = 0
    for round_ in range(1, 9):
        if LIAR in drawn_of(world, FOURTH, round_).draw.checkers and brought < CASES_EACH_MAX:
            charge = charge_in(world, LIAR, FOURTH, round_=round_)
            await told(world, judge, charge, verdict_on(charge, LIAR, FOURTH))
            brought += 1
    assert brought == CASES_EACH_MAX
    async with world.at_work():
        world.doubt(accuser, LIAR)
        await trio.sleep(60)
    assert [each["author"] for each in world.members[judge].told("verdict_given")] == [LIAR.hex()]


async def test_so_many_segments_are_open_at_a_time_and_no_more(autojump_clock: object) -> None:
    world = World()
    for round_ in range(1, OPENED_KEPT_MAX + 2):
        world.decide(*NAMES, round_=round_)
    handler = world.members[THIRD].handlers[openings.REQUEST]

    async def ask(round_: int) -> None:
        drawn = drawn_of(world, THIRD, round_)
        await handler(PeerId(drawn.draw.checkers[0].hex()), encode_question(drawn))

    async with world.at_work():
        for round_ in range(1, OPENED_KEPT_MAX + 1):
            await ask(round_)
        with pytest.raises(Unavailable, match="others are open"):
            await ask(OPENED_KEPT_MAX + 1)
        for round_ in range(2 + OPENED_KEPT_MAX, DISPUTE_ROUNDS + 2):
            world.decide(*NAMES, round_=round_)
        await trio.sleep(60)  # the first one's round is over
        await ask(OPENED_KEPT_MAX + 1)


async def test_a_doubt_that_the_exact_replay_does_not_share_ends(autojump_clock: object) -> None:
    world = World()
    world.decide(*NAMES)
    accuser = checkers_of(world, LIAR)[0]
    async with world.at_work():
        world.doubt(accuser, LIAR)
        await trio.sleep(LONG_S)
    assert [each["outcome"] for each in world.members[accuser].told("doubt_ended")] == ["cleared"]
    assert all(by == set() for by in world.convicted().values())


async def test_who_accuses_falsely_is_convicted_instead(autojump_clock: object) -> None:
    world = World()
    world.decide(*NAMES)
    framed = next(name for name in NAMES if LIAR in checkers_of(world, name))
    world.lies[LIAR] = True  # says that nothing follows
    async with world.at_work():
        world.doubt(LIAR, framed)
        await trio.sleep(LONG_S)
    assert all(by == {LIAR} for name, by in world.convicted().items() if name != LIAR)


async def test_a_seal_is_replayed_without_opening_anything(autojump_clock: object) -> None:
    world = World(seals_wrongly={LIAR}, lies={LIAR: False}, hides=set())
    world.decide(*NAMES)
    async with world.at_work():
        world.doubt(checkers_of(world, LIAR)[0], LIAR, part=Differing.UPDATE)
        await trio.sleep(LONG_S)
    assert all(by == {LIAR} for name, by in world.convicted().items() if name != LIAR)
    assert all(member.told("segment_opened") == [] for member in world.members.values())
    assert all(member.shelf == set() for member in world.members.values())


async def test_who_seals_as_it_says_is_looked_at_no_further(autojump_clock: object) -> None:
    world = World()
    world.decide(*NAMES)
    accuser = checkers_of(world, LIAR)[0]
    async with world.at_work():
        world.doubt(accuser, LIAR, part=Differing.RESIDUAL)
        await trio.sleep(LONG_S)
    assert [each["outcome"] for each in world.members[accuser].told("doubt_ended")] == ["cleared"]
    assert all(by == set() for by in world.convicted().values())


async def test_a_start_is_judged_by_names_alone(autojump_clock: object) -> None:
    world = World(starts_wrongly={LIAR}, lies={LIAR: False})
    world.decide(*NAMES)
    async with world.at_work():
        world.doubt(checkers_of(world, LIAR)[0], LIAR, part=Differing.OWED)
        await trio.sleep(LONG_S)
    assert all(by == {LIAR} for name, by in world.convicted().items() if name != LIAR)
    assert all(member.orders == [] for member in world.members.values())


async def test_a_start_is_judged_when_the_base_is_gone_as_well(autojump_clock: object) -> None:
    """An author may take rounds to show where it began: members keep two states, and no more."""
    world = World(starts_wrongly={LIAR}, lies={LIAR: False})
    world.decide(*NAMES)
    async with world.at_work():
        await trio.sleep(5)
        assert world.members[THIRD].disputes.states() == set()
        world.bases_are_gone = True
        world.doubt(checkers_of(world, LIAR)[0], LIAR, part=Differing.START)
        await trio.sleep(LONG_S)
    assert all(by == {LIAR} for name, by in world.convicted().items() if name != LIAR)


async def test_less_than_a_quorum_convicts_nobody(autojump_clock: object) -> None:
    """Two of four say so; and they say it on, until a third hears it."""
    world = World(wrong_steps={LIAR: {3}}, lies={LIAR: False})
    world.decide(*NAMES)
    accuser, other = (*checkers_of(world, LIAR), *(set(NAMES) - {LIAR}))[:2]
    (away,) = set(NAMES) - {LIAR, accuser, other}
    world.silent.add(away)
    async with world.at_work():
        world.doubt(accuser, LIAR)
        await trio.sleep(LONG_S)
        assert all(by == set() for by in world.convicted().values())
        world.silent.clear()
        await trio.sleep(LONG_S)
    assert world.convicted()[accuser] == world.convicted()[away] == {LIAR}


async def test_nobody_is_convicted_of_what_nobody_shows(autojump_clock: object) -> None:
    world = World(wrong_steps={LIAR: {3}}, hides={LIAR})
    world.decide(*NAMES)
    accuser = checkers_of(world, LIAR)[0]
    async with world.at_work():
        world.doubt(accuser, LIAR)
        await trio.sleep(LONG_S)
        assert world.members[accuser].told("doubt_ended") == []  # it asks on
        world.decide(*NAMES, round_=1 + DISPUTE_ROUNDS)
        await trio.sleep(LONG_S)
    (ended,) = world.members[accuser].told("doubt_ended")
    assert ended["outcome"] == "ended"
    assert all(by == set() for by in world.convicted().values())


async def told(world: World, to: NodeId, charge: Charge, verdict: Signed) -> bytes:
    body = encode_said(charge, verdict)
    handler = world.members[to].handlers[court.REQUEST]
    answer = await handler(PeerId(verdict.signer.hex()), body)
    assert isinstance(answer, bytes)
    return answer


def not_drawn(world: World, author: NodeId) -> NodeId:
    return next(name for name in NAMES if name not in {author, *checkers_of(world, author)})


async def test_only_who_was_drawn_may_accuse() -> None:
    world = World()
    world.decide(*NAMES)
    stranger = not_drawn(world, THIRD)
    charge = charge_in(world, stranger, THIRD)
    with pytest.raises(PeerFault, match="has drawn no such check"):
        await told(world, FOURTH, charge, verdict_on(charge, stranger, THIRD))


async def test_a_verdict_is_told_by_who_has_come_to_it_and_on_one_of_the_two() -> None:
    world = World()
    world.decide(*NAMES)
    accuser = checkers_of(world, THIRD)[0]
    charge = charge_in(world, accuser, THIRD)
    good = verdict_on(charge, accuser, THIRD)
    handler = world.members[THIRD].handlers[court.REQUEST]
    body = encode_said(charge, good)
    for sender in (name for name in NAMES if name != accuser):
        with pytest.raises(PeerFault, match="by who has come to it"):
            await handler(PeerId(sender.hex()), body)
    with pytest.raises(Unavailable, match="by members"):
        await handler(PeerId(b"s".hex() * 32), body)
    outsider = next(name for name in NAMES if name not in (accuser, THIRD))
    for wrong in (
        verdict_on(charge, accuser, outsider),
        verdict_on(charge_in(world, accuser, THIRD, step=4), accuser, THIRD),
    ):
        with pytest.raises(PeerFault, match="convicts the author, or the accuser"):
            await told(world, THIRD, charge, wrong)
    bad = replace(good, signature=b"nobody's")
    with pytest.raises(PeerFault, match="bad-signature"):
        await told(world, THIRD, charge, bad)
    assert await told(world, THIRD, charge, good) == b""


async def test_one_says_it_once_however_often(autojump_clock: object) -> None:
    """Nor does who says both things count twice."""
    world = World()
    world.decide(*NAMES)
    accuser = checkers_of(world, THIRD)[0]
    charge = charge_in(world, accuser, THIRD)
    for _ in range(5):
        await told(world, FOURTH, charge, verdict_on(charge, accuser, THIRD))
    for name in NAMES:
        if name not in (accuser, FOURTH):
            await told(world, FOURTH, charge, verdict_on(charge, name, accuser))
            await told(world, FOURTH, charge, verdict_on(charge, name, THIRD))
    assert world.members[FOURTH].evidence == []


async def test_a_charge_shows_what_its_author_signed_of_that_very_segment() -> None:
    world = World()
    world.decide(*NAMES)
    accuser = checkers_of(world, THIRD)[0]
    charge = charge_in(world, accuser, THIRD)
    assert charge.opening is not None
    said = charge.opening.statement
    value = said.value
    assert isinstance(value, list)
    first, *between, last = opened_states(charge.opening)
    others = [
        replace(charge.opening, signer=accuser),
        *(
            replace(charge.opening, statement=replace(said, value=[*changed]))
            for changed in (
                (value[0], value[1], [first, *between, state_root(FOURTH, 9)]),
                (value[0], value[1], [first, *between[1:], last]),
                (value[0], 1, value[2]),
            )
        ),
    ]
    for other in others:
        accusation = accusation_statement(said.domain, charge.drawn, Part.STEP, other, 3)
        wrong = replace(charge, accusation=signed(accusation, accuser), opening=other)
        with pytest.raises(PeerFault, match="bad_opening"):
            await told(world, FOURTH, wrong, verdict_on(wrong, accuser, THIRD))
    for step, opening in ((STEPS, charge.opening), (3, None)):
        accusation = accusation_statement(
            said.domain, charge.drawn, Part.STEP, charge.opening, step
        )
        wrong = replace(charge, accusation=signed(accusation, accuser), opening=opening)
        with pytest.raises(PeerFault, match="bad_accusation"):
            await told(world, FOURTH, wrong, verdict_on(wrong, accuser, THIRD))


async def test_there_are_no_disputes_over_what_is_long_past(autojump_clock: object) -> None:
    world = World()
    world.decide(*NAMES)
    accuser = checkers_of(world, THIRD)[0]
    charge = charge_in(world, accuser, THIRD)
    good = verdict_on(charge, accuser, THIRD)
    async with world.at_work():
        await told(world, FOURTH, charge, good)
        for round_ in range(2, DISPUTE_ROUNDS + 1):
            world.decide(*NAMES, round_=round_)
        await told(world, FOURTH, charge, good)
        world.decide(*NAMES, round_=DISPUTE_ROUNDS + 1)
        await trio.sleep(10)
        with pytest.raises(Unavailable, match="no dispute over round 1 can be decided here"):
            await told(world, FOURTH, charge, good)
        await trio.sleep(LONG_S)
    unseen = World()
    with pytest.raises(Unavailable, match="no dispute over round 1 can be decided here"):
        await told(unseen, FOURTH, charge, good)


async def test_an_accuser_has_its_share_of_places_and_no_more() -> None:
    world = World()
    rounds = range(1, CASES_EACH_MAX + 2)
    for round_ in rounds:
        world.decide(*NAMES, round_=round_)
    accuser = checkers_of(world, THIRD)[0]
    charges = []
    for round_ in rounds:
        for author in (name for name in NAMES if name != accuser):
            if accuser in drawn_of(world, author, round_).draw.checkers:
                charges.append(charge_in(world, accuser, author, round_=round_))
    assert len(charges) > CASES_EACH_MAX
    judge = next(name for name in NAMES if name != accuser)
    for charge in charges[:CASES_EACH_MAX]:
        await told(world, judge, charge, verdict_on(charge, accuser, charge.drawn.author))
    extra = charges[CASES_EACH_MAX]
    with pytest.raises(Unavailable, match="undecided"):
        await told(world, judge, extra, verdict_on(extra, accuser, extra.drawn.author))


async def test_all_is_said_in_the_epoch_of_its_round() -> None:
    world = World(epoch_rounds=1)
    world.decide(*NAMES)
    accuser = checkers_of(world, THIRD)[0]
    charge = charge_in(world, accuser, THIRD)
    other = world.members[THIRD].validators.domain(0)
    said = charge.accusation.statement
    moved = replace(said, domain=replace(other, epoch=1))
    wrong = replace(charge, accusation=signed(moved, accuser))
    with pytest.raises(PeerFault, match="accusation in epoch 1"):
        await told(world, FOURTH, wrong, verdict_on(charge, accuser, THIRD))


async def test_only_a_drawn_checker_has_a_segment_opened(autojump_clock: object) -> None:
    world = World()
    world.decide(*NAMES)
    member = world.members[THIRD]
    handler, question = member.handlers[openings.REQUEST], encode_question(drawn_of(world, THIRD))
    with pytest.raises(PeerFault, match="has drawn no such check"):
        await handler(PeerId(not_drawn(world, THIRD).hex()), question)
    checker = PeerId(checkers_of(world, THIRD)[0].hex())
    with pytest.raises(Unavailable, match="not ours"):
        await handler(checker, encode_question(drawn_of(world, FOURTH)))
    with pytest.raises(PeerFault, match="malformed"):
        await handler(checker, b"\xff")
    async with world.at_work():
        assert await handler(checker, question) == b""
        await trio.sleep(10)
        assert len(await handler(checker, question)) > 0  # type: ignore[arg-type]
        assert len(member.told("segment_opened")) == 1
    kept = await member.disputes.kept()
    assert {state_root(THIRD, step) for step in range(STEPS + 1)} <= {Digest(r) for r in kept}
