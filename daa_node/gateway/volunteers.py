"""Volunteers at this gateway: they come in, get tasks, are judged, and leave.

    stream --hello--> seat --ready--> tasks out --verdicts--> judged      (task_desk, task_giver)
                        \\-- barred, elsewhere, gone: what it had goes to others

Bookkeeping is on the event loop, signatures included; all that computes goes through Offload.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

import trio

from daa_dag.ids import ChainId, NodeId
from daa_node.errors import PeerFault, StorageFailed, Unavailable
from daa_node.gateway.admission import Admission
from daa_node.gateway.config import GatewayConfig
from daa_node.gateway.standing import Standings
from daa_node.gateway.task_desk import (
    ADDRESS_BYTES,
    OPEN_BYTES_MAX,
    Effect,
    Evidence,
    Judged,
    Leave,
    Look,
    Seat,
    TaskDesk,
)
from daa_node.gateway.task_giver import Source, TaskGiver
from daa_node.gateway.volunteer_session import VolunteerSession, part
from daa_node.identity.keys import verify_once
from daa_node.identity.record import NS_PER_S
from daa_node.identity.volunteer import (
    VERDICT_CONTEXT,
    VolunteerRecord,
    check_hello,
    check_record,
    decode_record,
    verdict_bytes,
)
from daa_node.network.pace import Pace
from daa_node.observability import events
from daa_node.observability.events import EventLog
from daa_node.seams import BlobStore, ByteStream, Clock, Door, Entropy, Offload, PeerId
from daa_node.wire import protocols
from daa_node.wire.framing import TRUNCATED, read_message, write_message
from daa_node.wire.limits import VOLUNTEER_FRAME_BYTES_MAX
from daa_node.wire.volunteer_messages import (
    NONCE_BYTES,
    SESSION_BYTES,
    Beat,
    Drop,
    Message,
    Ready,
    Verdict,
    decode_greeting,
    encode_challenge,
    encode_taken,
    encode_welcome,
)

HELLO_S = 10.0
TICK_S = 1.0
STORE_EVERY_S = 60.0
TOLD_PER_S, TOLD_BURST = 0.5, 256.0  # comings, each with its going: who comes again and again
REFUSALS_TOLD_EVERY_S = 600.0
STORED = "volunteers"  # kind and name of the one record in the work store
STORED_VERSION = 1  # of it, a list of lists; a later one begins with its number
PARTING_S = 0.2  # closing at once would throw away the reason that was just sent


class Host(Protocol):
    """Of a Transport, what volunteers need."""

    def network_of(self, peer_id: PeerId) -> str: ...

    def keep_visitor(self, peer_id: PeerId, protocol: str) -> bool: ...

    async def hang_up(self, peer_id: PeerId) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a gateway for volunteers is given."""

    chain_id: ChainId
    me: NodeId
    host: Host
    clock: Clock
    entropy: Entropy
    offload: Offload
    store: BlobStore
    events: EventLog


