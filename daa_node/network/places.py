"""Who may stay: every member, and of others as many as the operator said, fairly by address.

    hello judged --take--> has a place --connection gone--> forgotten
                     \\--> refused: full, superseded

One name has one peer id at a time: that of its record with the highest sequence number. Its owner
alone can say so, by the key that makes the name; every node decides alike, and at once, also while
the connection of a machine that is gone still seems to live. The other one is parted with.

Members of the present committee and the next, and whom the operator named, always find a place.
When those of others are taken, a newcomer takes the newest one of the network that holds most, if
it would itself hold fewer: so one address, however many names it has, leaves a share to each other.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.identity.record import SignedRecord, supersedes
from daa_node.network.addresses import peer_id_in
from daa_node.network.config import NetworkConfig
from daa_node.network.directory import Crowd, Directory
from daa_node.seams import Address, PeerId


@dataclass(frozen=True, slots=True)
class PlaceLimits:
    """`others_max` that are neither members nor `named`, which are whom the operator dials."""

    others_max: int
    named: frozenset[PeerId] = frozenset()


def limits_of(config: NetworkConfig) -> PlaceLimits:
    return PlaceLimits(config.peers_max, frozenset(map(peer_id_in, map(Address, config.bootstrap))))


class Surroundings(Crowd, Protocol):
    """Of a Transport: who is connected, and from where."""

    def network_of(self, peer_id: PeerId) -> str: ...


class Places:
    """Judges with nothing awaited in between, so that many who come at once are many."""

    def __init__(self, crowd: Surroundings, directory: Directory, limits: PlaceLimits) -> None:
        self._crowd = crowd
        self._directory = directory
        self._limits = limits
        directory.attend(crowd)
        self._taken: dict[NodeId, SignedRecord] = {}  # oldest first

    def take(self, signed: SignedRecord) -> list[PeerId]:
        """A place for who shows this record; whom to part with for it.

        Raises PeerFault: "superseded", "two-names" or "full".
        """
        self._forget_the_gone()
        node_id, peer_id = signed.record.node_id, signed.record.peer_id
        self._check_name(signed)
        before, parted = self._taken.get(node_id), []
        if before is not None and before.record.peer_id != peer_id:
            parted.append(before.record.peer_id)
        if before is None and not self._is_awaited(signed):
            parted += self._make_room(peer_id)
        self._taken[node_id] = signed
        return parted

    def _check_name(self, signed: SignedRecord) -> None:
        record = signed.record
        node_id, peer_id = record.node_id, record.peer_id
        for known in (self._taken.get(node_id), self._directory.record_of(node_id)):
            if known is None or known.record.peer_id == peer_id:
                continue
            if not supersedes(known.record, record):
                raise PeerFault(
                    "superseded",
                    f"node {node_id.hex()[:16]} has said since that it is {known.record.peer_id}: "
                    f"only one host can be it at a time",
                )
        named = self._directory.node_of(peer_id)
        if named not in (None, node_id) and named in self._members():
            raise PeerFault("two-names", f"{peer_id} is the member {named.hex()[:16]}")

    def _make_room(self, peer_id: PeerId) -> list[PeerId]:
        others = [known for known in self._taken.values() if not self._is_awaited(known)]
        if len(others) < self._limits.others_max:
            return []
        held = Counter(self._crowd.network_of(known.record.peer_id) for known in others)
        greediest, most = held.most_common(1)[0]
        if held[self._crowd.network_of(peer_id)] + 1 >= most:
            raise PeerFault("full", f"{len(others)} peers are connected, and no more are held")
        newest = next(
            known
            for known in reversed(others)
            if self._crowd.network_of(known.record.peer_id) == greediest
        )
        del self._taken[newest.record.node_id]
        return [newest.record.peer_id]

    def _is_awaited(self, signed: SignedRecord) -> bool:
        named = signed.record.peer_id in self._limits.named
        return named or signed.record.node_id in self._members()

    def _members(self) -> Collection[NodeId]:
        return self._directory.members()

    def _forget_the_gone(self) -> None:
        connected = set(self._crowd.connected())
        for node_id, signed in list(self._taken.items()):
            if signed.record.peer_id not in connected:
                del self._taken[node_id]
