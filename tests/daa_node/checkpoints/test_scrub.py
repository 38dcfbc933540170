"""Every damaged file and record is found by reading on, and nothing is said of what is good."""

from pathlib import Path

import pytest
import trio

from daa_dag.retention import Retention
from daa_node.checkpoints import scrub
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import KINDS, exec_name
from daa_node.checkpoints.scrub import Scrub
from daa_node.checkpoints.snapshots import prune
from daa_node.observability.events import EventLog
from tests.daa_node.checkpoints.little_chain import (
    EPOCH_ROUNDS,
    FACTS,
    ChainMaker,
    files_under,
    make_chain,
)


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


def test_what_a_chain_has_lost_is_named_and_what_it_never_had_is_not(tmp_path: Path) -> None:
    """Of a daemon that runs: a start notices most of it, unless other packs make up the number."""
    maker = make_chain(tmp_path, 4)
    wanted = {"blocks", "vertices", "certificates"}

    async def run() -> None:
        await maker.open()
        scrub_ = Scrub(maker.chain, EventLog(lambda: 0))
        assert await scrub_.once() == []
        last_id = await maker.chain.heights.at(EPOCH_ROUNDS)
        assert last_id is not None
        for kind in wanted:
            for path in files_under(maker.chain_directory / kind):
                aside = path.rename(tmp_path / "aside")
                found = await scrub_.once()
                # the end of an epoch that is over proves its last vertex all the same
                is_missed = path.name != exec_name(last_id)
                assert [what for what in found if path.name in what] == (
                    [f"{kind}/{path.name} is missing"] if is_missed else []
                )
                assert scrub_.found == tuple(found)
                aside.rename(path)
        # As in a node that has followed the headers alone: the newest vertex is still to come.
        vertex_id = maker.newest.vertex_id
        (maker.chain_directory / "vertices" / vertex_id.hex()).unlink()
        (maker.chain_directory / "certificates" / f"{vertex_id.hex()}.exec").unlink()
        await maker.open()
        assert await Scrub(maker.chain, EventLog(lambda: 0)).once() == []

    trio.run(run)


def test_a_state_is_read_piece_by_piece_and_may_go_meanwhile(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "BYTES_PER_S", scrub.HEADERS_BYTES)
    maker, told = ChainMaker(tmp_path), list[str]()
    read = maker.store.get_record
    at_s: list[float] = []

    async def timed(kind: str, name: str) -> bytes | None:
        if kind == "chunks":
            if not at_s:
                assert await prune(maker.chain, Retention(vertices_restorable=1)) > 0
            at_s.append(trio.current_time())
        return await read(kind, name)

    async def run() -> None:
        await maker.open()
        for _ in range(5):
            await maker.publish(await maker.make_round())
        monkeypatch.setattr(maker.store, "get_record", timed)
        log = EventLog(lambda: 0, lambda event: told.append(event["name"]))
        assert await Scrub(maker.chain, log).once() == []

    trio.run(run, clock=autojump_clock)
    assert told == ["chain_scrubbed"]
    assert len(set(at_s)) == len(at_s) > 2  # each after a pause
