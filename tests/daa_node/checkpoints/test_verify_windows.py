"""Windows say of a chain what the judge says who holds it all, in memory that does not grow."""

import os
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from daa_consensus.bft.messages import (
    Block,
    decode_certificate,
    encode_certificate,
    genesis_block,
)
from daa_consensus.committee import Domain
from daa_consensus.roll import RollRules, fixed
from daa_dag.ids import ValidatorSetRoot, VertexId
from daa_dag.retention import Retention
from daa_node.checkpoints import verify_windows
from daa_node.checkpoints.layout import KINDS
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.verify import verify_chain
from daa_node.checkpoints.verify_report import Anchor
from daa_node.checkpoints.verify_windows import verify_in_windows
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys
from tests.daa_node.checkpoints.little_chain import (
    EPOCH_ROUNDS,
    FACTS,
    KEYS,
    ChainMaker,
    certificate_of,
    files_under,
    make_chain,
    vertex_at,
)
from tests.daa_node.checkpoints.proofs_alone import without_states
from tests.daa_node.checkpoints.verified import (
    in_memory,
    in_windows,
    named,
    promise,
    record_in_pack,
)


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_windows, "WINDOW_BLOCKS", 4)


@pytest.mark.parametrize("keeps", [None, 3])
def test_they_report_what_the_whole_in_memory_does(tmp_path: Path, keeps: int | None) -> None:
    maker = make_chain(tmp_path, 10, aborted=(4, 6))
    if keeps is not None:
        assert trio.run(prune, maker.chain, Retention(keeps))
    for packs in (False, True):
        if packs:
            assert trio.run(maker.chain.pack, KINDS, 1)
        report = in_windows(maker.chain_directory)
        assert report is not None
        assert report == in_memory(maker.chain_directory)
        assert report.ok
        assert (report.heights, report.replayed_from) == (8, 0 if keeps is None else 6)


