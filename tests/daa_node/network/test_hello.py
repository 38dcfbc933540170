"""Members of one chain get in; everybody else is told why not, and so are we."""

from dataclasses import replace

import pytest
import trio

from daa_dag.ids import ChainId
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.hello import (
    INNOCENT_REASONS,
    Greeting,
    decode_greeting,
    encode_greeting,
)
from daa_node.seams import ByteStream, PeerId
from daa_node.wire import protocols
from daa_node.wire.framing import write_message
from daa_node.wire.protocols import Versions
from tests.daa_node.network.neighbours import KEYS, Neighbour, WallClock, running, until

OTHER_CHAIN = ChainId(b"\xaa" * 32)


async def test_two_nodes_of_one_chain_welcome_each_other() -> None:
    async with running(Neighbour(0)) as one, running(Neighbour(1)) as two:
        await one.transport.dial(two.address)
        await until(lambda: one.welcomed(two) and two.welcomed(one))
        assert one.directory.node_of(two.peer_id) == two.keys.node_id
        standings = [one.directory.standing(two.peer_id), two.directory.standing(one.peer_id)]
        assert [standing.height for standing in standings if standing] == [1, 0]
        # whoever begins measures the round trip
        assert sum(standing.rtt_s is not None for standing in standings if standing) == 1


@pytest.mark.parametrize(
    ("stranger", "reason", "words"),
    [
        (Neighbour(1, chain_id=OTHER_CHAIN), "wrong-chain", ["aaaa", "00010203", "genesis.json"]),
        (Neighbour(1, clock=WallClock(400)), "clock-skew", [" s ahead of", "NTP"]),
        (Neighbour(1, clock=WallClock(-400)), "clock-skew", [" s behind", "NTP"]),
        (Neighbour(1, record_keys=KEYS[4]), "peer-id", [KEYS[1].peer_id, KEYS[4].peer_id]),
    ],
)
async def test_a_refusal_says_why_on_both_sides(
    stranger: Neighbour, reason: str, words: list[str]
) -> None:
    async with running(Neighbour(0)) as ours, running(stranger):
        await ours.transport.dial(stranger.address)
        await until(lambda: bool(ours.refusals()) and bool(stranger.refusals()))
        await until(lambda: not ours.transport.connected() and not stranger.transport.connected())
    by_us = [detail for by, found, detail in ours.refusals() if (by, found) == ("us", reason)]
    told = [detail for by, found, detail in stranger.refusals() if (by, found) == ("peer", reason)]
    assert by_us
    assert told == by_us
    for word in words:
        assert word in by_us[0]
    assert not ours.welcomed(stranger)


async def test_nothing_but_hello_is_served_before_it_passed() -> None:
    served: list[PeerId] = []

    async def secret(stream: ByteStream) -> None:
        served.append(stream.peer_id)

    ours, stranger = Neighbour(0), Neighbour(1, chain_id=OTHER_CHAIN)
    ours.transport.set_handler("/secret", secret)
    async with running(ours), running(stranger):
        await stranger.transport.dial(ours.address)
        with trio.move_on_after(2):
            for protocol in ("/secret", protocols.REQUEST):
                try:
                    stream = await stranger.transport.open_stream(ours.peer_id, protocol)
                    assert await stream.receive_some(1) == b""
                except (Unavailable, trio.BrokenResourceError):
                    continue
        await until(lambda: not ours.transport.connected())
    assert served == []


async def test_a_stream_that_comes_a_little_before_the_welcome_waits_for_it() -> None:
    async def echo(stream: ByteStream) -> None:
        await stream.send_all(await stream.receive_some(100))

    ours, other = Neighbour(0), Neighbour(1)
    ours.transport.set_handler("/echo", echo)
    async with running(ours), running(other):
        await other.transport.dial(ours.address)
        stream = await other.transport.open_stream(ours.peer_id, "/echo")
        await stream.send_all(b"early")
        assert await stream.receive_some(100) == b"early"


async def test_hello_is_said_again_after_a_reconnection() -> None:
    async with running(Neighbour(0)) as one:
        for _ in range(2):
            two = Neighbour(1)
            async with running(two):
                await two.transport.dial(one.address)
                await until(lambda: two.welcomed(one))  # noqa: B023
                await until(lambda: one.welcomed(two))  # noqa: B023
            await until(lambda: not one.transport.connected())
    joined = [event for event in one.events.tail() if event["name"] == "peer_joined"]
    assert len(joined) == 2


async def test_who_dials_again_while_its_last_connection_ends_is_greeted_again() -> None:
    """The library says a tenth of a second late that it has ended. Gossip needs the greeting."""

    def joined(at: Neighbour) -> int:
        return sum(event["name"] == "peer_joined" for event in at.events.tail())

    async with running(Neighbour(0)) as ours, running(Neighbour(1)) as other:
        await ours.transport.dial(other.address)
        await until(lambda: joined(ours) == joined(other) == 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.transport.hang_up, other.peer_id)
            await until(lambda: not ours.transport.connected())
            await ours.transport.dial(other.address)
        await until(lambda: joined(ours) == joined(other) == 2)


async def test_who_dials_again_while_a_refusal_ends_is_greeted_again() -> None:
    ahead = WallClock(400)
    async with running(Neighbour(0)) as ours, running(Neighbour(1, clock=ahead)) as other:
        await ours.transport.dial(other.address)
        await until(lambda: bool(ours.refusals()) and bool(other.refusals()))
        ahead.set_right()
        # gone from the list, while what stood on the connection still takes its leave
        await until(lambda: not ours.transport.connected())
        await ours.transport.dial(other.address)
        await until(lambda: ours.welcomed(other) and other.welcomed(ours))


