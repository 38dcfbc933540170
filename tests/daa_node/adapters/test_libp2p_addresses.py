"""Addresses that others give, and those that are told to neighbours on the local network."""

import trio

from daa_node.adapters.libp2p_mdns import listen_and_tell
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.network.config import NetworkConfig
from daa_node.seams import Address
from tests.daa_node.adapters.lone_transport import transport

LOOPBACK = "/ip4/127.0.0.1/tcp/0"


async def test_an_address_of_a_founder_that_is_none_keeps_nobody_from_starting() -> None:
    founders = [Address(text) for text in ("garbage", "/ip4/999.1.1.1/tcp/1", "/dns4/a..b/tcp/1")]
    config = NetworkConfig(listen=(LOOPBACK,))
    own = Libp2pTransport(bytes([2]) * 32, "test", config, acquaintances=founders)
    async with trio.open_nursery() as nursery:
        await nursery.start(own.run)
        assert own.addresses()
        nursery.cancel_scope.cancel()


async def test_neighbours_on_the_local_network_find_each_other_when_they_may() -> None:
    async with (
        transport(2, mdns=True) as one,
        transport(3, mdns=True) as two,
        transport(4) as quiet,
    ):
        with trio.fail_after(30):
            while two.peer_id not in one.connected():
                await trio.sleep(0.05)
        assert quiet.connected() == []


async def test_who_announces_a_name_is_told_of_on_the_local_network_too() -> None:
    name = "/dns4/127.example.org/tcp/4001"  # heard on loopback alone
    async with transport(5, mdns=True, announce=(name,)) as named:
        with trio.fail_after(30):
            heard: list[Address] = []
            async with trio.open_nursery() as nursery:

                def hear(found: list[Address]) -> None:
                    heard.extend(found)
                    nursery.cancel_scope.cancel()

                nursery.start_soon(listen_and_tell, "test", [Address(LOOPBACK)], hear)
        assert heard == named.addresses()
