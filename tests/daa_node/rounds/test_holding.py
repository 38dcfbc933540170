"""A contribution of a decided set is had from whoever has it, when nobody is left to vouch."""

from dataclasses import replace

import trio

from daa_consensus.bft.messages import OfferBody
from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, NodeId
from daa_node.errors import Unavailable
from daa_node.rounds.gather import Gather
from tests.daa_node.rounds.test_patience import Asked
from tests.daa_node.rounds.test_rehearsal import NODES, Scene, Store, offer_of


class Empty(Store):
    """A disk without updates."""

    async def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        return None


async def test_who_lost_the_blob_and_heard_no_ack_of_it_asks_every_member(
    autojump_clock: object,
) -> None:
    """After all were killed at once and its author lost its disk, no word names the offer."""
    author, holder = NODES[1], NODES[3]
    asked: list[set[NodeId]] = []

    async def fetch_update(offer: OfferBody, nodes: list[NodeId]) -> None:
        asked.append(set(nodes))
        if holder not in nodes:
            raise Unavailable("the author does not have it")

    scene = Scene()
    scene.store = Empty()
    context = replace(
        scene.context,
        store=scene.store,  # type: ignore[arg-type]
        fetch_update=fetch_update,
    )
    gather = Gather(context, Asked())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        with trio.fail_after(10):
            await gather.hold_all([offer_of(author)])
        nursery.cancel_scope.cancel()
    assert asked[0] == {author}
    assert asked[1] == set(NODES) - {scene.context.me}
