"""The puppet: what it says it may say, every one is another, and honest nodes survive it."""

from collections import Counter, defaultdict
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from daa_consensus.bft.evidence import conflict
from daa_consensus.operations import Join, Operation, Rotate
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import NodeId
from daa_node.agreement.inbound import OPERATIONS_KEPT
from daa_node.agreement.messages import Asked, Message, Stated, decode_message
from daa_node.errors import PeerFault
from daa_node.identity.validators import newcomer_of
from simnet.nodes.virtual.world import run_virtual
from simnet.world.adversaries.acts import REQUEST_TIMES, REQUESTS_MAX
from simnet.world.adversaries.heard import Heard
from simnet.world.adversaries.puppet import Mind, Puppet
from simnet.world.adversaries.shapes import LIMITS
from simnet.world.adversaries.temper import ACTS, BURSTS, HONEST, TOPICS, WORDS, Company, Temper
from simnet.world.determinism import Trace
from simnet.world.scenario_file import open_scenario
from tests.simnet.world.adversaries.test_grammar import AT, DOMAIN, composer


def read(told: Message | bytes) -> Message | None:
    try:
        return told if isinstance(told, Message) else decode_message(told, LIMITS)
    except PeerFault:
        return None


def test_its_run_is_the_same_for_the_same_seed() -> None:
    base = open_scenario("puppet-rounds")
    first, again = (run_virtual(base, Trace()).trace_hash for _ in range(2))
    assert first == again


@pytest.mark.long
def test_four_validators_survive_it_and_let_a_newcomer_in() -> None:
    base = open_scenario("puppet")
    for seed in range(5):
        outcome = run_virtual(base.model_copy(update={"seed": seed}), Trace())
        assert [each for each in outcome.invariants if not each.ok] == []
        assert outcome.facts["committees"][-1].endswith("4:1")


def test_rounds_of_whole_daemons_end_although_one_takes_back_what_it_acknowledged() -> None:
    base = open_scenario("puppet-rounds")
    for seed in (232, 281):  # its Ack is for one alone, and later for nobody
        outcome = run_virtual(base.model_copy(update={"seed": seed}), Trace())
        assert [each for each in outcome.invariants if not each.ok] == []
        assert outcome.facts["rounds"] == 2


def test_puppets_differ_and_together_do_everything() -> None:
    tempers = [Temper.drawn(Random(seed)) for seed in range(200)]
    assert {act for temper in tempers for act in temper.acts} == set(ACTS)
    for each in (
        {kind for temper in tempers for kind in temper.forked},
        {kind for temper in tempers for kind in temper.withheld},
    ):
        assert each == set(WORDS)
    assert len({(temper.forked, temper.withheld, temper.acts) for temper in tempers}) > 90
    alone = Counter(len(temper.acts) for temper in tempers)
    assert alone[1] > 20  # some do one thing and nothing else


def test_half_of_them_are_honest_but_for_a_habit() -> None:
    tempers = [Temper.drawn(Random(seed)) for seed in range(400)]
    tame = [temper for temper in tempers if not temper.is_odd]
    assert 160 < len(tame) < 240
    for temper in tame:
        assert not temper.withheld
        assert not temper.secrets
        assert not any((temper.keeps_back, temper.is_rude, temper.is_lost))
        assert temper.forked or temper.tampers or temper.acts
    assert {temper.forked for temper in tame} == {(), *TOPICS}
    assert {act for temper in tame for act in temper.acts} == {"crowd", "replay"}
    assert any(temper.tampers and temper.ways == ("repeat",) for temper in tame)


def mind_of(seed: int, **change: Any) -> Mind:
    """Honest but for the change, among three others."""
    voice = replace(composer(seed).pens.voice, height=3, chance=Random(seed))
    while True:
        mind = Mind(voice, Heard())
        if not mind.temper.is_odd:
            break
    quiet = {**HONEST, "hides": False, **change}
    mind.temper = mind.acts.temper = replace(mind.temper, **quiet)
    for receiver in range(3):
        mind.company.meet(receiver)
    return mind


def sent(mind: Mind, receiver: int, own: Signed) -> list[Message]:
    """What goes to the receiver for our statement, read."""
    told = mind.sends(receiver, Message(AT, Stated(own)))
    return [decode_message(each, LIMITS) if isinstance(each, bytes) else each for each in told]


def said_by(mind: Mind, own: Signed) -> list[Signed | None]:
    """What each of the three gets for the statement."""
    told: list[Signed | None] = []
    for receiver in range(3):
        words = [
            each.body.signed for each in sent(mind, receiver, own) if isinstance(each.body, Stated)
        ]
        told.append(words[0] if words else None)
    return told


def test_a_root_that_it_acknowledged_to_one_alone_it_takes_back_from_everybody() -> None:
    taken_back = 0
    for seed in range(60):
        mind = mind_of(seed, forked=(Kind.ACK,))
        roots = [bytes([k]) * 32 for k in range(1, 4)]
        own = mind.pens.sign(Statement(DOMAIN, Kind.ACK, 0, 4, roots))
        faces = [
            [set(cast(list[bytes], word.statement.value)) for word in said_by(mind, own) if word]
            for _ in range(12)
        ]
        assert all(len(listeners) == 3 for listeners in faces)
        first, last = faces[0], faces[-1]
        alone = [root for root in roots if sum(root in face for face in first) == 1]
        gone = [root for root in alone if not any(root in face for face in last)]
        taken_back += bool(gone) and all(face - set(roots) for face in last)
    assert taken_back > 10  # not larger statements: something else stands there instead


