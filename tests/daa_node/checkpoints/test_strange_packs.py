"""Packs that no daemon made: whoever hands over a directory may have written any bytes."""

from pathlib import Path

import pytest

from daa_node.checkpoints import packed_files, verify_windows
from daa_node.checkpoints.files import ChainFiles
from daa_node.packs.format import PACKS, SHELVES, Entry, Head, PackWriter, ReadAt, find, key_of
from tests.daa_node.checkpoints.little_chain import files_under, make_chain
from tests.daa_node.checkpoints.verified import in_memory, in_windows, named, verify, what_of


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    return make_chain(tmp_path, 2).chain_directory


def put_pack(chain: Path, key: bytes, payload: bytes, offset: int | None = None) -> str:
    """One that holds this record, or says that it lies at `offset`; its `kind/name`."""
    content = bytearray()
    writer = PackWriter(content.extend)
    writer._end = writer._end if offset is None else offset
    writer.add(key, payload)
    writer._end = len(content)
    name = writer.finish()
    (chain / PACKS).mkdir()
    (chain / PACKS / name).write_bytes(content)
    return f"{PACKS}/{name}"


@pytest.mark.parametrize("offset", [2**64 - 1, 2**63 - 1, 2**62])
def test_a_record_that_lies_nowhere_is_named(chain: Path, offset: int) -> None:
    """No file is as long as some of these numbers."""
    file = files_under(chain / "vertices")[0]
    name, key = str(file.relative_to(chain)), key_of("vertices", file.name)
    assert key is not None
    pack = put_pack(chain, key, file.read_bytes(), offset)
    assert "has gaps" in what_of(verify(chain), pack)
    file.unlink()
    for report in (in_memory(chain), in_windows(chain) or verify(chain)):
        assert f"damaged in {pack}" in what_of(report, name)
        assert pack in named(report)


def test_a_record_on_a_shelf_that_nobody_knows_is_named(chain: Path) -> None:
    """Who asks for records kind by kind does not come upon it."""
    pack = put_pack(chain, bytes([len(SHELVES)]) + bytes(32), b"hidden")
    report = in_windows(chain)
    assert report is not None
    assert report == in_memory(chain)
    assert named(report) == {pack}


def cut_into_packs(chain: Path) -> int:
    """Each file becomes a pack; how many there are."""
    files = files_under(chain)
    (chain / PACKS).mkdir()
    for path in files:
        key, content = key_of(path.parent.name, path.name), bytearray()
        assert key is not None
        writer = PackWriter(content.extend)
        writer.add(key, path.read_bytes())
        (chain / PACKS / writer.finish()).write_bytes(content)
        path.unlink()
    return len(files)


def test_of_very_many_packs_each_record_is_looked_for_in_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may cut a chain into tens of thousands: that must not take their square."""
    monkeypatch.setattr(packed_files, "SEARCHED_MAX", 8)
    monkeypatch.setattr(verify_windows, "WINDOW_BLOCKS", 4)
    looks = list[str]()

    def counted(head: Head, read: ReadAt, key: bytes) -> Entry | None:
        looks.append(head.name)
        return find(head, read, key)

    monkeypatch.setattr(packed_files, "find", counted)
    chain = make_chain(tmp_path, 9).chain_directory
    before = in_memory(chain)
    count = cut_into_packs(chain)
    assert count > 10 * packed_files.SEARCHED_MAX
    report = in_windows(chain)
    assert report is not None
    assert len(looks) < 10 * count
    monkeypatch.setattr(packed_files, "SEARCHED_MAX", 10**6)
    looks.clear()
    assert report == in_memory(chain) == before
    assert len(looks) < 10 * count
    monkeypatch.setattr(packed_files, "SEARCHED_MAX", 8)
    files = ChainFiles(chain)
    assert files.listing().shelf.heads
    assert files.packed_count("vertices", [f"vertices/{'ab' * 32}"]) == report.vertices
