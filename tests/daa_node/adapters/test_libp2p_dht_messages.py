"""What peers tell over the DHT beside what we asked for is cut off, and costs us nothing."""

import os
from contextlib import suppress

import pytest
import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.rsa import create_new_key_pair as create_new_rsa_key_pair
from libp2p.kad_dht.pb.kademlia_pb2 import Message, Record
from libp2p.peer.envelope import seal_record
from libp2p.peer.id import ID
from libp2p.peer.pb.crypto_pb2 import KeyType, PublicKey
from libp2p.peer.pb.envelope_pb2 import Envelope
from libp2p.peer.peer_record import PeerRecord
from libp2p.records.record import make_signed_put_record
from libp2p.utils import encode_varint_prefixed
from libp2p.utils.varint import read_varint_prefixed_bytes_limited
from multiaddr import Multiaddr

from daa_node.adapters.libp2p_dht import DHT_RECORDS_MAX
from daa_node.adapters.libp2p_dht_messages import ADDRESS_BYTES_MAX, PEERS_MAX, sane_request
from daa_node.adapters.libp2p_hardening import DHT_MESSAGE_BYTES_MAX
from daa_node.adapters.libp2p_peer_store import (
    ADDRESSES_PER_PEER_MAX,
    PEERS_KNOWN_MAX,
    BoundedPeerStore,
)
from daa_node.adapters.libp2p_swarm import BoundedSwarm
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.errors import Unavailable
from daa_node.seams import ByteStream
from tests.daa_node.adapters.lone_transport import transport

KAD = "/ipfs/kad/1.0.0"
KIND = Message.MessageType
NAMED = 2000  # 104 kB of peers that do not exist


def swarm_of(node: Libp2pTransport) -> BoundedSwarm:
    assert node._parts is not None
    return node._parts.swarm


def somebody() -> ID:
    return ID(b"\x00\x24\x08\x01\x12\x20" + os.urandom(32))


def address(number: int = 1) -> Multiaddr:
    return Multiaddr(f"/ip4/10.{number >> 8}.{number & 255}.3/tcp/7")


def names_many() -> bytes:
    answer = Message(type=KIND.FIND_NODE)
    for _ in range(NAMED):
        answer.closerPeers.add(id=somebody().to_bytes(), addrs=[address().to_bytes()])
    return encode_varint_prefixed(answer.SerializeToString())


def envelope_of(seed: bytes, addresses: int) -> bytes:
    keys = create_new_key_pair(seed)
    record = PeerRecord(ID.from_pubkey(keys.public_key), [address(n) for n in range(addresses)])
    return seal_record(record, keys.private_key).marshal_envelope()


async def asked(asker: Libp2pTransport, target: Libp2pTransport, request: Message) -> Message:
    stream = await asker.open_stream(target.peer_id, KAD)
    await stream.send_all(encode_varint_prefixed(request.SerializeToString()))

    class Reader:
        async def read(self, size: int) -> bytes:
            return await stream.receive_some(size)

    with trio.fail_after(30):
        answer = await read_varint_prefixed_bytes_limited(Reader(), 2**24)  # type: ignore[arg-type]
    await stream.aclose()
    return Message.FromString(answer)


async def test_whoever_names_thousands_of_peers_does_not_make_us_forget_our_own_key() -> None:
    answered = trio.Event()

    async def lie(stream: ByteStream) -> None:
        await stream.receive_some(65536)
        await stream.send_all(names_many())
        await stream.aclose()
        answered.set()

    async with transport(2) as ours, transport(3) as rude:
        rude.set_handler(KAD, lie)
        await rude.dial(ours.addresses()[0])  # we ask whoever comes, while our table is young
        with trio.fail_after(30):
            await answered.wait()
        await trio.sleep(1)
        known = swarm_of(ours).peerstore
        assert len(known.peer_ids()) <= 2 + PEERS_MAX  # ourselves, the liar, and whom it named
        await ours.put_record("record/a", b"\x01")  # signed with our key


def test_a_store_of_peers_keeps_addresses_by_number_and_bears_what_is_none() -> None:
    store, peer = BoundedPeerStore(), ID(b"\x01" * 34)
    good = [Multiaddr("/ip4/192.0.2.1/tcp/9"), Multiaddr("/ip6/2001:db8::1/tcp/9")]
    broken = [Multiaddr(raw) for raw in (b"", b"\xff\xff\xff", good[0].to_bytes() + b"\x06")]
    store.add_addrs(peer, [*broken, Multiaddr("/dns4/bait.example/tcp/9"), *good], 60)
    assert store.addrs(peer) == good


def test_a_store_of_peers_keeps_the_newest_addresses_of_one_that_tells_ever_new_ones() -> None:
    store, peer = BoundedPeerStore(), ID(b"\x01" * 34)
    told = [Multiaddr(f"/ip4/192.0.2.{n}/tcp/9") for n in range(3 * ADDRESSES_PER_PEER_MAX)]
    for one in told:
        store.add_addrs(peer, [one], 60)
    assert store.addrs(peer) == told[-ADDRESSES_PER_PEER_MAX:]


def test_a_store_of_peers_that_is_full_keeps_who_has_our_key() -> None:
    store, keys = BoundedPeerStore(), create_new_key_pair(bytes(32))
    me = ID.from_pubkey(keys.public_key)
    store.add_key_pair(me, keys)
    for number in range(PEERS_KNOWN_MAX + 10):
        store.add_addrs(ID(number.to_bytes(8)), [address()], 3600)
    assert len(store.peer_ids()) == PEERS_KNOWN_MAX
    assert store.privkey(me) == keys.private_key


