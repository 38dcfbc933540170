"""Who provides what: found through others, told again, and no word of a liar goes far."""

from typing import cast

import pytest
import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.kad_dht.common import BUCKET_SIZE
from libp2p.kad_dht.provider_store import ProviderRecord
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from multiaddr import Multiaddr

from daa_node.adapters.libp2p_dht import (
    KEYS_PER_PROVIDER_MAX,
    PROVIDED_KEYS_MAX,
    PROVIDERS_PER_ANSWER_MAX,
    REFRESH_S,
    REPROVIDE_S,
    BoundedDht,
    BoundedProviders,
    ConnectedBucket,
    ProviderSearch,
)
from daa_node.adapters.libp2p_peer_store import PEERS_KNOWN_MAX
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.errors import Unavailable
from tests.daa_node.adapters.lone_transport import transport

FAKES = [ID.from_pubkey(create_new_key_pair(bytes([n]) * 32).public_key) for n in range(25)]
PEER = FAKES[0]


def dht_of(node: Libp2pTransport) -> BoundedDht:
    assert node._parts is not None
    return node._parts.dht


async def noted(node: Libp2pTransport, key: str, provider: Libp2pTransport) -> None:
    """Until the node has been told, by nobody but the provider."""
    dht = dht_of(node)
    with trio.fail_after(30):
        while provider.peer_id not in dht.provider_store.providers.get(dht._hashed(key), {}):
            await trio.sleep(0.05)


async def test_providers_are_found_through_others_and_told_again() -> None:
    async with transport(2) as one, transport(3) as two, transport(4) as three:
        with pytest.raises(Unavailable):
            await one.provide("checkpoint/a")  # nobody is there to note it
        await one.dial(two.addresses()[0])  # tells it by itself, once the table has somebody
        await noted(two, "checkpoint/a", one)
        await three.dial(two.addresses()[0])
        with trio.fail_after(30):  # its table has somebody soon
            while not (found := await three.find_providers("checkpoint/a", 8)):
                await trio.sleep(0.2)
        assert found == [one.peer_id]
        assert await one.find_providers("checkpoint/a", 8) == []  # not ourselves
        assert await three.find_providers("checkpoint/b", 8) == []
        assert dht_of(three)._hashed("checkpoint/b") not in dht_of(three).provider_store.providers

        dht_of(two).provider_store.providers.clear()
        dht_of(one)._told_s[dht_of(one)._hashed("checkpoint/a")] -= REPROVIDE_S
        dht_of(one).welcome(ID.from_base58(two.peer_id))  # or it comes every YOUNG_S
        await noted(two, "checkpoint/a", one)
        for number in range(KEYS_PER_PROVIDER_MAX):
            dht_of(one)._told_s[b"%d" % number] = trio.current_time()
        await one.provide("checkpoint/c")
        assert len(dht_of(one)._told_s) == KEYS_PER_PROVIDER_MAX
        assert not dht_of(one).provider_store.providing_keys


async def test_whoever_names_liars_fills_only_its_own_share_and_nothing_is_kept() -> None:
    async with (
        transport(2) as one,
        transport(3) as two,
        transport(4) as liar,
        transport(5) as asker,
    ):
        for node in (two, liar, asker):
            await node.dial(one.addresses()[0])
        await asker.dial(two.addresses()[0])
        await asker.dial(liar.addresses()[0])
        await trio.sleep(1.5)
        await two.provide("checkpoint/a")
        for node in (one, liar, asker):
            await noted(node, "checkpoint/a", two)
        lies = dht_of(liar).provider_store
        key = dht_of(liar)._hashed("checkpoint/a")
        lies.providers[key] = {str(fake): ProviderRecord(PeerInfo(fake, [])) for fake in FAKES[:20]}
        dht_of(asker).provider_store.providers.clear()
        found = await asker.find_providers("checkpoint/a", 3)
        assert two.peer_id in found
        assert len(found) == 3
        assert len(await asker.find_providers("checkpoint/a", 100)) == 21
        assert not dht_of(asker).provider_store.providers


async def test_a_provider_is_noted_under_our_keys_only_a_few_times_and_without_addresses() -> None:
    async with transport(2) as one:
        dht = dht_of(one)
        store, address = dht.provider_store, Multiaddr("/ip4/192.0.2.1/tcp/9")
        good = dht._hashed("checkpoint/a")
        for key in (b"", good[:-1], good + b"x", b"/daa-other/" + good[-32:]):
            store.add_provider(key, PeerInfo(PEER, [address]))
        assert not store.providers
        store.add_provider(good, PeerInfo(dht.host.get_id(), []))
        keys = [good, *(dht._hashed(str(number)) for number in range(KEYS_PER_PROVIDER_MAX))]
        for key in keys:
            store.add_provider(key, PeerInfo(PEER, [address]))
        assert store.get_provided_keys(PEER) == keys[1:]
        assert store.get_provided_keys(dht.host.get_id()) == [good]  # nobody pushes others out
        assert all(not info.addrs for key in keys for info in store.get_providers(key))