async def test_peers_that_dial_each_other_at_once_end_up_welcome() -> None:
    async with running(Neighbour(0)) as one, running(Neighbour(1)) as two:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.transport.dial, two.address)
            nursery.start_soon(two.transport.dial, one.address)
        await until(lambda: one.welcomed(two) and two.welcomed(one))

        async def echo(peer_id: PeerId, body: bytes) -> bytes:
            return body

        one.requests.register("echo", echo)
        assert await two.requests.ask(one.peer_id, "echo", b"both ways", 100) == b"both ways"
        assert not one.refusals() + two.refusals()


async def test_a_banned_peer_stays_outside_and_learns_for_how_long() -> None:
    async with running(Neighbour(0)) as ours, running(Neighbour(1)) as banned:
        while not ours.directory.blame(banned.peer_id, PeerFault("bad-signature")):
            pass
        await banned.transport.dial(ours.address)
        await until(lambda: bool(banned.refusals()))
        assert banned.refusals()[0][:2] == ("peer", "banned")
        assert "60 s more" in banned.refusals()[0][2]


async def test_members_find_room_where_others_do_not() -> None:
    host = Neighbour(0, members=(0, 3), peers_max=1)
    async with (
        running(host),
        running(Neighbour(1)) as first,
        running(Neighbour(2)) as second,
        running(Neighbour(3)) as member,
    ):
        await first.transport.dial(host.address)
        await until(lambda: host.welcomed(first))
        await second.transport.dial(host.address)
        await until(lambda: bool(second.refusals()))
        assert second.refusals()[0][:2] == ("peer", "full")
        await member.transport.dial(host.address)
        await until(lambda: host.welcomed(member))


async def test_garbage_instead_of_a_hello_costs_score_and_nothing_else() -> None:
    async with running(Neighbour(0)) as ours, running(Neighbour(1)) as rude:
        await rude.transport.dial(ours.address)
        stream = await rude.transport.open_stream(ours.peer_id, protocols.HELLO)
        await write_message(stream, b"\xc1garbage")
        await until(lambda: ours.directory.score(rude.peer_id) < 0)
        assert ("us", "hello-malformed") in [refusal[:2] for refusal in ours.refusals()]


GREETING = Greeting(1, 1, ChainId(bytes(32)), b"record", 5, 7)


def test_a_greeting_survives_the_wire_and_later_fields_are_skipped() -> None:
    payload = encode_greeting(GREETING)
    assert decode_greeting(payload) == GREETING
    longer = b"\x97" + payload[1:] + b"\x01"
    assert decode_greeting(longer) == GREETING


@pytest.mark.parametrize(
    "wrong",
    [
        replace(GREETING, version=-1),
        replace(GREETING, version=1, version_min=2),
        replace(GREETING, version=2**16),
        replace(GREETING, chain_id=ChainId(b"short")),
        replace(GREETING, height=2**60),
        replace(GREETING, wall_ns=True),
    ],
)
def test_a_greeting_of_another_form_is_the_peers_fault(wrong: Greeting) -> None:
    with pytest.raises(PeerFault, match="hello-malformed"):
        decode_greeting(encode_greeting(wrong))


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [
        (7, 9, "theirs speaks protocol 7 to 9, ours 1 to 1: upgrade the older one, ours"),
        (0, 0, "theirs speaks protocol 0 to 0, ours 1 to 1: upgrade the older one, theirs"),
    ],
)
def test_versions_that_do_not_meet_are_named_with_the_one_to_upgrade(
    least: int, most: int, words: str
) -> None:
    ours = Neighbour(0)
    with pytest.raises(PeerFault, match=words) as refused:
        ours.hello.judge(PeerId("x"), replace(GREETING, version=most, version_min=least))
    assert refused.value.reason in INNOCENT_REASONS


async def test_a_node_of_the_next_release_is_welcome_and_is_known_as_one() -> None:
    """As long as it speaks ours as well; nobody is blamed for what its hello has more."""
    ours, newer = Neighbour(0), Neighbour(1, speaks=Versions(1, 2))
    async with running(ours), running(newer):
        await ours.transport.dial(newer.address)
        await until(lambda: ours.welcomed(newer) and newer.welcomed(ours))
    heard = [ours.directory.standing(newer.peer_id), newer.directory.standing(ours.peer_id)]
    assert [standing.speaks for standing in heard if standing] == [Versions(1, 2), protocols.OURS]


async def test_a_node_that_has_left_our_version_behind_is_refused_on_both_sides() -> None:
    ours, newer = Neighbour(0), Neighbour(1, speaks=Versions(2, 3))
    async with running(ours), running(newer):
        await ours.transport.dial(newer.address)
        await until(lambda: bool(ours.refusals()) and bool(newer.refusals()))
    reasons = {reason for node in (ours, newer) for _, reason, _ in node.refusals()}
    assert reasons == {"incompatible-version"}
    assert not ours.welcomed(newer)
    assert not ours.directory.banned_for_s(newer.peer_id)


async def test_each_hello_tells_how_far_the_other_clock_is_off() -> None:
    ours, ahead = Neighbour(0), Neighbour(1, clock=WallClock(90))
    async with running(ours), running(ahead):
        await ours.transport.dial(ahead.address)
        await until(lambda: ours.welcomed(ahead) and ahead.welcomed(ours))
    heard = [ours.directory.standing(ahead.peer_id), ahead.directory.standing(ours.peer_id)]
    offs_s = [standing.clock_off_s or 0.0 for standing in heard if standing is not None]
    assert 60 < offs_s[0] < 120  # a busy machine is late
    assert -120 < offs_s[1] < -60
