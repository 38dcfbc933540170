"""News spreads as far as it is news; who passes on what is plainly wrong is parted with."""

import os

import pytest
import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils import encode_varint_prefixed

from daa_dag import canonical
from daa_node.errors import PeerFault
from daa_node.network.gossip import HEADS_BURST, NEWCOMERS_BURST
from daa_node.network.link_limits import GB_BYTES, STRANGERS_SHARE
from daa_node.network.topics import heads_topic, records_topic
from daa_node.seams import Announcement, ByteStream, PeerId
from tests.daa_node.network.limited_link import Link
from tests.daa_node.network.neighbours import (
    CHAIN,
    KEYS,
    Neighbour,
    WallClock,
    heard,
    running,
    until,
)

HEADS, RECORDS = heads_topic(CHAIN), records_topic(CHAIN)
ED25519_SIGNATURE_BYTES = 64


async def met(one: Neighbour, two: Neighbour) -> None:
    await one.transport.dial(two.address)
    await until(lambda: one.welcomed(two) and two.welcomed(one))


def message(number: int, topic: str, data: bytes, seqno: int, signed: bool = True) -> bytes:
    """One RPC with one message in the name of that neighbour."""
    pair = create_new_key_pair(KEYS[number].ed25519_seed)
    author = ID.from_pubkey(pair.public_key).to_bytes()
    made = rpc_pb2.Message(
        data=data, topicIDs=[topic], from_id=author, seqno=seqno.to_bytes(8, "big")
    )
    covered = b"libp2p-pubsub:" + made.SerializeToString()
    made.signature = (
        pair.private_key.sign(covered) if signed else os.urandom(ED25519_SIGNATURE_BYTES)
    )
    return encode_varint_prefixed(rpc_pb2.RPC(publish=[made]).SerializeToString())


async def gossip_stream(sender: Neighbour, receiver: Neighbour) -> ByteStream:
    return await sender.transport.open_stream(receiver.peer_id, "/meshsub/1.1.0")


def head(height: int) -> bytes:
    return canonical.encode([height])


def heard_by(node: Neighbour) -> int:
    """How many messages it has taken in, to pass them on."""
    return len(node.transport._parts.pubsub.seen_messages._ids)  # type: ignore[union-attr]


def faults_of(node: Neighbour, peer: Neighbour) -> dict[str, int]:
    standing = node.directory.standing(peer.peer_id)
    return {} if standing is None else dict(standing.reputation.faults)


async def test_who_passes_on_bad_signatures_is_banned_after_the_third() -> None:
    ours, rude = Neighbour(0, (0, 1)), Neighbour(1, (0, 1))
    async with running(ours, gossip=True), running(rude):
        await met(ours, rude)
        stream = await gossip_stream(rude, ours)
        with trio.move_on_after(5):
            for number in range(28_000):
                forged = message(1, HEADS, head(number), number, signed=False)
                try:
                    await stream.send_all(forged)
                except trio.BrokenResourceError:
                    break
                if ours.directory.banned_for_s(rude.peer_id):
                    break
        await until(lambda: bool(ours.directory.banned_for_s(rude.peer_id)))
        assert faults_of(ours, rude)["bad-signature"] in (3, 4)  # then it is not even listened to


@pytest.mark.parametrize(
    "wrong",
    [
        b"\xff" * 50,
        rpc_pb2.RPC(publish=[rpc_pb2.Message(topicIDs=["elsewhere"])]).SerializeToString(),
        rpc_pb2.RPC(
            publish=[rpc_pb2.Message(topicIDs=[HEADS], key=bytes(200_000))]
        ).SerializeToString(),
    ],
)
async def test_what_is_no_message_of_ours_is_its_senders_fault(wrong: bytes) -> None:
    ours, rude = Neighbour(0, (0, 1)), Neighbour(1, (0, 1))
    async with running(ours, gossip=True), running(rude):
        await met(ours, rude)
        await (await gossip_stream(rude, ours)).send_all(encode_varint_prefixed(wrong))
        await until(lambda: faults_of(ours, rude) == {"gossip-malformed": 1})


async def test_a_true_head_of_who_is_no_member_goes_nowhere_and_is_nobodys_fault() -> None:
    ours, other, stranger = (Neighbour(number, (0, 1)) for number in (0, 1, 2))
    async with running(ours, gossip=True), running(other, gossip=True), running(stranger):
        await met(ours, other)
        await met(stranger, ours)
        await trio.sleep(1.5)  # gossip's streams, and a heartbeat
        before = heard_by(other)
        stream = await gossip_stream(stranger, ours)
        for number in range(200):
            await stream.send_all(message(2, HEADS, head(10**6 + number), number))
        said = await heard(other, 7, [ours])
        await trio.sleep(1)
        assert heard_by(other) - before <= said  # its own
        assert heard_by(ours) - before <= said
        assert not faults_of(ours, stranger)
        assert ours.height_of(stranger) == 2  # as it said in its hello


async def test_a_forwarder_that_knows_another_committee_is_not_blamed() -> None:
    """It passes on what a member says who has left, or whom we do not know to be one yet."""
    ours, lagging, former = Neighbour(0, (0, 1)), Neighbour(1, (0, 1, 2)), Neighbour(2, (0, 1, 2))
    async with running(ours, gossip=True), running(lagging, gossip=True), running(former):
        await met(ours, lagging)
        await met(former, lagging)
        await trio.sleep(1.5)
        stream = await gossip_stream(former, lagging)
        await stream.send_all(message(2, HEADS, head(50), 1))
        await until(lambda: lagging.height_of(former) == 50)
        await heard(lagging, 51, [ours])
        assert not faults_of(ours, lagging)
        assert ours.height_of(former) in (0, 2)  # not told by hello, or as it said there


