"""What a node says of itself is what every other node takes, whatever its host is like."""

from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import ADDRESSES_MAX, Role, decode_record
from daa_node.network.discovery import OwnRecord
from daa_node.seams import Address

KEYS = NodeKeys.from_seed(b"own record")


class Wall:
    def wall_ns(self) -> int:
        return 10**18


def test_a_host_of_many_addresses_tells_as_many_as_a_record_holds() -> None:
    addresses = [Address(f"/ip4/192.0.2.{host}/tcp/4001/p2p/{KEYS.peer_id}") for host in range(40)]
    own = OwnRecord(KEYS, lambda: addresses, Role.CLOUD, ("validator",), Wall())
    told = decode_record(own.current_bytes()).record
    assert told.addresses == tuple(addresses[:ADDRESSES_MAX])
    assert decode_record(own.current_bytes()).record == told  # nothing new, no new number