async def test_a_long_answer_that_comes_first_leaves_room_for_the_others() -> None:
    honest = ID.from_pubkey(create_new_key_pair(bytes([99]) * 32).public_key)
    async with transport(2) as one:
        search = ProviderSearch(dht_of(one).host, None)
        search.heard([PeerInfo(fake, []) for fake in FAKES])
        search.heard([])
        search.heard([PeerInfo(honest, [])])
        assert search.found(2) == [FAKES[0], honest]
        assert len(search.found(100)) == PROVIDERS_PER_ANSWER_MAX + 1


async def test_a_search_names_members_before_those_that_guests_name() -> None:
    async with transport(2) as one:
        assert one._parts is not None
        one._parts.swarm.is_member = str(FAKES[24]).__eq__
        search = ProviderSearch(dht_of(one).host, None)
        search.heard(infos := [PeerInfo(fake, []) for fake in FAKES[:20]])
        search.heard([*infos[5:], PeerInfo(FAKES[24], [])])
        assert search.found(8)[0] == FAKES[24]


async def test_arrivals_fill_the_table_and_nobody_is_asked_once_it_has_a_bucket() -> None:
    asked: list[bytes] = []

    async def ask(target_key: bytes, count: int = 20) -> list[ID]:
        asked.append(target_key)
        return []

    async with transport(2) as node:
        dht = dht_of(node)
        dht.peer_routing.find_closest_peers_network = ask  # type: ignore[method-assign]
        for peer_id in FAKES[:5]:
            dht.welcome(peer_id)
        await dht._fill_table()
        assert dht.routing_table.size() == 5
        assert asked == [dht.local_peer_id.to_bytes()]
        for peer_id in FAKES[5:]:
            dht.welcome(peer_id)
        await dht._fill_table()
        assert dht.routing_table.size() >= BUCKET_SIZE
        assert len(asked) == 1
        dht._refreshed_s -= REFRESH_S
        await dht._fill_table()
        assert len(asked) > 2  # for each bucket
        for _ in range(PEERS_KNOWN_MAX + 1):
            dht.welcome(FAKES[0])  # who comes and goes
        assert len(dht._newcomers) == PEERS_KNOWN_MAX


async def test_a_full_bucket_keeps_whom_we_are_connected_with() -> None:
    async with transport(2) as one, transport(3) as two:
        await one.dial(two.addresses()[0])
        bucket = ConnectedBucket(dht_of(one).host, bucket_size=1)
        gone, here = PeerInfo(FAKES[0], []), PeerInfo(ID.from_base58(two.peer_id), [])
        assert await bucket.add_peer(gone)
        assert await bucket.add_peer(here)  # who is gone gives way
        assert not await bucket.add_peer(gone)
        assert bucket.peer_ids() == [here.peer_id]
        assert type(dht_of(one).routing_table.buckets[0]) is ConnectedBucket


async def test_what_guests_provide_never_drives_out_what_members_do() -> None:
    """A stranger has as many names as it likes, one after another, and checkpoints are public."""
    async with transport(2) as one:
        dht, member = dht_of(one), FAKES[0]
        store, guests = cast(BoundedProviders, dht.provider_store), FAKES[1:]
        assert one._parts is not None
        one._parts.swarm.is_member = lambda peer_id: peer_id == str(member)
        crowded, early = dht._hashed("checkpoint/crowded"), dht._hashed("checkpoint/early")
        store.add_provider(early, PeerInfo(member, []))
        for guest in guests:
            store.add_provider(crowded, PeerInfo(guest, []))
        store.add_provider(crowded, PeerInfo(member, []))
        assert str(member) in store.providers[crowded]
        assert len(store.providers[crowded]) == PROVIDERS_PER_ANSWER_MAX
        for number in range(1, 2 * PROVIDED_KEYS_MAX // KEYS_PER_PROVIDER_MAX):
            name = ID.from_pubkey(create_new_key_pair(number.to_bytes(32)).public_key)
            for key in range(KEYS_PER_PROVIDER_MAX):
                store.add_provider(dht._hashed(f"{number}/{key}"), PeerInfo(name, []))
        assert len(store.providers) == PROVIDED_KEYS_MAX
        assert [p.peer_id for p in store.get_providers(early)] == [member]
        assert str(member) in store.providers[crowded]
        assert len(store._of_guests) < PROVIDED_KEYS_MAX
