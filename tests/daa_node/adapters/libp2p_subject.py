"""A host in its own process for strangers to attack: the bare library, or ours.

`python -m tests.daa_node.adapters.libp2p_subject bare|hardened` prints its address and runs until
killed. Both answer /echo, raise in /raise, and never read what comes on /deaf.
"""

import sys

import trio

SEED = bytes([7]) * 32
TOPIC = "daa/test"
# A small cap makes the library's leak of inbound slots quick to show.
BARE_CONNECTIONS_MAX = 24


async def run_bare() -> None:
    from libp2p import new_host
    from libp2p.abc import INetStream
    from libp2p.crypto.ed25519 import create_new_key_pair
    from libp2p.crypto.x25519 import create_new_key_pair as create_new_x25519_key_pair
    from libp2p.custom_types import TProtocol
    from libp2p.network.config import ConnectionConfig
    from libp2p.pubsub.gossipsub import GossipSub
    from libp2p.pubsub.pubsub import Pubsub
    from libp2p.security.noise.transport import PROTOCOL_ID, Transport
    from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX_ID
    from libp2p.stream_muxer.yamux.yamux import Yamux
    from libp2p.tools.anyio_service import background_trio_service
    from multiaddr import Multiaddr

    async def echo(stream: INetStream) -> None:
        await stream.write(await stream.read(1024))

    async def fail(stream: INetStream) -> None:
        raise RuntimeError("a bug in a handler")

    async def deaf(stream: INetStream) -> None:
        await trio.sleep_forever()

    key_pair = create_new_key_pair(SEED)
    listen = [Multiaddr("/ip4/127.0.0.1/tcp/0")]
    noise = Transport(key_pair, noise_privkey=create_new_x25519_key_pair().private_key)
    host = new_host(
        key_pair=key_pair,
        sec_opt={PROTOCOL_ID: noise},
        muxer_opt={TProtocol(YAMUX_ID): Yamux},
        listen_addrs=listen,
        connection_config=ConnectionConfig(
            min_connections=0,
            low_watermark=0,
            high_watermark=BARE_CONNECTIONS_MAX,
            max_connections=BARE_CONNECTIONS_MAX,
        ),
    )
    for protocol, handler in (("/echo", echo), ("/raise", fail), ("/deaf", deaf)):
        host.set_stream_handler(TProtocol(protocol), handler)
    router = GossipSub(
        [TProtocol("/meshsub/1.1.0")], degree=8, degree_low=6, degree_high=12, heartbeat_interval=1
    )
    pubsub = Pubsub(host, router, strict_signing=True)
    async with host.run(listen), background_trio_service(pubsub), background_trio_service(router):
        await pubsub.subscribe(TOPIC)
        print(host.get_addrs()[0], flush=True)
        await trio.sleep_forever()


async def run_hardened() -> None:
    from daa_node.adapters.libp2p_transport import Libp2pTransport
    from daa_node.network.config import NetworkConfig
    from daa_node.seams import Announcement, ByteStream

    async def echo(stream: ByteStream) -> None:
        await stream.send_all(await stream.receive_some(1024))

    async def fail(stream: ByteStream) -> None:
        raise RuntimeError("a bug in a handler")

    async def deaf(stream: ByteStream) -> None:
        await trio.sleep_forever()

    def yes(announcement: Announcement) -> bool:
        return True

    transport = Libp2pTransport(SEED, "test", NetworkConfig(listen=("/ip4/127.0.0.1/tcp/0",)))
    for protocol, handler in (("/echo", echo), ("/raise", fail), ("/deaf", deaf)):
        transport.set_handler(protocol, handler)
    transport.join_topic(TOPIC, yes, yes)
    async with trio.open_nursery() as nursery:
        await nursery.start(transport.run)
        print(transport.addresses()[0], flush=True)


if __name__ == "__main__":
    trio.run({"bare": run_bare, "hardened": run_hardened}[sys.argv[1]])
