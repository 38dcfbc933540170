"""What the machine asks about a set: answered once the round is open, void once it is too late."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
import trio.testing

from daa_consensus.bft.effects import AskPayload
from daa_consensus.bft.events import DataHeld, Event, Judged, PayloadChosen
from daa_consensus.bft.evidence import conflict, encode_evidence
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    Block,
    OfferBody,
    SetPayload,
    encode_signed,
    genesis_block,
)
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.membership import Membership
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import ChainId, ContributionRoot, VertexId
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.questions import Questions
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys
from tests.daa_node.agreement.fixed_members import fixed_validators

CHAIN = ChainId(b"c" * 32)
KEYS = sorted((NodeKeys.from_seed(b"member %d" % k) for k in range(4)), key=lambda k: k.node_id)
COMMITTEE = Committee(tuple(Validator(k.node_id, 1) for k in KEYS))
DOMAIN = Domain(CHAIN, 0, COMMITTEE.root)
GENESIS = genesis_block(CHAIN, VertexId(bytes(32)))
LIMITS = Limits(4, 4)
STRANGER = NodeKeys.from_seed(b"stranger")


def said(keys: NodeKeys, kind: Kind, view: int, value: bytes) -> Signed:
    return envelope.sign(Statement(DOMAIN, kind, view, 0, value), keys)


def offence(first: Signed, second: Signed) -> bytes:
    found = conflict(first, second)
    assert found is not None
    return encode_evidence(found)


def set_block(round_: int, view: int, **fields: object) -> Block:
    payload = SetPayload(round_, (), (), "mean", 0, (), (), ())
    payload = replace(payload, **fields)  # type: ignore[arg-type]
    return Block(CHAIN, 0, view, round_, GENESIS.id, 0, payload)


class Listener:
    """An open round that says yes, holds what it is told to, and proposes an empty set."""

    def __init__(self, round_: int) -> None:
        self._round = round_
        self.verdict: str | None = None
        self.answers = trio.Event()
        self.waiting = 0

    def hear(self, signed: Signed) -> None:
        raise AssertionError("nobody said anything")

    def lacks(self, roots: Sequence[ContributionRoot]) -> Sequence[ContributionRoot]:
        return ()

    def show(
        self, roots: Sequence[ContributionRoot]
    ) -> tuple[tuple[OfferBody, ...], tuple[Signed, ...]]:
        return (), ()

    def shown(self, offers: Sequence[OfferBody], acks: Sequence[Signed]) -> None:
        raise AssertionError("nobody showed anything")

    async def proposal(self) -> SetPayload:
        await self._answer()
        return SetPayload(self._round, (), (), "mean", 0, (), (), ())

    async def judge(self, proposed: SetPayload) -> str | None:
        await self._answer()
        return self.verdict

    async def hold_all(self, offers: tuple[OfferBody, ...]) -> None:
        await self._answer()

    async def _answer(self) -> None:
        self.waiting += 1
        try:
            await self.answers.wait()
        finally:
            self.waiting -= 1


class Stage:
    def __init__(self) -> None:
        self.facts = Facts(LIMITS)
        keys = {k.node_id: k.ml_dsa_public_key for k in KEYS}
        inbound = Inbound(fixed_validators(DOMAIN.chain_id, COMMITTEE, keys, 100))
        self.answers: list[Event] = []
        self.questions = Questions(self.facts, inbound, self._post)

    async def _post(self, event: Event) -> None:
        self.answers.append(event)


@asynccontextmanager
async def on_stage() -> AsyncIterator[Stage]:
    async with trio.open_nursery() as nursery:
        stage = Stage()
        stage.questions.tasks = nursery
        yield stage
        nursery.cancel_scope.cancel()


async def test_questions_about_a_round_wait_until_it_is_open() -> None:
    async with on_stage() as stage:
        block, listener = set_block(3, 7), Listener(3)
        listener.answers.set()
        stage.questions.judge(block)
        stage.questions.hold(block)
        stage.questions.choose(AskPayload(7, GENESIS, 3))
        stage.questions.listen(2, Listener(2))
        await trio.testing.wait_all_tasks_blocked()
        assert stage.answers == []
        stage.questions.listen(3, listener)
        await trio.testing.wait_all_tasks_blocked()
        assert Judged(block.id, True) in stage.answers
        assert DataHeld(block.id) in stage.answers
        assert {type(answer) for answer in stage.answers} == {Judged, DataHeld, PayloadChosen}


async def test_a_refusal_carries_its_reason() -> None:
    async with on_stage() as stage:
        block, listener = set_block(3, 7), Listener(3)
        listener.verdict = "leaves somebody out"
        listener.answers.set()
        stage.questions.listen(3, listener)
        stage.questions.judge(block)
        await trio.testing.wait_all_tasks_blocked()
        assert stage.answers == [Judged(block.id, False, "leaves somebody out")]


async def test_leaving_a_view_ends_its_judgement_and_a_later_round_the_holds_of_those_before() -> (
    None
):
    async with on_stage() as stage:
        listener = Listener(3)
        stage.questions.listen(3, listener)
        for view in (7, 8):
            stage.questions.judge(set_block(3, view))
            stage.questions.hold(set_block(3, view))
            await trio.testing.wait_all_tasks_blocked()
            stage.questions.leave_view()
        await trio.testing.wait_all_tasks_blocked()
        assert listener.waiting == 2  # the holds
        assert stage.questions.unjudged == {}
        stage.questions.listen(4, Listener(4))
        await trio.testing.wait_all_tasks_blocked()
        assert listener.waiting == 0
        assert stage.answers == []


async def test_views_count_back_at_an_epochs_end_and_their_judgements_still_work() -> None:
    async with on_stage() as stage:
        listener = Listener(3)
        listener.answers.set()
        stage.questions.listen(3, listener)
        for block in (set_block(3, 9), set_block(3, 7), replace(set_block(3, 9), epoch=1)):
            stage.questions.leave_view()
            stage.questions.judge(block)
            await trio.testing.wait_all_tasks_blocked()
            assert stage.answers[-1] == Judged(block.id, True)


async def test_of_two_questions_for_a_set_only_the_newer_is_answered() -> None:
    async with on_stage() as stage:
        listener = Listener(3)
        stage.questions.listen(3, listener)
        for view in (7, 8):
            stage.questions.choose(AskPayload(view, GENESIS, 3))
            await trio.testing.wait_all_tasks_blocked()
        listener.answers.set()
        await trio.testing.wait_all_tasks_blocked()
        assert [a.view for a in stage.answers if isinstance(a, PayloadChosen)] == [8]


async def test_a_chosen_set_carries_what_was_found_out_and_who_wants_to_rejoin() -> None:
    async with on_stage() as stage:
        listener = Listener(3)
        listener.answers.set()
        stage.questions.listen(3, listener)
        votes = [said(KEYS[1], Kind.NOTARIZE, 4, value) for value in (b"x" * 32, b"y" * 32)]
        found = conflict(*votes)
        assert found is not None
        rejoin = said(KEYS[2], Kind.REJOIN, 0, b"n" * 32)
        stage.facts.note_evidence(found, Membership(COMMITTEE))
        stage.facts.note_rejoin(rejoin, Membership(COMMITTEE))
        stage.questions.choose(AskPayload(7, GENESIS, 3))
        await trio.testing.wait_all_tasks_blocked()
        (chosen,) = stage.answers
        assert isinstance(chosen, PayloadChosen)
        assert chosen.payload.evidence == (encode_evidence(found),)
        assert chosen.payload.operations == (encode_signed(rejoin),)


def good_pair() -> bytes:
    return offence(*(said(KEYS[1], Kind.NOTARIZE, 4, value) for value in (b"x" * 32, b"y" * 32)))


def forged_pair() -> bytes:
    """One vote of an honest node, and a second that its key never signed."""
    first = said(KEYS[1], Kind.NOTARIZE, 4, b"x" * 32)
    forged = said(KEYS[0], Kind.NOTARIZE, 4, b"y" * 32)
    return offence(first, replace(forged, signer=KEYS[1].node_id))


def strangers_pair() -> bytes:
    return offence(*(said(STRANGER, Kind.NOTARIZE, 4, value) for value in (b"x" * 32, b"y" * 32)))


def forged_rejoin() -> bytes:
    rejoin = said(KEYS[2], Kind.REJOIN, 0, b"n" * 32)
    return encode_signed(replace(rejoin, signer=KEYS[1].node_id))


@pytest.mark.parametrize(
    ("evidence", "operations", "ok"),
    [
        ([good_pair()], [], True),
        ([forged_pair()], [], False),
        ([good_pair(), forged_pair()], [], False),
        ([strangers_pair()], [], False),
        ([b"no evidence"], [], False),
        ([], [encode_signed(said(KEYS[2], Kind.REJOIN, 0, b"n" * 32))], True),
        ([], [encode_signed(said(STRANGER, Kind.REJOIN, 0, b"n" * 32))], False),
        ([], [encode_signed(said(KEYS[2], Kind.NOTARIZE, 4, b"n" * 32))], False),
        ([], [forged_rejoin()], False),
        ([], [b"no operation"], False),
    ],
)
async def test_evidence_and_operations_that_prove_nothing_condemn_their_set(
    evidence: list[bytes], operations: list[bytes], ok: bool
) -> None:
    async with on_stage() as stage:
        listener = Listener(3)
        listener.answers.set()
        stage.questions.listen(3, listener)
        stage.questions.judge(
            set_block(3, 7, evidence=tuple(evidence), operations=tuple(operations))
        )
        await trio.testing.wait_all_tasks_blocked()
        (answer,) = stage.answers
        assert isinstance(answer, Judged)
        assert answer.ok == ok
