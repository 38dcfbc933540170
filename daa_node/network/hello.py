"""Who are you, and which chain: asked of every new peer before anything else is served.

    initiator                                    responder
       --- hello(version, chain, record, time, height) -->
       <-- hello ---
       --- verdict -->          <-- verdict ---          each says why it refuses

Hello: canonical `[version, version_min, chain_id, record bytes, wall_ns, finalized_height]`, and
whatever later versions append. The first two are what it speaks: all from version_min to version.
Verdict: canonical `["welcome"]` or `["refused", reason, detail]`. The peer with the lower id
begins; the other waits a while for it, then begins itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import trio

from daa_consensus.committee import VERSION_MAX
from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import DIGEST_BYTES, ChainId
from daa_node.errors import PeerFault
from daa_node.identity.record import SignedRecord, check_clocks, check_dates, decode_record
from daa_node.network.config import NetworkConfig
from daa_node.network.directory import Directory
from daa_node.network.places import Places, limits_of
from daa_node.observability.events import CLOCK_SKEWED, PEER_JOINED, PEER_REFUSED, EventLog
from daa_node.seams import ByteStream, Clock, PeerId, Transport
from daa_node.wire import protocols
from daa_node.wire.framing import read_message, write_message
from daa_node.wire.limits import HELLO_BYTES_MAX, KIB
from daa_node.wire.protocols import Versions

HELLO_TIMEOUT_S = 6.0  # less than a door stays open, so that the reason still gets across
WAIT_FOR_OTHER_S = 2.0
RESULT_FRESH_S = 10.0
RESULTS_MAX = 128  # peers that said hello before we noticed that they are connected
VERDICT_BYTES_MAX = 4 * KIB
DETAIL_CHARACTERS_MAX = 600
HEIGHT_MAX = 2**53

# Not the peer's misdeed: an operator's mistake on either side. Refused and told, but not scored.
INNOCENT_REASONS = frozenset(
    {
        "wrong-chain",
        "incompatible-version",
        "clock-skew",
        "record-expired",
        "banned",
        "superseded",
        "two-names",
        "full",
    }
)


@dataclass(frozen=True, slots=True)
class Greeting:
    """A peer's hello, decoded; nothing in it is believed yet but its form."""

    version: int
    version_min: int
    chain_id: ChainId
    record_bytes: bytes
    wall_ns: int
    height: int

    @property
    def speaks(self) -> Versions:
        return Versions(self.version_min, self.version)


@dataclass(frozen=True, slots=True)
class OwnStanding:
    """What we say of ourselves, asked anew for every hello."""

    record_bytes: Callable[[], bytes]
    height: Callable[[], int]
    speaks: Versions = protocols.OURS


