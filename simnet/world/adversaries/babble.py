"""Garbage on every protocol that a daemon speaks, past everything that the liar's own code checks.

Streams are opened as anybody may open them, and filled with bytes that are no message, with lengths
that nothing follows, and with messages cut short; gossip and the DHT get bytes that are no record.
Of what its daemon asks, answers and greets with, some gets lost, doubled or turned on the way.
Met by limits on every read, by judges before anything is kept or passed on, by scores, and in the
end by a ban.
"""

import random
from contextlib import suppress

import trio

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import ChainId, NodeId
from daa_node.errors import Unavailable
from daa_node.network.topics import heads_topic, record_key, records_topic
from daa_node.seams import ByteStream, PeerId, Transport
from daa_node.wire.limits import LENGTH_PREFIX_BYTES
from daa_node.wire.protocols import BULK, HELLO, REQUEST, VOTES
from simnet.world.adversaries.babbler import mangled

LIBRARY = ("/meshsub/1.1.0", "/ipfs/kad/1.0.0", "/ipfs/id/1.0.0", "/ipfs/ping/1.0.0")
PROTOCOLS = (HELLO, VOTES, REQUEST, BULK, *LIBRARY, "/daa/1/none-such")
BABBLE_EVERY_S = 0.25
GARBAGE_BYTES_MAX = 4096
GIANT_BYTES = 2**31
SEND_TIMEOUT_S = 2.0
DHT_ONE_IN = 8
HEIGHTS = 8
GARBLED_ONE_IN = 4  # of messages


class Babble:
    """One lying daemon's noise."""

    def __init__(self, transport: Transport, chain_id: ChainId, chance: random.Random) -> None:
        self._transport = transport
        self._topics = (records_topic(chain_id), heads_topic(chain_id))
        self._chance = chance

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(BABBLE_EVERY_S)
            peers = sorted(self._transport.connected())
            if not peers:
                continue
            chance = self._chance
            peer_id = chance.choice(peers)
            with suppress(Unavailable, trio.BrokenResourceError, trio.ClosedResourceError):
                with trio.move_on_after(SEND_TIMEOUT_S):
                    await self._shout(peer_id, chance.choice(PROTOCOLS))
                    await self._transport.publish(chance.choice(self._topics), self._garbage())
                    head = canonical.encode([chance.randrange(HEIGHTS)])
                    await self._transport.publish(self._topics[-1], mangled(head, chance))
                    if not chance.randrange(DHT_ONE_IN):
                        key = record_key(NodeId(chance.randbytes(32)))
                        await self._transport.put_record(key, self._garbage())

    async def _shout(self, peer_id: PeerId, protocol: str) -> None:
        stream = await self._transport.open_stream(peer_id, protocol)
        await stream.send_all(self._garbage())
        await stream.aclose()

    def _garbage(self) -> bytes:
        noise = self._chance.randbytes(self._chance.randrange(1, GARBAGE_BYTES_MAX))
        match self._chance.randrange(4):
            case 0:
                return GIANT_BYTES.to_bytes(4) + noise
            case 1:
                return (len(noise) + 1).to_bytes(4) + noise  # one byte is missing for ever
            case 2:
                return len(noise).to_bytes(4) + noise
            case _:
                return noise


class Garbled:
    """A ByteStream on which some of what the daemon says is only near to what it was."""

    def __init__(self, inner: ByteStream, chance: random.Random) -> None:
        self._inner = inner
        self._chance = chance
        self.receive_some, self.aclose = inner.receive_some, inner.aclose

    @property
    def peer_id(self) -> PeerId:
        return self._inner.peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        message = bytes(payload[LENGTH_PREFIX_BYTES:])
        if message and not self._chance.randrange(GARBLED_ONE_IN):
            with suppress(NotCanonical):  # a piece of a longer one
                garbled = mangled(message, self._chance)
                payload = len(garbled).to_bytes(LENGTH_PREFIX_BYTES) + garbled
        await self._inner.send_all(payload)