def test_its_circles_hear_two_words_for_one_slot_or_one_of_them_none() -> None:
    for hides in (False, True):
        mind = mind_of(2, forked=(Kind.OFFER,), hides=hides)
        own = mind.composer.word(Kind.OFFER)
        words = said_by(mind, own)
        others = [word for word in words if word != own]
        assert 0 < len(others) < 3
        for word in others:
            assert (word is None) == hides
            assert word is None or conflict(own, word) is not None


@pytest.mark.parametrize("act", ["crowd", "clone"])
def test_it_asks_for_more_than_anybody_remembers_and_then_for_no_more(act: str) -> None:
    mind = mind_of(5, acts=(act,), burst=max(BURSTS), pace=1.0, endorses=True)
    own = mind.composer.word(Kind.NOTARIZE)
    requests: dict[int, list[Operation]] = {receiver: [] for receiver in range(3)}
    for _ in range(120):
        for receiver, heard in requests.items():
            bodies = [each.body for each in sent(mind, receiver, own)]
            heard += [body.operation for body in bodies if isinstance(body, Asked)]
    assert all(len(set(heard)) > OPERATIONS_KEPT for heard in requests.values())
    assert not any(isinstance(each.body, Asked) for each in sent(mind, 0, own))
    for heard in requests.values():
        assert len(set(heard)) <= REQUESTS_MAX
        assert max(Counter(heard).values()) <= REQUEST_TIMES


def test_its_crowd_is_brought_in_in_order_and_then_contradicts_itself_at_once() -> None:
    mind = mind_of(5, acts=("crowd",), burst=8, pace=1.0, endorses=True)
    mind.composer.is_odd = False
    joined: dict[bytes, Operation] = {}
    said: defaultdict[NodeId, set[bytes]] = defaultdict(set)
    vote = mind.composer.word(Kind.NOTARIZE)
    for _ in range(80):
        for message in sent(mind, 0, vote):
            match message.body:
                case Asked(operation) if isinstance(operation.request.action, Join | Rotate):
                    joined[operation.request.id] = operation
                    mind.composer.heard.message(message, is_others=True)  # it came to a set
                case Stated(signed) if signed.signer != mind.pens.own.node_id:
                    words = said[signed.signer]
                    words.add(signed.statement.sign_bytes())
    assert len(joined) >= 8
    keys = [newcomer_of(operation.request.action) for operation in joined.values()]
    peers = [found[1].peer_id for found in keys if found is not None]
    assert len(set(peers)) == len(joined)  # nobody could refuse them for their names
    assert sum(len(words) > 1 for words in said.values()) >= 8


def test_what_it_heard_first_it_says_again_at_the_end() -> None:
    mind = mind_of(4, acts=("replay",), burst=24, pace=1.0)
    other = composer(1004)
    words = [other.word(Kind.NOTARIZE) for _ in range(200)]
    for word in words:
        mind.composer.heard.message(Message(AT, Stated(word)), is_others=True)
    vote = mind.composer.word(Kind.NOTARIZE)
    told = {
        message.body.signed.id
        for _ in range(20)
        for message in sent(mind, 0, vote)
        if isinstance(message.body, Stated)
    }
    assert told & {word.id for word in words[:8]}
    assert not told & {word.id for word in words[32:]}


def test_its_lies_are_for_two_circles_and_somebody_alone() -> None:
    company = Company(Random(3))
    for receiver in range(5):
        company.meet(receiver)
    circles = company.circle(0), company.circle(1)
    assert circles[0] | circles[1] == frozenset(range(5))
    assert not circles[0] & circles[1]
    assert len(company.confidant) == 1
    drawn = {company.some() for _ in range(200)}
    assert {*circles, company.confidant, frozenset(range(5)) - company.confidant} <= drawn


def test_it_signs_for_nobody_else() -> None:
    """Nobody forges where signatures are a hash: a puppet that could would go unnoticed."""
    told = 0
    for seed in range(60):
        other, own, puppet = composer(1000 + seed), composer(seed), Puppet()
        voice = replace(own.pens.voice, chance=Random(seed))
        heard = []
        for turn in range(60):
            message = Message(AT, Stated(other.word(WORDS[turn % len(WORDS)])))
            heard.append(message.body.signed)  # type: ignore[union-attr]
            puppet.hears(message)
            mine = Message(AT, Stated(own.word(WORDS[turn % len(WORDS)])))
            for each in map(read, puppet.sends(voice, turn % 3, mine)):
                if each is None or not isinstance(each.body, Stated):
                    continue
                told += 1
                assert puppet.mind is not None
                signed = each.body.signed
                ours = signed.signer in puppet.mind.pens.held
                assert ours or any(signed.id == word.id for word in heard)
    assert told > 2000
