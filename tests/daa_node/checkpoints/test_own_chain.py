"""Commands that go by what a node has left say of its chain what those say that judge all of it."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import trio

from daa_dag.ids import VertexId
from daa_dag.retention import Retention
from daa_node.checkpoints import rows, thinning
from daa_node.checkpoints.certified import certified_chain, way_to
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.export import replayed_state
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.layout import (
    KINDS,
    NOTE,
    PUBLISHING,
    Group,
    encode_note,
    exec_name,
    final_name,
)
from daa_node.checkpoints.listing import ChainView, own_view, view_chain
from daa_node.checkpoints.own_chain import OwnChain, own_chain
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.thinning import thin
from daa_node.errors import StorageFailed, UserError
from daa_node.packs.format import PACKS
from tests.daa_node.checkpoints.as_left import (
    PACKED,
    ROUNDS,
    agree,
    answers,
    finds,
    grow,
    kept,
    shown,
    told,
)
from tests.daa_node.checkpoints.filling_disk import filling
from tests.daa_node.checkpoints.little_chain import (
    EPOCH_ROUNDS,
    FACTS,
    RULES,
    ChainMaker,
    Headers,
    files_under,
    publish,
)
from tests.daa_node.checkpoints.proofs_alone import follow_members


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PART_ROWS", 4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of fourteen rounds nine are packed, in two packs."""
    directory = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "PART_ROWS", 4)
        trio.run(grow, ChainMaker(directory), ROUNDS, *PACKED)
    return directory


@pytest.fixture
def node(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "node")
    return tmp_path / "node"


def test_at_each_round_it_says_what_the_whole_chain_says(tmp_path: Path) -> None:
    maker, quick = ChainMaker(tmp_path), list[bool]()

    async def run() -> None:
        await maker.open()
        await follow_members(maker.chain)
        for number in range(1, ROUNDS + 1):
            await maker.publish(await maker.make_round(abort=number in (4, 6)))
            quick.append(agree(maker.chain_directory))
            if number % 5 == 0:
                assert await maker.chain.pack(KINDS, 1)
                quick.append(agree(maker.chain_directory))

    trio.run(run)
    assert quick == [False] * 5 + [True] * (ROUNDS - 3)


def test_it_ends_in_the_same_states(node: Path) -> None:
    past = own_chain(ChainFiles(node / "chain"), FACTS)
    certified = certified_chain(ChainFiles(node / "chain"), FACTS)
    for height in (0, 1, 5, past.height):
        vertex = past.find(str(height))
        state = replayed_state(past, vertex, RULES)
        expected = replayed_state(certified, vertex, RULES)
        assert np.array_equal(state.weights_D, expected.weights_D)
        assert np.array_equal(state.momentum_D, expected.momentum_D)


def test_of_an_open_round_that_was_packed_the_end_is_judged(tmp_path: Path) -> None:
    """The newest final block is a set: what is judged begins with its result."""
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await grow(maker, 4)
        made = await maker.make_round()
        decided, *others = made.headers.blocks
        await publish(maker.chain, Headers((decided,), (), maker.finalize(decided)), None)
        assert await maker.chain.pack(KINDS, 1)
        assert agree(maker.chain_directory)
        rest = Headers(tuple(others), made.headers.trailing, made.headers.certificate)
        await publish(maker.chain, rest, made.certified)
        assert agree(maker.chain_directory)

    trio.run(run)


