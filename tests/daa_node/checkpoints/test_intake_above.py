"""What stands above our own past is proved from there on, and all of it where that cannot be."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daa_dag.ids import BlobRoot, digest_of
from daa_node.checkpoints import intake, intake_above
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.intake import Intake, carry_out, plan_intake
from daa_node.checkpoints.layout import KINDS, Group, encode_note
from daa_node.errors import UserError
from tests.daa_node.checkpoints.as_left import grow
from tests.daa_node.checkpoints.little_chain import (
    FACTS,
    ChainMaker,
    delta_of,
    files_under,
    publish,
    vertex_at,
)
from tests.daa_node.checkpoints.proofs_alone import follow_members
from tests.daa_node.checkpoints.test_intake import stores
from tests.daa_node.checkpoints.verified import note_of, verify

HERE, THERE, PACKED = 10, 16, (5, 9, 13)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A node's directory, and the same one some rounds later; both have packed some of theirs."""
    early, late = (tmp_path_factory.mktemp(name) / "node" for name in ("early", "late"))
    maker = ChainMaker(late)

    async def play() -> None:
        await grow(maker, HERE, *PACKED)
        shutil.copytree(late, early)
        for number in range(HERE + 1, THERE + 1):
            await maker.publish(await maker.make_round())
            if number in PACKED:
                assert await maker.chain.pack(KINDS, 1)

    trio.run(play)
    return early, late


@pytest.fixture
def pair(grown: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(grown[0], here)
    shutil.copytree(grown[1], there)
    return here, there


def planned(here: Path, there: Path) -> Intake:
    return plan_intake(ChainFiles(there / "chain"), ChainFiles(here / "chain"), FACTS)


def judged_whole(here: Path, there: Path) -> Intake:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "proved_above", lambda *_given: None)
        return planned(here, there)


def is_quick(here: Path, there: Path) -> bool:
    proved = intake.Proved(ChainFiles(there / "chain"))
    found = intake_above.proved_above(
        ChainFiles(there / "chain"), proved, ChainFiles(here / "chain"), FACTS
    )
    return found is not None


def test_it_takes_what_is_taken_where_all_of_both_is_judged(pair: tuple[Path, Path]) -> None:
    here, there = pair
    assert is_quick(here, there)
    quick, whole = planned(here, there), judged_whole(here, there)
    assert quick.coming == whole.coming
    assert (quick.going, quick.height_before, quick.newest) == (
        whole.going,
        whole.height_before,
        whole.newest,
    )
    trio.run(carry_out, quick, *stores(here))
    report = verify(here / "chain")
    assert (report.ok, report.tip) == (True, quick.newest.vertex_id)
    sizes = [ChainFiles(directory / "chain").listing().sizes for directory in (here, there)]
    assert sizes[0] == sizes[1]


def newer(here: Path, there: Path) -> Iterator[Path]:
    """Files of the other directory that may say what is newer."""
    before = {path.name for path in files_under(here)}
    yield from (path for path in files_under(there / "chain") if path.name not in before)


def states_of(here: Path, there: Path) -> list[Path]:
    """Manifests of newer states."""
    deltas = {path.name for path in files_under(there / "chain" / "deltas")}
    manifests = [path for path in newer(here, there) if path.parent.name == "manifests"]
    return [path for path in manifests if path.name not in deltas]


def told(plan: Callable[[Path, Path], Intake], here: Path, there: Path) -> Intake | str:
    try:
        return plan(here, there)
    except UserError as refused:
        return str(refused)


