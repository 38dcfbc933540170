"""Framing between daemon and worker."""

import pytest

from daa_node.training.messages import LENGTH, MESSAGE_BYTES_MAX, Message, Unpacker, pack

MESSAGES: list[Message] = [
    {"beat": 1},
    {"done": 2, "loss_nats": 2.5, "manifest": b"\x00" * 300},
    {"cancel": 3},
]


@pytest.mark.parametrize("piece_size", [1, 2, 7, 1000])
def test_messages_arrive_whole_however_the_bytes_are_cut(piece_size: int) -> None:
    stream = b"".join(pack(message) for message in MESSAGES)
    unpacker = Unpacker()
    arrived = []
    for at in range(0, len(stream), piece_size):
        arrived += unpacker.feed(stream[at : at + piece_size])
    assert arrived == MESSAGES


def test_a_length_beyond_the_limit_is_refused_before_it_is_held() -> None:
    with pytest.raises(ValueError, match="at most"):
        Unpacker().feed(LENGTH.pack(MESSAGE_BYTES_MAX + 1))


def test_what_is_no_map_is_refused() -> None:
    with pytest.raises(ValueError, match="a message is a map"):
        Unpacker().feed(LENGTH.pack(1) + b"\x07")