def test_what_was_packed_while_nobody_followed_the_voters_is_judged(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await grow(maker, 5, 5)
        maker.chain = ChainStore(maker.store, maker.work, FACTS.limits)
        await maker.open()
        for _ in range(4):
            await maker.publish(await maker.make_round())
        assert await maker.chain.pack(KINDS, 1)
        assert agree(maker.chain_directory)
        await maker.publish(await maker.make_round())
        assert agree(maker.chain_directory)

    trio.run(run)


def test_pruned_and_thinned_it_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thinning, "EPOCHS_AT_ONCE", 2)
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await grow(maker, 6 * EPOCH_ROUNDS, 5, 10, 15)
        assert await thin(maker.chain, Retention(epochs_whole=1), 0)
        assert agree(maker.chain_directory)
        assert await prune(maker.chain, Retention(vertices_restorable=3))
        assert agree(maker.chain_directory)
        past = own_chain(ChainFiles(maker.chain_directory), FACTS)
        assert len(way_to(past, past.find("tip"))) < 5
        with pytest.raises(UserError, match="cannot be had"):
            replayed_state(past, past.find("5"), RULES)

    trio.run(run)


def test_of_a_long_chain_no_more_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    read_file = ChainFiles._read

    def counted(files: ChainFiles, name: str, size_bytes_max: int) -> bytes:
        read.append(name.partition("/")[0])
        return read_file(files, name, size_bytes_max)

    monkeypatch.setattr(ChainFiles, "_read", counted)

    def counts(rounds: int) -> list[dict[str, int]]:
        directory = tmp_path / str(rounds)
        trio.run(grow, ChainMaker(directory), rounds, *range(12, rounds, 3))
        chain, found = directory / "chain", []
        asked: list[Callable[[], object]] = [
            lambda: own_chain(ChainFiles(chain), FACTS).find("tip"),
            lambda: shown(own_view(chain), "tip", 5),
            lambda: certified_chain(ChainFiles(chain), FACTS).find("tip"),
        ]
        for ask in asked:
            read.clear()
            ask()
            found.append({kind: read.count(kind) for kind in read})
        return found

    (short, short_log, _), (long, long_log, judged) = counts(14), counts(23)
    assert short == long
    assert short_log == long_log
    assert sum(long.values()) < sum(judged.values()) / 4


def test_what_a_daemon_packs_and_merges_meanwhile_is_there_as_before(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await grow(maker, ROUNDS, *PACKED)
        chain = maker.chain_directory
        past, view = own_chain(ChainFiles(chain), FACTS), own_view(chain)
        expected, rows = told(certified_chain(ChainFiles(chain), FACTS)), view_chain(chain).rows
        while not await maker.store.merge_packs():
            assert await maker.chain.pack(KINDS, 1)
            await maker.publish(await maker.make_round())
        assert told(past) == expected
        assert view.newest_of(view.find("tip"), ROUNDS)[::-1] == list(rows)

    trio.run(run)


# What is damaged


def damage(chain: Path, name: str) -> None:
    """One bit of a file, or of a record in the packs that hold it."""
    files = ChainFiles(chain)
    files.listing()
    payload = files.read(name, 2**20)
    at = len(payload) // 2
    changed = payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]
    for path in [chain / name] if (chain / name).exists() else files_under(chain / PACKS):
        path.write_bytes(path.read_bytes().replace(payload, changed))


def test_a_damaged_vertex_that_is_read_is_refused_as_ever(node: Path) -> None:
    names = kept(node)
    damage(node / "chain", names[5])  # there is no snapshot of this height
    certified = certified_chain(ChainFiles(node / "chain"), FACTS)
    for text in ("5", "tip", names[5][9:], names[7][9:], "7", "4"):
        past = own_chain(ChainFiles(node / "chain"), FACTS)
        if text in ("tip", "7", names[7][9:]):  # the way to its state leads not so far down
            assert isinstance(past, OwnChain)
            assert past.find(text).height >= 7
            continue
        assert finds(past, text) == finds(certified, text)
    past = own_chain(ChainFiles(node / "chain"), FACTS)
    with pytest.raises(UserError, match="no certified vertex 5 is here: heights 0 to 4 are"):
        past.at(5)


def test_a_vertex_by_anothers_name_is_refused_as_ever(node: Path) -> None:
    names = kept(node)
    files = ChainFiles(node / "chain")
    files.listing()
    (node / "chain" / names[5]).write_bytes(files.read(names[6], 2**20))
    certified = certified_chain(ChainFiles(node / "chain"), FACTS)
    assert certified.height == 4
    assert finds(own_chain(ChainFiles(node / "chain"), FACTS), "5") == finds(certified, "5")


