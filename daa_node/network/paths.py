"""What a transport knows of the connections that it has, beside carrying streams."""

from collections.abc import Callable
from typing import Protocol

from daa_node.seams import PeerId


class Paths(Protocol):
    """How our connections with peers stand."""

    def hear_round_trips(self, hear: Callable[[PeerId, float], None]) -> None:
        """Tell it of each round trip that is measured with an admitted peer, in seconds."""

    def is_dialled(self, peer_id: PeerId) -> bool:
        """Whether a connection with it is one that we have opened."""

    def is_websocket(self, peer_id: PeerId) -> bool:
        """Whether a connection with it is a WebSocket, and no plain TCP."""
