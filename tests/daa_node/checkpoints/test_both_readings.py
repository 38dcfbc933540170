"""A chain read in windows and one held in memory get the same words, whatever befalls them."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import trio

from daa_dag.retention import Retention
from daa_node.checkpoints import verify_windows
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import KINDS, Group, encode_note
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.verify_report import Anchor
from daa_node.checkpoints.verify_windows import verify_in_windows
from daa_node.errors import StorageFailed
from daa_node.packs.format import PACKS, DamagedPack, PackWriter
from daa_node.packs.merging import copy_records
from tests.daa_node.checkpoints.filling_disk import filling
from tests.daa_node.checkpoints.little_chain import (
    FACTS,
    ChainMaker,
    files_under,
    make_chain,
    vertex_at,
)
from tests.daa_node.checkpoints.verified import (
    in_memory,
    in_windows,
    note_of,
    opened,
    record_in_pack,
)

ROUNDS = 11
SEEDS = 90
Change = Callable[[Path, Random], None]


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_windows, "WINDOW_BLOCKS", 4)


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> list[ChainMaker]:
    """In files; in packs, but for the newest; pruned, in both."""
    makers = [
        make_chain(tmp_path_factory.mktemp(name), ROUNDS, aborted=(4, 8))
        for name in ("files", "packs", "pruned")
    ]

    async def settle() -> None:
        for maker in makers[1:]:
            assert await maker.chain.pack(KINDS, 1)
            await maker.publish(await maker.make_round())
        assert await prune(makers[2].chain, Retention(4))

    trio.run(settle)
    return makers


# Damage


def some_file(chain: Path, chance: Random) -> Path:
    return chance.choice(files_under(chain))


def change_a_byte(chain: Path, chance: Random) -> None:
    path = some_file(chain, chance)
    payload = bytearray(path.read_bytes())
    payload[chance.randrange(len(payload))] ^= 1 << chance.randrange(8)
    path.write_bytes(payload)


def change_a_record(chain: Path, chance: Random) -> None:
    """Of a pack: a byte of each kind is as likely."""
    if not files_under(chain / PACKS):
        return change_a_byte(chain, chance)
    pack, entry, _ = record_in_pack(chain, chance.choice(KINDS), chance.random())
    payload = bytearray(pack.read_bytes())
    payload[entry.payload_offset + chance.randrange(entry.size_bytes)] ^= 1
    pack.write_bytes(payload)


def delete(chain: Path, chance: Random) -> None:
    some_file(chain, chance).unlink()


def cut_or_lengthen(chain: Path, chance: Random) -> None:
    path = some_file(chain, chance)
    payload = path.read_bytes()
    path.write_bytes(chance.choice((b"", payload[: len(payload) // 2], payload + b"\0")))


def exchange(chain: Path, chance: Random) -> None:
    one, other = some_file(chain, chance), some_file(chain, chance)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def leave_something(chain: Path, chance: Random) -> None:
    kind = chance.choice(KINDS)
    name = chance.randbytes(32).hex() + chance.choice(("", "", ".exec", ".final", ".tmp"))
    (chain / kind).mkdir(exist_ok=True)
    (chain / kind / name).write_bytes(some_file(chain, chance).read_bytes()[:5000])


def link(chain: Path, chance: Random) -> None:
    path = some_file(chain, chance)
    path.rename(chain.parent / path.name)
    path.symlink_to(chain.parent / path.name)


DAMAGE: tuple[Change, ...] = (
    change_a_byte,
    change_a_byte,
    change_a_record,
    change_a_record,
    delete,
    cut_or_lengthen,
    exchange,
    leave_something,
    link,
)

# Interruptions


def newest_names(chain: Path) -> list[str]:
    """Some of the files that came last, or are no packs' yet."""
    found = [path for path in files_under(chain) if path.parent.name != PACKS]
    found.sort(key=lambda path: (path.stat().st_mtime_ns, path))
    return [str(path.relative_to(chain)) for path in found[-14:]]


def add_under_way(chain: Path, chance: Random) -> None:
    names = newest_names(chain)
    names = names[chance.randrange(len(names)) :]
    for name in names[chance.randrange(len(names)) :]:
        (chain / name).unlink()
    promised = Group("add", (*names, f"vertices/{chance.randbytes(32).hex()}"))
    note(chain, promised, Group("drop", tuple(chance.sample(names, 1))))


def drop_under_way(chain: Path, chance: Random) -> None:
    names = newest_names(chain)
    note(chain, Group("drop", tuple(chance.sample(names, chance.randrange(4)))))


def note(chain: Path, *groups: Group) -> None:
    note_of(chain).parent.mkdir(parents=True, exist_ok=True)
    note_of(chain).write_bytes(encode_note(list(groups)))


def packed_twice(chain: Path, chance: Random) -> None:
    for _ in range(3 if files_under(chain / PACKS) else 0):
        pack, entry, name = record_in_pack(chain, chance.choice(KINDS), chance.random())
        path = chain / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pack.read_bytes()[entry.payload_offset : entry.end])


def merged_and_not_deleted(chain: Path, _chance: Random) -> None:
    """A pack replaces another one, which is there still."""
    for pack in files_under(chain / PACKS)[:1]:
        made = chain.parent / "making"
        with opened(pack) as (head, read), made.open("wb") as file:
            writer = PackWriter(file.write, [head.name])
            copy_records([(head, read)], (), writer)
            name = writer.finish()
        made.rename(chain / PACKS / name)


