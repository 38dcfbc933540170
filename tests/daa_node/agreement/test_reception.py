"""What a message costs beside what it says."""

import trio
from trio.testing import MockClock as Clock

from daa_consensus.bft.effects import Effect
from daa_consensus.bft.events import Event, PeerPosition
from daa_node.agreement.messages import Greeting, Position
from tests.daa_node.agreement.message_world import Puppet, open_world


async def test_a_member_that_says_more_from_one_place_steps_the_machine_once(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        member, puppet = world.members[0], Puppet(world, 1)
        await world.start(member)
        machine, told = member.now.machine, list[PeerPosition]()
        step = machine.step

        def note(now_ns: int, event: Event) -> list[Effect]:
            if isinstance(event, PeerPosition):
                told.append(event)
            return step(now_ns, event)

        machine.step = note  # type: ignore[method-assign]
        for view in (1, 2):
            puppet.position = Position(0, view, 0, 0, 0)
            for _ in range(20):
                await puppet.send([member], Greeting())
        await trio.sleep(1)
        assert [position.view for position in told] == [1, 2]