def test_whatever_is_wrong_with_what_is_newer_is_told_as_ever(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    here, there = pair
    refused = apart = 0
    for place, path in enumerate([*newer(here, there)][::5]):
        payload, is_gone = path.read_bytes(), place % 3 == 0
        path.unlink()
        if not is_gone:
            path.write_bytes(payload[:-1] + bytes([payload[-1] ^ 1]))
        quick, whole = told(planned, here, there), told(judged_whole, here, there)
        if isinstance(quick, Intake) and isinstance(whole, str):
            # half a snapshot, or a proof's block without it, is not taken, and nothing lacks it
            assert is_gone
            shutil.copytree(here, tmp_path / "copy")
            trio.run(carry_out, quick, *stores(tmp_path / "copy"))
            assert verify(tmp_path / "copy" / "chain").ok
            shutil.rmtree(tmp_path / "copy")
            apart += 1
        elif isinstance(quick, Intake) and isinstance(whole, Intake):
            assert quick.coming == whole.coming, path.name
        else:
            assert quick == whole, path.name
            refused += 1
        path.write_bytes(payload)
    assert refused > 4
    assert apart < refused


def test_a_past_that_is_not_ours_or_that_lacks_something_is_judged_whole(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    here, there = pair
    assert is_quick(here, there)
    assert not is_quick(there, here)  # nothing is newer there
    stranger = ChainMaker(tmp_path / "stranger")
    stranger.delta_of = lambda round_number: delta_of(round_number + 1000)
    trio.run(grow, stranger, THERE, *PACKED)
    assert not is_quick(here, stranger.directory)
    with pytest.raises(UserError, match="has certified"):
        planned(here, stranger.directory)
    pack = files_under(here / "chain" / "packs")[0]
    aside = pack.rename(tmp_path / "aside")
    assert not is_quick(here, there)
    assert planned(here, there).coming == judged_whole(here, there).coming
    aside.rename(pack)
    for directory in pair:
        shutil.move(directory / "work" / "history", tmp_path / "history")
        assert not is_quick(here, there)
        shutil.move(tmp_path / "history", directory / "work" / "history")
    assert is_quick(here, there)


@pytest.mark.parametrize("forked_for", [1, 2])
def test_another_past_that_comes_to_our_state_is_judged_whole(
    tmp_path: Path, forked_for: int
) -> None:
    """As one does that was decided a view later: what stands on it does not stand on ours."""
    mine, other = (ChainMaker(tmp_path / name) for name in ("mine", "other"))

    async def play() -> None:
        await grow(mine, HERE + 1, *PACKED)
        await grow(other, HERE + 1 - forked_for, *PACKED)
        other.view += 1
        for _ in range(forked_for + 1):
            await other.publish(await other.make_round())

    trio.run(play)
    assert not is_quick(mine.directory, other.directory)
    with pytest.raises(UserError, match="has certified"):
        planned(mine.directory, other.directory)


def test_an_old_block_that_we_have_lost_comes_along(tmp_path: Path) -> None:
    maker, here = ChainMaker(tmp_path / "there"), tmp_path / "here"

    async def play() -> None:
        await grow(maker, HERE)
        assert await maker.chain.pack([kind for kind in KINDS if kind != "blocks"], 1)
        shutil.copytree(maker.directory, here)
        await maker.publish(await maker.make_round())

    trio.run(play)
    there = maker.directory
    assert is_quick(here, there)
    name = f"blocks/{trio.run(vertex_at, maker, 2).decided_block.hex()}"
    (here / "chain" / name).unlink()
    assert not is_quick(here, there)
    assert name in planned(here, there).coming


def test_a_state_of_ours_that_lacks_a_piece_leaves_all_to_be_judged(
    pair: tuple[Path, Path],
) -> None:
    here, there = pair
    for path in files_under(here / "chain" / "chunks"):
        path.unlink()
    assert not is_quick(here, there)
    assert told(planned, here, there) == told(judged_whole, here, there)


def test_a_certified_state_that_ours_does_not_lead_to_is_told_of_as_ever(tmp_path: Path) -> None:
    maker, here = ChainMaker(tmp_path / "there"), tmp_path / "here"
    wrong = BlobRoot(bytes(digest_of(b"another model")))

    async def play() -> None:
        await grow(maker, HERE, *PACKED)
        shutil.copytree(maker.directory, here)
        lie = await maker.make_round(change=lambda vertex: replace(vertex, model_root=wrong))
        await publish(maker.chain, lie.headers, lie.certified, snapshot_every=100)

    trio.run(play)
    assert not is_quick(here, maker.directory)
    assert "the replay does not reach" in str(told(planned, here, maker.directory))


def test_the_pieces_of_another_state_are_told_of_as_ever(pair: tuple[Path, Path]) -> None:
    here, there = pair
    one, other = states_of(here, there)[:2]
    one.write_bytes(other.read_bytes())
    assert not is_quick(here, there)
    assert told(planned, here, there) == told(judged_whole, here, there)


def test_half_a_state_is_left_where_it_is_and_the_rest_is_taken(pair: tuple[Path, Path]) -> None:
    here, there = pair
    whole = {name for name in planned(here, there).coming if name.startswith("chunks/")}
    states_of(here, there)[0].unlink()
    assert is_quick(here, there)
    left = {name for name in planned(here, there).coming if name.startswith("chunks/")}
    assert left < whole


def test_a_manifest_that_is_none_is_told_of_as_ever(pair: tuple[Path, Path]) -> None:
    here, there = pair
    path = next(path for path in newer(here, there) if path.parent.name == "manifests")
    path.write_bytes(b"none")
    assert not is_quick(here, there)
    assert told(planned, here, there) == told(judged_whole, here, there)


def test_while_a_write_is_under_way_all_is_judged(pair: tuple[Path, Path]) -> None:
    here, there = pair
    own = files_under(here / "chain" / "vertices")[0]
    delta = next(path for path in newer(here, there) if path.parent.name == "deltas")
    come = f"vertices/{bytes(32).hex()}"  # is not there yet
    for directory, group in (
        (here, Group("add", (come,))),
        (here, Group("drop", (f"vertices/{own.name}",))),
        (there, Group("add", (f"deltas/{delta.name}", come))),
        (there, Group("drop", (f"vertices/{own.name}",))),
    ):
        note = note_of(directory / "chain")
        before = note.read_bytes() if note.exists() else None
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_bytes(encode_note([group]))
        assert not is_quick(here, there), group
        quick, whole = told(planned, here, there), told(judged_whole, here, there)
        if isinstance(quick, Intake) and isinstance(whole, Intake):
            assert quick.coming == whole.coming
        else:
            assert quick == whole
        note.unlink()
        if before is not None:
            note.write_bytes(before)
        assert is_quick(here, there)


def test_what_it_reads_does_not_grow_with_what_both_have(tmp_path: Path) -> None:
    counts = []
    for rounds in (12, 36):
        maker = ChainMaker(tmp_path / str(rounds) / "there")
        here = tmp_path / str(rounds) / "here"

        async def play(maker: ChainMaker = maker, rounds: int = rounds, here: Path = here) -> None:
            await maker.open()
            await follow_members(maker.chain)
            for number in range(1, rounds + 1):
                await maker.publish(await maker.make_round())
                if number == rounds - 4:
                    assert await maker.chain.pack(KINDS, 1)
                    shutil.copytree(maker.directory, here)

        trio.run(play)
        reads = list[int]()
        source = ChainFiles(maker.chain_directory, reads.append)
        plan = plan_intake(source, ChainFiles(here / "chain"), FACTS)
        assert (plan.height_before, plan.newest.height) == (rounds - 4, rounds)
        counts.append(len(reads))
    assert counts[1] <= counts[0] + 4