def test_an_epoch_whose_last_round_came_to_nothing_ends_a_window_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a chain of such epochs would be held whole."""
    check, sizes = verify_windows.Windows._check_window, list[int]()

    def noted(windows: Any, path: list[Block], is_last: bool) -> bool:
        sizes.append(len(path))
        return check(windows, path, is_last)

    monkeypatch.setattr(verify_windows.Windows, "_check_window", noted)
    ends = tuple(range(EPOCH_ROUNDS, 4 * EPOCH_ROUNDS + 1, EPOCH_ROUNDS))
    report = in_windows(make_chain(tmp_path, 4 * EPOCH_ROUNDS, aborted=ends).chain_directory)
    assert report is not None
    assert report.ok
    assert len(sizes) >= 4, sizes


def test_a_block_that_is_longer_than_any_is_named_and_the_rest_is_judged(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 7)
    block = trio.run(vertex_at, maker, 3).decided_block
    path = maker.chain_directory / "blocks" / block.hex()
    os.truncate(path, FACTS.limits.block_bytes_max + 1)
    report = in_windows(maker.chain_directory)
    assert report is not None
    assert f"blocks/{block.hex()}" in named(report)
    assert report == in_memory(maker.chain_directory)


def test_a_trusted_vertex_must_be_one_of_them(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 6)
    for starts_replay in (False, True):
        for height in (1, 3, 6):
            vertex = trio.run(vertex_at, maker, height)
            trusted = Anchor(vertex.vertex_id, starts_replay)
            report = in_windows(maker.chain_directory, trusted)
            assert report is not None
            assert report.ok
            assert report.replayed_from == (height // 2 * 2 if starts_replay else 0)
            assert report == in_memory(maker.chain_directory, trusted)
        nobodys = Anchor(VertexId(bytes(32)), starts_replay)
        report = in_windows(maker.chain_directory, nobodys)
        assert report is not None
        assert named(report) == {f"vertices/{bytes(32).hex()}"}
        assert report == in_memory(maker.chain_directory, nobodys)


def test_what_changes_is_missing_or_is_there_besides_they_name_but_for_the_genesis_block(
    tmp_path: Path,
) -> None:
    maker = make_chain(tmp_path / "made", 7)
    chain, first = maker.chain_directory, f"blocks/{maker.genesis.id.hex()}"

    def judged(what: str, name: str) -> None:
        report, whole = in_windows(chain), in_memory(chain)
        if report is None:
            assert name == first, f"{name} {what}: not judged"
        else:
            assert report == whole, f"{name} {what}"

    for path in files_under(chain):
        name, payload = str(path.relative_to(chain)), path.read_bytes()
        path.write_bytes(payload[:-1] + bytes([payload[-1] ^ 1]))
        assert not in_memory(chain).ok
        judged("was changed", name)
        path.unlink()
        judged("is missing", name)
        path.write_bytes(payload)
    for kind in KINDS:
        name = f"{kind}/{bytes(32).hex()}" + (".exec" if kind == "certificates" else "")
        (chain / name).write_bytes(b"more")
        assert name in named(in_memory(chain))
        judged("is one more", name)
        (chain / name).unlink()
    (chain / "blocks" / "link").symlink_to(files_under(chain / "blocks")[0])
    judged("is a link", "certificates/link")
    assert not in_memory(chain).ok


def test_any_byte_of_a_pack_that_changed_is_named_as_ever(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 4)
    chain = maker.chain_directory
    trio.run(maker.chain.pack, KINDS, 1)
    (pack,) = files_under(chain / "packs")
    payload = pack.read_bytes()
    judged = 0
    for at in range(0, len(payload), len(payload) // 25):
        pack.write_bytes(payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :])
        report, whole = in_windows(chain), in_memory(chain)
        assert f"packs/{pack.name}" in named(whole)
        assert report in (None, whole), at
        judged += report is not None
    assert judged > 12, "most of it is certificates and states"
    pack.write_bytes(payload)
    shutil.copy(pack, pack.with_name("0" * 64))
    report, whole = in_windows(chain), in_memory(chain)
    assert report == whole
    assert named(whole) == {f"packs/{'0' * 64}"}


def view_of(path: Path) -> int:
    return decode_certificate(path.read_bytes(), FACTS.limits).statement.view


@pytest.mark.parametrize("epoch", [9, 2**63 - 1])
def test_of_a_later_epoch_only_who_knows_it_can_speak(tmp_path: Path, epoch: int) -> None:
    maker = make_chain(tmp_path, 7)
    chain = maker.chain_directory
    vertex = trio.run(vertex_at, maker, 2)
    finals = sorted((chain / "certificates").glob("*.final"), key=view_of)
    for path in (chain / "certificates" / f"{vertex.vertex_id.hex()}.exec", finals[1]):
        payload = path.read_bytes()
        said = decode_certificate(payload, FACTS.limits).statement
        for root in (said.domain.validator_set_root, bytes(32)):
            domain = Domain(said.domain.chain_id, epoch, ValidatorSetRoot(root))
            changed = certificate_of(replace(said, domain=domain), KEYS[:3])
            path.write_bytes(encode_certificate(changed))
            report, whole = in_windows(chain), in_memory(chain)
            assert f"certificates/{path.name}" in named(whole)
            assert report in (None, whole)
            assert report is not None or root == bytes(32)
            assert verify_chain(chain, FACTS).problems == whole.problems
        path.write_bytes(payload)


@pytest.mark.parametrize("noted", [9, 4])
def test_a_page_of_many_windows_is_under_way(tmp_path: Path, noted: int) -> None:
    """Its headers are here, and of its vertices none that counts."""
    maker = make_chain(tmp_path, 14)
    chain, above = maker.chain_directory, list[str]()
    for height in range(6, 15):
        name = trio.run(vertex_at, maker, height).vertex_id.hex()
        above += [f"certificates/{name}.exec", f"vertices/{name}"]
    promise(chain, *above[: 2 * noted])
    for name in above[1::2] if noted == 9 else above:
        (chain / name).unlink()
    report, whole = in_windows(chain), in_memory(chain)
    assert report is not None
    assert report == whole
    assert (report.heights, report.promised) == (5, (14, maker.newest.vertex_id))
    assert report.unfinished == (9 if noted == 9 else 0)


@pytest.mark.parametrize("has_stray", [False, True])
def test_packs_that_are_merged_meanwhile_may_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_stray: bool
) -> None:
    monkeypatch.setattr("daa_node.checkpoints.packed_files.FILES_OPEN_MAX", 1)
    monkeypatch.setattr("daa_node.packs.merging.MERGED", 6)
    maker, goes_on = ChainMaker(tmp_path), True

    async def play() -> None:
        await maker.open()
        for number in range(8):
            await maker.publish(await maker.make_round())
            if has_stray and number == 3:
                await maker.store.put_record("blocks", "ab" * 32, b"nothing")
            if number < 6:
                assert await maker.chain.pack(KINDS, 1)

    async def merge_and_pack() -> None:
        assert await maker.chain.store.merge_packs() == 6
        await maker.publish(await maker.make_round())
        assert await maker.chain.pack(KINDS, 1)  # of what was listed, and of what has come since

    def go_on(_count: int) -> None:
        nonlocal goes_on
        if goes_on and tries:  # once all is listed
            goes_on = False
            trio.run(merge_and_pack)

    trio.run(play)
    tries = list[int]()
    chain = maker.chain_directory
    report = verify_in_windows(chain, FACTS, None, go_on, tries.append)
    assert report is not None
    assert named(report) == ({f"blocks/{'ab' * 32}"} if has_stray else set())
    assert (report.heights, len(tries)) == ((9, 2) if has_stray else (8, 1))


def test_small_packs_are_kept_open_as_they_may_be_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it could not be told what of a merged one was there before."""
    monkeypatch.setattr("daa_node.checkpoints.packed_files.FILES_OPEN_MAX", 4)
    monkeypatch.setattr("daa_node.packs.merging.MERGED", 4)
    maker = ChainMaker(tmp_path)
    steps, tries = list[int](), list[int]()

    async def play() -> None:
        await maker.open()
        for number in range(1, 17):
            await maker.publish(await maker.make_round())
            if number in (4, 8, 12, 13, 14, 15):
                assert await maker.chain.pack(KINDS, 1)

    async def pack_and_merge() -> None:
        await maker.publish(await maker.make_round())
        assert await maker.chain.pack(KINDS, 1)
        steps.append(await maker.chain.store.merge_packs())

    def go_on(_count: int) -> None:
        if tries and not steps:
            trio.run(pack_and_merge)

    trio.run(play)
    report = verify_in_windows(maker.chain_directory, FACTS, None, go_on, tries.append)
    assert steps == [4]
    assert report is not None
    assert report.ok
    assert (report.heights, len(tries)) == (16, 1)


