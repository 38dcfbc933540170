"""How connections stand, as yamux and the swarm know it."""

from collections.abc import Callable
from typing import cast

from libp2p.peer.id import ID

from daa_node.adapters.libp2p_sockets import WebSockets
from daa_node.adapters.libp2p_swarm import BoundedSwarm, remote_of
from daa_node.adapters.libp2p_yamux import YamuxSession
from daa_node.seams import PeerId


class ConnectionPaths:
    """See network.paths, for one transport; works once `serve` was called."""

    def __init__(self) -> None:
        self._swarm: BoundedSwarm | None = None
        self._websockets: WebSockets | None = None
        self._hear: Callable[[PeerId, float], None] | None = None

    def serve(self, swarm: BoundedSwarm, websockets: WebSockets | None) -> None:
        """Tell of this swarm's connections from now on."""
        self._swarm, self._websockets = swarm, websockets
        swarm.on_round_trip = self._heard

    def hear_round_trips(self, hear: Callable[[PeerId, float], None]) -> None:
        self._hear = hear

    def is_dialled(self, peer_id: PeerId) -> bool:
        if self._swarm is None:
            return False
        connections = self._swarm.get_connections(ID.from_base58(peer_id))
        return any(cast(YamuxSession, one.muxed_conn).is_initiator for one in connections)

    def is_websocket(self, peer_id: PeerId) -> bool:
        swarm, websockets = self._swarm, self._websockets
        if swarm is None or websockets is None:
            return False
        connections = swarm.get_connections(ID.from_base58(peer_id))
        return any(websockets.lead_to(remote_of(one)) for one in connections)

    def _heard(self, peer_id: PeerId, rtt_s: float) -> None:
        if self._hear is not None:
            self._hear(peer_id, rtt_s)
