"""Whom a node is connected with, and what it holds against them."""

from collections.abc import Mapping, Set

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.identity.record import SignedRecord
from daa_node.identity.validators import Validators
from daa_node.network.directory import Directory
from daa_node.seams import PeerId, Transport

NEVER_TRAINS = "never-trains"  # in the record of a validator that only votes, merges and serves


def says_it_never_trains(signed: SignedRecord | None) -> bool:
    """Of whom no record is here nobody knows it."""
    return signed is not None and NEVER_TRAINS in signed.record.capabilities


class Contacts:
    """One node's. Members are those that it knows from the chain, as far as it has come."""

    def __init__(
        self, me: NodeId, validators: Validators, directory: Directory, transport: Transport
    ) -> None:
        self.me = me
        self._validators = validators
        self._directory = directory
        self._transport = transport

    def members(self) -> set[NodeId]:
        """Members that we have a connection with, without ourselves."""
        connected = set(self._transport.connected())
        return {
            node
            for node in self._validators.listeners
            if node != self.me and self._directory.peer_of(node) in connected
        }

    async def changed(self) -> None:
        """Return when others may be connected, or others members, than at the call."""
        await self._directory.crowd_changed.park()

    def members_and_us(self) -> set[NodeId]:
        return self.members() | {self.me}

    def member_peers(self) -> list[PeerId]:
        return [p for p in map(self._directory.peer_of, sorted(self.members())) if p]

    def is_member(self, peer_id: PeerId) -> bool:
        return self._directory.is_member(peer_id)

    def peer_of(self, node_id: NodeId) -> PeerId | None:
        return self._directory.peer_of(node_id)

    def heights(self) -> Mapping[NodeId, int]:
        """How far each member says that it is, where anybody can hear it."""
        return self._directory.heights()

    def who_never_train(self, nodes: Set[NodeId]) -> set[NodeId]:
        """Of these, those who say so themselves: nobody waits for what they do not send."""
        return {node for node in nodes if says_it_never_trains(self._directory.record_of(node))}

    def anybody(self) -> set[NodeId]:
        """Everybody that we have a connection with and nothing serious against, member or not."""
        nodes = {
            self._directory.node_of(peer_id)
            for peer_id in self._transport.connected()
            if not self._directory.banned_for_s(peer_id)
        }
        return {node for node in nodes if node is not None}

    def one_is_honest(self, nodes: Set[NodeId]) -> bool:
        """Whether one of these surely tells the truth."""
        committee = self._validators.now.committee
        return committee.weight(nodes) >= committee.blocking

    def fault(self, node_id: NodeId, fault: PeerFault) -> None:
        """Count a node's fault; a ban also ends the connection."""
        peer_id = self._directory.peer_of(node_id)
        if peer_id is not None:
            self.blame(peer_id, fault)

    def blame(self, peer_id: PeerId, fault: PeerFault) -> None:
        if peer_id != self._transport.peer_id:
            self._directory.blame(peer_id, fault)
