"""Who holds a checkpoint: each node says in the DHT where it stands, and asks there when it lags.

A claim is a hint. Whoever believes it asks once a search; what the answer is worth its certificates
and hashes show.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

import trio

from daa_dag.ids import NodeId, VertexId, digest_of
from daa_node.errors import Unavailable
from daa_node.network.addresses import is_numeric, peer_id_in
from daa_node.network.directory import Directory
from daa_node.network.discovery import ADDRESSES_TRIED_MAX
from daa_node.network.topics import checkpoint_key
from daa_node.seams import PeerId, Transport

TELL_EVERY_S = 5.0  # checkpoints that pass quicker are not told of
TELLERS = 16  # of a checkpoint, about: twice as many as are asked, and a third of them may be gone
HOLDERS_MAX = 8  # false ones among them cost one ask each
REACH_S_MAX = 5.0  # for all of them together
SEARCH_EVERY_S = 30.0  # a search asks many, and whoever lags has often only to wait


class Holders:
    """Tells where this node stands, and finds others that stood there."""

    def __init__(self, transport: Transport, directory: Directory) -> None:
        self._transport = transport
        self._directory = directory
        self._search_after_s = 0.0

    async def tell(self, newest: Callable[[], VertexId]) -> None:
        """Provide each vertex that a look finds newest. Until cancelled."""
        told: VertexId | None = None
        while True:
            if newest() != told and self._transport.connected():
                told = newest()
                if self._tells_of(told):
                    with suppress(Unavailable):  # the transport tells it again
                        await self._transport.provide(checkpoint_key(told))
            await trio.sleep(TELL_EVERY_S)

    def _tells_of(self, vertex_id: VertexId) -> bool:
        """Whether we are one of the few that the checkpoint's name chooses."""
        peers_known = max(len(list(self._directory.members())), len(self._directory.standings()))
        chance = digest_of(vertex_id + self._transport.peer_id.encode())
        return int.from_bytes(chance) % max(1, peers_known) < TELLERS

    async def find(self, vertex_ids: Sequence[VertexId]) -> list[NodeId]:
        """Nodes that say that they hold one of these, connected by now; [] soon after a search.

        Only those whose signed record we know: nobody else can be dialled or named.
        """
        if trio.current_time() < self._search_after_s:
            return []
        named: dict[PeerId, None] = {}
        try:
            for vertex_id in vertex_ids:
                key = checkpoint_key(vertex_id)
                named |= dict.fromkeys(await self._transport.find_providers(key, HOLDERS_MAX))
        except Unavailable:
            return []
        finally:
            self._search_after_s = trio.current_time() + SEARCH_EVERY_S
        with trio.move_on_after(REACH_S_MAX):
            async with trio.open_nursery() as nursery:
                for peer_id in named:
                    nursery.start_soon(self._reach, peer_id)
        connected = set(self._transport.connected())
        nodes = [
            self._directory.node_of(peer_id)
            for peer_id in named
            if peer_id in connected and not self._directory.banned_for_s(peer_id)
        ]
        return [node_id for node_id in nodes if node_id is not None][:HOLDERS_MAX]

    async def _reach(self, peer_id: PeerId) -> None:
        standing = self._directory.standing(peer_id)
        if standing is None or standing.signed is None or self._directory.banned_for_s(peer_id):
            return
        if peer_id in self._transport.connected():
            return
        for address in standing.signed.record.addresses[:ADDRESSES_TRIED_MAX]:
            if peer_id_in(address) != peer_id:
                continue
            if not (is_numeric(address) or self._directory.is_member(peer_id)):
                continue
            try:
                await self._transport.dial(address)
            except Unavailable:
                continue
            return
