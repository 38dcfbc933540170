"""What a member wishes for it gets at a pace: enough for whoever lacks something, and no more."""

from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import Block, EmptyPayload
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import BlockId, ContributionRoot, NodeId
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.messages import (
    Body,
    Message,
    Missed,
    Position,
    SentBlock,
    Stated,
    WantBlock,
    WantStatements,
    encode_message,
    message_bytes_max,
)
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.writer import WISH_COST_BYTES, Writer
from daa_node.identity.validators import Validators
from tests.daa_node.agreement.fixed_members import fixed_validators
from tests.daa_node.agreement.message_world import (
    CHAIN,
    DELTA_NS,
    DELTA_S,
    Puppet,
    World,
    open_world,
    until,
)

SECONDS = 2.0


def message_of(puppet: Puppet, block: Block) -> bytes:
    return encode_message(Message(puppet.position, SentBlock(block)))


async def answered_bytes(world: World, puppet: Puppet, wish: Body, wishes: int) -> int:
    """What one honest member sends us for so many wishes within SECONDS."""
    member, before = world.members[0], len(puppet.heard)
    for _ in range(wishes):
        await puppet.send([member], wish)
        await trio.sleep(SECONDS / wishes)
    await trio.sleep(1)
    answers = [
        message for _, message in puppet.heard[before:] if isinstance(message.body, SentBlock)
    ]
    return sum(len(encode_message(message)) for message in answers)


async def test_a_thousand_wishes_a_second_bring_what_a_few_may(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_world() as world:
        for member in world.members[:3]:
            await world.start(member)
        await until(lambda: world.members[0].resolved >= 2, 60)
        puppet, member = Puppet(world, 3), world.members[0]
        blocks = [b async for b in member.now.chain.path_down(member.now.chain.final_tip[0].id)]
        largest = max(blocks, key=lambda block: len(message_of(puppet, block)))
        most = message_bytes_max(world.limits)
        allowed = 2 * most + SECONDS / DELTA_S * most
        size = len(message_of(puppet, largest))
        wishes = int(4 * allowed / size)
        got = await answered_bytes(world, puppet, WantBlock(largest.id), wishes)
        assert 0 < got <= allowed + size
        await trio.sleep(5)
        # Whoever walks down asks for one after the other: each is there, a hundred in a delta.
        for block in blocks:
            assert await answered_bytes(world, puppet, WantBlock(block.id), 1) > 0
        assert world.blamed(world.members[3]) == []


class Post:
    """As much of a mailbox as a writer needs: it takes all."""

    def send(self, _member: NodeId, _message: bytes) -> None:
        pass

    def broadcast(self, _message: bytes) -> None:
        pass

    def answer(self, _member: NodeId, _message: bytes) -> bool:
        return True


ONE, OTHER = NodeId(b"a" * 32), NodeId(b"b" * 32)
COMMITTEE = Committee((Validator(ONE, 1),))
EMPTY = SentBlock(Block(CHAIN, 0, 9, 1, BlockId(b"p" * 32), 8, EmptyPayload()))


def writer() -> tuple[Writer, Validators]:
    validators = fixed_validators(CHAIN, COMMITTEE, {}, 100)
    parts = SimpleNamespace(
        validators=validators, inbound=Inbound(validators), mailbox=Post(), delta_ns=DELTA_NS
    )
    return Writer(cast(AgreementParts, parts), lambda: Position(0, 1, 0, 0, 0)), validators


def granted(to: Writer, member: NodeId) -> int:
    """How many wishes at once."""
    count = 0
    while to.grants(member):
        count += 1
    return count


NO_HEIGHT = Statement(Domain(CHAIN, 0, COMMITTEE.root), Kind.NULLIFY, 1, 2**53, None)


@pytest.mark.parametrize(
    "body",
    [
        WantBlock(BlockId(b"p" * 31)),
        WantStatements(-1),
        Missed(1, (ContributionRoot(b"b" * 32), ContributionRoot(b"a" * 32)) * 99),
        Stated(Signed(NO_HEIGHT, ONE, b"")),
    ],
    ids=lambda body: type(body).__name__,
)
async def test_what_others_would_call_malformed_is_not_sent(body: Body) -> None:
    to, _ = writer()
    for say in (to.send, to.offer, to.answer):
        with pytest.raises(AssertionError, match="that others re"):
            say(ONE, body)
    with pytest.raises(AssertionError, match="that others re"):
        to.broadcast(body)


async def test_an_account_is_a_members_own(autojump_clock: trio.testing.MockClock) -> None:
    to, validators = writer()
    most = message_bytes_max(validators.limits)
    full = 2 * most // WISH_COST_BYTES + 1
    assert granted(to, ONE) == full
    to.answer(ONE, EMPTY)
    assert granted(to, ONE) == 0
    assert granted(to, OTHER) == full
    await trio.sleep(DELTA_S)
    assert 0 < granted(to, ONE) <= most // WISH_COST_BYTES + 1


async def test_an_account_grows_with_the_largest_message(
    autojump_clock: trio.testing.MockClock,
) -> None:
    to, validators = writer()
    before = granted(to, ONE)
    validators.limits.validators *= 4
    assert granted(to, ONE) > before
