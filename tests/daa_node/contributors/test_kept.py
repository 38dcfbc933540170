"""Health records outlive a restart, and no bytes on the disk keep a node from starting."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import NodeId
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.contributors.kept import (
    BYTES_MAX,
    KIND,
    NAME,
    SAVE_EVERY_S,
    VERSION,
    KeptHealth,
    decoded,
    encoded,
)
from daa_node.contributors.records import AUTHORS_MAX
from daa_node.contributors.score import ROUNDS_KEPT, Level, Measure
from daa_node.errors import StorageFailed
from daa_node.spot_checks.findings import Finding
from tests.daa_node.agreement.memory_disk import Disk, MemoryStore
from tests.daa_node.contributors.test_records import ALL_DONE, LATE, ME, OTHER, THIRD, Bench


def kept(store: Any, bench: Bench) -> KeptHealth:
    return KeptHealth(bench.records, store, bench.log)


async def recalled(store: Any) -> Bench:
    bench = Bench()
    await kept(store, bench).load()
    return bench


def with_history() -> Bench:
    bench = Bench()
    bench.rounds(9, ALL_DONE)
    bench.records.note_finding(OTHER, Finding.DIFFERS)
    bench.records.note_answer(OTHER, 3.0, True)
    bench.rounds(9, LATE)
    bench.excluded[THIRD] = "convicted"
    bench.rounds(2, ALL_DONE, THIRD)
    return bench


async def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    store, before = DiskBlobStore(tmp_path / "work"), with_history()
    await kept(store, before).save()
    after = await recalled(store)
    for node in (OTHER, THIRD):
        assert after.records.told_of(node) == before.records.told_of(node)
        assert after.records.level_of(node) is before.records.level_of(node)
    assert after.records.level_of(THIRD) is Level.EXCLUDED
    assert after.records.newest_round == before.records.newest_round
    assert encoded(after.records) == encoded(before.records)


async def test_it_is_saved_every_while_and_only_what_is_new(autojump_clock: object) -> None:
    class Counting(MemoryStore):
        puts = 0

        async def put_record(self, *args: Any, **kwargs: Any) -> None:
            self.puts += 1
            await super().put_record(*args, **kwargs)

    store, bench = Counting(Disk()), with_history()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept(store, bench).run)
        await trio.sleep(4.5 * SAVE_EVERY_S)
        assert store.puts == 1
        bench.rounds(1, ALL_DONE)
        await trio.sleep(SAVE_EVERY_S)
        assert store.puts == 2
        again = Bench()
        saved = kept(store, again)
        await saved.load()
        await saved.save()
        assert store.puts == 2
        nursery.cancel_scope.cancel()


async def test_what_was_never_saved_is_no_fault() -> None:
    bench = await recalled(MemoryStore(Disk()))
    assert bench.log.tail() == []


@pytest.mark.parametrize("cut", range(0, 400, 7))
async def test_a_damaged_file_costs_the_records_and_is_told(cut: int) -> None:
    store = MemoryStore(Disk())
    await store.put_record(KIND, NAME, encoded(with_history().records)[:cut])
    bench = await recalled(store)
    assert [event["name"] for event in bench.log.tail()] == ["storage_failed"]
    assert bench.records.told_of(OTHER) is None


async def test_a_disk_that_fails_costs_no_node() -> None:
    class Broken(MemoryStore):
        async def get_record(self, kind: str, name: str) -> bytes | None:
            raise StorageFailed("no disk")

        async def put_record(self, *args: Any, **kwargs: Any) -> None:
            raise StorageFailed("no disk")

    bench = await recalled(Broken(Disk()))
    bench.rounds(1, ALL_DONE)
    await kept(Broken(Disk()), bench).save()
    assert len(bench.log.tail()) == 2


def row(**changes: Any) -> list[canonical.Value]:
    fields: dict[str, canonical.Value] = {
        "node": OTHER,
        "level": "low",
        "since": 3,
        "why": None,
        "histories": [b""] * len(Measure),
    }
    return list({**fields, **changes}.values())


BAD_ROWS: Sequence[canonical.Value] = [
    7,
    [],
    row(node=b"short"),
    row(level="emperor"),
    row(since="3"),
    row(why=3),
    row(histories=[b""]),
    row(histories=[b"odd"] * len(Measure)),
    row(histories=[7] * len(Measure)),
    row(histories=[bytes(8 * (ROUNDS_KEPT + 1))] * len(Measure)),
    row(histories=[b"\0\0\0\0\xe9\x03\0\0"] * len(Measure)),
    row(histories=[b"\x0a\0\0\0\0\0\0\0"] * len(Measure)),
]


@pytest.mark.parametrize("bad", BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_no_record_of_another_form_is_taken(bad: canonical.Value) -> None:
    assert len(decoded(canonical.encode([VERSION, 9, [row()]]))[1]) == 1
    with pytest.raises(NotCanonical):
        decoded(canonical.encode([VERSION, 9, [row(), bad]]))


@pytest.mark.parametrize("bad", [[VERSION + 1, 9, []], [VERSION, "9", []], [], 7])
def test_no_file_of_another_version_is_taken(bad: canonical.Value) -> None:
    with pytest.raises(NotCanonical):
        decoded(canonical.encode(bad))


@given(st.binary(max_size=300))
def test_any_bytes_are_records_or_none(payload: bytes) -> None:
    try:
        decoded(payload)
    except NotCanonical:
        return


def test_the_largest_file_that_there_can_be_is_read() -> None:
    bench = Bench()
    everything = dict.fromkeys(Measure, 1.0)
    nodes = [NodeId((1_000 + at).to_bytes(32)) for at in range(AUTHORS_MAX)]
    bench.excluded |= dict.fromkeys(nodes, "it stands convicted by evidence in a set")
    for number in range(2**32 - ROUNDS_KEPT, 2**32):
        bench.records.note_round(number, {ME: everything, **dict.fromkeys(nodes, everything)})
    payload = encoded(bench.records)
    assert 0.9 * BYTES_MAX < len(payload) <= BYTES_MAX
    assert len(decoded(payload)[1]) == AUTHORS_MAX
