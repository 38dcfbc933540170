"""Who tells everybody how far the chain is, and who goes by it."""

from typing import cast

import trio.testing

from daa_consensus.operations import Leave
from daa_node.agreement.member_list import MemberList
from daa_node.network.directory import Directory
from daa_node.network.mailbox import Mailbox
from daa_node.observability.events import EventLog
from daa_node.seams import Transport
from tests.daa_node.agreement.message_world import open_world
from tests.daa_node.identity.test_validators import KEYS, epoch_of_blocks, history, signed


def test_a_height_is_told_until_who_is_an_epoch_behind_must_believe_it() -> None:
    """Of three, one who says it is enough; who looks on knows four, and waits for two."""
    validators, log = history(), EventLog(lambda: 0)
    directory = Directory(lambda: 0.0, validators.peer_ids, log)
    mailbox = Mailbox(
        *(cast(Transport, None), validators.peer_ids.get, directory.node_of, ()),
        *(lambda: 1_000, lambda node, fault: None, 0.1),
    )
    us, *others = KEYS
    members = MemberList(us.node_id, validators, directory, mailbox, log)
    validators.follow(epoch_of_blocks(0, [signed(Leave(KEYS[3].node_id))]))
    members.changed()
    assert (validators.committee(0).blocking, validators.now.committee.blocking) == (2, 1)
    directory.saw(others[0].peer_id, 5)
    assert members.told_height() == 0
    directory.saw(others[1].peer_id, 5)
    assert members.told_height() == 5
    validators.follow(epoch_of_blocks(1, []))  # whoever is in epoch 1 knows the three
    members.changed()
    directory.saw(others[0].peer_id, 6)
    assert members.told_height() == 6


async def test_what_members_tell_everybody_counts_for_a_member_that_nobody_writes_to(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It has left, perhaps, and was away when it did."""
    async with open_world() as world:
        alone, liar, honest, _ = world.members
        await world.start(alone)
        heights = {liar.me: 900}
        assert alone.now.agreement.rounds_behind(heights, 4) == 0
        heights[honest.me] = 7
        assert alone.now.agreement.rounds_behind(heights, 4) == 3
        assert alone.now.agreement.rounds_behind(heights, 8) == 0
