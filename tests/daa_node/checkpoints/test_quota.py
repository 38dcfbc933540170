"""A host's bound on its history: what goes first, what never goes, and what is said of it."""

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daa_dag.retention import Prunable, Retention, below, floor_for
from daa_node.checkpoints import packing, quota
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.held import Held, held_by
from daa_node.checkpoints.quota import Level, within_bytes
from daa_node.checkpoints.restore import restore
from daa_node.checkpoints.snapshots import Snapshots, prune
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import StorageFailed
from daa_node.observability.events import Event, EventLog
from tests.daa_node.checkpoints.little_chain import (
    FACTS,
    SNAPSHOT_EVERY,
    ChainMaker,
    Replays,
    files_under,
    make_chain,
    vertex_at,
)


class Host:
    """A chain that grows on a host with a bound."""

    def __init__(self, maker: ChainMaker, bytes_max: int | None, light: bool = False) -> None:
        self.maker = maker
        self.told: list[Event] = []
        whole = 1 if light else None
        retention = Retention(None, epochs_whole=whole, bytes_max=bytes_max)
        log = EventLog(lambda: 0, self.told.append)
        self.snapshots = Snapshots(maker.chain, SNAPSHOT_EVERY, retention, log)

    async def grow(self, rounds: int) -> None:
        for _ in range(rounds):
            made = await self.maker.make_round()
            await self.maker.publish(made)
            for kind in ("updates", "states"):
                for root in (await self.maker.work.blob_roots(kind))[:-2]:
                    await self.maker.work.delete_blob(kind, root)
            await self.snapshots.store()

    def names(self) -> list[str]:
        return [event["name"] for event in self.told]


def bytes_under(maker: ChainMaker) -> int:
    found = files_under(maker.chain_directory) + files_under(maker.directory / "work")
    return sum(path.stat().st_size for path in found)


