"""The parts of one node that keep its history whole, with what others hold of it."""

from collections.abc import Callable, Collection, Sequence, Set

import trio

from daa_dag.chunking import Manifest
from daa_dag.ids import NodeId
from daa_dag.retention import Retention
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.proof_mending import ProofMending
from daa_node.checkpoints.quota import within_bytes
from daa_node.checkpoints.records import Records
from daa_node.checkpoints.repair import Lenders, Repair
from daa_node.checkpoints.replication import LOOK_EVERY_S, Replication
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.errors import Unavailable
from daa_node.identity.validators import Validators
from daa_node.network.blob_exchange import BlobFetcher, OpenWriter, Want
from daa_node.network.contacts import Contacts
from daa_node.network.requests import Requests
from daa_node.network.session_pool import Source
from daa_node.network.turns import in_turn_of, share_of
from daa_node.node_parts import NodeParts
from daa_node.tensors import GRID_ITEM_BYTES


class HistoryWiring:
    """Made from what the node is made of, and whom it knows."""

    def __init__(
        self,
        parts: NodeParts,
        chain: ChainStore,
        contacts: Contacts,
        requests: Requests,
        fetcher: BlobFetcher,
        validators: Validators,
    ) -> None:
        self._chain = chain
        self._events, self._peer_id = parts.events, parts.transport.peer_id
        self.replication: Replication | None = None
        self._mending: ProofMending | None = None
        self._storage_now = parts.storage_now
        self._contacts = contacts
        self._requests = requests
        self._fetcher = fetcher
        count, updates = parts.genesis.job.model.parameter_count(), parts.genesis.job.updates
        self.lenders = Lenders(
            members=lambda: in_turn_of(contacts.me, contacts.members()),
            ask=self._ask,
            fetch=self._fetch,
            fault=contacts.fault,
            validators=validators,
            delta_bytes_max=updates.delta_format.size_bytes_max(count),
            state_bytes=count * GRID_ITEM_BYTES,
        )

    def serve(self) -> None:
        """Answer others from now on."""
        Records(self._chain).serve(self._requests)

    def within(self, retention: Retention, snapshot_every: int) -> Retention:
        """What there is room for, of what this node wants to keep."""
        delta_bytes, state_bytes = self.lenders.delta_bytes_max, 2 * self.lenders.state_bytes
        return within_bytes(retention, delta_bytes, state_bytes, snapshot_every)

    def lend_to(self, snapshots: Snapshots) -> None:
        """What is found damaged there is mended from now on."""
        repair = Repair(self._chain, self.lenders)
        snapshots.scrub.repair = repair
        self._chain.loose.verify = self.lenders.validators.verify
        self._mending = ProofMending(self._chain, repair, self._events)
        if self._storage_now is not None:
            now = self._storage_now
            snapshots.quota.bytes_max_now = lambda: now().bytes_max
        around = self._chain, self.lenders, snapshots.quota, snapshots.every
        self.replication = Replication(self._contacts.me, *around, self._events)
        self.replication.serve(self._requests)

    def copies(self) -> dict[str, object]:
        """What `status` tells of whole states at others."""
        assert self.replication is not None, "lend_to() comes first"
        return self.replication.told()

    async def run(self) -> None:
        """See that there are copies enough, each node at its own time, and mend what has rotted.

        Until cancelled.
        """
        assert self.replication is not None, "lend_to() comes first"
        assert self._mending is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._mending.run)
            nursery.start_soon(self.replication.run, LOOK_EVERY_S * share_of(self._peer_id))

    async def _ask(self, node: NodeId, name: str, body: bytes, answer_bytes_max: int) -> bytes:
        peer_id = self._contacts.peer_of(node)
        if peer_id is None:
            raise Unavailable(f"{node.hex()[:8]} is not connected")
        return await self._requests.ask(peer_id, name, body, answer_bytes_max)

    async def _fetch(
        self, want: Want, open_writer: OpenWriter, deadline_s: float, holders: Collection[NodeId]
    ) -> Manifest:
        members = self.lenders.members()
        is_honest = self._contacts.one_is_honest
        return await self._fetcher.fetch(
            want,
            self._sources(members),
            open_writer,
            deadline_s,
            are_enough=lambda declined: is_hopeless({*members} - declined, holders, is_honest),
        )

    def _sources(self, nodes: Sequence[NodeId]) -> list[Source]:
        found = [(node, self._contacts.peer_of(node)) for node in nodes]
        return [Source(node, peer_id) for node, peer_id in found if peer_id is not None]


def is_hopeless(
    left: Set[NodeId], holders: Collection[NodeId], one_is_honest: Callable[[Set[NodeId]], bool]
) -> bool:
    """Whether those who have not declined may all be liars that never answer.

    What comes back is held by few, and some honest ones that lack it say nothing about these.
    `holders` say that they have it.
    """
    return left.isdisjoint(holders) and not one_is_honest(left)
