"""The Transport seam without libp2p: streams, gossip and the DHT of daemons, over simulated links.

What a link does to bytes it does here as it does below libp2p, and so do partitions, kills and
pauses: those are of the Network. What libp2p alone can show is missing: its handshakes, windows,
gossip's mesh and scores, Kademlia's routes. See light_acquaintances for who is connected, and
light_commons for what stands in the place of gossipsub and Kademlia.
"""

import trio

from daa_node.adapters.served_stream import serve
from daa_node.errors import Unavailable
from daa_node.seams import (
    Address,
    ByteStream,
    Door,
    GossipFilter,
    GossipJudge,
    IsMember,
    OnFault,
    PeerId,
    RecordJudge,
    StreamHandler,
)
from daa_node.wire.limits import GOSSIP_BYTES_MAX
from simnet.nodes.virtual.light_acquaintances import Acquaintances
from simnet.nodes.virtual.light_commons import ANSWER, ASK, TELL, Records, Rumours
from simnet.nodes.virtual.light_connection import (
    ACCEPTED,
    OPEN,
    REFUSED,
    Connection,
    Exchange,
    Frame,
    LightStream,
)
from simnet.nodes.virtual.network import PORT, Host


class LightTransport:
    """One node's. `run` must be running before anything is dialled, opened or published."""

    def __init__(self, exchange: Exchange, node: int, host: Host, peer_id: PeerId) -> None:
        self.peer_id = peer_id
        self._host = host
        self._handlers: dict[str, StreamHandler] = {}
        self._open_protocols: frozenset[str] = frozenset()
        self._acquaintances = Acquaintances(exchange, node, host, peer_id)
        self.dial, self.hang_up = self._acquaintances.dial, self._acquaintances.hang_up
        self.connected = self._acquaintances.peers
        self.network_of = self._acquaintances.network_of
        admitted, is_admitted = self._acquaintances.admitted, self._acquaintances.is_admitted
        self._rumours = Rumours(peer_id, admitted, is_admitted)
        self._records = Records(peer_id, admitted, is_admitted)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        await self._acquaintances.run(self._on_frame, task_status)

    def addresses(self) -> list[Address]:
        return [Address(f"/ip4/{self._host}/tcp/{PORT}/p2p/{self.peer_id}")]

    # Streams

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        return await self._acquaintances.to(peer_id).open(protocol)

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        self._handlers[protocol] = handler

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
        self._open_protocols = open_protocols
        self._rumours.on_fault = on_fault

    async def _on_frame(self, connection: Connection, frame: Frame, nursery: trio.Nursery) -> None:
        try:
            match frame:
                case [str(word), int(number), str(protocol)] if word == OPEN:
                    stream = connection.opened(number)
                    if stream is not None:
                        nursery.start_soon(self._on_stream, stream, protocol)
                case [str(word), *rumour] if word == TELL:
                    await self._rumours.heard(connection, rumour)
                case [str(word), *question] if word == ASK:
                    await self._records.asked(connection, question)
                case [str(word), int(number), answer] if word == ANSWER:
                    self._records.answered(number, answer)
                case _:
                    pass
        except trio.BrokenResourceError:
            return  # the next frame is the end

    async def _on_stream(self, stream: LightStream, protocol: str) -> None:
        handler = self._handlers.get(protocol)

        async def answer(stream: ByteStream) -> None:
            await stream.send_all(REFUSED if handler is None else ACCEPTED)
            is_open = protocol in self._open_protocols
            if not handler or not (is_open or await self._acquaintances.admission(stream.peer_id)):
                raise Unavailable(f"{protocol} is not for {stream.peer_id}")
            await handler(stream)

        await serve(stream, answer)

    # What everybody shares

    def join_topic(self, topic: str, may_be_news: GossipFilter, judge: GossipJudge) -> None:
        self._rumours.join(topic, may_be_news, judge)

    async def publish(self, topic: str, payload: bytes) -> None:
        assert len(payload) <= GOSSIP_BYTES_MAX, f"{len(payload)} bytes are no announcement"
        self._acquaintances.running()
        await self._rumours.publish(topic, payload)

    def set_record_judge(self, judge: RecordJudge) -> None:
        self._records.judge = judge

    async def put_record(self, key: str, payload: bytes) -> None:
        self._acquaintances.running()
        await self._records.put(key, payload)

    async def get_record(self, key: str) -> bytes | None:
        self._acquaintances.running()
        return await self._records.get(key)

    async def provide(self, key: str) -> None:
        self._acquaintances.running()
        await self._records.provide(key)

    async def find_providers(self, key: str, count_max: int) -> list[PeerId]:
        self._acquaintances.running()
        return await self._records.find_providers(key, count_max)
