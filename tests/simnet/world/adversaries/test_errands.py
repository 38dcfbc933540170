"""A puppet on every other protocol: each word that nodes answer is one that it asks."""

import ast
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import daa_node
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    ACCUSED_PARTS,
    Block,
    EmptyPayload,
    OfferBody,
    encode_signed,
    genesis_block,
)
from daa_consensus.votes import Kind, Statement
from daa_dag import canonical
from daa_dag.ids import BlockId, Digest, VertexId
from daa_node.checkpoints.pages import decode_page, page_value
from daa_node.checkpoints.publish import Page
from daa_node.disputes import court, openings
from daa_node.disputes.charge import decode_said
from daa_node.disputes.openings import decode_question
from daa_node.errors import PeerFault
from daa_node.wire import protocols
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.world import run_virtual
from simnet.world.adversaries import quarrels
from simnet.world.adversaries.errands import ERRANDS, REQUESTS, changed
from simnet.world.adversaries.heard import Heard
from simnet.world.adversaries.puppet import Mind
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario
from tests.simnet.world.adversaries.test_grammar import DOMAIN, composer


def mind(seed: int) -> Mind:
    return Mind(replace(composer(seed).pens.voice, chance=Random(seed)), Heard())


def test_every_request_that_nodes_answer_is_one_that_it_makes() -> None:
    registered = 0
    for path in Path(daa_node.__path__[0]).rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                words = [ast.unparse(each).split(".")[-1] for each in call.args]
                registered += call.func.attr == "register" and words[:1] == ["REQUEST"]
    assert registered == len(REQUESTS)
    for word, made in REQUESTS.items():
        assert word
        assert made(mind(1))


def test_every_protocol_of_ours_is_one_that_it_speaks() -> None:
    names = {text for text in vars(protocols).values() if str(text).startswith("/daa/")}
    # Pages speak the volunteers' one: tests/daa_node/gateway has what they may say.
    assert names == (ERRANDS.keys() - {"gossip"}) | {protocols.VOLUNTEER}


def test_what_it_says_in_disputes_is_read_and_of_what_it_has_heard() -> None:
    liar, other = mind(4), composer(5)
    offer = replace(other.made(OfferBody), snapshot_roots=(Digest(bytes(32)), Digest(bytes(32))))
    liar.composer.heard.note(OfferBody, "value", offer)
    assert decode_question(REQUESTS[openings.REQUEST](liar)) == (offer.round, offer.root)
    value = [offer.root, 0, [bytes(32)] * 3]
    opening = other.pens.sign(Statement(DOMAIN, Kind.OPENING, 0, offer.round, value))
    quarrels.hear(liar, canonical.encode(["ok", encode_signed(opening)]))
    said = []
    for _ in range(100):
        with suppress(PeerFault):
            said.append(decode_said(REQUESTS[court.REQUEST](liar)))
    assert len(said) > 50
    accused = [word.accusation.statement.value for word in said]
    assert {value[1] for value in accused if isinstance(value, list)} == set(ACCUSED_PARTS)
    assert opening in [word.opening for word in said]
    own = encode_signed(liar.pens.sign(opening.statement))
    assert changed(liar, own) != own


def test_a_page_that_it_serves_is_another_one_and_no_quorum_says_so() -> None:
    liar = mind(2)
    block = Block(DOMAIN.chain_id, 3, 9, 5, BlockId(bytes([7]) * 32), 8, EmptyPayload())
    below = genesis_block(DOMAIN.chain_id, VertexId(bytes([8]) * 32))
    word = composer(3).word(Kind.FINALIZE)
    certificate = composer(3).pens.certified(word.statement, {})
    payload = canonical.encode(page_value(Page((below, block), certificate, ())))
    told = [changed(liar, payload) for _ in range(30)]
    assert sum(each != payload for each in told) > 20
    for each in told:
        try:
            page = decode_page(each, Limits(6, 6))
        except PeerFault:
            continue
        assert page is not None
        known = dict(certificate.signatures)
        if page.certificate.statement != certificate.statement:
            assert not known.keys() & dict(page.certificate.signatures).keys()


@pytest.mark.long
def test_daemons_survive_it_on_all_protocols() -> None:
    outcomes = [run(seed) for seed in range(4)]
    assert [i.detail for o in outcomes for i in o.invariants if not i.ok] == []
    assert all(outcome.facts["rounds"] == 4 for outcome in outcomes)


def run(seed: int) -> Outcome:
    fields = {
        "name": "puppets",
        "fidelity": "light",
        "seed": seed,
        "duration_s": 120,
        "nodes": [{"count": 4}],
        "work": {"kind": "training", "rounds": 4, "inner_steps_max": 2},
        "adversaries": [{"kind": "puppet", "nodes": [3]}],
    }
    return run_virtual(Scenario.model_validate(fields), Trace())
