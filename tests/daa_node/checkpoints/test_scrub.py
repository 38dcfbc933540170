"""Every damaged file and record is found by reading on, and nothing is said of what is good."""

from pathlib import Path

import pytest
import trio

from daa_node.checkpoints import scrub
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import KINDS
from daa_node.checkpoints.scrub import Scrub
from daa_node.observability.events import EventLog
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker, files_under, make_chain


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "BYTES_PER_S", 10**12)


def scrubbed(maker: ChainMaker) -> tuple[list[str], list[str]]:
    """What a node says that has just started: in words, and by events."""
    told: list[str] = []

    async def run() -> list[str]:
        chain = ChainStore(maker.store, maker.work, FACTS.limits)
        await chain.open(maker.first, maker.genesis)
        return await Scrub(chain, EventLog(lambda: 0, lambda e: told.append(e["name"]))).once()

    return trio.run(run), told


def test_each_damaged_file_is_named_and_the_rest_is_read_on(tmp_path: Path) -> None:
    make_chain(tmp_path, 4)
    assert scrubbed(ChainMaker(tmp_path)) == ([], ["chain_scrubbed"])
    maker, told = ChainMaker(tmp_path), list[str]()
    log = EventLog(lambda: 0, lambda event: told.append(event["name"]))

    async def run() -> None:
        await maker.open()
        for kind in ("certificates", "deltas", "chunks"):
            for path in files_under(maker.chain_directory / kind):
                good = path.read_bytes()
                path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
                told.clear()
                found = await Scrub(maker.chain, log).once()
                path.write_bytes(good)
                if kind == "certificates":  # of a signature, only who has its key can tell
                    continue
                assert any(path.name in what for what in found), path
                assert told == ["record_damaged"] * len(found) + ["chain_scrubbed"]
        for path in files_under(maker.chain_directory / "blocks")[1:3]:
            path.write_bytes(good)
            found = await Scrub(maker.chain, log).once()
            assert any(path.name in what for what in found), path

    trio.run(run)


def test_a_record_that_rots_in_its_pack_is_named(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 4)
    trio.run(maker.chain.pack, KINDS, 1)
    (pack,) = files_under(maker.chain_directory / "packs")
    vertex_id = trio.run(maker.chain.heights.at, 2)
    assert vertex_id is not None
    content = pack.read_bytes()
    proof = trio.run(maker.store.get_record, "certificates", f"{vertex_id.hex()}.exec")
    assert proof is not None
    at = content.index(proof) + len(proof) // 2  # of a signature: packs tell
    pack.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    found, told = scrubbed(ChainMaker(tmp_path))
    assert found == [f"certificates/{vertex_id.hex()}.exec is damaged in its pack"]
    assert told == ["record_damaged", "chain_scrubbed"]


def test_it_reads_no_faster_than_it_may(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "BYTES_PER_S", scrub.HEADERS_BYTES)
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        for _ in range(3):
            await maker.publish(await maker.make_round())
        path = await maker.chain.path_up(maker.genesis.id, 100)
        assert path is not None
        before_s = trio.current_time()
        await Scrub(maker.chain, EventLog(lambda: 0)).once()
        assert trio.current_time() - before_s > len(path)

    trio.run(run, clock=autojump_clock)
