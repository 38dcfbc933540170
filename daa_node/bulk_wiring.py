"""The parts of one node that carry blobs, and what they share: one link, and its limits."""

from daa_dag.ids import BlobRoot, NodeId
from daa_node.identity.validators import Validators
from daa_node.network.blob_exchange import BlobFetcher
from daa_node.network.blob_server import BlobServer
from daa_node.network.contacts import Contacts
from daa_node.network.directory import Directory
from daa_node.network.link_limits import LinkLimits
from daa_node.network.requests import Requests
from daa_node.network.session_pool import Source
from daa_node.network.spreading import SALT_BYTES, Spreading, Swarm, UnderWay
from daa_node.node_parts import NodeParts
from daa_node.seams import IsMember
from daa_node.training.boundaries import BOUNDARIES, DISPUTED

STATES_FOR_MEMBERS = frozenset({BOUNDARIES, DISPUTED})  # kinds of blobs


class BulkWiring:
    """Made from what the node is made of, and whom it knows."""

    def __init__(
        self,
        parts: NodeParts,
        directory: Directory,
        contacts: Contacts,
        requests: Requests,
        validators: Validators,
    ) -> None:
        self._contacts = contacts
        self.limits = LinkLimits(
            parts.network_now or (lambda: parts.config.network),
            parts.clock.wall_ns,
            parts.work_store,
            parts.events,
        )
        self.limits.weigh, self.limits.carried = parts.weigh_frame, parts.carried
        requests.limits = self.limits
        parts.limit_relay(self.limits)
        self._bulk = parts.make_bulk(directory.node_of, contacts.blame)
        swarm = Swarm(UnderWay(), self._member_source, lambda: parts.entropy.bytes(SALT_BYTES))
        self.spreading = Spreading(
            lambda: len(directory.members()),
            swarm,
            parts.slowness,
            lambda: validators.now.committee.stake_of,
        )
        me = parts.keys.node_id
        fault, limits = contacts.fault, self.limits
        self.fetcher = BlobFetcher(me, self._bulk, fault, swarm, limits, parts.slowness)
        shelves = {"updates": parts.work_store, "deltas": parts.chain_store}
        shelves |= dict.fromkeys(STATES_FOR_MEMBERS, parts.work_store)
        self.server = BlobServer(
            shelves,
            parts.chain_store,
            lambda node: node in directory.members(),
            requests.untaken,
            votes=lambda node: node in validators.now.committee.stake_of,
            for_members=STATES_FOR_MEMBERS,
            spreading=self.spreading,
        )
        self.server.limits = self.limits

    def sent_of(self, root: BlobRoot) -> int:
        """How much of an update's chunks we have sent, as far as we remember."""
        return self.spreading.sent_bytes(("updates", root))

    def open(self, is_member: IsMember) -> None:
        """Serve from now on."""
        self._bulk.set_handler(self.server.serve, is_member)

    def _member_source(self, node: NodeId) -> Source | None:
        peer_id = self._contacts.peer_of(node) if node in self._contacts.members() else None
        return None if peer_id is None else Source(node, peer_id)
