"""What a page of checkpoints costs whoever serves it: what it shows, read once."""

from types import SimpleNamespace
from typing import Any, cast

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    Block,
    OfferBody,
    ResultPayload,
    SetPayload,
    encode_block,
    encode_certificate,
    genesis_block,
)
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import SIGNATURE_BYTES_MAX, Certificate, Kind, Statement
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, BlockId, ChainId, Digest, NodeId, VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import BLOCKS, CERTIFICATES, VERTICES, exec_name, final_name
from daa_node.checkpoints.page_server import (
    BLOCK_READ_COST_BYTES,
    PAGES_BYTES_MAX,
    Pages,
    page_after,
)
from daa_node.checkpoints.pages import PAGE_BLOCKS_MAX, REQUEST, decode_page
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.network.requests import Answer, Requests
from daa_node.seams import BlobStore, PeerId, StateRef
from tests.daa_node.agreement.memory_disk import Disk, MemoryStore

CHAIN = ChainId(b"c" * 32)
NODES = [NodeId(bytes([65 + i]) * 32) for i in range(4)]
COMMITTEE = Committee(tuple(Validator(node, 1) for node in NODES))
DOMAIN = Domain(CHAIN, 0, COMMITTEE.root)
ROUNDS = 100


class CountingStore(MemoryStore):
    """Counts the records that are read."""

    def __init__(self) -> None:
        super().__init__(Disk())
        self.reads: list[str] = []

    async def get_record(self, kind: str, name: str) -> bytes | None:
        self.reads.append(f"{kind}/{name}")
        return await super().get_record(kind, name)


def certificate(kind: Kind, view: int, height: int, value: object) -> Certificate:
    words = Statement(DOMAIN, kind, view, height, value)  # type: ignore[arg-type]
    return Certificate(words, tuple((node, b"s" * SIGNATURE_BYTES_MAX) for node in NODES[:3]))


def offer(node: NodeId, number: int) -> OfferBody:
    base, blob = VertexId(b"v" * 32), BlobRoot(number.to_bytes(32))
    return OfferBody(number, node, base, blob, 9, "int8", 1, 1, 1, 1, 1, ())


class Chain:
    """`ROUNDS` rounds of four members, a set and a result each, in a store that counts."""

    def __init__(self) -> None:
        self.store = CountingStore()
        state = StateRef(BlobRoot(b"m" * 32), BlobRoot(b"o" * 32))
        self.vertex = genesis_vertex(state, COMMITTEE.root)
        self.genesis = genesis_block(CHAIN, self.vertex.vertex_id)
        self.blocks = [self.genesis]
        self.chain = ChainStore(
            cast(BlobStore, self.store), cast(BlobStore, MemoryStore(Disk())), Limits(4, 4)
        )

    async def grow(self, rounds: int = ROUNDS) -> None:
        if len(self.blocks) == 1:
            await self.chain.open(self.vertex, self.genesis)
        for _ in range(rounds):
            await self._round()
        self.store.reads.clear()

    async def _round(self) -> None:
        below, number = self.blocks[-1], self.blocks[-1].height + 1
        offers = tuple(offer(node, number) for node in NODES)
        payload = SetPayload(number, offers, (1,) * 4, "mean", 0, (), (), ())
        opened = Block(CHAIN, 0, below.view + 1, number, below.id, below.view, payload)
        vertex = self._vertex(number)
        result = ResultPayload(number, vertex.vertex_id, Digest(b"r" * 32))
        closed = Block(CHAIN, 0, opened.view + 1, number, opened.id, opened.view, result)
        executed = certificate(Kind.EXEC, 0, number, [vertex.vertex_id, Digest(b"r" * 32)])
        final = certificate(Kind.FINALIZE, closed.view, number, closed.id)
        record, names = (
            self.chain.groups.record,
            (exec_name(vertex.vertex_id), final_name(closed.id)),
        )
        await self.chain.groups.add(
            [
                [
                    record(BLOCKS, opened.id.hex(), encode_block(opened)),
                    record(BLOCKS, closed.id.hex(), encode_block(closed)),
                    record(CERTIFICATES, names[1], encode_certificate(final)),
                    record(CERTIFICATES, names[0], encode_certificate(executed)),
                    record(VERTICES, vertex.vertex_id.hex(), vertex.encode()),
                ]
            ]
        )
        self.chain.advance(closed, final)
        self.blocks += [opened, closed]
        self.vertex = vertex

    def _vertex(self, number: int) -> Vertex:
        state = StateRef(BlobRoot(number.to_bytes(32)), BlobRoot(b"o" * 32))
        return genesis_vertex(state, COMMITTEE.root)


