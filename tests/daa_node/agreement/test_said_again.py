"""What a member says again, and when: as much as may have been lost, and no more."""

import trio
import trio.testing

from daa_consensus.votes import Kind
from daa_node.agreement.messages import Stated, decode_message
from tests.daa_node.agreement.message_world import DELTA_S, Puppet, open_world, until

Clock = trio.testing.MockClock


async def test_a_new_ack_is_said_again_and_an_old_offer_is_not(autojump_clock: Clock) -> None:
    said: list[Kind] = []
    async with open_world() as world:
        alone = world.members[0]
        await world.start(alone)
        await until(lambda: bool(alone.told("offer_acked")), 30)
        await trio.sleep(4.2)

        def note(message: bytes) -> None:
            match decode_message(message, world.limits).body:
                case Stated(signed) if signed.statement.view == 0:
                    said.append(signed.statement.kind)

        agreement = alone.now.agreement
        agreement._parts.mailbox.broadcast = note  # type: ignore[method-assign]
        await agreement.sign_and_send(Kind.ACK, 1, [bytes(32)])
        await trio.sleep(1.5)
        assert said == [Kind.ACK, Kind.ACK]


async def test_a_stream_that_is_opened_anew_begins_with_all_that_still_matters_and_says_it_once(
    autojump_clock: Clock,
) -> None:
    async with open_world() as world:
        alone = world.members[0]
        await world.start(alone)
        await until(lambda: bool(alone.told("view_given_up")), 30)
        await trio.sleep(20 * DELTA_S)  # it has said so again meanwhile, to nobody
        puppet = Puppet(world, 1)
        await until(lambda: bool(puppet.heard), 2)
        await trio.sleep(DELTA_S / 10)
        said = [message.body for _, message in puppet.heard]
        statements = [body.signed.statement.kind for body in said if isinstance(body, Stated)]
        assert sorted(statements) == [Kind.ACK, Kind.NULLIFY, Kind.OFFER]
        assert all(said.count(body) == 1 for body in said)
