"""What a puppet says beside its messages: on every other protocol, in gossip, and as answers.

    requests    words that others answer, bodies out of the grammar; those of disputes (quarrels)
    answers     pages, epochs and openings that somebody asked it for, late, or changed
    messages     many streams at once, a greeting on each
    relays       reservations that it does not need, ways to others, others' calls, holes
    hello       greetings with a record that its keys have signed, and anything else in them
    blobs       requests for what it has heard of, and for what is not there
    gossip      heads of any height, records of its own

Words come from the mind that makes up its messages (simnet/world/adversaries/puppet.py), so that
they are about what is going on. Met by limits, judges, scores, and checks before anything is
believed.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

import trio

from daa_consensus.enrolment import Enrolment, encode_enrolment
from daa_consensus.operations import Operation, encode_operation
from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import BlockId, ChainId, VertexId
from daa_node.agreement import enrolment_requests, invitations, membership_requests, messages
from daa_node.checkpoints import epochs, pages, records, replication
from daa_node.checkpoints.layout import FINAL_SUFFIX, PROOFS
from daa_node.disputes import court, openings, second_looks
from daa_node.disputes.charge import SAID_BYTES_MAX, decode_opening
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import (
    RECORD_CONTEXT,
    NodeRecord,
    Role,
    SignedRecord,
    encode_record,
)
from daa_node.network import dial_back
from daa_node.network.hello import Greeting, encode_greeting
from daa_node.network.invite_text import TOKEN_BYTES
from daa_node.network.topics import heads_topic, records_topic
from daa_node.seams import BELL_TOKEN_BYTES, BulkTransport, PeerId, Transport
from daa_node.spot_checks import canaries
from daa_node.wire import punch_messages, relay_messages
from daa_node.wire.blob_messages import Request as BlobRequest
from daa_node.wire.blob_messages import encode_request
from daa_node.wire.framing import read_message, write_message
from daa_node.wire.limits import LENGTH_PREFIX_BYTES
from daa_node.wire.protocols import BULK, HELLO, PUNCH, RELAY, RELAYED, REQUEST, VOTES
from simnet.world.adversaries import quarrels
from simnet.world.adversaries.manners import Manners
from simnet.world.adversaries.puppet import Mind, Puppet
from simnet.world.adversaries.shapes import LIMITS

EVERY_S = 0.5
TIMEOUT_S = 2.0  # of one of them
CHANGED_MAX = 3  # places of one answer
PORT_MAX = 2**16 - 1


def _have_dialled(mind: Mind) -> bytes:
    """Any port of ours, or one more than there may be."""
    ports = [mind.chance.randint(1, PORT_MAX) for _ in range(mind.chance.randint(0, 3))]
    return dial_back.encode_request(mind.chance.randbytes(BELL_TOKEN_BYTES), tuple(ports))


def _epochs_or_a_part(mind: Mind) -> bytes:
    """What follows a block, or that and what stands below another one."""
    return b"".join(mind.composer.made(BlockId) for _ in range(mind.chance.randint(1, 2)))


def _record(mind: Mind) -> bytes:
    """One of a chain by its name, with each ending that any kind has."""
    kind = mind.chance.choice(sorted(PROOFS))
    ending = mind.chance.choice(["", ".exec", FINAL_SUFFIX])
    return canonical.encode([kind, mind.composer.made(BlockId).hex() + ending])


def _states(mind: Mind) -> bytes:
    """Of some vertices, or of one more than may be asked about."""
    count = mind.chance.randint(1, replication.ASKED_IDS_MAX + 1)
    return canonical.encode([mind.composer.made(VertexId) for _ in range(count)])


def _present(mind: Mind) -> bytes:
    """A token that it has guessed, with an enrolment or to ask about it."""
    asks = mind.chance.randrange(2)
    enrolment = None if asks else mind.composer.made(Enrolment)
    return invitations.encode_request(mind.chance.randbytes(TOKEN_BYTES), enrolment)


# What a request of each word is about.
REQUESTS: Final[Mapping[str, Callable[[Mind], bytes]]] = {
    pages.REQUEST: lambda mind: bytes(mind.composer.made(BlockId)),
    epochs.REQUEST: _epochs_or_a_part,
    records.REQUEST: _record,
    replication.REQUEST: _states,
    membership_requests.REQUEST: lambda mind: encode_operation(mind.composer.made(Operation)),
    openings.REQUEST: quarrels.question,
    court.REQUEST: quarrels.dispute,
    second_looks.REQUEST: quarrels.question,
    canaries.REQUEST: lambda mind: bytes(mind.composer.made(BlockId)),  # nothing is read of it
    dial_back.REQUEST: _have_dialled,
    enrolment_requests.REQUEST: lambda mind: encode_enrolment(mind.composer.made(Enrolment)),
    invitations.REQUEST: _present,
}


class Errands:
    """One puppet daemon's. `bulk` is known once the daemon has made it."""

    def __init__(
        self,
        transport: Transport,
        chain_id: ChainId,
        keys: NodeKeys,
        puppet: Puppet,
        manners: Manners,
    ) -> None:
        self._manners = manners
        self._transport = transport
        self._chain_id = chain_id
        self._keys = keys
        self._puppet = puppet
        self.bulk: BulkTransport | None = None

    async def run(self) -> None:
        """Until cancelled; a puppet of quiet temper goes on none."""
        while True:
            await trio.sleep(EVERY_S)
            mind, peers = self._puppet.mind, sorted(self._transport.connected())
            if mind is None or not peers or not mind.temper.pace:
                continue
            errand = ERRANDS[mind.chance.choice(sorted(ERRANDS))]
            with suppress(
                *(Unavailable, PeerFault, DagError, ValueError),
                *(trio.BrokenResourceError, trio.ClosedResourceError),
            ):
                with trio.move_on_after(TIMEOUT_S):
                    await errand(self, mind, mind.chance.choice(peers))

    async def ask(self, mind: Mind, peer_id: PeerId) -> None:
        """Requests like any other, of one word."""
        word = mind.chance.choice(sorted(REQUESTS))
        for _ in range(mind.chance.randint(1, mind.temper.burst)):
            request = canonical.encode([word, REQUESTS[word](mind)])
            if word == openings.REQUEST:
                await self._have_opened(mind, peer_id, request)
            else:
                await self._write(peer_id, REQUEST, request)

    async def _have_opened(self, mind: Mind, peer_id: PeerId, request: bytes) -> None:
        stream = await self._transport.open_stream(peer_id, REQUEST)
        try:
            await write_message(stream, request)
            quarrels.hear(mind, await read_message(stream, SAID_BYTES_MAX))
        finally:
            await stream.aclose()

    async def greet(self, mind: Mind, peer_id: PeerId) -> None:
        """Another hello, to whom it is connected with already."""
        greeting = mind.composer.made(Greeting)
        greeting = replace(greeting, chain_id=self._chain_id, record_bytes=self._record(mind))
        await self._write(peer_id, HELLO, encode_greeting(greeting))

    async def publish(self, mind: Mind, _peer_id: PeerId) -> None:
        """A head, or a record of its own."""
        if mind.chance.randrange(2):
            head = canonical.encode([mind.composer.made(int, "height")])
            await self._transport.publish(heads_topic(self._chain_id), head)
        else:
            await self._transport.publish(records_topic(self._chain_id), self._record(mind))

    async def chatter(self, mind: Mind, peer_id: PeerId) -> None:
        """A stream for each message; each ends the one before."""
        greeting = messages.encode_message(messages.Message(mind.position, messages.Greeting()))
        for _ in range(self._manners.streams_at_once):
            stream = await self._transport.open_stream(peer_id, VOTES)
            try:
                await write_message(stream, greeting)
            finally:
                await stream.aclose()

    async def relay(self, mind: Mind, peer_id: PeerId) -> None:
        """As who wants a relay, or wants to be led by one to somebody."""
        others = sorted(self._transport.connected())
        wish = relay_messages.connect(mind.chance.choice(others))
        await self._write(peer_id, RELAY, mind.chance.choice([relay_messages.reserve(), wish]))

    async def call(self, mind: Mind, peer_id: PeerId) -> None:
        """As a relay that has brought somebody."""
        others = sorted(self._transport.connected())
        named = relay_messages.from_peer(mind.chance.choice(others))
        await self._write(peer_id, RELAYED, named)

    async def punch(self, mind: Mind, peer_id: PeerId) -> None:
        """As who wants to know where somebody is, or a hole that no relay joins."""
        where = punch_messages.where(mind.chance.choice(sorted(self._transport.connected())))
        word = punch_messages.said(mind.chance.choice(list(punch_messages.Word)))
        await self._write(peer_id, PUNCH, mind.chance.choice([where, word]))

    async def fetch(self, mind: Mind, peer_id: PeerId) -> None:
        """A question for a blob."""
        if self.bulk is None:
            return
        stream = await self.bulk.open(peer_id)
        await stream.send_frame(encode_request(mind.composer.made(BlobRequest)))
        await stream.receive_frame()
        await stream.aclose()

    async def _write(self, peer_id: PeerId, protocol: str, payload: bytes) -> None:
        stream = await self._transport.open_stream(peer_id, protocol)
        await write_message(stream, payload)
        await stream.receive_some(LENGTH_PREFIX_BYTES)
        await stream.aclose()

    def _record(self, mind: Mind) -> bytes:
        """Whatever it says of itself, both of its keys say it."""
        own = NodeRecord(
            self._keys.ml_dsa_public_key,
            self._keys.ml_kem_public_key,
            self._keys.peer_id,
            addresses=(),
            role=Role.CLOUD,
            capabilities=(),
            sequence=mind.composer.made(int, "sequence"),
            issued_ns=mind.composer.made(int, "ns"),
            expiry_ns=mind.composer.made(int, "ns"),
        )
        other = replace(
            mind.variations.varied(own),
            ml_dsa_public_key=own.ml_dsa_public_key,
            peer_id=own.peer_id,
        )
        payload = other.sign_bytes()  # honest nodes refuse to sign what others refuse to read
        signed = SignedRecord(
            other, self._keys.sign(payload, RECORD_CONTEXT), self._keys.sign_ed25519(payload)
        )
        return encode_record(signed)


