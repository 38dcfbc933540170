"""One member of four says what no honest one does: nothing falls over, and nobody else pays."""

from dataclasses import replace

import trio
import trio.testing

from daa_consensus.bft.messages import Block, OfferBody, SetPayload, encode_signed
from daa_consensus.votes import Kind
from daa_dag.ids import NodeId
from daa_node.agreement.messages import Proposed, Stated
from tests.daa_node.agreement.memory_disk import TRAIN_S
from tests.daa_node.agreement.message_world import (
    CHAIN,
    Member,
    Puppet,
    World,
    open_world,
    until,
)


async def one_hostile(world: World, index: int) -> tuple[Puppet, list[Member]]:
    """A puppet in place of one member, and the others, started."""
    puppet = Puppet(world, index)
    honest = [m for place, m in enumerate(world.members) if place != index]
    for member in honest:
        await world.start(member)
    await trio.sleep(TRAIN_S / 5)  # their rounds are open, and nobody has trained yet
    return puppet, honest


def set_of(world: World, offers: list[OfferBody], view: int = 1) -> Block:
    """A set for the first round, on the genesis block."""
    offers = sorted(offers, key=lambda offer: offer.author)
    weights = tuple(offer.tokens for offer in offers)
    payload = SetPayload(1, tuple(offers), weights, "trimmed_mean", 0, (), (), ())
    return Block(CHAIN, 0, view, 1, world.genesis.id, 0, payload)


async def propose(puppet: Puppet, members: list[Member], block: Block) -> None:
    signed = puppet.sign(Kind.PROPOSAL, block.id, height=block.height, view=block.view)
    await puppet.send(members, Proposed(signed, block, None))


def nobody_honest_is_blamed(world: World, puppet: Puppet) -> bool:
    return all(node == puppet.me for _, node, _ in world.faults)


async def test_a_leader_that_proposes_a_strangers_offer_is_only_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_world() as world:
        puppet, honest = await one_hostile(world, world.leader(1))
        offer = puppet.offer(1, world.first_vertex.vertex_id)
        stranger = replace(offer, author=NodeId(b"s" * 32))
        await propose(puppet, honest, set_of(world, [stranger]))
        await until(lambda: all(m.resolved >= 1 for m in honest), 60)
        assert all(len(m.happened[0].contributors) == 3 for m in honest)
        assert nobody_honest_is_blamed(world, puppet)


async def test_a_leader_cannot_put_its_own_update_under_an_honest_authors_name(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_world() as world:
        puppet, honest = await one_hostile(world, world.leader(1))
        base = world.first_vertex.vertex_id
        forged = [replace(puppet.offer(1, base, name=m.me), author=m.me) for m in honest]
        # At once, before anybody's own offer: all that could speak for them is their absence.
        await propose(puppet, honest, set_of(world, forged))
        acks = sorted(offer.root for offer in forged)
        await puppet.send(honest, Stated(puppet.sign(Kind.ACK, list(acks), height=1)))
        await until(lambda: all(m.resolved >= 1 for m in honest), 60)
        offers = honest[0].happened[0].contributors
        assert {offer.author for offer in offers} == {m.me for m in honest}
        forged_roots = {offer.blob_root for offer in forged}
        assert not forged_roots & {offer.blob_root for offer in offers}
        assert nobody_honest_is_blamed(world, puppet)


async def test_a_contributor_that_offers_two_things_cannot_stop_the_round(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_world() as world:
        puppet, honest = await one_hostile(world, (world.leader(1) + 1) % 4)
        base = world.first_vertex.vertex_id
        one, other = (puppet.offer(1, base, name=name) for name in (b"one", b"other"))
        for receivers, offer in ((honest[:2], one), (honest[2:], other)):
            signed = puppet.sign(Kind.OFFER, offer.as_value(), height=1)
            await puppet.send(receivers, Stated(signed))
        await puppet.send(honest, Stated(puppet.sign(Kind.ACK, [one.root], height=1)))
        await until(lambda: all(m.resolved >= 2 for m in honest), 120)
        assert len({tuple(m.chain()[:3]) for m in honest}) == 1
        assert nobody_honest_is_blamed(world, puppet)


async def test_tokens_that_nobody_can_have_trained_on_are_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_world() as world:
        puppet, honest = await one_hostile(world, (world.leader(1) + 1) % 4)
        base = world.first_vertex.vertex_id
        greedy = replace(puppet.offer(1, base), tokens=2**63 - 1)
        await puppet.send(honest, Stated(puppet.sign(Kind.OFFER, greedy.as_value(), height=1)))
        await until(lambda: all(m.resolved >= 2 for m in honest), 60)
        assert all(m.chain()[1].tokens_total < 2**20 for m in honest)
        assert "too_many_tokens" in world.blamed(world.members[world.keys.index(puppet.keys)])


async def test_two_offers_under_two_epochs_are_no_way_around_evidence(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_world() as world:
        puppet, honest = await one_hostile(world, (world.leader(1) + 1) % 4)
        base = world.first_vertex.vertex_id
        one, other = (puppet.offer(1, base, name=name) for name in (b"one", b"other"))
        for epoch, offer in ((7, one), (0, other)):
            signed = puppet.sign(Kind.OFFER, offer.as_value(), height=1, epoch=epoch)
            await puppet.send(honest, Stated(signed))
            await trio.sleep(0.1)
            await puppet.send(honest, Stated(signed))  # the first stream was closed over it
        await until(lambda: all(m.resolved >= 1 for m in honest), 60)
        offers = honest[0].happened[0].contributors
        assert other in offers
        assert "malformed" in {reason for _, _, reason in world.faults}
        assert nobody_honest_is_blamed(world, puppet)


async def test_nobody_sends_the_rejoin_of_another(autojump_clock: trio.testing.MockClock) -> None:
    """An old one, said again by a liar, would hide the one that lets its author vote."""
    async with open_world() as world:
        liar, victim = Puppet(world, 0), Puppet(world, 1)
        listener = world.members[2]
        await world.start(listener)
        await trio.sleep(TRAIN_S / 5)
        old, new = (victim.sign(Kind.REJOIN, nonce * 32) for nonce in (b"o", b"n"))
        await victim.send([listener], Stated(new))
        await liar.send([listener], Stated(old))
        await until(lambda: "malformed" in world.blamed(world.members[0]), 5)
        assert listener.now.agreement.facts.rejoins == {victim.me: encode_signed(new)}
        assert nobody_honest_is_blamed(world, liar)
