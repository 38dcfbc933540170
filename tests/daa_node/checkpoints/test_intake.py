"""What another directory has of our chain comes over whole and proved, or not at all."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daa_dag.ids import ChainId
from daa_dag.retention import Retention
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.checkpoints import thinning
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.intake import Intake, carry_out, plan_intake
from daa_node.checkpoints.layout import KINDS
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.thinning import thin
from daa_node.errors import StorageFailed, UserError
from tests.daa_node.checkpoints.filling_disk import FillingDisk
from tests.daa_node.checkpoints.little_chain import (
    EPOCH_ROUNDS,
    FACTS,
    STRANGERS,
    ChainMaker,
    delta_of,
    files_under,
    make_chain,
)
from tests.daa_node.checkpoints.verified import verify
from tests.daa_node.inline import Inline

HERE, THERE = 3, 7  # rounds; an epoch has three, and every second height a snapshot


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A node's directory, and the same one four rounds later."""
    early, late = (tmp_path_factory.mktemp(name) for name in ("early", "late"))
    maker = make_chain(late / "node", HERE)
    shutil.copytree(maker.directory, early / "node")

    async def go_on() -> None:
        for _ in range(THERE - HERE):
            await maker.publish(await maker.make_round())

    trio.run(go_on)
    return early / "node", late / "node"


