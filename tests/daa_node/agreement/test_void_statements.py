"""Statements in the name of a committee that an epoch did not begin with count for nothing."""

import trio
import trio.testing

from daa_consensus.bft.messages import OfferBody, genesis_block
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.operations import Operation, Request, Stake
from daa_consensus.votes import Kind
from daa_dag.ids import VertexId
from daa_node.agreement.messages import Asked, Stated, decode_message
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.seams import ByteStream, StateRef
from daa_node.wire.framing import read_message_or_end
from tests.daa_node.agreement.message_world import CHAIN, Member, Puppet, World, open_world, until

Clock = trio.testing.MockClock


def of_two_each(world: World) -> None:
    """Of stakes that can be lowered."""
    world.committee = Committee(tuple(Validator(k.node_id, 2) for k in world.keys))
    old = world.first_vertex
    state = StateRef(old.model_root, old.outer_state_root)
    world.first_vertex = genesis_vertex(state, world.committee.root)
    world.genesis = genesis_block(CHAIN, world.first_vertex.vertex_id)


def lowered(puppet: Puppet) -> Operation:
    request = Request(Stake(puppet.me, 1), 8)
    said = request.statement(CHAIN)
    word = puppet.keys.sign(said.sign_bytes(), said.context)
    return Operation(request, ((puppet.me, word),))


class Hasty(Puppet):
    """Offers and acknowledges its update as soon as it hears what the next round stands on."""

    told: list[Member]
    offer_of_two: OfferBody | None = None

    async def _hear(self, stream: ByteStream) -> None:
        while (payload := await read_message_or_end(stream, 2**24)) is not None:
            match decode_message(payload, self._world.limits).body:
                case Stated(signed) if signed.statement.kind is Kind.EXEC and not self.offer_of_two:
                    value = signed.statement.value
                    assert isinstance(value, list)
                    await self._speak(VertexId(value[0]))
                case _:
                    pass

    async def _speak(self, base: VertexId) -> None:
        offer = self.offer_of_two = self.offer(2, base)
        await self.send(self.told, Stated(self.sign(Kind.OFFER, offer.as_value(), 2, epoch=1)))
        await self.send(self.told[:1], Stated(self.sign(Kind.ACK, [offer.root], 2, epoch=1)))


async def test_early_words_of_a_committee_that_changes_halt_nobody(autojump_clock: Clock) -> None:
    async with open_world(epoch_rounds=1) as world:
        of_two_each(world)
        puppet, honest = Hasty(world, 3), world.members[:3]
        puppet.told = honest[:2]
        for member in honest:
            await world.start(member)
        await trio.sleep(0.1)
        await puppet.send(honest, Asked(lowered(puppet)))
        await until(lambda: all(m.resolved >= 4 for m in honest), 120)
        assert puppet.offer_of_two is not None
        now = honest[0].now.agreement.validators
        assert now.domain(1) != Domain(CHAIN, 1, world.committee.root)
        assert not any(world.blamed(member) for member in honest)