def test_a_chain_of_a_node_that_has_just_begun_is_whole(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)
    trio.run(maker.open)
    report = in_windows(maker.chain_directory)
    assert report is not None
    assert report.ok
    assert report == in_memory(maker.chain_directory)


def test_a_network_that_begins_with_trainers_is_read_in_windows_too(tmp_path: Path) -> None:
    """Its first vertex names who stands on the roll."""
    trainer = NodeKeys.from_seed(b"t" * 32)
    roll = fixed(RollRules(), {trainer.node_id: MemberKeys.of(trainer).encode()})
    facts = replace(FACTS, first=replace(FACTS.first, roll=roll))
    maker = ChainMaker(tmp_path)
    maker.first = facts.first_vertex
    maker.genesis = genesis_block(facts.chain_id, maker.first.vertex_id)
    trio.run(maker.open)
    assert verify_chain(maker.chain_directory, facts).ok
    report = in_windows(maker.chain_directory, facts=facts)
    assert report is not None
    assert report.ok
    report = in_windows(maker.chain_directory)
    assert report is None or not report.ok, "of another network"


def at_rest(chain: Path) -> None:
    """All is well."""


def a_write_is_under_way(chain: Path) -> None:
    """And so is packing: its files are there twice."""
    promise(chain, f"vertices/{'ab' * 32}")
    pack, entry, name = record_in_pack(chain, "blocks", 0.5)
    (chain / name).parent.mkdir(exist_ok=True)
    (chain / name).write_bytes(pack.read_bytes()[entry.payload_offset : entry.end])