def test_a_damaged_vertex_on_the_way_to_a_state_is_found_before_it_is_replayed(node: Path) -> None:
    names = kept(node)
    damage(node / "chain", names[6])  # that has a snapshot, and the one above has not
    certified = certified_chain(ChainFiles(node / "chain"), FACTS)
    assert certified.height == 5
    for text in ("6", "7"):
        past = own_chain(ChainFiles(node / "chain"), FACTS)
        assert finds(past, text) == finds(certified, text)
        assert "heights 0 to 5 are certified" in str(finds(past, text))


def test_a_damaged_delta_or_chunk_is_refused_as_ever(node: Path) -> None:
    past = own_chain(ChainFiles(node / "chain"), FACTS)
    vertex = past.find("7")
    damage(node / "chain", f"deltas/{vertex.delta_root.hex()}")
    certified = certified_chain(ChainFiles(node / "chain"), FACTS)
    damaged = own_chain(ChainFiles(node / "chain"), FACTS)
    said = answers(lambda: replayed_state(damaged, vertex, RULES))
    assert said == answers(lambda: replayed_state(certified, vertex, RULES))
    assert "the state of height 7 cannot be had" in str(said)


def test_a_damaged_row_of_the_log_is_refused_as_ever(node: Path) -> None:
    names = kept(node)
    damage(node / "chain", names[5])
    view = own_view(node / "chain")
    assert len(view.newest_of(view.find("tip"), 3)) == 3
    said = answers(lambda: view.newest_of(view.find("tip"), 30))
    assert said == answers(lambda: view_chain(node / "chain"))
    assert names[5] in str(said)