Errand = Callable[[Errands, Mind, PeerId], Awaitable[None]]
ERRANDS: Final[Mapping[str, Errand]] = {
    REQUEST: Errands.ask,
    HELLO: Errands.greet,
    BULK: Errands.fetch,
    VOTES: Errands.chatter,
    RELAY: Errands.relay,
    RELAYED: Errands.call,
    PUNCH: Errands.punch,
    "gossip": Errands.publish,
}


async def answer(puppet: Puppet, manners: Manners, message: bytes) -> list[bytes]:
    """What somebody who asked gets: late, a page or an opening with some places changed."""
    mind = puppet.mind
    if mind is None:
        return [message]
    await trio.sleep(manners.pages_late_s)
    match canonical.decode(message, len(message)):
        case ["ok", bytes(body)] if manners.changes_pages:
            return [canonical.encode(["ok", changed(mind, body)])]
        case _:
            return [message]


def changed(mind: Mind, body: bytes) -> bytes:
    """A page with some places changed, one of several epochs, or an opening."""
    with suppress(PeerFault):
        return quarrels.reopened(mind, decode_opening(body))
    with suppress(PeerFault):
        shown = list(epochs.decode_epochs(body, LIMITS))
        if shown:
            at = mind.chance.randrange(len(shown))
            shown[at] = mind.variations.varied(shown[at])
        return epochs.encode_epochs(shown)
    try:
        page = pages.decode_page(body, LIMITS)
    except PeerFault:
        return body  # of another word, which has no more to say than yes
    if page is None:
        return body
    for _ in range(mind.chance.randint(1, CHANGED_MAX)):
        page = mind.variations.varied(page)
    return canonical.encode(pages.page_value(page))
