"""A message that was decoded before is the same one, and is refused where it always was."""

from dataclasses import replace

import pytest

from daa_consensus.bft.chain import ANY_COMMITTEE
from daa_consensus.bft.limits import Limits
from daa_node.agreement.messages import Greeting, Message, decode_message, encode_message
from daa_node.errors import PeerFault
from simnet.world.decoded_messages import MESSAGES_KEPT, decoded, forget
from tests.daa_node.agreement.test_message_sizes import AT, bodies

FEW, MORE = Limits(4, 4), Limits(5, 5)


def test_wider_limits_take_a_message_of_any_kind_for_what_narrower_ones_did() -> None:
    forget()
    for body in bodies(FEW).values():
        payload = encode_message(Message(AT, body))
        message = decoded(payload, FEW)
        assert decoded(bytes(bytearray(payload)), ANY_COMMITTEE) is message
        assert decode_message(payload, ANY_COMMITTEE) == message == Message(AT, body)


def test_narrower_limits_refuse_what_wider_ones_took() -> None:
    forget()
    payload = encode_message(Message(AT, bodies(MORE)["certified"]))
    for _ in range(2):
        assert decoded(payload, MORE).body == bodies(MORE)["certified"]
        with pytest.raises(PeerFault, match="malformed"):
            decoded(payload, FEW)


def test_the_newest_are_kept_until_a_run_begins() -> None:
    messages = [Message(replace(AT, view=view), Greeting()) for view in range(MESSAGES_KEPT)]
    first, *others, last = map(encode_message, messages)
    before = decoded(first, FEW)
    for payload in others:
        decoded(payload, FEW)
    assert decoded(first, FEW) is before
    decoded(last, FEW), decoded(encode_message(Message(AT, Greeting())), FEW)
    assert decoded(first, FEW) is not before
    newest = decoded(last, FEW)
    assert decoded(last, FEW) is newest
    forget()
    assert decoded(last, FEW) is not newest