def test_a_row_that_cannot_be_told_for_a_bad_disk_is_refused_in_words(node: Path) -> None:
    """Of a pack that was good when it was opened, as a log begins."""
    for pack in files_under(node / "chain" / PACKS):
        view, payload = own_view(node / "chain"), pack.read_bytes()
        os.truncate(pack, len(payload) // 2)
        said = [answers(partial(view.find, str(at))) for at in view.heights]
        assert any("ends in its index" in str(each) for each in said)
        pack.write_bytes(payload)


def newer(node: Path) -> Iterator[str]:
    """What lies in files of its own."""
    chain = node / "chain"
    return (
        str(path.relative_to(chain)) for path in files_under(chain) if path.parent.name != PACKS
    )


def test_whatever_befalls_what_is_newer_the_whole_chain_is_judged(node: Path) -> None:
    chain = node / "chain"
    for name in [*newer(node)]:
        if name.partition("/")[0] in ("vertices", "blocks", "certificates"):
            payload = (chain / name).read_bytes()
            damage(chain, name)
            past = own_chain(ChainFiles(chain), FACTS)
            certified = certified_chain(ChainFiles(chain), FACTS)
            assert not isinstance(past, OwnChain), name
            assert told(past) == told(certified)
            (chain / name).unlink()
            certified = certified_chain(ChainFiles(chain), FACTS)
            assert told(own_chain(ChainFiles(chain), FACTS)) == told(certified), name
            (chain / name).write_bytes(payload)
    assert agree(chain)


def test_what_nobody_has_certified_is_not_found(node: Path) -> None:
    """Files that anybody has put there: a vertex alone, and one of another quorum."""
    maker = ChainMaker(node / "elsewhere")
    trio.run(grow, maker, ROUNDS + 1)
    chain, vertex = node / "chain", maker.newest
    assert vertex.height > own_chain(ChainFiles(chain), FACTS).height
    for name in (
        f"vertices/{vertex.vertex_id.hex()}",
        f"certificates/{exec_name(vertex.vertex_id)}",
    ):
        shutil.copy(maker.chain_directory / name, chain / name)
        past = own_chain(ChainFiles(chain), FACTS)
        assert told(past) == told(certified_chain(ChainFiles(chain), FACTS))
        assert past.find("tip").height < vertex.height
        assert "no certified vertex" in str(finds(past, vertex.vertex_id.hex()))
    assert own_view(chain).find("tip").vertex == vertex


def test_a_final_vertex_that_is_not_here_is_said(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)
    trio.run(grow, maker, 7, 5)
    for name in (
        f"vertices/{maker.newest.vertex_id.hex()}",
        f"certificates/{exec_name(maker.newest.vertex_id)}",
    ):
        (maker.chain_directory / name).unlink()
    past = own_chain(ChainFiles(maker.chain_directory), FACTS)
    with pytest.raises(UserError, match="final, and it is not here: name a height up to 4"):
        past.find("tip")


def test_a_branch_beside_the_chain_is_shown(node: Path) -> None:
    first = own_view(node / "chain").find("0").vertex
    other = replace(first, parents=(first.vertex_id,), height=1)
    (node / "chain" / "vertices" / other.vertex_id.hex()).write_bytes(other.encode())
    view = own_view(node / "chain")
    assert isinstance(view, ChainView)
    assert other.vertex_id in view.ids


def test_one_above_it_that_stands_on_nothing_here_is_shown_alone(node: Path) -> None:
    newest = own_view(node / "chain").find("tip").vertex
    other = replace(newest, parents=(VertexId(bytes(32)),), height=newest.height + 1)
    (node / "chain" / "vertices" / other.vertex_id.hex()).write_bytes(other.encode())
    view = own_view(node / "chain")
    assert [row.vertex for row in view.newest_of(view.find("tip"), 3)] == [other]


def test_what_is_on_its_way_out_is_gone(node: Path) -> None:
    """A note tells so, and of a group that came in and is packed already."""
    past = own_chain(ChainFiles(node / "chain"), FACTS)
    vertex = past.at(4)
    roots = (vertex.model_root.hex(), vertex.outer_state_root.hex())
    going = Group("drop", tuple(f"manifests/{root}" for root in roots))
    assert past.has_snapshot(vertex)
    note = node / "work" / PUBLISHING / NOTE
    note.parent.mkdir(exist_ok=True)
    for came in (kept(node)[3], kept(node)[-1]):
        note.write_bytes(encode_note([Group("add", (came,)), going]))
        assert agree(node / "chain")
        assert not own_chain(ChainFiles(node / "chain"), FACTS).has_snapshot(vertex)


def test_publishing_packing_and_pruning_cut_off_anywhere_leave_what_says_the_same(
    tmp_path: Path,
) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> list[bool]:
        await maker.open()
        quick = list[bool]()
        for _ in range(5):
            made, room = await maker.make_round(), 0
            while True:
                cut = filling(maker, room)
                try:
                    await cut.open(maker.first, maker.genesis)
                    await follow_members(cut)
                    maker.chain = cut
                    await maker.publish(made)
                    await cut.pack(KINDS, 1)
                    await prune(cut, Retention(vertices_restorable=2))
                    break
                except StorageFailed:
                    room += 1
                quick.append(agree(maker.chain_directory))
        return quick

    quick = trio.run(run)
    assert len(quick) > 30
    assert sum(quick) > 15


def test_a_final_block_above_an_epoch_that_was_kept_is_judged_with_its_proof(
    tmp_path: Path,
) -> None:
    """Packing comes at the end of an epoch, whose proof stands on empty blocks."""
    maker = ChainMaker(tmp_path)
    trio.run(grow, maker, 2 * EPOCH_ROUNDS, 2 * EPOCH_ROUNDS)
    assert agree(maker.chain_directory)
    names = {path.name for path in files_under(maker.chain_directory)}
    assert final_name(maker.tip.id) not in names, "packed"

    async def go_on() -> None:
        await maker.publish(await maker.make_round())

    trio.run(go_on)
    assert agree(maker.chain_directory)
