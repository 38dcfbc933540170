"""What a member wishes for it gets at a pace: enough for whoever lacks something, and no more."""

import trio
import trio.testing

from daa_consensus.bft.messages import Block
from daa_dag.ids import NodeId
from daa_node.agreement.letters import (
    Body,
    Letter,
    SentBlock,
    WantBlock,
    encode_letter,
    letter_bytes_max,
)
from daa_node.agreement.wishes import WISH_COST_BYTES, Wishes
from tests.daa_node.agreement.letter_world import DELTA_S, Puppet, World, open_world, until

SECONDS = 2.0


def letter_of(puppet: Puppet, block: Block) -> bytes:
    return encode_letter(Letter(puppet.position, SentBlock(block)))


async def answered_bytes(world: World, puppet: Puppet, wish: Body, wishes: int) -> int:
    """What one honest member sends us for so many wishes within SECONDS."""
    member, before = world.members[0], len(puppet.heard)
    for _ in range(wishes):
        await puppet.send([member], wish)
        await trio.sleep(SECONDS / wishes)
    await trio.sleep(1)
    answers = [letter for _, letter in puppet.heard[before:] if isinstance(letter.body, SentBlock)]
    return sum(len(encode_letter(letter)) for letter in answers)


async def test_a_thousand_wishes_a_second_bring_what_a_few_may(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_world() as world:
        for member in world.members[:3]:
            await world.start(member)
        await until(lambda: world.members[0].resolved >= 2, 60)
        puppet, member = Puppet(world, 3), world.members[0]
        blocks = [b async for b in member.now.chain.path_down(member.now.chain.final_tip[0].id)]
        largest = max(blocks, key=lambda block: len(letter_of(puppet, block)))
        most = letter_bytes_max(world.limits)
        allowed = 2 * most + SECONDS / DELTA_S * most
        size = len(letter_of(puppet, largest))
        wishes = int(4 * allowed / size)
        got = await answered_bytes(world, puppet, WantBlock(largest.id), wishes)
        assert 0 < got <= allowed + size
        await trio.sleep(5)
        # Whoever walks down asks for one after the other: each is there, a hundred in a delta.
        for block in blocks:
            assert await answered_bytes(world, puppet, WantBlock(block.id), 1) > 0
        assert world.blamed(world.members[3]) == []


async def test_an_account_is_a_members_own(autojump_clock: trio.testing.MockClock) -> None:
    wishes, one, other = Wishes(0.5, lambda: 10_000), NodeId(b"a" * 32), NodeId(b"b" * 32)
    assert wishes.grants(one)
    wishes.granted(one, 25_000)
    assert not wishes.grants(one)
    assert wishes.grants(other)
    await trio.sleep(0.5)
    assert wishes.grants(one)
    granted = 0
    while wishes.grants(other):
        granted += 1
    assert granted <= 20_000 / WISH_COST_BYTES + 1


async def test_an_account_grows_with_the_largest_letter(
    autojump_clock: trio.testing.MockClock,
) -> None:
    most, one = 10_000, NodeId(b"a" * 32)
    wishes = Wishes(0.5, lambda: most)
    wishes.granted(one, 30_000)
    assert not wishes.grants(one)
    most = 100_000
    assert wishes.grants(one)
    wishes.granted(one, 150_000)
    assert wishes.grants(one)
