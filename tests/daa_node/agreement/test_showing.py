"""Acks are shown to who lacks them: one claimant a delta is asked, and liars hide no honest one."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from daa_consensus.bft.limits import Limits
from daa_consensus.votes import Kind
from daa_dag import canonical
from daa_dag.ids import ContributionRoot, NodeId
from daa_node.agreement.messages import (
    ACKS_SHOWN_EACH_MAX,
    Message,
    Missed,
    Position,
    Shown,
    Stated,
    WantStatements,
    decode_message,
    encode_message,
)
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.round_talk import RoundTalk
from daa_node.agreement.showing import Showing
from daa_node.errors import PeerFault
from tests.daa_node.agreement.message_world import DELTA_S, WINDOW_S, Puppet, open_world, until

AT = Position(0, 1, 0, 0, 0)


def asked(puppet: Puppet) -> list[WantStatements]:
    return [
        message.body
        for _, message in puppet.heard
        if isinstance(message.body, WantStatements) and message.body.roots
    ]


async def test_who_claims_for_ever_what_it_cannot_show_keeps_nobody_from_showing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_world() as world:
        liar, witness, third = (Puppet(world, index) for index in (0, 1, 2))
        member = world.members[3]
        await world.start(member)
        await until(lambda: bool(member.told("view_given_up")), 2 * WINDOW_S)  # a set is waited for
        offer = third.offer(1, world.first_vertex.vertex_id)
        began_s = trio.current_time()
        for _ in range(50):
            invented = tuple(ContributionRoot(bytes([k]) * 32) for k in range(4))
            await liar.send([member], Missed(1, invented))
            await trio.sleep(DELTA_S / 10)
        await witness.send([member], Missed(1, (offer.root,)))
        await until(lambda: bool(asked(witness)), 3 * DELTA_S)
        deltas = (trio.current_time() - began_s) / DELTA_S
        assert len(asked(liar)) <= deltas + 1
        assert asked(witness) == [WantStatements(1, (offer.root,))]
        acks = tuple(p.sign(Kind.ACK, [offer.root], height=1) for p in (liar, witness, third))
        await witness.send([member], Shown(1, (offer,), acks[:2]))
        await until(lambda: "no_quorum" in world.blamed(world.members[1]), 1)
        for _ in range(2):  # the first stream was closed over it
            await trio.sleep(0.1)
            await witness.send([member], Shown(1, (offer,), acks))
        await until(lambda: bool(member.told("offer_eligible")), 1)
        await witness.send([member], Missed(1, (offer.root,)))
        await trio.sleep(2 * DELTA_S)
        assert len(asked(witness)) == 1  # it is known by now


async def test_who_claims_again_while_it_waits_keeps_its_place(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """An honest one says it at each set that it refuses; two liars whenever they were asked."""
    async with open_world() as world:
        liars, witness = (Puppet(world, 0), Puppet(world, 1)), Puppet(world, 2)
        member = world.members[3]
        await world.start(member)
        await until(lambda: bool(member.told("view_given_up")), 2 * WINDOW_S)  # a set is waited for
        offer = witness.offer(1, world.first_vertex.vertex_id)
        claims = [0, 0]
        for _ in range(8):
            for index, liar in enumerate(liars):
                if len(asked(liar)) == claims[index]:
                    claims[index] += 1
                    await liar.send([member], Missed(1, (ContributionRoot(b"?" * 32),)))
            await witness.send([member], Missed(1, (offer.root,)))
            await trio.sleep(DELTA_S / 2)
        assert min(claims) >= 2
        assert asked(witness)


async def test_who_asks_is_shown_contributions_in_one_message_and_as_often_as_once_a_delta(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_world() as world:
        puppet = Puppet(world, 0)
        honest = world.members[1:]
        for member in honest:
            await world.start(member)
        await until(lambda: len(honest[0].told("offer_eligible")) == 3, 10)
        collection = honest[0].now.agreement._talk.listener(1)
        assert collection is not None
        roots = tuple(
            ContributionRoot(event) for event in sorted(acked_by(puppet)) if event is not None
        )
        assert len(roots) == 3
        for _ in range(20):
            await puppet.send(honest[:1], WantStatements(1, roots))
        await trio.sleep(DELTA_S / 2)
        shown = [message.body for _, message in puppet.heard if isinstance(message.body, Shown)]
        assert len(shown) == 1
        assert {offer.root for offer in shown[0].offers} == set(roots)
        assert len(shown[0].acks) <= ACKS_SHOWN_EACH_MAX * 4


def acked_by(puppet: Puppet) -> set[bytes]:
    found: set[bytes] = set()
    for _, message in puppet.heard:
        match message.body:
            case Stated(signed) if signed.statement.kind is Kind.ACK:
                value = signed.statement.value
                assert isinstance(value, list)
                found |= {root for root in value if isinstance(root, bytes)}
    return found


def test_messages_about_what_is_shown_are_read_as_written_and_bounded() -> None:
    limits, root = Limits(4, 4), ContributionRoot(b"r" * 32)
    for body in (
        WantStatements(3),
        WantStatements(3, (root,)),
        Missed(3, (root,)),
        Shown(3, (), ()),
    ):
        message = Message(AT, body)
        assert decode_message(encode_message(message), limits) == message
    many: list[canonical.Value] = [bytes([k]) * 32 for k in range(5)]
    hostile: list[tuple[str, list[canonical.Value]]] = [
        ("want_statements", [3, many]),
        ("want_statements", [3, [root, root]]),
        ("missed", [3, [b"short"]]),
        ("missed", [3, [7]]),
        ("shown", [3, [[]], []]),
        ("shown", [3, [], [[]]]),
        ("shown", [3, [], [[]] * 9]),
    ]
    for word, value in hostile:
        message_bytes = canonical.encode([0, 1, 0, 0, 0, canonical.encode([word, *value])])
        with pytest.raises(PeerFault, match="malformed"):
            decode_message(message_bytes, limits)


async def test_who_was_answered_is_remembered_for_half_a_delta(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A member sponsors one Join after the other, and each name may ask."""
    talk = SimpleNamespace(listener=lambda _round: None, heard_statements=lambda _round: [])
    parts = cast(AgreementParts, SimpleNamespace(delta_ns=int(DELTA_S * 1e9)))
    unused = cast(Any, None)
    showing = Showing(parts, cast(RoundTalk, talk), unused, unused)
    for number in range(500):
        showing.answer(NodeId(number.to_bytes(32)), WantStatements(1))
        await trio.sleep(DELTA_S / 10)
    assert len(showing._answered_s) <= 6
