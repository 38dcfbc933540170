"""However many empty blocks lie between two vertices: published, served, followed, verified."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daa_dag import canonical
from daa_dag.ids import DIGEST_BYTES
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.checkpoints.page_server import Pages, part_below
from daa_node.checkpoints.pages import (
    PAGE_BLOCKS_MAX,
    PART_BLOCKS_MAX,
    Ask,
    Part,
    check_page,
    decode_part,
    page_bytes_max,
    page_value,
    part_value,
    whole_page,
)
from daa_node.checkpoints.publish import Page, copy_blob, publish_all
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import PeerFault
from tests.daa_node.checkpoints.little_chain import EPOCH_ROUNDS, FACTS, KEYS, ChainMaker

LIMITS = FACTS.limits
Change = Callable[[Part], Part]


async def grown(directory: Path, stretch: int, rounds: int) -> ChainMaker:
    """The last round has so many empty blocks above its set; so has the epoch's end, if it is."""
    maker = ChainMaker(directory)
    await maker.open()
    for number in range(1, rounds + 1):
        maker.empty_blocks = stretch if number == rounds else 1
        await maker.publish(await maker.make_round())
    return maker


async def follow(ask: Ask, served: DiskBlobStore, laggard: ChainMaker) -> None:
    """Page after page, everything checked and published."""
    validators, newest = FACTS.validators(), laggard.first
    await laggard.open()
    while True:
        tip = await laggard.chain.resume_point()
        page = await whole_page(ask, tip, validators)
        if page is None:
            return
        check_page(page, tip, newest, validators)
        for vertex, _ in page.vertices:
            manifest = await served.blob_manifest("updates", vertex.delta_root)
            assert manifest is not None
            await copy_blob(served, "updates", laggard.work, "updates", manifest)
            newest = vertex
        await publish_all(laggard.chain, page, None)


def asking(maker: ChainMaker, answered: list[int]) -> Ask:
    pages = Pages(maker.chain)

    async def ask(body: bytes) -> bytes:
        answer = await pages.answer(body)
        assert len(answer) <= page_bytes_max(LIMITS)
        value = canonical.decode(answer, len(answer))
        answered.append(0 if value is None else len(value[0]))
        return answer

    return ask


@pytest.mark.parametrize(
    ("stretch", "rounds"),
    [(3 * PART_BLOCKS_MAX, 1), (PART_BLOCKS_MAX + 20, EPOCH_ROUNDS)],
    ids=["a round", "an epoch's end"],
)
def test_any_number_of_empty_blocks_is_published_served_in_parts_followed_and_verified(
    tmp_path: Path, stretch: int, rounds: int
) -> None:
    async def run() -> tuple[ChainMaker, ChainMaker, list[int]]:
        maker = await grown(tmp_path / "others", stretch, rounds)
        await maker.publish(await maker.make_round(abort=True))  # and on it goes
        laggard, answered = ChainMaker(tmp_path / "laggard"), list[int]()
        await follow(asking(maker, answered), maker.work, laggard)
        return maker, laggard, answered

    maker, laggard, answered = trio.run(run)
    assert max(answered) <= PART_BLOCKS_MAX
    assert sum(answered) >= stretch
    for chain in (maker, laggard):
        report = verify_chain(chain.chain_directory, FACTS)
        assert report.ok, report.problems[:3]
        assert report.heights == rounds