INTERRUPTIONS: tuple[Change, ...] = (
    add_under_way,
    drop_under_way,
    packed_twice,
    merged_and_not_deleted,
)


def test_of_random_damage_and_interruptions(chains: list[ChainMaker], tmp_path: Path) -> None:
    judged = []
    for seed in range(SEEDS):
        chance = Random(seed)
        maker = chance.choice(chains)
        shutil.copytree(maker.directory, tmp_path / str(seed))
        chain = tmp_path / str(seed) / "chain"
        changes = chance.choices(INTERRUPTIONS, k=chance.choice((0, 0, 1, 2)))
        changes += chance.choices(DAMAGE, k=chance.choice((0, 1, 1, 2, 3)))
        for change in changes:
            with suppress(DamagedPack, IndexError):  # by an earlier change; none of the kind
                change(chain, chance)
        height = chance.randrange(1, maker.newest.height + 1)
        vertex = trio.run(vertex_at, maker, height)
        anchor = chance.choice((None, None, Anchor(vertex.vertex_id, chance.random() < 0.5)))
        said = f"seed {seed}: {[change.__name__ for change in changes]}"
        counted, total = list[int](), list[int]()
        report = verify_in_windows(chain, FACTS, anchor, counted.append, total.append)
        whole = in_memory(chain, anchor)
        assert report in (None, whole), said
        assert report is None or sum(counted) <= sum(total), said
        judged.append(report is not None)
        shutil.rmtree(tmp_path / str(seed))
    assert sum(judged) > SEEDS // 2


def test_what_a_write_under_way_takes_out_is_judged_too(
    chains: list[ChainMaker], tmp_path: Path
) -> None:
    """Whoever hands over a directory has written any note, and could hide any bytes behind it."""
    shutil.copytree(chains[1].directory, tmp_path / "node")
    chain = tmp_path / "node" / "chain"
    files = [str(path.relative_to(chain)) for path in files_under(chain)]
    loose = {kind: next(name for name in files if name.startswith(f"{kind}/")) for kind in KINDS}
    packed = {record_in_pack(chain, kind, 0.5)[2] for kind in KINDS}
    note(chain, Group("drop", (*loose.values(), *packed)))
    before = said_of(chain)
    for kind, name in loose.items():
        path, payload = chain / name, (chain / name).read_bytes()
        path.write_bytes(payload[:-1] + bytes([payload[-1] ^ 1]))
        assert name in {where for where, _ in said_of(chain) - before}, kind
        path.write_bytes(payload)
    delta = loose["deltas"]
    manifest = chain / delta.replace("deltas/", "manifests/")
    note(chain, Group("drop", (*loose.values(), *packed, str(manifest.relative_to(chain)))))
    before, unfinished = said_of(chain), in_memory(chain).unfinished
    assert unfinished == len({*loose.values(), *packed, str(manifest.relative_to(chain))})
    manifest.rename(chain.parent / "aside")
    assert (delta, f"is missing: it lists the chunks of {delta}") in said_of(chain) - before
    assert in_memory(chain).unfinished == unfinished - 1  # the write goes on


def said_of(chain: Path) -> set[tuple[str, str]]:
    report, whole = in_windows(chain), in_memory(chain)
    assert report in (None, whole)
    return {(problem.where, problem.what) for problem in whole.problems}


def test_of_writes_that_are_cut_off_anywhere(tmp_path: Path) -> None:
    """What a process leaves that dies is no problem, and windows judge all of it."""
    maker, cuts, unfinished = ChainMaker(tmp_path), 0, 0

    async def run() -> None:
        nonlocal cuts, unfinished
        await maker.open()
        for number in range(1, 8):
            made, room = await maker.make_round(abort=number == 5), 0
            while True:
                after = ChainStore(maker.store, maker.work, FACTS.limits)
                await after.open(maker.first, maker.genesis)  # undoes what was cut off
                await after.groups.settle()
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
                report = in_windows(maker.chain_directory)
                assert report is not None, f"round {number}, {room}"
                assert report == in_memory(maker.chain_directory), f"round {number}, {room}"
                assert report.ok
                unfinished += report.unfinished > 0

    trio.run(run)
    assert cuts > 40
    assert unfinished > 20


def test_a_daemon_may_publish_pack_and_merge_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daa_node.packs.merging.MERGED", 3)
    maker = make_chain(tmp_path, 6)
    steps = 0

    async def step(chance: Random) -> None:
        if chance.random() < 0.4:
            await maker.publish(await maker.make_round())
        else:
            await maker.chain.pack(KINDS, 1)
            await maker.chain.store.merge_packs()

    for seed in range(12):
        chance, before = Random(seed), maker.newest.height

        def go_on(_count: int, chance: Random = chance) -> None:
            nonlocal steps
            if chance.random() < 0.02:
                steps += 1
                trio.run(step, chance)

        report = in_windows(maker.chain_directory, on_bytes=go_on)
        assert report is not None, f"seed {seed}"
        assert report.ok, f"seed {seed}: {report.problems}"
        assert before <= report.heights <= maker.newest.height
    assert steps > 50