async def test_one_members_heads_are_passed_on_at_the_pace_of_honest_ones() -> None:
    ours, other, hasty = (Neighbour(number, (0, 1, 2)) for number in (0, 1, 2))
    async with running(ours, gossip=True), running(other, gossip=True), running(hasty):
        await met(ours, other)
        await met(hasty, ours)
        await trio.sleep(1.5)
        stream = await gossip_stream(hasty, ours)
        for number in range(300):
            await stream.send_all(message(2, HEADS, head(100 + number), number))
        await until(lambda: ours.height_of(hasty) >= 100)
        await trio.sleep(2)
        assert heard_by(other) <= HEADS_BURST + 3
        assert not faults_of(ours, hasty)


def test_a_height_that_says_nothing_new_is_not_even_checked() -> None:
    async def main() -> None:
        ours, other = Neighbour(0, (0, 1)), Neighbour(1, (0, 1))
        ours.directory.learn(other.own.current())

        def is_news(height: int, source: PeerId = other.peer_id) -> bool:
            return ours.gossip.may_be_head(Announcement(source, head(height), source))

        assert is_news(5)
        assert ours.gossip.judge_head(Announcement(other.peer_id, head(5), other.peer_id))
        assert not is_news(5)
        assert not is_news(4)
        assert is_news(6)
        assert not is_news(6, KEYS[2].peer_id)

    trio.run(main)


def test_of_newcomers_each_forwarder_brings_no_more_than_its_share() -> None:
    async def main() -> None:
        ours = Neighbour(0, (0, 1))

        def may_be(source: int, forwarder: int) -> bool:
            peers = KEYS[source].peer_id, KEYS[forwarder].peer_id
            return ours.gossip.may_be_record(Announcement(peers[0], b"", peers[1]))

        taken = sum(may_be(2, 3) for _ in range(1000))
        assert taken == NEWCOMERS_BURST
        assert may_be(2, 4)  # another forwarder has a share of its own
        assert may_be(1, 3)  # and a member's record needs none

    trio.run(main)


async def test_what_members_pass_on_of_a_stranger_is_not_taken_from_the_members_data() -> None:
    ours, other, stranger = (Neighbour(number, (0, 1)) for number in (0, 1, 2))
    async with running(ours, gossip=True), running(other, gossip=True), running(stranger):
        await met(ours, other)
        await met(stranger, ours)
        await heard(other, 7, [ours])  # the mesh is there
        at_ours, at_others = ours.transport.carried, other.transport.carried
        before = at_ours.of_members, at_others.of_members
        ours_before, others_before = at_ours.of_strangers, at_others.of_strangers
        stream, heard_before = await gossip_stream(stranger, ours), heard_by(other)
        news = [
            message(2, RECORDS, stranger.own.current_bytes(), number)
            for number in range(NEWCOMERS_BURST)
        ]
        for each in news:
            await stream.send_all(each)
        await until(lambda: heard_by(other) == heard_before + NEWCOMERS_BURST)
        sent = sum(map(len, news))
        assert at_others.of_strangers - others_before >= sent
        assert at_ours.of_strangers - ours_before >= 2 * sent  # it has come, and left again
        assert at_ours.of_members - before[0] < sent / 10
        assert at_others.of_members - before[1] < sent / 10


def test_a_stranger_s_record_goes_no_further_once_their_data_are_spent() -> None:
    async def main() -> None:
        link = Link(data_gb_a_day=1.0)
        ours, member, stranger = Neighbour(0, (0, 1)), Neighbour(1), Neighbour(2)
        ours.gossip.limits = link.limits

        def passes_on(source: Neighbour) -> bool:
            payload, forwarder = source.own.current_bytes(), KEYS[3].peer_id
            return ours.gossip.judge_record(Announcement(source.peer_id, payload, forwarder))

        assert passes_on(stranger)
        link.limits.carried.note(int(STRANGERS_SHARE * GB_BYTES), is_member=False)
        assert not passes_on(stranger)
        assert passes_on(member)
        link.day += 1
        assert passes_on(stranger)

    trio.run(main)


def test_a_record_that_only_our_clock_refuses_is_nobodys_fault() -> None:
    async def main() -> None:
        ours, other = Neighbour(0), Neighbour(1, clock=WallClock(121.0))
        payload = other.own.current_bytes()
        assert not ours.gossip.judge_record(Announcement(other.peer_id, payload, KEYS[2].peer_id))

    trio.run(main)


def test_gossip_carries_only_the_senders_own_record_and_plain_heights() -> None:
    async def main() -> None:
        ours, other = Neighbour(0), Neighbour(1)
        payload, source = other.own.current_bytes(), other.peer_id
        assert ours.gossip.judge_record(Announcement(source, payload, source))
        assert ours.directory.node_of(source) == KEYS[1].node_id
        with pytest.raises(PeerFault, match="own record only"):
            ours.gossip.judge_record(Announcement(KEYS[2].peer_id, payload, source))
        for wrong in (b"", b"\x91\xff", b"\x91\xc3", b"\x92\x01\x01", b"\x91\xcf" + b"\xff" * 8):
            with pytest.raises(PeerFault, match="head-malformed"):
                ours.gossip.judge_head(Announcement(source, wrong, source))

    trio.run(main)