class Volunteers:
    """`serve` is the handler of protocols.VOLUNTEER; `run` must be running."""

    def __init__(
        self,
        config: GatewayConfig,
        around: Surroundings,
        sources: Iterable[Source],
        on_evidence: Callable[[Evidence], None],
    ) -> None:
        self._around = around
        self._on_evidence = on_evidence
        self._sessions_max = config.volunteers_max
        self._admission = Admission(config.volunteers_max, config.volunteers_per_address)
        self._standings = Standings()
        share = OPEN_BYTES_MAX * config.volunteers_per_address // max(1, config.volunteers_max)
        self._desk = TaskDesk(around.entropy.bytes(32), max(ADDRESS_BYTES, share))
        self._giver = TaskGiver(self._desk, sources, around.offload, around.entropy, self._send_to)
        self._sessions: dict[bytes, VolunteerSession] = {}
        self._told_s: dict[str, float] = {}
        self._comings: Pace | None = None  # that are told

    # What others are told

    def wanted(self) -> list[str]:
        """Kinds of which there is something to do, for pages."""
        return self._giver.wanted() if self._sessions_max else []

    def places(self) -> tuple[int, int]:
        """Taken, and all."""
        return self._admission.places, self._sessions_max

    def standing(self) -> Mapping[str, Any]:
        """For `daa-node status`."""
        return {
            "sessions": len(self._sessions),
            "sessions_max": self._sessions_max,
            "wanted": self.wanted(),
            "given": self._giver.given,
            "computed": self._giver.computed,
            "refused": dict(self._admission.refused),
        }

    # Living

    async def run(self) -> None:
        """Until cancelled; then everybody is told that it ends."""
        stored = await self._load()
        self._standings = Standings(stored)
        self._comings = Pace(TOLD_PER_S, TOLD_BURST)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._giver.run, self._apply)
                nursery.start_soon(self._keep_time)
                nursery.start_soon(self._keep_standings)
        finally:
            for session in self._sessions.values():
                session.end("ended", "this daemon stops")

    async def serve(self, stream: ByteStream) -> None:
        """One volunteer, from its first frame to its last."""
        host, peer_id = self._around.host, stream.peer_id
        address = host.network_of(peer_id)
        fault = await self._ended_by(stream, address)
        if fault is not None:
            self._refuse(address, fault)
            with suppress(trio.BrokenResourceError):  # it does not want to know
                await part(stream, fault)
            if fault.reason == "node":
                return
            await trio.sleep(PARTING_S)
        # However it went: each session would leave a connection behind, and they are bounded for
        # all who come, members too.
        await host.hang_up(peer_id)

    async def _ended_by(self, stream: ByteStream, address: str) -> PeerFault | None:
        """What the session was ended by; None if the volunteer has left."""
        try:
            self._admission.enter(address, trio.current_time())
            try:
                await self._welcome(stream, address)
            finally:
                self._admission.leave(address)
        except PeerFault as fault:
            return None if fault.reason == TRUNCATED else fault
        except trio.BrokenResourceError:
            return None
        return None

    async def _welcome(self, stream: ByteStream, address: str) -> None:
        """Raises PeerFault for what the volunteer, or this session, ended by."""
        around = self._around
        nonce = around.entropy.bytes(NONCE_BYTES)
        payload = None
        with trio.move_on_after(HELLO_S):
            await write_message(stream, encode_challenge(protocols.PROTOCOL_VERSION, nonce))
            payload = await read_message(stream, VOLUNTEER_FRAME_BYTES_MAX)
        if payload is None:
            raise PeerFault("late", f"no hello within {HELLO_S:.0f} s")
        record = self._judge(stream.peer_id, address, payload, nonce)
        if not around.host.keep_visitor(stream.peer_id, protocols.VOLUNTEER):
            raise PeerFault("node", "this connection is a node's: volunteers have their own")
        seat = Seat(around.entropy.bytes(SESSION_BYTES), record.name, record.public_key, address)
        session = VolunteerSession(stream, seat, lambda message: self._hear(seat, message))
        for before in self._desk.seats_of(record.name):
            self._end(before, "elsewhere", "you have begun another session")
        self._sessions[seat.session] = session
        self._desk.sit(seat)
        lifetime = self._standings.of(record.name).lifetime
        session.send(encode_welcome(seat.session, record.name, lifetime))
        is_told = self._comings is not None and self._comings.take_at_once()
        if is_told:
            around.events.emit(events.VOLUNTEER_CAME, volunteer=record.name, page=record.words)
        try:
            await session.run()
        finally:
            del self._sessions[seat.session]
            self._desk.rise(seat, trio.current_time())
            if is_told:
                around.events.emit(events.VOLUNTEER_LEFT, volunteer=record.name)

    def _judge(
        self, peer_id: PeerId, address: str, payload: bytes, nonce: bytes
    ) -> VolunteerRecord:
        """The record of who may come in. Raises PeerFault with the reason to refuse it."""
        around, now_s = self._around, self._wall_s()
        greeting = decode_greeting(payload)
        if not protocols.OURS.meet(protocols.Versions(greeting.version, greeting.version)):
            raise PeerFault(
                "version", f"yours is {greeting.version}, ours {protocols.PROTOCOL_VERSION}"
            )
        if greeting.chain_id != around.chain_id:
            raise PeerFault("chain", "this daemon is of another network")
        record = decode_record(greeting.record)
        check_record(record, around.chain_id, peer_id, now_s)
        check_hello(record, greeting.signature, around.me, nonce, greeting.record)
        if self._standings.is_barred(record.name, now_s):
            raise PeerFault("standing", "a result of yours was wrong: come back in a day")
        is_known = record.name in self._standings
        self._admission.meet(address, record.name, is_known, trio.current_time())
        return record

    def _hear(self, seat: Seat, message: Message) -> None:
        """Raises PeerFault for what the volunteer may not say."""
        match message:
            case Ready():
                seat.wants = message
                self._giver.wake()
            case Drop():
                self._desk.drop(seat, message.task, trio.current_time())
                self._giver.wake()
            case Verdict():
                self._hear_verdict(seat, message)
                self._giver.wake()
            case Beat():
                pass

    def _hear_verdict(self, seat: Seat, verdict: Verdict) -> None:
        around = self._around
        kind = self._desk.kind_of(seat, verdict.task)
        if kind is None:
            self._judged(Judged(seat, verdict.task, None))  # its time was over
            return
        signed = verdict_bytes(
            around.chain_id, around.me, seat.session, verdict.task, kind, verdict.result
        )
        if not verify_once(seat.public_key, verdict.signature, signed, VERDICT_CONTEXT):
            raise PeerFault("signature", "the verdict is not signed by your key")
        self._standings.took(seat.name)
        self._apply(self._desk.take(seat, verdict))

    # What comes of it

    def _apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Judged():
                    self._judged(effect)
                case Evidence():
                    self._on_evidence(effect)
                case Look(task, is_disputed):  # it comes back by itself, if there is room for it
                    if not self._giver.look(task, is_disputed):
                        self._apply(self._desk.looked(task, None))
                case Leave(seat):
                    self._end(seat, "idle", "you answered nothing of what you took")
                case _:
                    assert_never(effect)

    def _judged(self, judged: Judged) -> None:
        seat, is_right = judged.seat, judged.is_right
        if is_right is not None:
            self._standings.judged(seat.name, is_right, self._wall_s())
        lifetime = self._standings.of(seat.name).lifetime
        self._send_to(seat, encode_taken(judged.task, is_right, lifetime))
        if is_right is False:
            self._around.events.emit(events.VOLUNTEER_ERRED, volunteer=seat.name)
            for here in self._desk.seats_of(seat.name):  # it may have come back meanwhile
                self._end(here, "standing", "a result of yours was wrong: come back in a day")

    def _send_to(self, seat: Seat, frame: bytes) -> None:
        """Unless it has gone."""
        session = self._sessions.get(seat.session)
        if session is not None:
            session.send(frame)

    def _end(self, seat: Seat, reason: str, words: str) -> None:
        session = self._sessions.get(seat.session)
        if session is not None:
            session.end(reason, words)

    def _refuse(self, address: str, fault: PeerFault) -> None:
        """Count it; tell of each reason now and then, however many there are."""
        now_s, reason = trio.current_time(), fault.reason
        self._admission.refuse(address, reason, now_s)
        if now_s - self._told_s.get(reason, -REFUSALS_TOLD_EVERY_S) >= REFUSALS_TOLD_EVERY_S:
            self._told_s[reason] = now_s
            count = self._admission.refused[reason]
            self._around.events.emit(
                events.VOLUNTEER_REFUSED, reason=reason, detail=fault.detail, count=count
            )

    async def _keep_time(self) -> None:
        while True:
            await trio.sleep(TICK_S)
            self._apply(self._desk.pass_time(trio.current_time()))
            self._giver.wake()

    async def _keep_standings(self) -> None:
        """On disk, as they were a minute ago at the most."""
        while True:
            await trio.sleep(STORE_EVERY_S)
            if self._standings.is_changed:
                payload = self._standings.encode()
                try:
                    await self._around.store.put_record(STORED, STORED, payload, durable=False)
                except StorageFailed as failure:
                    self._around.events.emit(events.STORAGE_FAILED, detail=str(failure))

    async def _load(self) -> bytes | None:
        try:
            return await self._around.store.get_record(STORED, STORED)
        except StorageFailed as failure:
            self._around.events.emit(events.STORAGE_FAILED, detail=str(failure))
            return None

    def _wall_s(self) -> int:
        return self._around.clock.wall_ns() // NS_PER_S


def door_for_both(door: Door) -> Door:
    """A door that gives who speaks no hello the time to say that it is a volunteer."""

    async def wait_for_either(peer_id: PeerId) -> bool:
        try:
            return await door(peer_id)
        except Unavailable:
            await trio.sleep_forever()  # the transport knows how long a door stays open
            raise

    return wait_for_either
