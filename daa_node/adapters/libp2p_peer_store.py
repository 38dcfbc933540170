"""The library's peer store, with what others may put into it bounded."""

from collections.abc import Sequence

from libp2p.peer.id import ID
from libp2p.peer.peerstore import PeerStore
from multiaddr import Multiaddr

from daa_node.network.addresses import is_numeric
from daa_node.seams import Address

ADDRESSES_PER_PEER_MAX = 8
PEERS_KNOWN_MAX = 1024


class BoundedPeerStore(PeerStore):
    """At most ADDRESSES_PER_PEER_MAX addresses a peer, by number, and PEERS_KNOWN_MAX peers.

    What is here others have told, and the library dials it: no stranger has a name looked up.
    """

    def __init__(self) -> None:
        super().__init__(max_records=PEERS_KNOWN_MAX, max_peers=PEERS_KNOWN_MAX)

    def add_addrs(self, peer_id: ID, addrs: Sequence[Multiaddr], ttl: int = 0) -> None:
        numeric = list(filter(_is_numeric, addrs))
        super().add_addrs(peer_id, numeric[:ADDRESSES_PER_PEER_MAX], ttl)
        kept = self.peer_data_map.get(peer_id)
        if kept is not None:
            del kept.addrs[:-ADDRESSES_PER_PEER_MAX]

    def _enforce_peer_limit(self) -> None:
        """The oldest go first; the library began with us, who have keys and no addresses."""
        while len(self.peer_data_map) > self.max_peers:
            oldest = next(peer for peer, kept in self.peer_data_map.items() if not kept.privkey)
            del self.peer_data_map[oldest]
            self.peer_record_map.pop(oldest, None)


def _is_numeric(address: Multiaddr) -> bool:
    """Also whether it is one at all: the library reads its bytes only when it dials."""
    try:
        return is_numeric(Address(str(address)))
    except ValueError:
        return False
