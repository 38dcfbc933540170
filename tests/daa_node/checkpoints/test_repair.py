"""What the daily reading finds damaged or lost comes anew from others, and from no liar."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from daa_consensus.bft.messages import encode_certificate
from daa_dag.ids import NodeId
from daa_dag.retention import Retention
from daa_node.checkpoints import found_damage, repair, scrub
from daa_node.checkpoints.layout import KINDS
from daa_node.checkpoints.records import asked_record
from daa_node.checkpoints.repair import Repair
from daa_node.checkpoints.scrub import Scrub
from daa_node.checkpoints.snapshot_files import snapshot_names
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import PeerFault, StorageFailed
from daa_node.observability.events import EventLog
from tests.daa_node.checkpoints.filling_disk import filling
from tests.daa_node.checkpoints.lenders import lent_by
from tests.daa_node.checkpoints.little_chain import (
    FACTS,
    KEYS,
    SNAPSHOT_EVERY,
    ChainMaker,
    certificate_of,
    files_under,
    make_chain,
    put_blob,
    vertex_at,
)

ROUNDS = 7


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "BYTES_PER_S", 10**12)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> ChainMaker:
    """A member whose chain is whole."""
    return make_chain(tmp_path_factory.mktemp("others"), ROUNDS)


@pytest.fixture
def ours(others: ChainMaker, tmp_path: Path) -> ChainMaker:
    """A copy, whose disk will lose something."""
    shutil.copytree(others.directory, tmp_path / "ours")
    return ChainMaker(tmp_path / "ours")


class Passes:
    """Readings of one chain, with others within reach."""

    def __init__(self, maker: ChainMaker, members: Mapping[str, ChainMaker]) -> None:
        self.maker = maker
        self.members = members
        self.told: list[tuple[str, str]] = []
        self.faults: list[tuple[NodeId, str]] = []

    async def run(self, count: int = 1) -> list[str]:
        """Found by the last of so many, and not mended."""
        log = EventLog(
            lambda: 0, lambda event: self.told.append((event["name"], event.get("detail", "")))
        )
        reading = Scrub(self.maker.chain, log)
        found: list[str] = []
        async with lent_by(self.members, self.faults) as lenders:
            reading.repair = Repair(self.maker.chain, lenders)
            for _ in range(count):
                found = await reading.once()
        return found

    def named(self, event: str) -> list[str]:
        return [detail for name, detail in self.told if name == event]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def contents(maker: ChainMaker) -> dict[str, bytes]:
    root = maker.chain_directory
    return {
        str(path.relative_to(root)): path.read_bytes()
        for kind in KINDS
        for path in files_under(root / kind)
    }


@pytest.mark.parametrize("loses", [cut_short, Path.unlink])
def test_what_is_damaged_or_lost_is_fetched_and_put_in_place(
    others: ChainMaker, ours: ChainMaker, loses: object
) -> None:
    whole = contents(others)

    async def run() -> None:
        await ours.open()
        passes = Passes(ours, {"others": others})
        doomed = set()
        for kind in KINDS:
            files = files_under(ours.chain_directory / kind)
            of_kind = [path for path in files if kind != "certificates" or path.suffix == ".exec"]
            if kind == "manifests" and loses is not cut_short:
                continue  # a state without a manifest is one that was let go
            doomed.add(of_kind[-1] if kind == "deltas" else of_kind[1])
        finals = [p for p in files_under(ours.chain_directory) if p.suffix == ".final"]
        doomed.add(finals[2])
        for path in doomed:
            assert callable(loses)
            loses(path)
        left = await passes.run()
        assert left == [], passes.told
        damaged = passes.named("record_damaged")
        assert sorted(damaged) == sorted(passes.named("record_repaired"))
        assert passes.named("record_lost") == []

    trio.run(run)
    assert verify_chain(ours.chain_directory, FACTS).problems == []
    left_loose = contents(ours)
    assert left_loose == {name: whole[name] for name in left_loose}
    again = ChainMaker(ours.directory)
    trio.run(again.open)  # a start finds all that it counts
    assert trio.run(again.chain.newest) == others.newest


def rot(pack: Path, payload: bytes) -> None:
    """A bit of this record turns in the pack that holds it."""
    content = pack.read_bytes()
    at = content.index(payload) + len(payload) // 2
    pack.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def test_a_record_that_rots_in_its_pack_is_replaced_there(
    others: ChainMaker, ours: ChainMaker
) -> None:
    """Packs lose the damaged one, take the good one, and the next start finds what it counts."""

    async def run() -> None:
        await ours.open()
        await ours.chain.pack(KINDS, 1)
        (pack,) = files_under(ours.chain_directory / "packs")
        vertex_id = await ours.chain.heights.at(2)
        assert vertex_id is not None
        vertex = await others.chain.vertex(vertex_id)
        assert vertex is not None
        names = [
            ("certificates", f"{vertex_id.hex()}.exec"),
            ("vertices", vertex_id.hex()),
            ("deltas", vertex.delta_root.hex()),
        ]
        names.append(("blocks", vertex.decided_block.hex()))
        finals = await others.store.record_names("certificates")
        names.append(("certificates", next(name for name in finals if name.endswith("final"))))
        for kind, name in names:
            payload = await others.store.get_record(kind, name)
            assert payload is not None
            rot(pack, payload)
        passes = Passes(ours, {"others": others})
        assert await passes.run() == []
        assert len(passes.named("record_repaired")) == len(names)
        for kind, name in names:
            good = await others.store.get_record(kind, name)
            assert await ours.store.get_record(kind, name) == good
        assert not files_under(ours.chain_directory / "certificates")  # all of it is packed again

    trio.run(run)
    assert verify_chain(ours.chain_directory, FACTS).problems == []
    again = ChainMaker(ours.directory)
    read = list[str]()
    record = again.store.get_record

    async def noting(kind: str, name: str) -> bytes | None:
        read.append(kind)
        return await record(kind, name)

    again.store.get_record = noting  # type: ignore[method-assign]
    trio.run(again.open)
    assert read.count("certificates") < 3, "a start with a summary reads no old certificate"


@pytest.mark.parametrize("height", [1, 3])
def test_the_manifest_of_a_delta_that_rots_in_its_pack_is_mended(
    others: ChainMaker, ours: ChainMaker, height: int
) -> None:
    """And what lies above it is read all the same, even where nobody has a good one."""

    async def run() -> None:
        await ours.open()
        vertex_id = await ours.chain.heights.at(height)
        assert vertex_id is not None
        vertex = await ours.chain.vertex(vertex_id)
        assert vertex is not None
        await ours.chain.pack(KINDS, 1)
        (pack,) = files_under(ours.chain_directory / "packs")
        for kind, name in (("manifests", vertex.delta_root), ("vertices", others.newest.vertex_id)):
            payload = await others.store.get_record(kind, name.hex())
            assert payload is not None
            rot(pack, payload)
        again = ChainMaker(ours.directory)  # nothing of it is in memory
        await again.open()
        alone = Passes(again, {"away": others})
        assert len(await alone.run()) == 2
        passes = Passes(again, {"others": others})
        assert await passes.run() == []
        assert len(passes.named("record_repaired")) == 2

    trio.run(run)
    assert verify_chain(ours.chain_directory, FACTS).problems == []


@pytest.mark.parametrize("what", ["manifest", "delta", "vertex"])
def test_whenever_a_process_dies_a_damaged_file_or_its_mended_one_is_there(
    others: ChainMaker, ours: ChainMaker, what: str
) -> None:
    """A state whose manifest is gone is one that was let go: nobody would look for it again."""
    vertex = trio.run(vertex_at, others, ROUNDS - ROUNDS % SNAPSHOT_EVERY)
    root = vertex.model_root if what == "manifest" else vertex.delta_root
    kind = {"manifest": "manifests", "delta": "deltas", "vertex": "vertices"}[what]
    name = vertex.vertex_id.hex() if what == "vertex" else root.hex()

    async def yes() -> bool:
        return True

    async def killed_after(changes: int) -> bool:
        """Whether it was mended before that; a start looks at what is left."""
        maker = ChainMaker(ours.directory.parent / f"{changes}")
        shutil.copytree(ours.directory, maker.directory)
        await maker.open()
        good = await maker.store.get_record(kind, name)
        assert good is not None
        cut_short(maker.chain_directory / kind / name)
        chain = filling(maker, changes)
        is_mended = False
        async with lent_by({"others": others}, []) as lenders:
            mends = Repair(chain, lenders)
            with suppress(StorageFailed):
                if what == "manifest":
                    is_mended = await mends.manifest(root)
                elif what == "delta":
                    is_mended = await mends.delta(root, yes)
                else:
                    is_mended = await mends.vertex(vertex.vertex_id)
        again = ChainMaker(maker.directory)
        assert await again.store.has_record(kind, name), f"gone after {changes} changes"
        if is_mended:
            assert await again.store.get_record(kind, name) == good
        return is_mended

    async def run() -> None:
        await ours.open()
        ended = [await killed_after(changes) for changes in range(9)]
        assert not ended[0]
        assert ended[-1]

    trio.run(run)


def test_a_liar_is_blamed_and_the_next_one_asked(others: ChainMaker, ours: ChainMaker) -> None:
    async def run() -> None:
        await ours.open()
        for kind in ("blocks", "vertices", "certificates"):
            files = files_under(ours.chain_directory / kind)
            cut_short(next(path for path in files if path.suffix != ".final"))
        passes = Passes(ours, {"away": others, "liar": others, "others": others})
        assert await passes.run() == []
        assert [reason for _, reason in passes.faults] == ["bad_record"]  # then the good one

    trio.run(run)
    assert verify_chain(ours.chain_directory, FACTS).problems == []


def test_a_certificate_of_too_few_is_none(others: ChainMaker, ours: ChainMaker) -> None:
    """Whoever answers may have made it up: its signatures are judged."""

    async def run() -> None:
        await ours.open()
        vertex_id = await ours.chain.heights.at(2)
        assert vertex_id is not None
        good = await others.chain.exec_certificate(vertex_id)
        assert good is not None
        forged = ChainMaker(ours.directory.parent / "forged")
        shutil.copytree(others.directory, forged.directory)
        few = encode_certificate(certificate_of(good.statement, KEYS[:2]))
        await forged.store.put_record("certificates", f"{vertex_id.hex()}.exec", few)
        await ours.store.delete_record("certificates", f"{vertex_id.hex()}.exec")
        passes = Passes(ours, {"forger": forged})
        assert len(await passes.run()) == 1
        assert len(passes.faults) == 1
        assert await Passes(ours, {"forger": forged, "others": others}).run() == []

    trio.run(run)


def test_what_nobody_has_is_told_of_once(others: ChainMaker, ours: ChainMaker) -> None:
    async def run() -> None:
        await ours.open()
        cut_short(files_under(ours.chain_directory / "vertices")[1])
        passes = Passes(ours, {"away": others})
        assert len(await passes.run(3)) == 1
        assert len(passes.named("record_damaged")) == 3
        assert len(passes.named("record_lost")) == 1

    trio.run(run)


def test_what_nobody_has_is_in_the_way_of_nothing(
    others: ChainMaker, ours: ChainMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass asks so often in vain, and the next one goes on above that."""
    monkeypatch.setattr(found_damage, "FAILED_MAX", 1)

    async def run() -> None:
        await ours.open()
        poor = ChainMaker(ours.directory.parent / "poor")
        shutil.copytree(ours.directory, poor.directory)
        for height in (1, 3):
            vertex_id = await ours.chain.heights.at(height)
            assert vertex_id is not None
            cut_short(ours.chain_directory / "vertices" / vertex_id.hex())
            if height == 1:
                await poor.store.delete_record("vertices", vertex_id.hex())
        passes = Passes(ours, {"poor": poor})
        assert len(await passes.run(1)) == 2
        assert len(await passes.run(2)) == 1
        assert vertex_id is not None
        (mended,) = passes.named("record_repaired")
        assert vertex_id.hex() in mended

    trio.run(run)