def test_old_states_go_and_the_newest_state_and_all_proofs_stay(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        plain = Host(maker, None)
        await plain.grow(6)
        assert plain.told == [e for e in plain.told if not e["name"].startswith("storage_")]
        proofs = {
            path.name
            for kind in ("blocks", "vertices")
            for path in maker.chain_directory.glob(f"{kind}/*")
        }
        bytes_max = bytes_under(maker)
        host = Host(maker, bytes_max)
        await host.grow(1)
        assert "storage_let_go" in host.names()
        assert bytes_under(maker) < bytes_max
        left = {
            path.name
            for kind in ("blocks", "vertices")
            for path in maker.chain_directory.glob(f"{kind}/*")
        }
        assert left >= proofs
        assert host.snapshots.quota.standing.bytes == bytes_under(maker)
        for kind in ("updates", "states"):
            for root in await maker.work.blob_roots(kind):
                await maker.work.delete_blob(kind, root)
        await restore(maker.chain, await maker.chain.newest(), Replays(maker))

    trio.run(run)
    report = verify_chain(maker.chain_directory, FACTS)
    assert report.problems == []
    assert report.pruned_below > 0


def test_it_says_once_that_it_is_near_and_once_that_nothing_more_may_go(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        await Host(maker, None).grow(4)
        host = Host(maker, bytes_under(maker) * 100 // 92)
        await host.snapshots.quota.look()
        await host.snapshots.quota.look()
        assert host.names() == ["storage_near"]
        assert host.snapshots.quota.standing.level is Level.NEAR
        small = Host(maker, 2**14)
        await small.grow(3)
        assert small.names().count("storage_over") == 1
        assert small.snapshots.quota.standing.level is Level.OVER
        assert not small.snapshots.quota.room_for(1)
        (over,) = [event for event in small.told if event["name"] == "storage_over"]
        assert "storage.bytes_max" in over["why"]
        # and all that was certified meanwhile is here
        assert (await maker.chain.newest()).height == 7

    trio.run(run)
    assert verify_chain(maker.chain_directory, FACTS).problems == []


def test_another_bound_is_taken_up_while_a_daemon_runs(tmp_path: Path) -> None:
    """At the next look, also where nothing more could go under the one before."""
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        host = Host(maker, None)
        await host.grow(6)
        looks, kept = host.snapshots.quota, len(await maker.store.blob_roots("deltas"))
        held = looks.standing.bytes
        bound: list[int | None] = [2**14]
        looks.bytes_max_now = lambda: bound[0]
        assert looks.told()["bytes_max"] == 2**14
        assert looks.told()["level"] == "near"
        await looks.look()
        assert len(await maker.store.blob_roots("deltas")) < kept
        assert host.names()[-2:] == ["storage_let_go", "storage_over"]
        bound[0] = 2**14 + 1  # as if it had never been tried
        await looks.look()
        assert host.names()[-2:] == ["storage_near", "storage_over"]
        bound[0] = 100 * held
        assert looks.told()["level"] == "room"
        assert looks.room_for(1)
        kept = len(await maker.store.blob_roots("deltas"))
        bound[0] = None
        await host.grow(2)
        assert len(await maker.store.blob_roots("deltas")) == kept + 2
        assert looks.told()["bytes_max"] is None

    trio.run(run)
    assert verify_chain(maker.chain_directory, FACTS).problems == []


@pytest.mark.parametrize("later", ["more", "none"])
def test_another_bound_counts_while_states_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """Nothing goes that has room by now."""
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        host = Host(maker, None)
        await host.grow(8)
        looks, deltas = host.snapshots.quota, len(await maker.store.blob_roots("deltas"))
        held = looks.standing.bytes
        bounds = {"more": 2 * held, "none": None}
        bound: list[int | None] = [held]
        looks.bytes_max_now = lambda: bound[0]

        async def looked_at_slowly(chain: ChainStore) -> Held:
            found = await held_by(chain)
            bound[0] = bounds[later]
            looks.told()  # somebody asks for the status just then
            return found

        monkeypatch.setattr(quota, "held_by", looked_at_slowly)
        await looks.look()
        assert len(await maker.store.blob_roots("deltas")) == deltas
        assert looks.standing.level is Level.ROOM

    trio.run(run)
    assert verify_chain(maker.chain_directory, FACTS).problems == []


@pytest.mark.parametrize("bounded", [False, True])
def test_states_stay_out_of_packs_of_proofs_once_there_is_a_bound(
    tmp_path: Path, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each that goes would have packs of proofs written anew."""
    monkeypatch.setattr(packing, "LOOSE_FILES_MAX", 1)
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        host = Host(maker, None)
        await host.grow(2)
        if bounded:
            host.snapshots.quota.bytes_max_now = lambda: 10**9
            await host.snapshots.quota.look()
        await host.snapshots.packing.run()
        assert await maker.store.packed_count("vertices", ()) == 3
        assert await maker.store.packed_count("deltas", ()) == (0 if bounded else 2)

    trio.run(run)


def test_old_certificates_go_only_where_the_history_is_pruned(tmp_path: Path) -> None:
    kept = []
    for light in (False, True):
        maker = ChainMaker(tmp_path / str(light))

        async def run(maker: ChainMaker = maker, light: bool = light) -> None:
            await maker.open()
            await Host(maker, None).grow(9)
            await Host(maker, 2**15, light).grow(1)
            kept.append(len(await maker.store.record_names("certificates")))

        trio.run(run)
        assert verify_chain(maker.chain_directory, FACTS).problems == []
    archive, pruned = kept
    assert pruned < archive == 20


@pytest.mark.parametrize("rots", [False, True])
def test_what_a_disk_has_lost_of_the_newest_snapshot_keeps_the_one_before(
    tmp_path: Path, rots: bool
) -> None:
    maker = make_chain(tmp_path, 6)

    async def run() -> None:
        await maker.open()
        newest = await maker.chain.newest()
        manifests = await maker.chain.snapshot(newest)
        assert manifests is not None
        name = manifests[0].digests[0].hex()
        if rots:
            payload = await maker.store.get_record("chunks", name)
            assert payload is not None
            await maker.store.put_record("chunks", name, bytes([payload[0] ^ 1]) + payload[1:])
        else:
            await maker.store.delete_record("chunks", name)
        host = Host(maker, 2**14)
        await host.snapshots.quota.look()
        below_it = await maker.chain.vertex(newest.parents[0])
        assert below_it is not None
        before = await maker.chain.vertex(below_it.parents[0])
        assert before is not None
        assert await maker.chain.snapshot(before) is not None
        assert await maker.store.blob_manifest("deltas", newest.delta_root) is not None

    trio.run(run)


@pytest.mark.parametrize("height", [3, 4])
def test_what_a_disk_has_lost_of_old_states_keeps_no_others(tmp_path: Path, height: int) -> None:
    """Neither a damaged manifest, nor a delta that is gone from among others."""
    maker = make_chain(tmp_path, 6)

    async def run() -> None:
        await maker.open()
        vertex_id = await maker.chain.heights.at(height)
        assert vertex_id is not None
        vertex = await maker.chain.vertex(vertex_id)
        assert vertex is not None
        await maker.store.delete_blob("deltas", vertex.delta_root)
        if height % SNAPSHOT_EVERY == 0:
            await maker.store.put_record("manifests", vertex.model_root.hex(), b"rot")
        host = Host(maker, 2**14)
        await host.snapshots.quota.look()
        assert host.names() == ["storage_near", "storage_let_go", "storage_over"]
        assert len(await maker.store.blob_roots("deltas")) == 0
        assert await maker.chain.snapshot(maker.newest) is not None

    trio.run(run)


@pytest.mark.parametrize("loses", ["damaged", "missing"])
def test_a_vertex_that_cannot_be_read_is_gone_round_and_told_of_once(
    tmp_path: Path, loses: str
) -> None:
    maker = make_chain(tmp_path, 9)

    async def run() -> None:
        await maker.open()
        vertex_id = await maker.chain.heights.at(3)
        assert vertex_id is not None
        path = maker.chain_directory / "vertices" / vertex_id.hex()
        good = path.read_bytes()
        before = {*await maker.store.blob_roots("deltas")}
        own = (await vertex_at(maker, 3)).delta_root
        path.unlink() if loses == "missing" else path.write_bytes(b"rot")
        host = Host(maker, 2**14)
        await host.snapshots.quota.look()
        host.snapshots.quota.bytes_max_now = lambda: 2**14 + 1
        await host.snapshots.quota.look()
        (told,) = [e["detail"] for e in host.told if e["name"] == "record_damaged"]
        assert f"vertices/{vertex_id.hex()} is {loses}" in told
        assert "storage_let_go" in host.names()
        assert "storage_failed" not in host.names()
        left = {*await maker.store.blob_roots("deltas")}
        newest = await vertex_at(maker, 9)
        assert left == {own, newest.delta_root}  # above it what is needed, of its own what is known
        assert left < before
        assert await maker.chain.snapshot(await vertex_at(maker, 8)) is not None
        path.write_bytes(good)
        host.snapshots.quota.bytes_max_now = lambda: 2**14
        await host.snapshots.quota.look()
        assert {*await maker.store.blob_roots("deltas")} == {newest.delta_root}

    trio.run(run)
    assert verify_chain(maker.chain_directory, FACTS).problems == []


def test_nothing_goes_that_a_vertex_which_cannot_be_read_may_need(tmp_path: Path) -> None:
    """It may stand on the same delta, or share chunks with a state that would go."""
    maker = make_chain(tmp_path, 6)

    async def run() -> None:
        await maker.open()
        vertex_id = await maker.chain.heights.at(5)
        assert vertex_id is not None
        (maker.chain_directory / "vertices" / vertex_id.hex()).write_bytes(b"rot")
        # below the states of heights 2 and 4 it may need something, below that of 6 it does not
        with pytest.raises(StorageFailed, match="before it is mended"):
            await prune(maker.chain, Retention(vertices_restorable=2))
        assert len(await maker.store.blob_roots("deltas")) == 6
        assert await prune(maker.chain, Retention(vertices_restorable=1)) > 0

    trio.run(run)


@pytest.mark.parametrize("rots", [False, True])
def test_a_bound_lets_no_state_go_from_below_what_cannot_be_read(
    tmp_path: Path, rots: bool
) -> None:
    """Else of it what is needed would be anybody's guess: more goes, up to a state above it."""
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        await Host(maker, None).grow(9)
        roots = [(await vertex_at(maker, height)).delta_root for height in range(1, 10)]
        vertex_id = await maker.chain.heights.at(7)
        assert vertex_id is not None
        if rots:
            (maker.chain_directory / "vertices" / vertex_id.hex()).write_bytes(b"rot")
        host = Host(maker, bytes_under(maker) * 100 // 95 - 1)  # as little as can be
        await host.snapshots.quota.look()
        assert "storage_let_go" in host.names()
        left = {*await maker.store.blob_roots("deltas")}
        if rots:
            assert left == {roots[6], roots[8]}
        else:
            assert left >= {*roots[6:]}

    trio.run(run)


def test_it_goes_on_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """States share chunks, and then free less than they take."""
    maker = make_chain(tmp_path, 6)

    def too_much(held: Held) -> dict[int, int]:
        return dict.fromkeys(held.snapshots, 10**9)

    async def run() -> None:
        await maker.open()
        monkeypatch.setattr(Held, "snapshot_bytes", too_much)
        host = Host(maker, 2**14)
        await host.snapshots.quota.look()
        assert host.names().count("storage_let_go") == 1
        assert len(await maker.store.blob_roots("deltas")) == 0

    trio.run(run)


def test_whoever_is_far_behind_takes_no_more_than_there_is_room_for() -> None:
    assert within_bytes(Retention(256), 10, 80, 8) == Retention(256)
    bound = Retention(bytes_max=4000)
    assert within_bytes(bound, 10, 80, 8).vertices_restorable == 100  # of 20 bytes, in a half
    assert within_bytes(Retention(50, bytes_max=4000), 10, 80, 8).vertices_restorable == 50
    assert within_bytes(bound, 10**6, 80, 8).vertices_restorable == 8  # or no state is below it


def test_a_disk_that_fails_is_told_of_once_and_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = make_chain(tmp_path, 6)
    tries = 0

    async def fails(names: object) -> None:
        nonlocal tries
        tries += 1
        raise StorageFailed("no space left on device")

    async def run() -> None:
        await maker.open()
        host = Host(maker, 2**14)
        monkeypatch.setattr(maker.chain.groups, "drop", fails)
        for _ in range(2 * quota.PAUSE_ROUNDS):
            await host.snapshots.quota.look()
        assert host.names().count("storage_failed") == 1
        assert tries == 2
        looks, bound = host.snapshots.quota, [10**9]
        looks.bytes_max_now = lambda: bound[0]
        await looks.look()  # there is nothing to let go of
        bound[0] = 2**14
        await looks.look()
        assert host.names().count("storage_failed") == 2
        assert tries == 3

    trio.run(run)


def test_the_tally_is_what_lies_there_whatever_was_done(tmp_path: Path) -> None:
    """Packed, merged, deleted, put anew: no walk tells another number."""
    maker = ChainMaker(tmp_path)

    async def run() -> None:
        await maker.open()
        for store in (maker.store, maker.work):
            store.directory.sweep()  # from here on it is kept
        host = Host(maker, None)
        for _ in range(6):
            await host.grow(2)
            await maker.chain.pack(("vertices", "blocks", "certificates", "deltas"), 1)
        await maker.store.merge_packs()
        newest = await maker.chain.newest()
        await maker.store.delete_record("vertices", newest.vertex_id.hex())
        await maker.store.settle(["vertices"])
        await maker.store.put_record("vertices", newest.vertex_id.hex(), newest.encode())
        assert maker.store.tally.total() + maker.work.tally.total() == bytes_under(maker)

    trio.run(run)


def test_the_floor_is_the_oldest_snapshot_that_frees_enough() -> None:
    deltas, snapshots = dict.fromkeys(range(1, 21), 1), {8: 10, 16: 10, 20: 10}
    assert floor_for(5, deltas, snapshots, snapshots) == 8
    assert floor_for(9, deltas, snapshots, snapshots) == 16
    assert floor_for(10**6, deltas, snapshots, snapshots) == 20
    assert floor_for(10**6, deltas, snapshots, [8, 16]) == 16
    assert floor_for(1, deltas, {0: 10}, [0]) is None
    assert below(8, deltas, snapshots) == Prunable(tuple(range(1, 9)), ())
    assert below(16, deltas, snapshots) == Prunable(tuple(range(1, 17)), (8,))


def test_room_for_what_nobody_here_needs_is_reckoned_with_a_rounds_own(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 2)

    async def run() -> None:
        await maker.open()
        looks = Host(maker, 1).snapshots.quota
        looks.standing = replace(looks.standing, chain_bytes=500, work_bytes=300)
        looks.retention = Retention(None, bytes_max=1000)
        assert looks.room_for(99)
        assert not looks.room_for(100)  # nine tenths are near the bound

    trio.run(run)
