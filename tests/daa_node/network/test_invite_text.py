"""An invite's text holds what is needed to join, and what a hand or a chat did to it is found."""

import random

import pytest

from daa_dag.ids import ChainId, NodeId
from daa_node.errors import UserError
from daa_node.network import invite_text
from daa_node.network.invite_text import Invite, as_typed, decode_invite, encode_invite
from daa_node.seams import Address

INVITE = Invite(
    ChainId(bytes(range(32))),
    NodeId(b"\xaa" * 32),
    b"t" * 16,
    ("node.example.org:4001", "203.0.113.5:4001", "[2001:db8::1]:4001"),
)


def test_what_is_written_is_read_and_it_is_short() -> None:
    text = encode_invite(INVITE)
    assert decode_invite(text) == INVITE
    assert len(text) < 300
    assert text.isalnum()


@pytest.mark.parametrize("between", [" ", "\n", "\r\n  ", "\t", "\u200b", "\u00a0", "\ufeff"])
def test_line_breaks_spaces_quotes_and_capitals_mean_nothing(between: str) -> None:
    text = encode_invite(INVITE)
    pieces = [text[at : at + 40] for at in range(0, len(text), 40)]
    assert decode_invite(f'"{between.join(pieces)}"\n') == INVITE
    assert decode_invite(text.upper()) == INVITE
    assert decode_invite(f"“{text}”") == decode_invite(f"«{text}»") == INVITE


@pytest.mark.parametrize(
    "around", ["daa-node join {}", "Send it to nobody else:\n{}", "({})", "{}."]
)
def test_words_before_it_and_the_end_of_a_sentence_mean_nothing(around: str) -> None:
    text = encode_invite(INVITE)
    assert decode_invite(around.format(text)) == INVITE
    with pytest.raises(UserError, match="copy the whole of it again"):
        decode_invite(f"{text}\nOn the new host:  daa-node join INVITE")


def test_a_character_that_was_lost_or_changed_is_found() -> None:
    text, chance = encode_invite(INVITE), random.Random(7)
    for _ in range(300):
        at = chance.randrange(4, len(text))
        other = chance.choice([c for c in "abcdefghijklmnopqrstuvwxyz234567" if c != text[at]])
        cut, begun = text[:at] + text[at + 1 :], text[:at]
        for wrong in (cut, begun + other + text[at + 1 :], begun, begun + "é" + text[at + 1 :]):
            with pytest.raises(UserError, match="copy the whole of it again"):
                decode_invite(wrong)


@pytest.mark.parametrize("text", ["", "hello", "daa-record-1 00", "x" * 5000, "daa1" + "a" * 5000])
def test_what_is_no_invite_is_said_to_be_none(text: str) -> None:
    with pytest.raises(UserError, match="this is no invite: one begins with daa1"):
        decode_invite(text)


def test_a_later_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invite_text, "VERSION", 2)
    text = encode_invite(INVITE)
    monkeypatch.undo()
    with pytest.raises(UserError, match="this invite has version 2"):
        decode_invite(text)


def test_of_many_addresses_as_many_stay_as_keep_it_short() -> None:
    many = Invite(INVITE.chain_id, INVITE.inviter, INVITE.token, ("h" * 60 + ".example:4001",) * 4)
    text = encode_invite(many)
    assert len(text) < 300
    assert len(decode_invite(text).addresses) == 1


def test_an_address_through_a_relay_goes_alone_and_the_text_is_longer_for_it() -> None:
    peer = "12D3KooWNvSZnPi3RrhrTwEY4LuuBeB6K6facKUCJcyWG1aoDd2p"
    through = f"/dns4/{'h' * 40}.example/tcp/4001/ws/p2p/{peer}/p2p-circuit/p2p/{peer}"
    far = Invite(INVITE.chain_id, INVITE.inviter, INVITE.token, (through, "203.0.113.5:4001"))
    text = encode_invite(far)
    assert decode_invite(text).addresses == (through,)
    longest = Invite(INVITE.chain_id, INVITE.inviter, INVITE.token, ("h" * 200,))
    assert 300 < len(text) < len(encode_invite(longest)) < 500


def test_addresses_are_told_as_a_person_types_them_the_far_ones_first() -> None:
    peer = "/p2p/12D3KooWNvSZnPi3RrhrTwEY4LuuBeB6K6facKUCJcyWG1aoDd2p"
    plain = ["/ip4/127.0.0.1/tcp/4001", "/ip4/203.0.113.5/tcp/4001/ws", "/ip4/203.0.113.5/tcp/4001"]
    plain += ["/dns/node.example/tcp/4001", "/ip6/2001:db8::1/tcp/9", "/dns6/node.example/tcp/1"]
    typed = as_typed([Address(address + peer) for address in plain])
    assert typed == (
        "203.0.113.5:4001",
        "node.example:4001",
        "[2001:db8::1]:9",
        "ws://203.0.113.5:4001",
        "/dns6/node.example/tcp/1",
        "127.0.0.1:4001",
    )
    made = Invite(INVITE.chain_id, INVITE.inviter, INVITE.token, typed)
    assert set(decode_invite(encode_invite(made)).dialled) <= set(plain)
