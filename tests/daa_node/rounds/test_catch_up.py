"""Pages of certified checkpoints: what follows is taken, whatever was changed in it is refused."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload
from daa_consensus.votes import Certificate
from daa_dag import canonical
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, BlockId, Digest
from daa_node.agreement.outcomes import last_closed
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import BLOCKS
from daa_node.checkpoints.page_server import page_after
from daa_node.checkpoints.pages import (
    PAGE_BLOCKS_MAX,
    asked_blocks,
    check_page,
    decode_page,
    page_value,
)
from daa_node.checkpoints.publish import Page, Proved
from daa_node.errors import PeerFault
from daa_node.seams import BlobStore
from tests.daa_node.agreement.memory_disk import MemoryStore
from tests.daa_node.agreement.message_world import World, open_world, until

ROUNDS_GROWN = 7
Change = Callable[[Page], Page]


@dataclass(slots=True)
class Grown:
    """A chain that three members made, as one of them holds it."""

    world: World
    store: MemoryStore
    work: MemoryStore

    async def opened(self) -> ChainStore:
        store, work = cast(BlobStore, self.store), cast(BlobStore, self.work)
        chain = ChainStore(store, work, self.world.limits)
        await chain.open(self.world.first_vertex, self.world.genesis)
        return chain

    def check(self, page: Page, tip: Block, parent: Vertex) -> list[Proved]:
        check_page(page, tip, parent, self.world.validators())
        return list(page.vertices)

    def check_first(self, page: Page) -> list[Proved]:
        return self.check(page, self.world.genesis, self.world.first_vertex)


@pytest.fixture(scope="module")
def grown() -> Grown:
    async def grow() -> Grown:
        async with open_world(epoch_rounds=3) as world:
            for member in world.members[:3]:
                await world.start(member)
            await until(lambda: world.members[0].resolved >= ROUNDS_GROWN, 200)
            disk = world.members[0].disk
            return Grown(world, disk.chain, disk.work)

    return trio.run(grow, clock=trio.testing.MockClock(autojump_threshold=0))


async def first_page(grown: Grown) -> Page:
    page = await page_after(await grown.opened(), grown.world.genesis.id)
    assert page is not None
    return page


async def test_page_after_page_leads_from_genesis_to_the_newest_vertex(grown: Grown) -> None:
    chain = await grown.opened()
    tip, parent = grown.world.genesis, grown.world.first_vertex
    heights, rounds = [0], 0
    while (page := await page_after(chain, tip.id)) is not None:
        assert len(page.blocks) <= PAGE_BLOCKS_MAX
        encoded = canonical.encode(page_value(page))
        assert decode_page(encoded, grown.world.limits) == page
        vertices = grown.check(page, tip, parent)
        heights += [vertex.height for vertex, _ in vertices]
        parent = vertices[-1][0] if vertices else parent
        rounds = max(rounds, last_closed(page.blocks))
        closings = [b for b in page.blocks if isinstance(b.payload, ResultPayload | AbortPayload)]
        tip = closings[-1]
    assert heights == list(range(len(heights)))
    assert parent == await chain.newest()
    assert rounds >= ROUNDS_GROWN


async def test_nothing_follows_the_newest_block_or_one_that_is_not_final_here(
    grown: Grown,
) -> None:
    chain = await grown.opened()
    assert await page_after(chain, chain.final_tip[0].id) is None
    assert await page_after(chain, BlockId(b"?" * 32)) is None
    assert decode_page(canonical.encode(page_value(None)), grown.world.limits) is None


async def test_a_hundred_questions_read_the_whole_chain_once(grown: Grown) -> None:
    class CountingStore(MemoryStore):
        reads = 0

        async def get_record(self, kind: str, name: str) -> bytes | None:
            CountingStore.reads += kind == BLOCKS
            return await super().get_record(kind, name)

    store = CountingStore.__new__(CountingStore)
    store.__dict__.update(grown.store.__dict__)
    chain = await Grown(grown.world, store, grown.work).opened()
    blocks = len(await store.record_names(BLOCKS))
    CountingStore.reads = 0
    for number in range(100):
        assert await page_after(chain, BlockId(number.to_bytes(32))) is None
    assert CountingStore.reads <= blocks + 100  # and each looks for the one that it asks about


def another_root(vertex: Vertex) -> Vertex:
    return replace(vertex, model_root=BlobRoot(b"m" * 32))


def exchanged(page: Page, vertex: Callable[[Vertex], Vertex]) -> Page:
    (first, proof), *others = page.vertices
    return replace(page, vertices=((vertex(first), proof), *others))


def with_result(page: Page, change: Callable[[ResultPayload], ResultPayload]) -> Page:
    """Another result in the first result block, and everything above it made to fit."""
    blocks: list[Block] = []
    changed = False
    for block in page.blocks:
        below = blocks[-1] if blocks else None
        new = block if below is None else replace(block, parent_id=below.id)
        if isinstance(new.payload, ResultPayload) and not changed:
            new, changed = replace(new, payload=change(new.payload)), True
        blocks.append(new)
    statement = replace(page.certificate.statement, value=blocks[-1].id)
    return replace(
        page, blocks=tuple(blocks), certificate=replace(page.certificate, statement=statement)
    )


def bad_signature(certificate: Certificate | None) -> Certificate:
    assert certificate is not None
    (signer, signature), *others = certificate.signatures
    flipped = bytes([signature[0] ^ 1]) + signature[1:]
    return replace(certificate, signatures=((signer, flipped), *others))


CHANGES: dict[str, Change] = {
    "no blocks": lambda p: replace(p, blocks=()),
    "the first block is missing": lambda p: replace(p, blocks=p.blocks[1:]),
    "the last block is missing": lambda p: replace(p, blocks=p.blocks[:-1]),
    "a block is missing": lambda p: replace(p, blocks=(p.blocks[0], *p.blocks[2:])),
    "blocks out of order": lambda p: replace(p, blocks=p.blocks[::-1]),
    "a block twice": lambda p: replace(p, blocks=(p.blocks[0], *p.blocks)),
    "an execution for a finalization": lambda p: replace(
        p, certificate=cast(Certificate, p.vertices[0][1])
    ),
    "one signature too few": lambda p: replace(
        p, certificate=replace(p.certificate, signatures=p.certificate.signatures[:2])
    ),
    "a forged finalization": lambda p: replace(p, certificate=bad_signature(p.certificate)),
    "a vertex is missing": lambda p: replace(p, vertices=p.vertices[1:]),
    "a vertex too many": lambda p: replace(p, vertices=(*p.vertices, p.vertices[0])),
    "vertices out of order": lambda p: replace(p, vertices=p.vertices[::-1]),
    "a vertex of other weights": lambda p: exchanged(p, another_root),
    "a vertex of other tokens": lambda p: exchanged(p, lambda v: replace(v, tokens_total=1)),
    "a vertex without an exclusion": lambda p: exchanged(
        p, lambda v: replace(v, excluded=(v.contributors[0].author,))
    ),
    "an execution of another round": lambda p: replace(
        p, vertices=((p.vertices[0][0], p.vertices[1][1]), *p.vertices[1:])
    ),
    "a forged execution": lambda p: replace(
        p, vertices=((p.vertices[0][0], bad_signature(p.vertices[0][1])), *p.vertices[1:])
    ),
    "another result": lambda p: with_result(p, lambda r: replace(r, result_root=Digest(b"r" * 32))),
    "the result of another round": lambda p: with_result(p, lambda r: replace(r, round=2)),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_page_with_anything_changed_is_its_senders_fault(name: str, grown: Grown) -> None:
    page = await first_page(grown)
    assert len(page.vertices) >= 2
    assert len(grown.check_first(page)) == len(page.vertices)
    with pytest.raises(PeerFault):
        grown.check_first(CHANGES[name](page))


async def test_a_page_must_follow_where_we_stand(grown: Grown) -> None:
    chain = await grown.opened()
    page = await first_page(grown)
    later = await page_after(chain, page.blocks[-1].id)
    assert later is not None
    with pytest.raises(PeerFault, match="does not stand"):
        grown.check_first(later)
    with pytest.raises(PeerFault, match="does not follow"):
        grown.check(page, grown.world.genesis, page.vertices[0][0])


async def test_bytes_that_were_damaged_on_the_way_are_a_fault_or_the_same_page(
    grown: Grown,
) -> None:
    page = await first_page(grown)
    encoded = canonical.encode(page_value(page))
    chance = random.Random(1)
    for _ in range(150):
        damaged = bytearray(encoded)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        try:
            received = decode_page(bytes(damaged), grown.world.limits)
            if received is not None:
                grown.check_first(received)
        except PeerFault:
            continue
        assert received in (None, page)


@pytest.mark.parametrize(
    "value", [5, "word", [], [[], None], [[b"x"], None, []], [5, [], []], {"a": 1}]
)
def test_an_answer_of_another_shape_is_a_fault(value: canonical.Value, grown: Grown) -> None:
    with pytest.raises(PeerFault, match="malformed"):
        decode_page(canonical.encode(value), grown.world.limits)


@pytest.mark.parametrize("value", [None, 5, b"", b"x" * 31, b"x" * 63, b"x" * 65, "x" * 32])
def test_a_page_is_asked_for_by_one_block_id_or_two(value: object) -> None:
    with pytest.raises(PeerFault, match="malformed"):
        asked_blocks(value)
    assert asked_blocks(b"x" * 32) == (b"x" * 32, None)
    assert asked_blocks(b"x" * 32 + b"y" * 32) == (b"x" * 32, b"y" * 32)