def test_as_many_are_asked_as_it_takes(
    others: ChainMaker, ours: ChainMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the same few again: those that have a record may stand behind them."""
    monkeypatch.setattr(repair, "ASKED_MAX", 2)

    async def run() -> None:
        await ours.open()
        poor = ChainMaker(ours.directory.parent / "poor")
        shutil.copytree(ours.directory, poor.directory)
        for maker in (ours, poor):
            files_under(maker.chain_directory / "vertices")[1].unlink()
        members = {"away": others, "poor": poor, "others": others}
        passes = Passes(ours, members)
        assert await passes.run(2) == []
        assert len(passes.named("record_lost")) == 1

    trio.run(run)


def test_deltas_that_were_let_go_are_not_missed(others: ChainMaker, ours: ChainMaker) -> None:
    async def run() -> None:
        await ours.open()
        assert await prune(ours.chain, Retention(vertices_restorable=2)) > 0
        passes = Passes(ours, {"others": others})
        assert await passes.run() == []
        assert passes.told == [("chain_scrubbed", "")]

    trio.run(run)


def test_what_is_let_go_while_it_comes_is_not_put_back(
    others: ChainMaker, ours: ChainMaker
) -> None:
    """A large delta may take an hour; what lies below all that is kept is never looked at again."""

    async def run() -> None:
        await ours.open()
        vertex_id = await ours.chain.heights.at(2)
        assert vertex_id is not None
        vertex = await ours.chain.vertex(vertex_id)
        assert vertex is not None
        manifests = await ours.chain.snapshot(vertex)
        assert manifests is not None
        names = {f"deltas/{vertex.delta_root.hex()}", *snapshot_names([manifests])}
        await ours.chain.groups.drop(sorted(names))
        before = contents(ours)

        async def is_wanted() -> bool:
            return False

        async with lent_by({"others": others}, []) as lenders:
            mends = Repair(ours.chain, lenders)
            assert not await mends.delta(vertex.delta_root, is_wanted)
            assert not await mends.manifest(vertex.model_root)
            await mends.chunks(manifests[0], [0])
        assert contents(ours) == before
        assert await ours.work.blob_roots("repairs") == []

    trio.run(run)


def test_certificates_that_go_while_their_epoch_is_read_are_not_missed(ours: ChainMaker) -> None:
    """All of an epoch go in one write, and one after the other."""

    async def run() -> None:
        await ours.open()
        await ours.chain.look_up()
        names = []
        for height in (1, 2, 3):  # an epoch
            vertex_id = await ours.chain.heights.at(height)
            assert vertex_id is not None
            names.append(f"{vertex_id.hex()}.exec")
        for name in names[:2]:
            await ours.store.delete_record("certificates", name)
        groups = ours.chain.groups
        settle = groups.settle

        async def finish() -> None:
            await settle()
            await ours.store.delete_record("certificates", names[2])

        groups.settle = finish  # type: ignore[method-assign]
        assert await Passes(ours, {}).run() == []

    trio.run(run)


def test_what_a_killed_process_had_fetched_goes(others: ChainMaker, ours: ChainMaker) -> None:
    async def run() -> None:
        await ours.open()
        manifest = await ours.store.blob_manifest("deltas", others.newest.delta_root)
        assert manifest is not None
        payload = await others.store.view_blob("deltas", manifest.root)
        await put_blob(ours.work, "repairs", manifest, bytes(payload))
        assert await Passes(ours, {"others": others}).run() == []
        assert await ours.work.blob_roots("repairs") == []

    trio.run(run)


@pytest.mark.parametrize("body", [b"", b"x", b"\x00" * 70])
def test_what_is_no_name_of_a_record_is_refused(body: bytes) -> None:
    with pytest.raises(PeerFault, match="malformed"):
        asked_record(body)
