"""Whom a node writes to, and whose letters it reads: stands in for the daemon's mailbox.

As there (daa_node/network/mailbox.py), who was once followed is written to for the rest of the
life, and the letters of who was not are read by nobody.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from daa_dag.ids import NodeId
from daa_node.seams import PeerId

if TYPE_CHECKING:
    from simnet.heap.consensus_contact import World
    from simnet.heap.consensus_host import Host

OPEN_DELTAS = 1  # until a stream to a new member is open


class Post:
    """One life's mailbox, and its directory: every node's address is known here."""

    def __init__(self, world: "World", host: "Host") -> None:
        self._world = world
        self._host = host
        self._members: dict[NodeId, None] = {}  # in the order of their coming

    @property
    def members(self) -> list[NodeId]:
        return list(self._members)

    def enlist(self, peer_ids: Mapping[NodeId, PeerId]) -> None:
        """Nobody's address is asked for."""

    def follow(self, members: Iterable[NodeId], is_one: bool) -> None:
        """Write to these too from now on, whether or not this node `is_one` of them."""
        del is_one
        for member in members:
            if member not in self._members:
                self._members[member] = None
                open_ns = OPEN_DELTAS * self._world.network.delta_ns
                self._host.later(open_ns, partial(self._greet, member))

    def _greet(self, member: NodeId) -> None:
        if self._host.life is not None:
            self._host.life.greet(member)

    def reads(self, sender: NodeId) -> bool:
        return sender in self._members

    def send(self, member: NodeId, payload: bytes) -> None:
        if member in self._members:
            self._world.carrier.leaves(self._host, payload)
            self._world.carrier.send(self._host, member, payload)

    def answer(self, member: NodeId, payload: bytes) -> bool:
        self.send(member, payload)
        return True

    def broadcast(self, payload: bytes) -> None:
        self._world.carrier.leaves(self._host, payload)
        for member in self._members:
            self._world.carrier.send(self._host, member, payload)
