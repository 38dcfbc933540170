"""A block that no start reads and a disk has lost: noticed by its number, and fetched soon."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from daa_consensus.bft.messages import Block
from daa_node.checkpoints import scrub
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import BLOCKS, KINDS
from daa_node.checkpoints.recollection import keep_pack_names
from daa_node.checkpoints.repair import Repair
from daa_node.checkpoints.scrub import Scrub
from daa_node.checkpoints.verify import verify_chain
from daa_node.observability.events import EventLog
from tests.daa_node.checkpoints.lenders import lent_by
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker, Headers
from tests.daa_node.checkpoints.proofs_alone import follow_members

ROUNDS = 7


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "BYTES_PER_S", 10**12)


class Played:
    """A chain in packs but for its newest rounds, and the headers of each round."""

    def __init__(self, directory: Path) -> None:
        self.maker = ChainMaker(directory)
        self.maker.empty_blocks = 2
        self.headers: list[Headers] = []

    async def play(self) -> None:
        await self.maker.open()
        await follow_members(self.maker.chain)
        for number in range(1, ROUNDS + 1):
            made = await self.maker.make_round()
            self.headers.append(made.headers)
            await self.maker.publish(made)
            if number == ROUNDS - 1:
                assert await self.maker.chain.pack(KINDS, 1)

    async def lose(self, blocks: Sequence[Block]) -> None:
        """Out of their packs, as whatever wrote these may have."""
        for block in blocks:
            await self.maker.store.delete_record(BLOCKS, block.id.hex())
        await self.maker.store.settle([BLOCKS])
        await keep_pack_names(self.maker.chain)


async def begun(directory: Path) -> ChainStore:
    """As a start has it."""
    maker = ChainMaker(directory)
    await maker.open()
    await follow_members(maker.chain)
    return maker.chain


def lost_of(headers: Sequence[Headers]) -> list[Block]:
    """One on the path, and one between the path and the proof of an epoch's end."""
    return [headers[1].blocks[0], headers[2].trailing[0]]


def test_a_start_that_misses_old_blocks_has_them_fetched_soon(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    others, ours = Played(tmp_path / "others"), Played(tmp_path / "ours")
    told: list[tuple[str, str]] = []

    async def run() -> None:
        await others.play()
        shutil.copytree(tmp_path / "others", tmp_path / "ours")
        await ours.maker.open()
        lost = lost_of(others.headers)
        assert not (await begun(tmp_path / "ours")).lacks_blocks
        await ours.lose(lost)
        chain = await begun(tmp_path / "ours")
        assert chain.lacks_blocks
        log = EventLog(lambda: 0, lambda e: told.append((e["name"], e.get("detail", ""))))
        reading = Scrub(chain, log)
        async with lent_by({"others": others.maker}, []) as lenders, trio.open_nursery() as nursery:
            reading.repair = Repair(chain, lenders)
            nursery.start_soon(reading.run)
            with trio.fail_after(2 * scrub.LOOK_AFTER_S):
                while len(reading.mended) < len(lost):
                    await trio.sleep(1)
            nursery.cancel_scope.cancel()
        missing = [f"{BLOCKS}/{block.id.hex()} is missing" for block in lost]
        assert sorted(reading.mended) == sorted(missing)
        assert [what for name, what in told if name == "record_repaired"] == missing
        assert not (await begun(tmp_path / "ours")).lacks_blocks

    trio.run(run, clock=autojump_clock)
    assert verify_chain(tmp_path / "ours" / "chain", FACTS).ok


def test_of_few_and_of_all_that_is_read_the_lost_ones_are_named(tmp_path: Path) -> None:
    played, told = Played(tmp_path), list[str]()

    async def run() -> None:
        await played.play()
        reading = Scrub(
            await begun(tmp_path), EventLog(lambda: 0, lambda e: told.append(e["name"]))
        )
        await reading.look()
        assert reading.found == ()
        lost = lost_of(played.headers)
        await played.lose(lost)
        missing = [f"{BLOCKS}/{block.id.hex()} is missing" for block in lost]
        chain = await begun(tmp_path)
        reads, before = list[str](), chain.store.get_record

        async def counted(kind: str, name: str) -> bytes | None:
            reads.append(name)
            return await before(kind, name)

        chain.store.get_record = counted  # type: ignore[method-assign]
        reading = Scrub(chain, EventLog(lambda: 0))
        await reading.look()
        assert sorted(reading.found) == sorted(missing)
        few = len(reads)
        found = await reading.once()
        assert sorted(found) == sorted(missing)
        assert 2 * few < len(reads) - few  # what is here was not read

    trio.run(run)
