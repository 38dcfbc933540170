"""The puppet: what it says it may say, every one is another, and honest nodes survive it."""

from collections import Counter
from random import Random

from daa_consensus.votes import Kind
from daa_node.agreement.letters import Letter, Said, decode_letter
from daa_node.errors import PeerFault
from simnet.adversaries.conduct import Stand, Voice
from simnet.adversaries.puppet import Puppet
from simnet.adversaries.shapes import LIMITS
from simnet.adversaries.temper import ACTS, WORDS, Company, Temper
from simnet.determinism import Trace
from simnet.heap import consensus
from simnet.outcome import Outcome
from simnet.scenario import (
    AdversaryConfig,
    ChangeConfig,
    ChecksConfig,
    NodesConfig,
    Scenario,
    WorkConfig,
)
from simnet.scenario_file import open_scenario
from tests.simnet.adversaries.test_grammar import AT, DOMAIN, composer


def run(seed: int) -> Outcome:
    return consensus.run(
        Scenario(
            name="puppet",
            seed=seed,
            nodes=(NodesConfig(count=4), NodesConfig(name="new", count=1, role="observer")),
            work=WorkConfig(epoch_rounds=2),
            adversaries=(AdversaryConfig(kind="puppet", nodes=(1,)),),
            changes=(ChangeConfig(kind="stake", at_s=1, node=0, stake=1),) if seed % 2 else (),
            checks=ChecksConfig(finalizations_after_heal=16),
        ),
        Trace(),
    )


def read(told: Letter | bytes) -> Letter | None:
    try:
        return told if isinstance(told, Letter) else decode_letter(told, LIMITS)
    except PeerFault:
        return None


def test_its_run_is_the_same_for_the_same_seed() -> None:
    assert run(3).trace_hash == run(3).trace_hash


def test_four_validators_survive_it_and_let_a_newcomer_in() -> None:
    base = open_scenario("puppet")
    for seed in range(5):
        outcome = consensus.run(base.model_copy(update={"seed": seed}), Trace())
        assert [each for each in outcome.invariants if not each.ok] == []
        assert outcome.facts["committees"][-1].endswith("4:1")


def test_puppets_differ_and_together_do_everything() -> None:
    tempers = [Temper.drawn(Random(seed)) for seed in range(200)]
    assert {act for temper in tempers for act in temper.acts} == set(ACTS)
    for each in (
        {kind for temper in tempers for kind in temper.forked},
        {kind for temper in tempers for kind in temper.withheld},
    ):
        assert each == set(WORDS) == set(Kind) - {Kind.MEMBERSHIP}
    assert len({(temper.forked, temper.withheld, temper.acts) for temper in tempers}) > 100
    alone = Counter(len(temper.acts) for temper in tempers)
    assert alone[1] > 20  # some do one thing and nothing else


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
    """Signatures are constant on the heap, where a forger would go unnoticed."""
    told = 0
    for seed in range(60):
        other, own, puppet = composer(1000 + seed), composer(seed), Puppet()
        voice = Voice(
            node=3,
            body=0,
            bodies=1,
            nodes=4,
            stand=lambda: Stand(DOMAIN, view=9, height=5, tip_open=False),
            sign=own.pens.own.sign,
            chance=Random(seed),
            pen=own.pens._pen,
        )
        heard = []
        for turn in range(60):
            letter = Letter(AT, Said(other.word(WORDS[turn % len(WORDS)])))
            heard.append(letter.body.signed)  # type: ignore[union-attr]
            puppet.hears(0, turn % 3, letter)
            mine = Letter(AT, Said(own.word(WORDS[turn % len(WORDS)])))
            for each in map(read, puppet.sends(voice, turn % 3, mine)):
                if each is None or not isinstance(each.body, Said):
                    continue
                told += 1
                assert puppet.mind is not None
                signed = each.body.signed
                ours = signed.signer in puppet.mind.pens.held
                assert ours or any(signed.id == word.id for word in heard)
    assert told > 2000
