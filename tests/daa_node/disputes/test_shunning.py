"""For how long whoever shows nothing is shunned, and what a restart knows of it."""

from typing import cast

import pytest

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import NodeId
from daa_node.disputes.shunning import (
    AUTHORS_MAX,
    BYTES_MAX,
    KIND,
    SHUNNED_ROUNDS,
    SHUNNED_ROUNDS_MAX,
    KeptShunning,
    Shunning,
)
from daa_node.observability.events import EventLog
from daa_node.seams import BlobStore
from tests.daa_node.agreement.memory_disk import Disk

ONE, OTHER = NodeId(b"1" * 32), NodeId(b"2" * 32)


def test_it_lasts_some_rounds_twice_as_many_each_time_and_no_more_than_the_most() -> None:
    shunning, now, lasted = Shunning(), 5, list[int]()
    for _ in range(9):
        shunning.shun(ONE, now)
        assert shunning.authors(now - 1) == set()
        until = shunning.until_of(ONE, now)
        assert until is not None
        assert shunning.authors(until - 1) == {ONE}
        assert shunning.authors(until) == set()
        lasted.append(until - now)
        now = until + 3
    assert lasted[:7] == [SHUNNED_ROUNDS * 2**time for time in range(7)]
    assert lasted[7:] == [SHUNNED_ROUNDS_MAX] * 2


def test_only_work_done_since_counts_again() -> None:
    shunning = Shunning()
    shunning.shun(ONE, 7)
    assert shunning.is_counted(ONE, 7)
    assert not shunning.is_counted(ONE, 8)
    assert not shunning.is_counted(OTHER, 7)


def test_who_was_shunned_the_longest_ago_makes_room() -> None:
    shunning = Shunning()
    names = [NodeId(number.to_bytes(32)) for number in range(AUTHORS_MAX)]
    for name in names:
        shunning.shun(name, 7)
    shunning.shun(names[0], 8)
    shunning.shun(ONE, 8)
    assert shunning.authors(8) == {*names, ONE} - {names[1]}
    assert len(shunning.encode()) <= BYTES_MAX


@pytest.mark.parametrize(
    "wrong",
    [
        canonical.encode(7),
        canonical.encode([[ONE, 7]]),
        canonical.encode([[ONE, 7, SHUNNED_ROUNDS_MAX + 1]]),
        canonical.encode([[ONE, 7, 0]]),
        canonical.encode([[ONE, -7, SHUNNED_ROUNDS]]),
        canonical.encode([[ONE[:5], 7, SHUNNED_ROUNDS]]),
        b"\xc1",
    ],
)
async def test_what_cannot_be_read_is_told_and_forgotten(wrong: bytes) -> None:
    with pytest.raises(NotCanonical):
        Shunning().restore(wrong)
    shunning, disk, log = Shunning(), Disk(), EventLog(lambda: 0)
    disk.work.records[KIND, KIND] = wrong
    await KeptShunning(shunning, cast(BlobStore, disk.work), log).load()
    assert shunning.authors(7) == set()
    assert "forgotten" in log.tail()[0]["detail"]


async def test_it_is_kept_once_it_has_changed_and_a_full_disk_is_told() -> None:
    shunning, disk, log = Shunning(), Disk(), EventLog(lambda: 0)
    kept = KeptShunning(shunning, cast(BlobStore, disk.work), log)
    await kept.load()
    await kept.save()
    assert disk.work.records == {}
    shunning.shun(ONE, 7)
    await kept.save()
    after = Shunning()
    await KeptShunning(after, cast(BlobStore, disk.work), log).load()
    assert after.until_of(ONE, 7) == 7 + SHUNNED_ROUNDS
    assert after.until_of(ONE, 6) is None  # of a round to come
    assert not log.tail()
    disk.refuses = {KIND}
    shunning.shun(OTHER, 7)
    await kept.save()
    assert "not saved" in log.tail()[0]["detail"]
