"""A contribution of a decided set is had from whoever has it, when nobody is left to vouch."""

from collections.abc import Callable
from dataclasses import replace

import trio

from daa_consensus.bft.messages import OfferBody
from daa_consensus.votes import Kind
from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, NodeId
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.blob_exchange import PATIENCE_S, BlobFetcher, Want
from daa_node.network.session_pool import Source
from daa_node.rounds.gather import Gather
from tests.daa_node.network.bulk_stage import (
    KIND,
    LOCAL,
    MANIFEST,
    PAYLOAD,
    MemoryBulk,
    MemoryWriter,
    scripted,
    silence,
    truth,
)
from tests.daa_node.rounds.test_patience import Asked
from tests.daa_node.rounds.test_rehearsal import NODES, Scene, Store, asking, offer_of, said

WINDOW_S = 60.0  # the deadline of an update's fetch


class Empty(Store):
    """A disk without updates."""

    async def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        return None


async def test_who_lost_the_blob_and_heard_no_ack_of_it_asks_every_member(
    autojump_clock: object,
) -> None:
    """After all were killed at once and its author lost its disk, no statement names the offer."""
    author, holder = NODES[1], NODES[3]
    asked: list[set[NodeId]] = []

    async def fetch_update(offer: OfferBody, nodes: Callable[[], list[NodeId]]) -> None:
        asked.append(set(nodes()))
        if holder not in nodes():
            raise Unavailable("the author does not have it")

    scene = Scene()
    scene.store = Empty()
    context = replace(
        scene.context,
        store=scene.store,  # type: ignore[arg-type]
        peers=asking(fetch_update),
    )
    gather = Gather(context, Asked())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        with trio.fail_after(10):
            await gather.hold_all([offer_of(author)])
        nursery.cancel_scope.cancel()
    assert asked[0] == {author}
    assert asked[1] == set(NODES) - {scene.context.me}


async def test_a_set_that_holds_what_its_author_keeps_from_us_waits_seconds_for_it(
    autojump_clock: object,
) -> None:
    """Members acknowledge it meanwhile: a fetch that has begun goes on with them."""
    author = NODES[1]
    scene = Scene()
    scene.store = Empty()
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        fetcher = BlobFetcher(LOCAL, bulk, lambda node, fault: None)
        peers = {author: bulk.add("author", scripted(silence))}
        peers |= {node: bulk.add(f"m{i}", scripted(truth)) for i, node in enumerate(NODES[2:])}

        async def fetch_update(offer: OfferBody, nodes: Callable[[], list[NodeId]]) -> None:
            def sources() -> list[Source]:
                return [peers[node] for node in nodes()]

            want = Want(KIND, MANIFEST.root, len(PAYLOAD))
            await fetcher.fetch(want, sources(), MemoryWriter().begin, WINDOW_S, sources)

        context = replace(
            scene.context,
            store=scene.store,  # type: ignore[arg-type]
            peers=asking(fetch_update),
        )
        gather = Gather(context, Asked())
        nursery.start_soon(gather.run)
        gather.hear(said(author, Kind.OFFER, offer_of(author).as_value()))
        await trio.sleep(0.5)
        for node in NODES[1:]:
            gather.hear(said(node, Kind.ACK, [offer_of(author).root]))
        began_s = trio.current_time()
        await gather.hold_all([offer_of(author)])
        assert trio.current_time() - began_s < 3 * PATIENCE_S
        nursery.cancel_scope.cancel()


async def test_what_was_decided_is_fetched_again_when_its_fetches_gave_up(
    autojump_clock: object,
) -> None:
    away_s, began_s = 100.0, trio.current_time()

    async def fetch_update(offer: OfferBody, nodes: Callable[[], list[NodeId]]) -> None:
        if trio.current_time() - began_s < away_s:
            raise Unavailable("nobody is there")

    scene = Scene()
    context = replace(
        scene.context,
        store=Empty(),  # type: ignore[arg-type]
        peers=asking(fetch_update),
    )
    gather = Gather(context, Asked())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        with trio.fail_after(2 * away_s):
            await gather.hold_all([offer_of(NODES[1])])
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began_s >= away_s


class Worn(Store):
    """A disk that hands back a wrong bit of what was written to it once."""

    def __init__(self) -> None:
        self.held: set[BlobRoot] = set()
        self.is_worn = True

    async def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        return await super().blob_manifest(kind, root) if root in self.held else None

    async def view_blob(self, kind: str, root: BlobRoot) -> memoryview:
        right = bytes(await super().view_blob(kind, root))
        return memoryview(bytes([right[0] ^ 1]) + right[1:] if self.is_worn else right)

    async def delete_blob(self, kind: str, root: BlobRoot) -> None:
        self.held.discard(root)
        self.is_worn = False


async def test_a_bit_that_our_own_disk_turned_is_not_its_authors_fault_and_fetched_again(
    autojump_clock: object,
) -> None:
    """Else who holds the missing vote would never execute what the others have."""
    author, blamed, fetched = NODES[1], list[NodeId](), list[BlobRoot]()
    scene, store = Scene(), Worn()

    async def fetch_update(offer: OfferBody, nodes: Callable[[], list[NodeId]]) -> None:
        fetched.append(offer.blob_root)
        store.held.add(offer.blob_root)

    def check(blob: memoryview, codec: str) -> None:
        if bytes(blob) != author:
            raise PeerFault("bad_update", "padding that is not zero")

    context = replace(
        scene.context,
        store=store,  # type: ignore[arg-type]
        rules=replace(scene.context.rules, check_update=check),
        peers=asking(fetch_update),
        fault=lambda node, fault: blamed.append(node),
    )
    gather = Gather(context, Asked())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        gather.hear(said(author, Kind.OFFER, offer_of(author).as_value()))
        with trio.fail_after(10):
            await gather.hold_all([offer_of(author)])
        nursery.cancel_scope.cancel()
    assert blamed == []
    assert len(fetched) == 2
