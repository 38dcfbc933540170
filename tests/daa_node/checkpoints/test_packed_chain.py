"""A chain in packs is the same chain: verified, pruned, exported; whatever befalls it is named."""

import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from daa_dag.retention import Retention
from daa_node.adapters.blob_directory import BlobDirectory
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.held import held_by
from daa_node.checkpoints.layout import KINDS, PROOFS
from daa_node.checkpoints.listing import view_chain
from daa_node.checkpoints.packing import PAUSE_ROUNDS_MAX, Packing
from daa_node.checkpoints.plain_files import Unreadable
from daa_node.checkpoints.snapshots import SLACK, Snapshots, prune
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import StorageFailed
from daa_node.observability.events import EventLog
from daa_node.packs.format import FIRST_OF_STATES, PACKS, entries
from tests.daa_node.checkpoints.filling_disk import filling
from tests.daa_node.checkpoints.little_chain import (
    FACTS,
    SNAPSHOT_EVERY,
    ChainMaker,
    files_under,
    make_chain,
)
from tests.daa_node.checkpoints.verified import named, verify, what_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five rounds, of which four are packed, in two packs."""
    directory = tmp_path_factory.mktemp("whole")
    maker = ChainMaker(directory)

    async def run() -> None:
        await maker.open()
        for number in range(1, 6):
            await maker.publish(await maker.make_round())
            if number in (2, 4):
                assert await maker.chain.pack(KINDS, 1)

    trio.run(run)
    return directory


@pytest.fixture
def chain(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "node")
    return tmp_path / "node" / "chain"


def packs_of(chain: Path) -> list[Path]:
    return files_under(chain / PACKS)


def names_in(chain: Path) -> set[str]:
    return set(ChainFiles(chain).listing().sizes)


def test_it_holds_as_it_did_in_files(chain: Path, whole: Path, tmp_path: Path) -> None:
    loose = make_chain(tmp_path / "loose", 5)
    assert names_in(chain) == names_in(loose.chain_directory)
    report, before = verify(chain), verify(loose.chain_directory)
    assert report.ok, report.problems
    assert (report.heights, report.certificates) == (before.heights, before.certificates)
    assert (report.chunks, report.unfinished) == (before.chunks, 0)
    seen: list[tuple[int, int]] = []
    verify_chain(chain, FACTS, lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert len(view_chain(chain).rows) == 6
    assert len(files_under(chain)) < len(files_under(loose.chain_directory)) / 2


def test_any_changed_byte_of_a_pack_is_named(chain: Path) -> None:
    for path in packs_of(chain):
        payload = path.read_bytes()
        for at in range(0, len(payload), max(1, len(payload) // 40)):
            changed = bytearray(payload)
            changed[at] ^= 1 << at % 8
            path.write_bytes(changed)
            assert f"{PACKS}/{path.name}" in named(verify(chain)), f"byte {at}"
        path.write_bytes(payload)
    assert verify(chain).ok


def test_a_damaged_record_is_named_by_itself_too(chain: Path) -> None:
    files = ChainFiles(chain)
    for kind in KINDS:
        name = next(n for n in files.listing().names(kind) if not (chain / n).exists())
        payload = files.read(name, 2**20)
        path = next(p for p in packs_of(chain) if payload in p.read_bytes())
        content = path.read_bytes()
        path.write_bytes(content.replace(payload, payload[:-1] + bytes([payload[-1] ^ 1])))
        report = verify(chain)
        assert {name, f"{PACKS}/{path.name}"} <= named(report), report.problems
        assert "damaged in packs/" in what_of(report, name)
        path.write_bytes(content)
    assert verify(chain).ok


def damages(path: Path) -> Iterator[None]:
    content = path.read_bytes()
    for damaged in (content[:-1], content[: len(content) // 2], b"", content + b"\0"):
        path.write_bytes(damaged)
        yield
    path.write_bytes(content)
    aside = path.rename(path.parent.parent / "aside")
    path.mkdir()
    yield
    path.rmdir()
    path.symlink_to(aside)
    yield
    path.unlink()
    os.mkfifo(path)
    yield
    path.unlink()
    aside.rename(path)


def test_a_pack_cut_longer_or_something_else_is_named(chain: Path) -> None:
    for path in packs_of(chain):
        for _ in damages(path):
            assert f"{PACKS}/{path.name}" in named(verify(chain))
        assert verify(chain).ok


def test_what_went_with_a_pack_is_missed(chain: Path) -> None:
    whole = names_in(chain)
    path = packs_of(chain)[0]
    path.unlink()
    gone = whole - names_in(chain)
    missed = {p.where for p in verify(chain).problems if p.what.startswith("is missing")}
    assert missed
    assert missed <= gone


def test_what_does_not_belong_is_named(chain: Path, whole: Path) -> None:
    (chain / PACKS / "notes.txt").write_bytes(b"hello")
    report = verify(chain)
    assert named(report) == {f"{PACKS}/notes.txt"}
    (chain / PACKS / "notes.txt").unlink()
    other = packs_of(chain)[0]
    wrong = other.with_name("ab" * 32)
    shutil.copy(other, wrong)
    assert f"{PACKS}/{wrong.name}" in named(verify(chain))
    wrong.unlink()
    assert verify(chain).ok


def test_a_pack_of_another_chain_is_named_by_all_that_it_holds(chain: Path, tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path / "other")

    async def run() -> None:
        await maker.open()
        await maker.store.put_record("blocks", "ab" * 32, b"nothing")
        assert await maker.chain.pack(KINDS, 1)

    trio.run(run)
    (foreign,) = packs_of(maker.chain_directory)
    shutil.copy(foreign, chain / PACKS / foreign.name)
    report = verify(chain)
    assert "blocks/" + "ab" * 32 in named(report)
    # the genesis files lie in the chain's own first pack as well
    assert any(p.what.startswith("holds ") for p in report.problems)


def test_what_packing_had_not_deleted_yet_is_no_problem_and_must_be_the_same(chain: Path) -> None:
    files = ChainFiles(chain)
    name = next(n for n in files.listing().names("blocks") if not (chain / n).exists())
    payload = files.read(name, 2**20)
    (chain / name).write_bytes(payload)
    report = verify(chain)
    assert (report.ok, report.unfinished) == (True, 1)
    (chain / name).write_bytes(payload[:-1])
    assert "not what a pack holds" in "".join(
        p.what for p in verify(chain).problems if p.where == name
    )


def test_a_file_that_moves_while_it_is_looked_at_is_read_from_where_it_went(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 3)
    files = ChainFiles(maker.chain_directory)
    before = {name: files.read(name, 2**20) for name in files.listing().sizes}

    async def run() -> None:
        assert await maker.chain.pack(KINDS, 1)

    trio.run(run)
    assert {name: files.read(name, 2**20) for name in before} == before
    with pytest.raises(Unreadable, match="is missing"):
        files.read("blocks/" + "ab" * 32, 100)


@pytest.mark.parametrize("kinds", [KINDS, PROOFS])
def test_a_packed_chain_is_pruned_as_one_in_files(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    packed, loose = ChainMaker(tmp_path / "packed"), ChainMaker(tmp_path / "loose")

    async def run() -> None:
        for maker in (packed, loose):
            await maker.open()
            for _ in range(5):
                await maker.publish(await maker.make_round())
        assert await packed.chain.pack(kinds, 1)
        policy = Retention(vertices_restorable=1)
        assert await prune(packed.chain, policy) == await prune(loose.chain, policy) > 0

    trio.run(run)
    assert names_in(packed.chain_directory) == names_in(loose.chain_directory)
    report = verify(packed.chain_directory)
    assert report.ok, report.problems
    assert report.pruned_below == 4


def test_a_restarted_node_goes_on_from_packs(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "node")
    maker = ChainMaker(tmp_path / "node")

    async def run() -> None:
        await maker.open()
        assert (await maker.chain.newest()).height == 5
        for _ in range(5):
            await maker.make_round()  # the maker itself catches up
        sixth = await maker.make_round()
        await maker.publish(sixth)

    trio.run(run)
    report = verify(maker.chain_directory)
    assert (report.ok, report.heights) == (True, 6), report.problems


def test_publishing_packing_and_pruning_cut_off_anywhere_leave_a_chain_that_holds(
    tmp_path: Path,
) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> int:
        await maker.open()
        cuts = 0
        for number in range(1, 6):
            made, room = await maker.make_round(), 0
            while True:
                cut = filling(maker, room)
                try:
                    await cut.open(maker.first, maker.genesis)
                    maker.chain = cut
                    await maker.publish(made)
                    await cut.pack(KINDS, 1)
                    await prune(cut, Retention(vertices_restorable=2))
                    break
                except StorageFailed:
                    cuts, room = cuts + 1, room + 1
                report = verify(maker.chain_directory)
                assert report.ok, f"round {number}, {room}: {report.problems}"
        return cuts

    assert trio.run(run) > 30
    assert verify(maker.chain_directory).heights == 5


def test_a_node_packs_once_there_are_many_files_and_keeps_large_states_loose_if_it_prunes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daa_node.checkpoints.packing.LOOSE_FILES_MAX", 20)
    monkeypatch.setattr("daa_node.checkpoints.packing.PACKED_WEIGHTS_BYTES_MAX", 0)
    told: list[str] = []
    log = EventLog(lambda: 0, lambda event: told.append(event["name"]))

    async def run(maker: ChainMaker, retention: Retention) -> None:
        await maker.open()
        packing = Packing(maker.chain, retention, log)
        await packing.run()
        assert not told
        for _ in range(5):
            await maker.publish(await maker.make_round())
            await packing.run()

    archive, pruned = ChainMaker(tmp_path / "archive"), ChainMaker(tmp_path / "pruned")
    trio.run(run, archive, Retention())
    assert "data_packed" in told
    told.clear()
    trio.run(run, pruned, Retention(vertices_restorable=2))
    assert "data_packed" in told
    kinds = {name.partition("/")[0] for name in names_in(pruned.chain_directory)}
    loose = {path.parent.name for path in files_under(pruned.chain_directory)} - {PACKS}
    assert {"deltas", "manifests", "chunks"} <= loose <= kinds
    assert len(files_under(archive.chain_directory)) < 30


def test_small_states_that_go_again_are_packed_apart_from_proofs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daa_node.checkpoints.packing.LOOSE_FILES_MAX", 20)
    maker = ChainMaker(tmp_path)
    log, retention = EventLog(lambda: 0, lambda _event: None), Retention(vertices_restorable=4)
    counts = list[int]()

    async def run() -> None:
        await maker.open()
        snapshots = Snapshots(maker.chain, SNAPSHOT_EVERY, retention, log)
        for _ in range(40):
            made = await maker.make_round()
            await maker.publish(made)
            assert made.certified is not None
            await snapshots.packing.run()
            await snapshots.prune_after(made.certified[0])
            counts.append(len(files_under(maker.chain_directory)))

    trio.run(run)
    heads = maker.store.directory.packs._open.known()
    assert {head.has_proofs for head in heads} == {True, False}
    for head in heads:
        read = maker.store.directory.packs._open.reader(head.name)
        shelves = {entry.key[0] >= FIRST_OF_STATES for entry in entries(head, read)}
        assert shelves == {not head.has_proofs}
    assert max(counts[20:]) < 40  # those of files, and some packs
    report = verify(maker.chain_directory)
    assert report.ok, report.problems
    assert report.heights == 40
    assert report.pruned_below >= 34


def test_much_that_is_kept_is_looked_through_seldom(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)
    log, retention = EventLog(lambda: 0, lambda _event: None), Retention(vertices_restorable=32)
    kept = list[int]()

    async def run() -> None:
        await maker.open()
        snapshots = Snapshots(maker.chain, SNAPSHOT_EVERY, retention, log)
        for _ in range(60):
            made = await maker.make_round()
            await maker.publish(made)
            assert made.certified is not None
            await snapshots.prune_after(made.certified[0])
            kept.append(len((await held_by(maker.chain)).delta_heights))

    trio.run(run)
    assert min(kept[40:]) >= 32
    assert max(kept[40:]) <= 32 + 32 // SLACK + 2 * SNAPSHOT_EVERY
    drops = sum(after < before for before, after in pairwise(kept[40:]))
    assert drops <= 20 // (32 // SLACK) + 1 < 20 // SNAPSHOT_EVERY


def test_a_disk_that_fails_while_packing_is_told_of_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daa_node.checkpoints.packing.LOOSE_FILES_MAX", 1)
    maker = make_chain(tmp_path, 3)
    told: list[str] = []
    log = EventLog(lambda: 0, lambda event: told.append(event["name"]))

    async def run() -> None:
        full = ChainStore(filling(maker, 1).store, maker.work, FACTS.limits)
        await full.open(maker.first, maker.genesis)
        room, tries = full.store._room, 0  # type: ignore[attr-defined]
        packing = Packing(full, Retention(), log)
        for _ in range(200):
            room[0] = 0
            await packing.run()
            tries += packing._left == packing._pause
        assert told == ["storage_failed"]
        assert 7 < tries < 12
        assert packing._pause == PAUSE_ROUNDS_MAX
        room[0] = 2
        for _ in range(PAUSE_ROUNDS_MAX + 1):
            await packing.run()
        assert told == ["storage_failed", "data_packed"]

    trio.run(run)
    assert verify(maker.chain_directory).ok


def test_a_pack_that_is_merged_while_it_is_judged_is_no_problem(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daa_node.packs.merging.MERGED", 2)
    name = next(n for n in ChainFiles(chain).listing().names("blocks") if not (chain / n).exists())
    (chain / name).write_bytes(ChainFiles(chain).read(name, 2**20))
    files = ChainFiles(chain)
    listing = files.listing()
    files._packs._open.clear()  # of many packs, few are open
    (chain / name).unlink()
    packs = BlobDirectory(chain).packs
    assert packs.merge() == 2
    assert list(files.pack_problems(listing)) == []
    (merged,) = packs_of(chain)
    content = merged.read_bytes()
    merged.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    assert {p.where for p in files.pack_problems(listing)} == {f"{PACKS}/{merged.name}"}