class Hello:
    """`door` is for Transport.guard, together with OPEN_PROTOCOLS."""

    def __init__(
        self,
        transport: Transport,
        directory: Directory,
        clock: Clock,
        events: EventLog,
        chain_id: ChainId,
        standing: OwnStanding,
        config: NetworkConfig,
    ) -> None:
        self._transport = transport
        self._directory = directory
        self._clock = clock
        self._events = events
        self._chain_id = chain_id
        self._own = standing
        self._places = Places(transport, directory, limits_of(config))
        self._results: dict[PeerId, tuple[float, bool]] = {}
        self._answered = trio.Event()

    async def door(self, peer_id: PeerId) -> bool:
        """Whether both sides welcome each other. Raises Unavailable, BrokenResourceError."""
        if self._transport.peer_id > peer_id:
            with trio.move_on_after(WAIT_FOR_OTHER_S):
                return await self._their_result(peer_id)
        stream = await self._transport.open_stream(peer_id, protocols.HELLO)
        try:
            with trio.fail_after(HELLO_TIMEOUT_S):
                return await self._exchange(stream, begins=True)
        finally:
            await stream.aclose()

    async def serve(self, stream: ByteStream) -> None:
        """The handler of protocols.HELLO."""
        with trio.fail_after(HELLO_TIMEOUT_S):
            welcome = await self._exchange(stream, begins=False)
        while len(self._results) >= RESULTS_MAX:
            del self._results[next(iter(self._results))]
        self._results[stream.peer_id] = (trio.current_time(), welcome)
        self._answered.set()
        self._answered = trio.Event()

    async def _their_result(self, peer_id: PeerId) -> bool:
        while True:
            at_s, welcome = self._results.pop(peer_id, (-RESULT_FRESH_S, False))
            if trio.current_time() - at_s < RESULT_FRESH_S:
                return welcome
            await self._answered.wait()

    async def _exchange(self, stream: ByteStream, begins: bool) -> bool:
        started_s = trio.current_time()
        if begins:
            await write_message(stream, self._own_greeting())
        payload = await read_message(stream, HELLO_BYTES_MAX)
        heard_ns = self._clock.wall_ns()
        rtt_s = trio.current_time() - started_s if begins else None
        if not begins:
            await write_message(stream, self._own_greeting())
        refusal: PeerFault | None = None
        signed: SignedRecord | None = None
        parted: list[PeerId] = []
        height, clock_off_s, speaks = 0, 0.0, self._own.speaks
        try:
            greeting = decode_greeting(payload)
            height, speaks = greeting.height, greeting.speaks
            shown = self.judge(stream.peer_id, greeting)
            clock_off_s = (greeting.wall_ns - heard_ns) / 1e9 + (rtt_s or 0.0) / 2
            parted = self._places.take(shown)
            signed = shown
        except PeerFault as fault:
            refusal = fault
        for peer_id in parted:
            await self._transport.hang_up(peer_id)
        if refusal is not None:
            self._on_refused(stream.peer_id, refusal, by="us")
        await write_message(stream, _verdict(refusal))
        theirs = _decode_verdict(await read_message(stream, VERDICT_BYTES_MAX))
        if theirs is not None:
            self._on_refused(stream.peer_id, theirs, by="peer")
        if signed is None or theirs is not None:
            return False
        self._directory.learn(signed)
        self._directory.saw(stream.peer_id, height, rtt_s, clock_off_s, speaks)
        self._events.emit(
            PEER_JOINED,
            node_id=signed.record.node_id.hex(),
            peer_id=stream.peer_id,
            role=str(signed.record.role),
            network=self._transport.network_of(stream.peer_id),
        )
        return True

    def judge(self, peer_id: PeerId, greeting: Greeting) -> SignedRecord:
        """The peer's verified record. Raises PeerFault with the reason to refuse it."""
        self._check_ban(peer_id)
        ours, theirs = self._own.speaks, greeting.speaks
        if not ours.meet(theirs):
            older = "ours" if theirs.least > ours.most else "theirs"
            raise PeerFault(
                "incompatible-version",
                f"theirs speaks protocol {theirs}, ours {ours}: upgrade the older one, {older}; "
                "what it has on its disk stays good",
            )
        if greeting.chain_id != self._chain_id:
            raise PeerFault(
                "wrong-chain",
                f"theirs is {greeting.chain_id.hex()}, ours {self._chain_id.hex()}: both nodes "
                f"need the same genesis.json; give it to the one that has another, and start that "
                f"again with it: nothing is lost by a start with the wrong one",
            )
        check_clocks(self._clock.wall_ns(), greeting.wall_ns)
        signed = decode_record(greeting.record_bytes)
        if signed.record.peer_id != peer_id:
            raise PeerFault(
                "peer-id", f"connected as {peer_id}, but the record names {signed.record.peer_id}"
            )
        check_dates(signed.record, self._clock.wall_ns())
        self._check_ban(self._directory.peer_of(signed.record.node_id) or peer_id)
        return signed

    def _check_ban(self, peer_id: PeerId) -> None:
        """A ban is not escaped by another transport key."""
        left_s = self._directory.banned_for_s(peer_id)
        if left_s:
            raise PeerFault("banned", f"for {left_s:.0f} s more, after too many faults")

    def _own_greeting(self) -> bytes:
        return encode_greeting(
            Greeting(
                self._own.speaks.most,
                self._own.speaks.least,
                self._chain_id,
                self._own.record_bytes(),
                self._clock.wall_ns(),
                self._own.height(),
            )
        )

    def _on_refused(self, peer_id: PeerId, fault: PeerFault, by: str) -> None:
        self._events.emit(
            PEER_REFUSED, peer_id=peer_id, reason=fault.reason, detail=fault.detail, by=by
        )
        if fault.reason == "clock-skew":
            self._events.emit(CLOCK_SKEWED, peer=peer_id, detail=fault.detail)
        if by == "us" and fault.reason not in INNOCENT_REASONS:
            self._directory.blame(peer_id, fault)


OPEN_PROTOCOLS = frozenset({protocols.HELLO})


def encode_greeting(greeting: Greeting) -> bytes:
    return canonical.encode(
        [
            greeting.version,
            greeting.version_min,
            greeting.chain_id,
            greeting.record_bytes,
            greeting.wall_ns,
            greeting.height,
        ]
    )


def decode_greeting(payload: bytes) -> Greeting:
    """Raises PeerFault("hello-malformed"). A later version may append fields: they are skipped."""
    try:
        value = canonical.decode(payload, HELLO_BYTES_MAX)
    except NotCanonical as fault:
        raise PeerFault("hello-malformed", str(fault)) from None
    if not isinstance(value, list) or len(value) < 6:
        raise PeerFault("hello-malformed", "a hello is a list of six fields")
    version, version_min, chain_id, record_bytes, wall_ns, height = value[:6]
    for number in (version, version_min, wall_ns, height):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise PeerFault("hello-malformed", "versions, time and height are whole numbers")
    if not isinstance(chain_id, bytes) or len(chain_id) != DIGEST_BYTES:
        raise PeerFault("hello-malformed", f"a chain id has {DIGEST_BYTES} bytes")
    if not isinstance(record_bytes, bytes) or height > HEIGHT_MAX:
        raise PeerFault("hello-malformed", "the record is bytes, and the height below 2^53")
    if not Versions(version_min, version).is_range:
        raise PeerFault("hello-malformed", f"versions ascend, up to {VERSION_MAX}")
    return Greeting(version, version_min, ChainId(chain_id), record_bytes, wall_ns, height)


def _verdict(refusal: PeerFault | None) -> bytes:
    if refusal is None:
        return canonical.encode(["welcome"])
    return canonical.encode(["refused", refusal.reason, refusal.detail[:DETAIL_CHARACTERS_MAX]])


def _decode_verdict(payload: bytes) -> PeerFault | None:
    try:
        value = canonical.decode(payload, VERDICT_BYTES_MAX)
    except NotCanonical as fault:
        raise PeerFault("hello-malformed", str(fault)) from None
    if value == ["welcome"]:
        return None
    if (
        not isinstance(value, list)
        or len(value) != 3
        or value[0] != "refused"
        or not all(isinstance(text, str) and text.isprintable() for text in value[1:])
    ):
        raise PeerFault("hello-malformed", "a verdict is welcome, or refused with two texts")
    return PeerFault(value[1][:40], value[2][:DETAIL_CHARACTERS_MAX])