@pytest.fixture
def here(grown: tuple[Path, Path], tmp_path: Path) -> Path:
    shutil.copytree(grown[0], tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def there(grown: tuple[Path, Path], tmp_path: Path) -> Path:
    shutil.copytree(grown[1], tmp_path / "there")
    return tmp_path / "there"


def planned(here: Path, there: Path) -> Intake:
    own = ChainFiles(here / "chain") if (here / "chain").is_dir() else None
    return plan_intake(ChainFiles(there / "chain"), own, FACTS)


def stores(here: Path) -> tuple[DiskBlobStore, DiskBlobStore]:
    return (
        DiskBlobStore(here / "chain", offload=Inline()),
        DiskBlobStore(here / "work", offload=Inline()),
    )


def taken(here: Path, there: Path) -> Intake:
    intake = planned(here, there)
    trio.run(carry_out, intake, *stores(here))
    return intake


def contents(directory: Path) -> dict[str, bytes]:
    chain = directory / "chain"
    return {str(path.relative_to(chain)): path.read_bytes() for path in files_under(chain)}


def test_what_is_newer_there_comes_and_what_is_here_stays(here: Path, there: Path) -> None:
    before = contents(here)
    intake = taken(here, there)
    after = contents(here)
    assert before.items() <= after.items()
    assert after == contents(there)
    assert (intake.height_before, intake.newest.height, intake.going) == (HERE, THERE, ())
    report = verify(here / "chain")
    assert (report.ok, report.heights) == (True, THERE)
    again = planned(here, there)
    assert (again.coming, again.newest.height) == ((), THERE)


@pytest.mark.parametrize("packed", [("here",), ("there",), ("here", "there")])
def test_what_lies_in_packs_comes_and_stays_as_files_do(
    packed: tuple[str, ...], here: Path, there: Path
) -> None:
    async def pack(directory: Path) -> None:
        maker = ChainMaker(directory)
        await maker.open()
        assert await maker.chain.pack(KINDS, 1)

    for name in packed:
        trio.run(pack, {"here": here, "there": there}[name])
    intake = taken(here, there)
    assert (intake.height_before, intake.newest.height) == (HERE, THERE)
    sizes = [ChainFiles(directory / "chain").listing().sizes for directory in (here, there)]
    assert sizes[0] == sizes[1]
    report = verify(here / "chain")
    assert (report.ok, report.heights) == (True, THERE)
    maker = ChainMaker(here)
    trio.run(maker.open)
    assert trio.run(maker.chain.newest).height == THERE


def test_a_node_that_has_not_run_yet_takes_all_of_it_and_goes_on(
    there: Path, tmp_path: Path
) -> None:
    fresh = tmp_path / "fresh"
    taken(fresh, there)
    assert contents(fresh) == contents(there)
    maker = ChainMaker(fresh)
    trio.run(maker.open)
    assert trio.run(maker.chain.newest).height == THERE


def test_who_is_further_takes_nothing(here: Path, there: Path) -> None:
    before = contents(there)
    intake = taken(there, here)
    assert (intake.coming, intake.newest.height) == ((), THERE)
    assert contents(there) == before


def test_a_pruned_directory_brings_its_floor_in_exchange_for_older_states(
    here: Path, there: Path
) -> None:
    maker = ChainMaker(there)
    trio.run(maker.open)
    trio.run(prune, maker.chain, Retention(vertices_restorable=2))
    assert verify(there / "chain").pruned_below > HERE
    intake = taken(here, there)
    assert intake.going
    report = verify(here / "chain")
    assert (report.ok, report.heights) == (True, THERE)
    assert contents(here) == contents(there)


def test_who_is_pruned_itself_stays_so(here: Path, there: Path) -> None:
    maker = ChainMaker(here)
    trio.run(maker.open)
    trio.run(prune, maker.chain, Retention(vertices_restorable=1))
    floor = verify(here / "chain").pruned_below
    assert floor > 0
    taken(here, there)
    report = verify(here / "chain")
    assert (report.ok, report.heights, report.pruned_below) == (True, THERE, floor)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("vertices", True),
        ("blocks", False),
        ("certificates", False),
        ("deltas", True),
        ("manifests", False),
        ("chunks", True),
    ],
)
def test_of_a_directory_with_one_bad_file_nothing_is_taken(
    here: Path, there: Path, kind: str, missing: bool
) -> None:
    path = files_under(there / "chain" / kind)[-1]
    if missing:
        path.unlink()
    else:
        payload = bytearray(path.read_bytes())
        payload[len(payload) // 2] ^= 1
        path.write_bytes(payload)
    before = contents(here)
    with pytest.raises(UserError, match="nothing was taken, as the other directory"):
        planned(here, there)
    assert contents(here) == before


def test_a_damaged_directory_here_takes_nothing_either(here: Path, there: Path) -> None:
    path = files_under(here / "chain" / "deltas")[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match="what would come make no chain.* the first deltas/"):
        planned(here, there)


def test_another_past_is_refused_with_the_height_where_it_parts(here: Path, tmp_path: Path) -> None:
    """Keys of the committee sign what they did not decide here."""
    other = ChainMaker(tmp_path / "other")
    other.delta_of = lambda round_number: delta_of(round_number + 100 * (round_number > 1))

    async def run() -> None:
        await other.open()
        for _ in range(THERE):
            await other.publish(await other.make_round())

    trio.run(run)
    with pytest.raises(UserError, match="at height 2 a quorum has certified [0-9a-f]{16} here and"):
        planned(here, other.directory)


def test_a_chain_that_strangers_sign_and_another_network_are_refused(
    here: Path, there: Path, tmp_path: Path
) -> None:
    forged = ChainMaker(tmp_path / "forged", STRANGERS[:3])

    async def run() -> None:
        await forged.open()
        for _ in range(THERE):
            await forged.publish(await forged.make_round())

    trio.run(run)
    with pytest.raises(UserError, match="nothing was taken, as the other directory"):
        planned(here, forged.directory)
    elsewhere = replace(FACTS, chain_id=ChainId(b"e" * 32))
    with pytest.raises(UserError, match="nothing was taken, as the other directory"):
        plan_intake(ChainFiles(there / "chain"), None, elsewhere)


@pytest.mark.parametrize("room", [0, 5, 40])
def test_a_disk_that_is_full_leaves_what_was_here(here: Path, there: Path, room: int) -> None:
    intake, before, left = planned(here, there), contents(here), [room]
    store, work = (FillingDisk(store, left) for store in stores(here))
    with pytest.raises(StorageFailed, match="no space left"):
        trio.run(carry_out, intake, store, work)
    assert verify(here / "chain").problems == []  # with the note, until the next start
    maker = ChainMaker(here)
    trio.run(maker.open)
    assert contents(here) == before


@pytest.mark.parametrize("room", [1, 5, 40])
def test_who_is_killed_in_the_middle_takes_all_of_it_the_next_time(
    here: Path, there: Path, room: int
) -> None:
    left = [room]
    store, work = (FillingDisk(store, left) for store in stores(here))
    with pytest.raises(StorageFailed):
        trio.run(carry_out, planned(here, there), store, work)
    taken(here, there)
    assert contents(here) == contents(there)
    assert verify(here / "chain").heights == THERE


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


@pytest.mark.parametrize("act", [change, Path.unlink])
def test_what_changes_after_it_was_proved_is_not_taken(
    here: Path, there: Path, act: Callable[[Path], None]
) -> None:
    intake, before = planned(here, there), contents(here)
    act(there / "chain" / intake.coming[-1])
    with pytest.raises(UserError, match="try again"):
        trio.run(carry_out, intake, *stores(here))
    assert contents(here) == before


def test_an_epoch_that_is_half_here_and_light_there_comes_without_a_loss(tmp_path: Path) -> None:
    """Own executions stay; the end of the epoch, which comes, stands for those that do not."""
    maker, rounds_here = ChainMaker(tmp_path / "there"), EPOCH_ROUNDS + 1

    async def grow() -> None:
        await maker.open()
        for number in range(1, 3 * EPOCH_ROUNDS + 2):
            await maker.publish(await maker.make_round())
            if number == rounds_here:
                shutil.copytree(maker.directory, tmp_path / "here")
        assert await thin(maker.chain, Retention(epochs_whole=1), 0) == 2

    with pytest.MonkeyPatch.context() as fewer:
        fewer.setattr(thinning, "EPOCHS_AT_ONCE", 2)
        trio.run(grow)
    here = tmp_path / "here"
    own = {name for name in contents(here) if "certificates" in name}
    intake = taken(here, tmp_path / "there")
    assert intake.newest == maker.newest
    assert own <= contents(here).keys()
    report = verify(here / "chain")
    assert report.ok, report.problems
    assert report.light == 2 * EPOCH_ROUNDS - rounds_here