CHANGES: dict[str, Change] = {
    "nothing": lambda part: replace(part, blocks=()),
    "the lowest block is missing": lambda part: replace(part, blocks=part.blocks[1:]),
    "the highest block is missing": lambda part: replace(part, blocks=part.blocks[:-1]),
    "a block at a time": lambda part: replace(part, blocks=part.blocks[-1:]),
    "a block is missing": lambda part: replace(part, blocks=(*part.blocks[:3], *part.blocks[4:])),
    "a block twice": lambda part: replace(part, blocks=(*part.blocks, part.blocks[-1])),
    "out of order": lambda part: replace(part, blocks=part.blocks[::-1]),
    "another block": lambda part: replace(
        part, blocks=(*part.blocks[:-1], replace(part.blocks[-1], height=9))
    ),
    "a vertex is missing": lambda part: replace(part, vertices=part.vertices[1:]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_part_with_anything_changed_is_its_senders_fault(tmp_path: Path, name: str) -> None:
    async def run() -> int:
        maker = await grown(tmp_path / "others", PART_BLOCKS_MAX + 20, EPOCH_ROUNDS)
        honest, asked = asking(maker, []), 0

        async def lying(body: bytes) -> bytes:
            nonlocal asked
            asked += 1
            answer = await honest(body)
            part = decode_part(answer, LIMITS) if len(body) > 32 else None
            changed = part is not None and (part.vertices or "vertex" not in name)
            return canonical.encode(part_value(CHANGES[name](part))) if changed and part else answer

        with pytest.raises(PeerFault):
            await follow(lying, maker.work, ChainMaker(tmp_path / "laggard"))
        return asked

    assert trio.run(run) <= 6


def test_who_is_shown_a_forged_end_asks_for_no_part_of_it(tmp_path: Path) -> None:
    """Blocks without end could hang on a block that nobody certified."""

    async def run() -> None:
        maker = ChainMaker(tmp_path / "others", signers=KEYS[:2])  # no quorum
        await maker.open()
        maker.empty_blocks = PART_BLOCKS_MAX + 20
        await maker.publish(await maker.make_round())
        honest, asked = asking(maker, []), list[int]()

        async def lying(body: bytes) -> bytes:
            asked.append(len(body))
            return await honest(body)

        with pytest.raises(PeerFault):
            await whole_page(lying, maker.genesis, FACTS.validators())
        assert asked == [32]

    trio.run(run)


def test_parts_are_asked_for_no_further_down_than_where_we_stand(tmp_path: Path) -> None:
    """What does not lead to our own newest block by then is no page of ours."""

    async def run() -> list[int]:
        maker, asked = await grown(tmp_path, PART_BLOCKS_MAX + 20, 1), list[int]()
        honest = asking(maker, [])

        async def lying(body: bytes) -> bytes:
            asked.append(len(body))
            return await honest(maker.genesis.id + body[DIGEST_BYTES:])

        elsewhere = replace(maker.genesis, view=maker.chain.final_tip[0].view - PART_BLOCKS_MAX)
        with pytest.raises(PeerFault, match="do not lead down"):
            await whole_page(lying, elsewhere, FACTS.validators())
        return asked

    assert len(trio.run(run)) <= 2


def test_who_makes_one_page_of_many_rounds_is_not_followed_through_them(tmp_path: Path) -> None:
    """Each answer may take half a minute: all rounds of a long absence in one page, days."""

    async def run() -> int:
        maker, asked = await grown(tmp_path / "others", 1, 9), 0
        honest = asking(maker, [])

        async def lying(body: bytes) -> bytes:
            nonlocal asked
            asked += 1
            if len(body) > DIGEST_BYTES:
                return await honest(body)
            newest, chain = maker.chain.final_tip[0], maker.chain
            certificate = await chain.final_certificate(newest.id)
            top = await part_below(chain, maker.genesis.id, newest.id)
            assert certificate is not None
            assert top is not None
            return canonical.encode(
                page_value(Page((*top.blocks, newest), certificate, top.vertices))
            )

        with pytest.raises(PeerFault, match="rounds"):
            await whole_page(lying, maker.genesis, FACTS.validators())
        return asked

    assert trio.run(run) <= 2


def test_anybody_may_ask_for_parts_of_anything(tmp_path: Path) -> None:
    async def run() -> None:
        maker = await grown(tmp_path, 20, 1)
        pages = Pages(maker.chain)
        newest = maker.chain.final_tip[0].id
        nothing = canonical.encode(None)
        assert await pages.answer(b"?" * 32 + b"?" * 32) == nothing
        assert await pages.answer(newest + maker.genesis.id) == nothing
        part = decode_part(await pages.answer(b"?" * 32 + newest), LIMITS)
        assert part is not None
        assert len(part.blocks) <= PART_BLOCKS_MAX + PAGE_BLOCKS_MAX

    trio.run(run)