async def grown() -> Chain:
    chain = Chain()
    await chain.grow()
    await chain.chain.path_up(chain.genesis.id, 1)  # the first question walks the whole chain
    chain.store.reads.clear()
    return chain


async def test_a_page_reads_what_it_shows_and_little_else() -> None:
    chain = await grown()
    page = await page_after(chain.chain, chain.blocks[20].id)
    assert page is not None
    assert page.blocks == tuple(chain.blocks[21 : 21 + PAGE_BLOCKS_MAX])
    shown = len(page.blocks) + 1 + 2 * len(page.vertices)
    assert len(chain.store.reads) <= shown + 3


async def test_a_page_is_made_once_for_all_who_ask_for_it() -> None:
    chain = await grown()
    pages, asked = Pages(chain.chain), chain.blocks[20].id
    first = await pages.after(asked)
    assert decode_page(first, Limits(4, 4)) == await page_after(chain.chain, asked)
    chain.store.reads.clear()
    for _ in range(50):
        assert await pages.after(asked) is first
    assert chain.store.reads == []


async def test_a_page_up_to_the_newest_block_is_made_anew_when_there_is_a_newer_one() -> None:
    chain = await grown()
    pages, asked = Pages(chain.chain), chain.blocks[-3].id
    nothing = await pages.after(chain.blocks[-1].id)
    before = await pages.after(asked)
    assert decode_page(nothing, Limits(4, 4)) is None
    await chain.grow(1)
    for place, held in ((-5, before), (-3, nothing)):
        assert await pages.after(chain.blocks[place].id) != held
        page = decode_page(await pages.after(chain.blocks[place].id), Limits(4, 4))
        assert page is not None
        assert page.blocks[-1] == chain.blocks[-1]


async def test_pages_that_are_kept_take_a_bounded_room() -> None:
    chain = await grown()
    pages = Pages(chain.chain)
    size = len(await pages.after(chain.blocks[0].id))
    kept = PAGES_BYTES_MAX // size
    for number in range(kept + 10):
        pages._keep(BlockId(number.to_bytes(32)), bytes(size), chain.blocks[-1].id, False)
    held = [encoded for encoded, _ in pages._made.values()]
    assert sum(map(len, held)) == pages._bytes <= PAGES_BYTES_MAX
    assert len(held) >= kept - 1


async def test_a_page_counts_as_many_reads_as_it_took() -> None:
    chain, handlers = await grown(), dict[str, Any]()
    pages = Pages(chain.chain)

    def register(name: str, handler: object, of_history: bool) -> None:
        handlers[name] = handler

    pages.serve(cast(Requests, SimpleNamespace(register=register)))
    asked = chain.blocks[20].id
    # what it shows, the one above, and the one that is asked about; then it lies there
    for reads in (PAGE_BLOCKS_MAX + 2, 0):
        answer = await handlers[REQUEST](PeerId("somebody"), asked)
        assert answer == Answer(await pages.after(asked), reads * BLOCK_READ_COST_BYTES)


async def test_where_a_block_stands_is_looked_up_and_not_searched_for() -> None:
    class Compared(bytes):
        """Counts comparisons: a search compares with every block below."""

        compared = 0
        __hash__ = bytes.__hash__

        def __eq__(self, other: object) -> bool:
            Compared.compared += 1
            return bytes.__eq__(self, other)

    chain = await grown()
    asked = BlockId(Compared(chain.blocks[150].id))
    assert await chain.chain.path_up(asked, 1) == [chain.blocks[151]]
    assert await chain.chain.path_up(BlockId(Compared(b"?" * 32)), 1) is None
    assert Compared.compared <= 8