async def test_a_signed_record_of_an_asker_is_not_kept_nor_handed_on() -> None:
    """Twenty of 24 kB made each answer longer than anybody reads."""
    async with transport(2) as ours, transport(3) as honest:
        await honest.dial(ours.addresses()[0])
        request = Message(type=KIND.FIND_NODE, key=ours._id.to_bytes())
        small = await asked(honest, ours, request)
        request.senderRecord = envelope_of(bytes([103]) * 32, 2000)
        await asked(honest, ours, request)
        del request
        async with transport(4) as newcomer:
            await newcomer.dial(ours.addresses()[0])
            plain = Message(type=KIND.FIND_NODE, key=ours._id.to_bytes())
            answer = await asked(newcomer, ours, plain)
        assert swarm_of(ours).peerstore.get_peer_record(honest._id) is None
        assert all(not peer.signedRecord for peer in answer.closerPeers)
        assert answer.ByteSize() < small.ByteSize() + 1024 < DHT_MESSAGE_BYTES_MAX


def test_of_a_request_there_remains_what_its_sender_says_of_itself() -> None:
    sender = somebody()
    request = Message(type=KIND.ADD_PROVIDER, key=b"k", senderRecord=bytes(9000))
    for named in (somebody(), sender, sender):
        request.providerPeers.add(
            id=named.to_bytes(),
            addrs=[bytes(ADDRESS_BYTES_MAX + 1)] + 3000 * [address().to_bytes()],
            signedRecord=bytes(3000),
        )
        request.closerPeers.add(id=named.to_bytes())
    kept = Message.FromString(sane_request(request.SerializeToString(), sender))
    expected = Message(type=KIND.ADD_PROVIDER, key=b"k")
    expected.providerPeers.add(
        id=sender.to_bytes(), addrs=ADDRESSES_PER_PEER_MAX * [address().to_bytes()]
    )
    assert kept == expected


@pytest.mark.parametrize(
    ("signed", "kept"),
    [
        (envelope_of(bytes([103]) * 32, ADDRESSES_PER_PEER_MAX), True),
        (envelope_of(bytes([103]) * 32, 2000), False),
        (Envelope(public_key=PublicKey(Type=KeyType.RSA, Data=b"1")).SerializeToString(), False),
        (b"no envelope", False),
    ],
    ids=["ours", "large", "rsa", "garbage"],
)
def test_where_a_sender_listens_is_learnt_from_a_record_such_as_ours(
    signed: bytes, kept: bool
) -> None:
    """Who is dialled by it alone is found by nobody otherwise."""
    request = Message(type=KIND.FIND_NODE, key=b"k", senderRecord=signed)
    found = Message.FromString(sane_request(request.SerializeToString(), somebody()))
    assert found.senderRecord == (signed if kept else b"")


async def test_records_of_guests_give_way_before_those_of_members_and_ours() -> None:
    """Guests alone could fill the store, and each record beyond that cost 15 ms."""
    async with transport(2) as ours, transport(3) as member, transport(4) as guest:
        swarm_of(ours).is_member = lambda peer_id: peer_id == member.peer_id
        for peer in (member, guest):
            await peer.dial(ours.addresses()[0])
        dht = ours._parts.dht  # type: ignore[union-attr]
        put = {name: dht._name_of(f"record/{name}").encode() for name in "abc"}

        def bringing(key: bytes) -> Message:
            made = Message(type=KIND.PUT_VALUE, key=key)
            made.record.key, made.record.value = key, b"\x01"
            return made

        dht.value_store.put(dht._name_of("record/own").encode(), b"\x01")
        await asked(guest, ours, bringing(put["a"]))
        await asked(guest, ours, bringing(put["c"]))
        await asked(member, ours, bringing(put["b"]))
        with pytest.raises(trio.BrokenResourceError):  # it had that one already, from a guest
            await asked(member, ours, bringing(put["a"]))
        for number in range(DHT_RECORDS_MAX):
            dht.value_store.put_record(b"%d" % number, Record())
            dht.kept_records.brought(b"%d" % number, by_member=False, was_news=True)
        held = dht.value_store.store
        assert len(held) == DHT_RECORDS_MAX
        assert put["c"] not in held
        assert {put["a"], put["b"], dht._name_of("record/own").encode()} <= set(held)


async def test_a_record_is_judged_and_not_by_a_signature_whose_kind_its_author_chose() -> None:
    """With an exponent as long as its modulus an RSA signature takes thirty times as long."""
    async with transport(2) as ours, transport(3) as rude:
        await rude.dial(ours.addresses()[0])
        dht = ours._parts.dht  # type: ignore[union-attr]
        name = dht._name_of("record/a").encode()
        record = make_signed_put_record(name, b"\x05", create_new_rsa_key_pair(1024).private_key)
        record.signature = bytes(128)
        await asked(rude, ours, Message(type=KIND.PUT_VALUE, key=name, record=record))
        held, _ = dht.value_store.store[name]
        assert (held.value, held.author, held.signature) == (b"\x05", b"", b"")


async def test_a_record_that_runs_out_while_others_are_asked_is_none() -> None:
    """Whoever signs a record says when it ends, and its friends how long they take to answer."""
    judged = 0

    def runs_out(_key: str, payload: bytes) -> int | None:
        nonlocal judged
        judged += 1
        return payload[0] if judged == 1 else None

    async with transport(2) as holder, transport(3) as asker:
        await asker.dial(holder.addresses()[0])
        with trio.fail_after(30):
            while True:
                with suppress(Unavailable):
                    await holder.put_record("record/x", b"\x07")
                    break
                await trio.sleep(0.1)
            while await asker.get_record("record/x") is None:
                await trio.sleep(0.1)
        assert asker._parts is not None
        asker._parts.dht.value_store.store.clear()
        asker.set_record_judge(runs_out)
        assert await asker.get_record("record/x") is None
        assert judged > 1
