"""Where any of many will do, those that ask spread over them."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from daa_consensus.bft.limits import Limits
from daa_dag.ids import BlobRoot, NodeId
from daa_node.network.blob_exchange import BlobFetcher
from daa_node.network.contacts import Contacts
from daa_node.network.requests import Requests
from daa_node.network.session_pool import Source
from daa_node.network.turns import in_turn_of
from daa_node.rounds.peers import Peers, Sizes
from daa_node.seams import BlobStore, PeerId

MEMBERS = [NodeId(bytes([65 + number]) * 32) for number in range(20)]
GUESTS = [NodeId(number.to_bytes(2) * 16) for number in range(480)]
ROOT = BlobRoot(b"d" * 32)


def test_everybody_asks_all_in_an_order_of_its_own() -> None:
    orders = [in_turn_of(guest, MEMBERS) for guest in GUESTS]
    assert all(sorted(order) == MEMBERS for order in orders)
    for place in (0, 1, 19):
        asked = Counter(order[place] for order in orders)
        assert max(asked.values()) <= 2 * len(GUESTS) / len(MEMBERS)


async def test_whoever_is_asked_for_a_delta_next_is_not_the_same_for_all() -> None:
    """The first is who brought the page; where that one is busy, all would meet at one other."""
    second: Counter[NodeId] = Counter()

    async def fetch(_want: object, sources: list[Source], *_: object, **__: object) -> None:
        assert sources[0].node_id == MEMBERS[0]
        assert sorted(source.node_id for source in sources) == MEMBERS
        second[sources[1].node_id] += 1

    async def nothing(*_: Any) -> None:
        return None

    for guest in GUESTS:
        contacts = SimpleNamespace(
            me=guest,
            members=lambda: set(MEMBERS),
            peer_of=lambda node: PeerId(node.hex()),
            one_is_honest=lambda nodes: bool(nodes),
        )
        peers = Peers(
            cast(BlobFetcher, SimpleNamespace(fetch=fetch)),
            cast(Requests, None),
            cast(Contacts, contacts),
            cast(BlobStore, SimpleNamespace(blob_manifest=nothing)),
            Sizes(Limits(20, 20), 1, 1.0, ()),
        )
        await peers.fetch_delta(ROOT, MEMBERS[0])
    assert max(second.values()) <= 2 * len(GUESTS) / len(MEMBERS)
