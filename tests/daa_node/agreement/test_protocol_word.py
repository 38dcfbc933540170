"""A daemon says in the chain what its release speaks: when that is news, and once an epoch."""

from typing import cast

import trio
import trio.testing
from trio.testing import MockClock

from daa_consensus.operations import Operation, Speak
from daa_consensus.votes import Signed, Statement
from daa_dag.ids import NodeId
from daa_node.agreement.member_list import MemberList
from daa_node.agreement.protocol_word import LOOKED_EVERY_S, ProtocolWord
from daa_node.agreement.signer import Signer
from daa_node.agreement.wan_bft import WanBft
from daa_node.network.directory import Directory
from daa_node.network.mailbox import Mailbox
from daa_node.observability import events
from daa_node.observability.events import Event, EventLog
from daa_node.seams import Transport
from tests.daa_node.identity.test_validators import KEYS, epoch_of_blocks, history, signed

US = KEYS[0]


class Pen:
    """A Signer of one key."""

    async def sign(self, statement: Statement) -> Signed:
        signature = US.sign(statement.sign_bytes(), statement.context)
        return Signed(statement, US.node_id, signature)


class Told:
    """An agreement that hears what is asked for, and in which rounds are over."""

    def __init__(self) -> None:
        self.asked: list[Operation] = []
        self.outcomes, self.resolved_round = self, 0
        self._over = trio.Event()

    async def resolved(self, round_number: int) -> None:
        while self.resolved_round < round_number:
            await self._over.wait()

    def close_round(self) -> None:
        self.resolved_round += 1
        self._over.set()
        self._over = trio.Event()

    def ask(self, operation: Operation) -> bool:
        self.asked.append(operation)
        return True


async def test_it_speaks_once_an_epoch_until_the_chain_has_it_and_takes_it_back() -> None:
    validators, agreement = history(), Told()
    word = ProtocolWord(
        US.node_id, validators, cast(Signer, Pen()), cast(WanBft, cast(object, agreement))
    )
    await word.say()
    assert not agreement.asked, "it speaks what is in use"
    validators.speaks = range(1, 3)
    for _ in range(3):
        await word.say()
    (first,) = agreement.asked
    assert first.request.action == Speak(US.node_id, 2)
    validators.check_operation(first)
    validators.follow(epoch_of_blocks(0, []))  # no set took it
    await word.say()
    _, again = agreement.asked
    assert again.request.expires_epoch == 2
    validators.follow(epoch_of_blocks(1, [again]))
    await word.say()
    assert len(agreement.asked) == 2
    validators.speaks = range(1, 2)  # the older release was put back
    await word.say()
    assert agreement.asked[-1].request.action == Speak(US.node_id, 1)
    stranger = ProtocolWord(
        NodeId(bytes(32)), validators, cast(Signer, Pen()), cast(WanBft, agreement)
    )
    validators.speaks = range(1, 3)
    await stranger.say()
    assert len(agreement.asked) == 3


async def test_a_word_that_came_too_late_is_said_sooner_in_the_next_epoch(
    autojump_clock: MockClock,
) -> None:
    """Epochs of one round, whose sets are there before a word is due in them."""
    validators, agreement = history(), Told()
    word = ProtocolWord(
        US.node_id, validators, cast(Signer, Pen()), cast(WanBft, cast(object, agreement))
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(word.run)
        await trio.testing.wait_all_tasks_blocked()
        validators.speaks = range(1, 3)
        agreement.close_round()
        for epoch in range(4):
            await trio.sleep(0.9 * LOOKED_EVERY_S)
            in_time = [o for o in agreement.asked if o.request.expires_epoch == epoch + 1]
            await trio.sleep(0.3 * LOOKED_EVERY_S)
            validators.follow(epoch_of_blocks(epoch, in_time))
            agreement.close_round()
        nursery.cancel_scope.cancel()
    assert len(agreement.asked) == 3
    assert validators.now.words.said == {US.node_id: 2}


def test_what_is_announced_and_what_is_used_stands_in_the_log() -> None:
    written: list[Event] = []
    validators, log = history(), EventLog(lambda: 0, written.append)
    validators.speaks = range(1, 3)
    directory = Directory(lambda: 0.0, validators.peer_ids, log)
    mailbox = Mailbox(
        *(cast(Transport, None), validators.peer_ids.get, directory.node_of, ()),
        *(lambda: 1_000, lambda node, fault: None, 0.1),
    )
    members = MemberList(US.node_id, validators, directory, mailbox, log)
    words = [signed(Speak(keys.node_id, 2), expires=1) for keys in KEYS[:3]]
    for epoch, said in enumerate((words, [], [], [])):
        validators.follow(epoch_of_blocks(epoch, said))
        members.changed()
        members.changed()
    restarted = history()  # what was told before is not told again
    restarted.speaks = range(1, 3)
    again = MemberList(US.node_id, restarted, directory, mailbox, log)
    again.take_up(members.on_disk())
    restarted.follow(epoch_of_blocks(4, []))
    again.changed()
    of_protocol = (events.PROTOCOL_ANNOUNCED, events.PROTOCOL_USED)
    first, second = (event for event in written if event["name"] in of_protocol)
    assert first["name"] == events.PROTOCOL_ANNOUNCED
    assert (first["version"], first["round"], first["spoken"]) == (2, 3, True)
    assert (second["name"], second["version"], second["round"]) == (events.PROTOCOL_USED, 2, 3)
