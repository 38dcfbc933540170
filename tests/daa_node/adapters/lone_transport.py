"""A real transport on a free loopback port, with nobody around it yet."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.network.config import NetworkConfig


@asynccontextmanager
async def transport(seed: int, **settings: object) -> AsyncIterator[Libp2pTransport]:
    """The first byte of a record is its rank in the DHT."""
    fields = {"listen": ("/ip4/127.0.0.1/tcp/0",), "websocket": False, **settings}
    config = NetworkConfig.model_validate(fields)
    own = Libp2pTransport(bytes([seed + 100]) * 32, "test", config)
    own.set_record_judge(lambda key, payload: payload[0])
    async with trio.open_nursery() as nursery:
        await nursery.start(own.run)
        yield own
        nursery.cancel_scope.cancel()
