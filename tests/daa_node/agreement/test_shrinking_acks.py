"""A liar's Acks, said to some and not to others, keep no honest nodes apart."""

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import offer_from_value
from daa_consensus.votes import Kind
from daa_dag.ids import ContributionRoot
from daa_node.agreement.messages import Stated
from tests.daa_node.agreement.memory_disk import TRAIN_S
from tests.daa_node.agreement.message_world import Member, Puppet, World, open_world, until

Clock = trio.testing.MockClock


async def two_faced(world: World, index: int) -> tuple[Puppet, list[Member], ContributionRoot]:
    """V offers x to two honest members and x' to the third: a quorum of Acks needs V's own."""
    puppet = Puppet(world, index)
    honest = [member for member in world.members if member.me != puppet.me]
    for member in honest:
        await world.start(member)
    await trio.sleep(TRAIN_S / 5)
    base = world.first_vertex.vertex_id
    one, other = (puppet.offer(1, base, name=name) for name in (b"one", b"other"))
    for receivers, offer in ((honest[:2], one), (honest[2:], other)):
        await puppet.send(receivers, Stated(puppet.sign(Kind.OFFER, offer.as_value(), height=1)))
    await trio.sleep(TRAIN_S / 5)  # they hold it, and have acknowledged it to each other
    return puppet, honest, one.root


async def offered_by(member: Member) -> ContributionRoot:
    """What the member offers for round 1, once it does."""
    await until(lambda: member.now.agreement.own_statement(Kind.OFFER, 1) is not None, 10)
    word = member.now.agreement.own_statement(Kind.OFFER, 1)
    assert word is not None
    return offer_from_value(word.statement.value).root


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("then", ["nothing", "an honest one", "what nobody knows"])
async def test_who_refuses_a_set_for_an_ack_that_it_alone_heard_can_show_it(
    index: int, then: str, autojump_clock: Clock
) -> None:
    async with open_world() as world:
        puppet, honest, root = await two_faced(world, index)
        first = honest[0]
        await puppet.send([first], Stated(puppet.sign(Kind.ACK, [root], height=1)))
        await trio.sleep(0.05)
        if then != "nothing":
            honest_root = await offered_by(first)
            named = honest_root if then == "an honest one" else b"n" * 32
            await puppet.send([first], Stated(puppet.sign(Kind.ACK, [named], height=1)))
        await until(lambda: all(m.resolved >= 2 for m in honest), 30)
        assert len({tuple(m.chain()[:3]) for m in honest}) == 1
        assert {node for _, node, _ in world.faults} <= {puppet.me}
        # Who is shown the one Offer and has heard the other one holds both: out with their author.
        known = [member.now.agreement.validators for member in honest]
        await until(lambda: all(each.now.convicted == (puppet.me,) for each in known), 30)
