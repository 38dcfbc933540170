"""A daemon says in the chain what its release speaks: when that is news, and once an epoch."""

from typing import cast

from daa_consensus.operations import Operation, Speak
from daa_consensus.votes import Signed, Statement
from daa_dag.ids import NodeId
from daa_node.agreement.member_list import MemberList
from daa_node.agreement.protocol_word import ProtocolWord
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
    """An agreement that hears what is asked for."""

    def __init__(self) -> None:
        self.asked: list[Operation] = []

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
    of_protocol = (events.PROTOCOL_ANNOUNCED, events.PROTOCOL_USED)
    first, second = (event for event in written if event["name"] in of_protocol)
    assert first["name"] == events.PROTOCOL_ANNOUNCED
    assert (first["version"], first["round"], first["spoken"]) == (2, 3, True)
    assert (second["name"], second["version"], second["round"]) == (events.PROTOCOL_USED, 2, 3)
