"""Whatever one member gets into everybody's facts: the sets of honest leaders pass all the same."""

import trio
import trio.testing

from daa_consensus.operations import Action, Approve, Join, Operation, Request, signers_of
from daa_consensus.votes import Kind, Signed, Statement
from daa_node.agreement.facts import JOINS_EACH_MAX
from daa_node.agreement.messages import Asked, Stated
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys
from tests.daa_node.agreement.message_world import CHAIN, Member, Puppet, World, open_world, until

Clock = trio.testing.MockClock
FRESH = [NodeKeys.from_seed(b"fresh %d" % index) for index in range(8)]


def asked(action: Action, *keys: NodeKeys) -> Operation:
    request = Request(action, 8)
    said = request.statement(CHAIN)
    words = {k.node_id: k.sign(said.sign_bytes(), said.context) for k in keys}
    return Operation(request, tuple((name, words[name]) for name in signers_of(action)))


def join(keys: NodeKeys, peer: NodeKeys | None = None) -> Operation:
    card = MemberKeys.of(keys, peer)
    return asked(Join(keys.node_id, 1, card.encode()), keys)


async def cluster(world: World) -> tuple[Puppet, list[Member]]:
    """Three honest members under way, and a puppet that offers nothing."""
    puppet, honest = Puppet(world, 3), world.members[:3]
    for member in honest:
        await world.start(member)
    await trio.sleep(0.1)
    return puppet, honest


async def ask(puppet: Puppet, honest: list[Member], operation: Operation) -> None:
    """For it, with the puppet's own approval."""
    await puppet.send(honest, Asked(operation))
    approval = asked(Approve(puppet.me, operation.request.id), puppet.keys)
    await puppet.send(honest, Asked(approval))


async def goes_on(honest: list[Member], rounds: int = 3, within_s: float = 60) -> None:
    reached = max(member.resolved for member in honest)
    await until(lambda: all(m.resolved >= reached + rounds for m in honest), within_s)
    assert len({tuple(m.chain()[: reached + rounds]) for m in honest}) == 1


async def test_two_joins_with_one_peer_id_stop_nobody(autojump_clock: Clock) -> None:
    async with open_world() as world:
        puppet, honest = await cluster(world)
        for keys in FRESH[:2]:
            await ask(puppet, honest, join(keys, FRESH[0]))
        await goes_on(honest)


async def test_who_greets_brings_nothing_but_what_it_brought_itself(autojump_clock: Clock) -> None:
    """Else a liar's Joins would lie in the places of every honest member, in place of its own."""
    async with open_world() as world:
        puppet, honest = await cluster(world)
        wanted = join(FRESH[0])
        honest[1].now.agreement.ask(wanted)
        card = MemberKeys.of(FRESH[1]).encode()
        for stake in range(1, JOINS_EACH_MAX + 1):
            many = asked(Join(FRESH[1].node_id, stake, card), FRESH[1])
            await puppet.send(honest, Asked(many))
        await trio.sleep(0.1)
        world.kill(honest[0])
        await world.start(honest[0])
        await trio.sleep(1.0)
        held = honest[0].now.agreement.facts.operations
        assert honest[0].resolved == 0, "no set has carried anything yet"
        assert set(held) == {wanted.request.id}


async def test_offers_in_the_names_of_strangers_are_no_evidence(autojump_clock: Clock) -> None:
    async with open_world() as world:
        puppet, honest = await cluster(world)
        for keys in FRESH:
            await ask(puppet, honest, join(keys))
            await goes_on(honest, rounds=1)
        domain, height = world.domain(), honest[0].resolved + 1
        for keys in FRESH:
            for name in (b"one", b"other"):
                offer = puppet.offer(height, world.first_vertex.vertex_id, name=name)
                said = Statement(domain, Kind.OFFER, 0, height, offer.as_value())
                for _ in range(2):  # a fault may have closed the stream
                    await puppet.send(honest, Stated(envelope.sign(said, keys)))
                    await trio.sleep(0.01)
        await goes_on(honest)
        assert not any(m.told("evidence_found") for m in honest)
        assert "unknown-signer" in world.blamed(world.members[3])


def two_faced_votes(keys: NodeKeys, world: World, view: int) -> list[Signed]:
    statements = [
        Statement(world.domain(), Kind.NOTARIZE, view, 0, value) for value in (b"x" * 32, b"y" * 32)
    ]
    return [envelope.sign(statement, keys) for statement in statements]


async def test_who_is_excluded_is_accused_once_and_nobody_is_in_a_set_twice(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        puppet, honest = await cluster(world)
        for _ in range(6):
            view = honest[0].now.machine.known.view + 1
            for member in honest:
                for signed in two_faced_votes(puppet.keys, world, view):
                    await puppet.send([member], Stated(signed))
            await goes_on(honest, rounds=1)
        carried = [
            len(happened.resolution.set_block.payload.evidence)  # type: ignore[union-attr]
            for happened in honest[0].happened
            if happened.resolution is not None
        ]
        assert sum(carried) == 1
        assert all(m.now.runner.newest.excluded == (puppet.me,) for m in honest)
