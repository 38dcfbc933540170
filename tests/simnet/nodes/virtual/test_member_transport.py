"""What members send is shown to who watches, and nothing else is."""

import random

from daa_node.wire.framing import write_message
from daa_node.wire.protocols import HELLO, VOTES
from simnet.nodes.virtual.member_transport import MemberTransport, Retries
from simnet.nodes.virtual.network import Network
from tests.simnet.nodes.virtual.test_light_transport import Node, echo, light, meet, play


def test_messages_are_shown_to_who_watches_and_nothing_else_is() -> None:
    read = list[bytes]()

    async def main(network: Network, nodes: list[Node]) -> None:
        for protocol in (HELLO, VOTES):
            nodes[1].set_handler(protocol, echo)
        await meet(nodes[0], nodes[1])
        shown = MemberTransport(nodes[0], Retries(random.Random(0)), 0, read.append)
        for protocol, message in ((HELLO, b"hello"), (VOTES, b"a vote")):
            stream = await shown.open_stream(nodes[1].peer_id, protocol)
            await write_message(stream, message)

    play(light, main)
    assert read == [b"a vote"]