def damage(kind: str, share: float = 0.5) -> Callable[[Path], None]:
    def change(chain: Path) -> None:
        pack, entry, _ = record_in_pack(chain, kind, share)
        payload = pack.read_bytes()
        at = entry.payload_offset + entry.size_bytes // 2
        pack.write_bytes(payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :])

    return change


def damage_the_end_of_an_epoch(chain: Path) -> None:
    """Its one proof, which is that of an empty block."""
    for share in range(1000):
        pack, entry, name = record_in_pack(chain, "certificates", share / 1000)
        payload = pack.read_bytes()
        said = decode_certificate(payload[entry.payload_offset : entry.end], FACTS.limits)
        if name.endswith(".final") and said.statement.height == EPOCH_ROUNDS:
            at = entry.payload_offset + entry.size_bytes // 2
            pack.write_bytes(payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :])
            return
    raise AssertionError("there is one")


@pytest.fixture(scope="module")
def lengths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two packed chains, one much longer."""
    folder = tmp_path_factory.mktemp("lengths")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)  # or it takes a minute
        makers = [make_chain(folder / str(rounds), rounds) for rounds in (6, 126)]
        for maker in makers:
            while trio.run(maker.chain.pack, KINDS, 1):
                pass  # it takes a batch
    return [maker.directory for maker in makers]


@pytest.mark.parametrize(
    ("befall", "is_whole"),
    [
        (at_rest, True),
        (a_write_is_under_way, True),
        (damage("deltas"), False),
        (damage("certificates", 0.2), False),  # of a vertex
        (damage("certificates", 0.7), False),  # of a block
        (damage_the_end_of_an_epoch, False),
        (damage("vertices"), False),
        (damage("chunks"), False),
        (damage("blocks", 0.1), False),
        (damage("blocks"), False),
    ],
)
def test_memory_does_not_grow_with_the_chain(
    lengths: list[Path], tmp_path: Path, befall: Callable[[Path], None], is_whole: bool
) -> None:
    """120 rounds more take 1.6 MB if all is held, and their names alone 200 kB."""
    peaks = []
    for directory in lengths:
        chain = tmp_path / directory.name / "chain"
        shutil.copytree(directory / "chain", chain)
        befall(chain)
        taken = []
        for _ in range(3):  # some of them make what is made once, as larger tables of all names
            tracemalloc.start()
            report = in_windows(chain)
            taken.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert report is not None
            assert (report.ok, report.unfinished) == (is_whole, int(befall is a_write_is_under_way))
        peaks.append(min(taken))
    assert peaks[1] < peaks[0] + 150_000


def test_of_a_chain_that_nothing_proves_a_long_one_is_not_read_again_and_again(
    tmp_path: Path,
) -> None:
    reads = []
    for rounds in (12, 48):
        maker, count = ChainMaker(tmp_path / str(rounds)), 0
        without_states(maker)

        async def play(maker: ChainMaker = maker, rounds: int = rounds) -> None:
            await maker.open()
            for _ in range(rounds):
                await maker.publish(await maker.make_round())

        def read(_bytes: int) -> None:
            nonlocal count
            count += 1

        trio.run(play)
        report = in_windows(maker.chain_directory, on_bytes=read)
        assert report is not None
        assert report.heights == 0
        reads.append(count)
    assert reads[1] < 6 * reads[0], reads
