"""The Transport seam without libp2p: streams, gossip and the DHT of daemons, over simulated links.

What a link does to bytes it does here as it does below libp2p, and so do partitions, kills and
pauses: those are of the Network. What libp2p alone can show is missing: its handshakes, windows,
gossip's mesh and scores, Kademlia's routes. See light_acquaintances for who is connected, and
light_commons for what stands in the place of gossipsub and Kademlia.
"""

from functools import partial
from typing import Any

import trio

from daa_node.adapters.served_stream import serve
from daa_node.errors import Unavailable
from daa_node.network.carried import Carried
from daa_node.seams import (
    Address,
    ByteStream,
    Door,
    IsMember,
    OnFault,
    PeerId,
    RecordJudge,
    StreamHandler,
)
from daa_node.wire.limits import GOSSIP_BYTES_MAX
from daa_node.wire.protocols import BULK
from simnet.nodes.virtual.light_acquaintances import Acquaintances
from simnet.nodes.virtual.light_commons import Records, Rumours
from simnet.nodes.virtual.light_connection import Connection, LightStream, Word
from simnet.nodes.virtual.network import PORT, Host, Network, StreamEnd

OPEN_TIMEOUT_S = 10.0  # as the libp2p transport has it
ACCEPTED, REFUSED = b"\x01", b"\x00"  # the first byte of a stream, from whom it was opened to


class LightTransport:
    """One node's. `run` must be running before anything is dialled, opened or published."""

    def __init__(self, network: Network, node: int, host: Host, peer_id: PeerId) -> None:
        self.peer_id = peer_id
        self._network = network
        self._host = host
        self._handlers: dict[str, StreamHandler] = {}
        self._open_protocols: frozenset[str] = frozenset()
        self._is_member: IsMember = lambda _peer_id: True
        self.carried = Carried()
        known = Acquaintances(network, node, host, peer_id, self._on_frame)
        self._acquaintances = known
        self.dial, self.hang_up, self.network_of = known.dial, known.hang_up, known.network_of
        self._rumours = Rumours(peer_id, known.admitted)
        self.join_topic = self._rumours.join
        self._records = records = Records(peer_id, known.admitted)
        self.put_record, self.get_record = records.put, records.get
        self.provide, self.find_providers = records.provide, records.find_providers

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        await self._acquaintances.run(task_status)

    def addresses(self) -> list[Address]:
        return [Address(f"/ip4/{self._host}/tcp/{PORT}/p2p/{self.peer_id}")]

    def keep_visitor(self, peer_id: PeerId, protocol: str) -> bool:
        return self._acquaintances.keep(peer_id, protocol)

    def connected(self) -> list[PeerId]:
        peers = self._acquaintances.peers
        return [peer_id for peer_id, peer in peers.items() if peer.visits is None]

    def guard(
        self,
        door: Door,
        open_protocols: frozenset[str],
        on_fault: OnFault,
        is_member: IsMember,
    ) -> None:
        """Nothing here costs what members need."""
        assert self._acquaintances.nursery is None  # a peer could have slipped in before
        self._acquaintances.door = door
        self._open_protocols, self._is_member = open_protocols, is_member
        self._rumours.on_fault = on_fault

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        self._handlers[protocol] = handler

    def set_record_judge(self, judge: RecordJudge) -> None:
        self._records.judge = judge

    async def publish(self, topic: str, payload: bytes) -> None:
        assert len(payload) <= GOSSIP_BYTES_MAX, f"{len(payload)} bytes are no announcement"
        self._acquaintances.running()
        self._rumours.publish(topic, payload)

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        peer = self._acquaintances.peers.get(peer_id)
        if peer is None:
            raise Unavailable(f"{peer_id} is not connected")
        connection = peer.connections[-1]
        here, there = self._network.pair(*connection.route)
        stream, answer = self._stream(here, connection, protocol), b""
        connection.say(Word.OPEN, protocol, thing=there)
        try:
            with trio.move_on_after(OPEN_TIMEOUT_S):
                answer = await stream.receive_some(1)
        except trio.BrokenResourceError as error:
            raise Unavailable(f"{peer_id} does not open {protocol}: {error}") from None
        finally:
            if answer != ACCEPTED:
                await stream.abort()
        if answer != ACCEPTED:
            raise Unavailable(f"{peer_id} does not speak {protocol}")
        return stream

    def _on_frame(
        self, connection: Connection, word: Word, words: tuple[Any, ...], thing: Any
    ) -> None:
        peer = self._acquaintances.peers.get(connection.peer_id)
        is_admitted = peer is not None and peer.admission.is_set()
        match word:
            case Word.OPEN:
                stream = self._stream(thing, connection, *words)
                handler = partial(self._answer, *words)
                self._acquaintances.running().start_soon(serve, stream, handler)
            case Word.TELL if is_admitted:
                self._rumours.heard(connection, *words)
            case Word.ASK if is_admitted:
                answer = self._records.asked(connection.peer_id, *words)
                connection.say(Word.ANSWER, answer, thing=thing)
            case Word.ANSWER:
                self._records.answered(thing, *words)

    def _stream(self, end: StreamEnd, connection: Connection, protocol: str) -> LightStream:
        if protocol == BULK:  # whoever fetches and serves counts what it stands for
            return LightStream(end, connection)

        def note(size_bytes: int) -> None:
            self.carried.note(size_bytes, self._is_member(connection.peer_id))

        return LightStream(end, connection, note)

    async def _answer(self, protocol: str, stream: ByteStream) -> None:
        handler = self._handlers.get(protocol)
        await stream.send_all(REFUSED if handler is None else ACCEPTED)
        peer = self._acquaintances.peers.get(stream.peer_id)
        visits = None if peer is None else peer.visits
        is_open = protocol in self._open_protocols if visits is None else protocol == visits
        if not handler or not (is_open or await self._acquaintances.admission(stream.peer_id)):
            raise Unavailable(f"{protocol} is not for {stream.peer_id}")
        await handler(stream)
