"""A babbler: garbage of every form beside what it has to say, on every protocol of a daemon.

    messages    bytes that are no message, messages cut short, numbers at their limits, blocks and
                certificates of nothing, questions for everything
    streams     opened as anybody may open them, and filled with bytes that are no message, with
                lengths that nothing follows; in gossip and in the DHT what is no record
    questions, answers, greetings of its daemon: some get lost, doubled or turned on the way

Met by decoders that take exactly one form within limits, by limits on every read, by judges before
anything is kept or passed on, by answers that are bounded whatever is asked, by scores, and in the
end by a ban.
"""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import trio

from daa_consensus.bft.messages import Block, EmptyPayload
from daa_consensus.bft.values import INT_MAX
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import BlockId, ChainId, NodeId
from daa_node.agreement.messages import (
    Certified,
    Message,
    Position,
    Proposed,
    SentBlock,
    Stated,
    WantBlock,
    WantCertificates,
    WantStatements,
    encode_message,
)
from daa_node.errors import Unavailable
from daa_node.network.topics import heads_topic, record_key, records_topic
from daa_node.seams import PeerId, Transport
from daa_node.wire.protocols import BULK, HELLO, REQUEST, VOTES
from simnet.world.adversaries.behaviour import Behaviour, Shelf, Voice

GARBAGE_BYTES_MAX = 400
BABBLE_ONE_IN = 3  # of own messages
LIBRARY = ("/meshsub/1.1.0", "/ipfs/kad/1.0.0", "/ipfs/id/1.0.0", "/ipfs/ping/1.0.0")
PROTOCOLS = (HELLO, VOTES, REQUEST, BULK, *LIBRARY, "/daa/1/none-such")
BABBLE_EVERY_S = 0.25
NOISE_BYTES_MAX = 4096
GIANT_BYTES = 2**31
SEND_TIMEOUT_S = 2.0
DHT_ONE_IN = 8
HEIGHTS = 8
GARBLED_ONE_IN = 4  # of messages


class Babbler(Behaviour):
    """Honest beside its noise."""

    shelf = Shelf.DAMAGED

    def sends(self, voice: Voice, receiver: int, message: Message) -> Sequence[Message | bytes]:
        if voice.chance.randrange(BABBLE_ONE_IN):
            return (message,)
        noise = garbage(voice, message)
        return (message, noise[voice.chance.randrange(len(noise))])


def mangled(payload: bytes, chance: random.Random) -> bytes:
    """Something near the payload: cut, longer, a byte turned, or one part of its value swapped."""
    at = chance.randrange(len(payload))
    match chance.randrange(6):
        case 0:
            return payload[:at]
        case 1:
            return payload + chance.randbytes(1)
        case 2:
            return payload[:at] + chance.randbytes(1) + payload[at + 1 :]
        case _:
            value = canonical.decode(payload, len(payload))
            return canonical.encode(_swapped(value, chance))


def _swapped(value: Any, chance: random.Random) -> canonical.Value:
    """The value with one of its parts dropped, doubled, or something else altogether."""
    if isinstance(value, bytes) and chance.randrange(4):
        with suppress(NotCanonical):  # a message's body, most of all
            return canonical.encode(_swapped(canonical.decode(value, len(value)), chance))
    if isinstance(value, dict) and value and chance.randrange(4):
        key = chance.choice(sorted(value))
        return {**value, key: _swapped(value[key], chance)}
    if not isinstance(value, list) or not value or not chance.randrange(4):
        odd: list[canonical.Value] = [None, True, 0, -1, INT_MAX, b"", b"x" * 32, "", "stated", []]
        return chance.choice(odd)
    at = chance.randrange(len(value))
    match chance.randrange(5):
        case 0:
            return [*value[:at], *value[at + 1 :]]
        case 1:
            return [*value[: at + 1], *value[at:]]
        case _:
            return [*value[:at], _swapped(value[at], chance), *value[at + 1 :]]


def garbage(voice: Voice, message: Message) -> list[Message | bytes]:
    """One of each form; the last two are well-formed and only lie about where their sender is."""
    chance, view, domain = voice.chance, voice.view, voice.domain
    encoded, position = encode_message(message), message.position
    block_id = BlockId(chance.randbytes(32))
    vote = Statement(domain, Kind.NOTARIZE, INT_MAX, INT_MAX, block_id)
    nothing = Block(domain.chain_id, 0, INT_MAX, voice.height, block_id, view, EmptyPayload())
    quorum_of_one = [
        Certificate(replace(vote, kind=kind, view=view), ((signed.signer, signed.signature),))
        for kind in (Kind.NOTARIZE, Kind.FINALIZE)
        for signed in [voice.sign(vote)]
    ]
    foreign = Statement(replace(domain, epoch=INT_MAX), Kind.EXEC, 0, INT_MAX, [block_id] * 2)
    usurped = Signed(replace(vote, kind=Kind.PROPOSAL), voice.sign(vote).signer, b"")
    return [
        chance.randbytes(chance.randrange(GARBAGE_BYTES_MAX)),
        mangled(encoded, chance),
        Message(position, Stated(voice.sign(vote))),
        Message(position, Stated(voice.sign(foreign))),
        Message(position, Stated(usurped)),
        Message(position, Proposed(voice.sign(replace(vote, kind=Kind.PROPOSAL)), nothing, None)),
        *(Message(position, Certified(certificate, None)) for certificate in quorum_of_one),
        Message(position, Certified(quorum_of_one[0], nothing)),
        Message(position, SentBlock(nothing)),
        Message(position, WantBlock(block_id)),
        Message(position, WantCertificates(INT_MAX, 0, INT_MAX)),
        Message(position, WantCertificates(position.epoch, 0, INT_MAX)),
        Message(position, WantStatements(INT_MAX)),
        Message(Position(*[INT_MAX] * 5), message.body),
        Message(Position(0, 0, 0, 0, 0), message.body),
    ]


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
        noise = self._chance.randbytes(self._chance.randrange(1, NOISE_BYTES_MAX))
        # A length that nothing follows, one whose last byte is missing for ever, the right one.
        lengths = [each.to_bytes(4) for each in (GIANT_BYTES, len(noise) + 1, len(noise))]
        return [*lengths, b""][self._chance.randrange(4)] + noise


async def garbled(chance: random.Random, message: bytes) -> list[bytes]:
    """What its daemon says, or now and then something near it."""
    if message and not chance.randrange(GARBLED_ONE_IN):
        message = mangled(message, chance)
    return [message]
