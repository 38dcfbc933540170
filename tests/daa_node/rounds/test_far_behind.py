"""Who needs no old deltas takes a whole state; and what comes of it is counted as it comes."""

from collections.abc import Sequence

import pytest

from daa_dag.chunking import Manifest, cut, manifest_of
from daa_dag.retention import Retention
from daa_node.rounds.catch_up import far_behind
from daa_node.rounds.counted_writer import CountedWriter
from tests.daa_node.checkpoints.little_chain import ChainMaker


class Writer:
    """Holds every second chunk already, as a killed process may leave it."""

    def __init__(self, manifest: Manifest) -> None:
        self.left = list(range(0, len(manifest.sizes), 2))

    def missing(self) -> list[int]:
        return list(self.left)

    async def write_chunk(self, index: int, payload: bytes) -> None:
        self.left.remove(index)

    async def write_chunks(self, chunks: object) -> None:
        for index, _ in list(chunks):  # type: ignore[call-overload]
            self.left.remove(index)

    async def read_into(self, indices: Sequence[int], target: memoryview) -> None:
        raise AssertionError("nobody passes on what is counted here")

    async def commit(self, durable: bool = True) -> None:
        assert not self.left


async def test_what_an_earlier_try_has_left_is_counted_first() -> None:
    payload = bytes(700_000)
    manifest = manifest_of(memoryview(payload), cut([len(payload)]))
    assert len(manifest.sizes) > 2
    told: list[int] = []
    writer = CountedWriter(Writer(manifest), manifest, told.append)
    first, *others = writer.missing()
    assert sum(told) == sum(manifest.sizes[1::2])
    await writer.write_chunk(first, payload[: manifest.sizes[first]])
    await writer.write_chunks([(i, payload[: manifest.sizes[i]]) for i in others])
    await writer.commit()
    assert sum(told) == len(payload)


@pytest.mark.parametrize(
    ("told", "kept", "far"),
    [(17, 32, True), (16, 32, False), (300, None, False), (300, 1000, True)],
)
async def test_who_has_nothing_yet_and_keeps_few_leaps_over_two_snapshots(
    told: int, kept: int | None, far: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    maker = ChainMaker(tmp_path_factory.mktemp("chain"))
    await maker.open()
    assert far_behind(lambda: told, lambda: Retention(kept), 8)(maker.newest) is far


@pytest.mark.parametrize(("behind", "far"), [(32, False), (33, True)])
async def test_who_was_away_leaps_over_more_than_it_keeps(
    behind: int, far: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    maker = ChainMaker(tmp_path_factory.mktemp("chain"))
    await maker.open()
    await maker.publish(await maker.make_round())
    height = maker.newest.height
    assert height > 0
    assert far_behind(lambda: height + behind, lambda: Retention(32), 8)(maker.newest) is far
