"""A chain's files, read by who trusts nobody: nothing is followed or read to its end."""

import os
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

from daa_node.checkpoints.chain_index import ChainIndex
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.layout import BLOCKS, NOTE, PUBLISHING, Group, encode_note
from daa_node.checkpoints.plain_files import Unreadable
from daa_node.packs.format import PACKS
from daa_node.wire.limits import MIB

NAME = f"{BLOCKS}/{'a' * 64}"


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    directory = tmp_path / "chain"
    (directory / BLOCKS).mkdir(parents=True)
    return directory


def test_no_link_is_followed_to_a_file_with_the_right_bytes(chain: Path, tmp_path: Path) -> None:
    """Also where a file became one since it was listed, and for the note of a write."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(encode_note([]))
    note = tmp_path / "work" / PUBLISHING / NOTE
    note.parent.mkdir(parents=True)
    for path in (chain / NAME, note):
        path.symlink_to(elsewhere)
    with pytest.raises(Unreadable, match="symbolic link"):
        ChainFiles(chain).read(NAME, MIB)
    strange = {problem.where: problem.what for problem in ChainFiles(chain).listing().strange}
    assert "symbolic link" in strange[f"../work/{PUBLISHING}/{NOTE}"]


def test_of_a_file_that_is_too_long_no_more_is_read_than_tells_so(chain: Path) -> None:
    (chain / NAME).touch()
    os.truncate(chain / NAME, 64 * MIB)  # takes no room on the disk, and all of it in memory
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match="longer than 100 bytes"):
            ChainFiles(chain).read(NAME, 100)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MIB


@pytest.mark.parametrize("where", [".", BLOCKS, PACKS])
@pytest.mark.parametrize(("name", "shown"), [(b"\x1b[2J\n", r"\x1b[2J\n"), (b"\xff", r"\udcff")])
def test_a_name_that_is_strange_does_nothing_to_the_terminal(
    chain: Path, where: str, name: bytes, shown: str
) -> None:
    """Nor does one that is no text end what would tell of it."""
    (chain / PACKS).mkdir()
    (chain / where / os.fsdecode(name)).touch()
    (problem,) = ChainFiles(chain).listing().strange
    assert (problem.where.isprintable(), shown in problem.where) == (True, True)
    with closing(ChainIndex(None)) as index:
        assert ChainFiles(chain).long_listing(index).strange == (problem,)


def test_a_note_of_a_group_without_files_is_damaged(chain: Path, tmp_path: Path) -> None:
    """No last file says whether such a group is there."""
    note = tmp_path / "work" / PUBLISHING / NOTE
    note.parent.mkdir(parents=True)
    note.write_bytes(encode_note([Group("add", ())]))
    (problem,) = ChainFiles(chain).listing().strange
    assert problem.where == f"../work/{PUBLISHING}/{NOTE}"
    note.write_bytes(encode_note([Group("drop", ())]))
    assert not ChainFiles(chain).listing().strange


# Root may enter any folder, but nobody looks at a path of more than 4095 bytes.


def deep(folder: Path, length: int) -> tuple[Path, int]:
    """A chain/ whose path is so long, and what it is opened as."""
    chain, handle = folder, os.open(folder, os.O_RDONLY)
    names = ["a" * 99] * ((4000 - len(os.fsencode(folder))) // 100)
    last = length - len(os.fsencode(folder)) - 100 * len(names) - len("//chain")
    for name in (*names, "a" * last, "chain"):
        os.mkdir(name, dir_fd=handle)
        within = os.open(name, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        chain, handle = chain / name, within
    assert len(os.fsencode(chain)) == length
    return chain, handle


@pytest.mark.parametrize("where", [".", BLOCKS])
def test_what_cannot_even_be_looked_at_is_named(tmp_path: Path, where: str) -> None:
    """As in a folder that nobody may enter."""
    chain, handle = deep(tmp_path, 4060)
    os.mkdir(BLOCKS, dir_fd=handle)
    os.mkdir(f"{where}/{'b' * 64}", dir_fd=handle)
    os.close(handle)
    (problem,) = ChainFiles(chain).listing().strange
    assert "cannot be read" in problem.what
    assert problem.where.endswith("b" * 64)
    with closing(ChainIndex(None)) as index:
        assert ChainFiles(chain).long_listing(index).strange == (problem,)


def test_packs_that_cannot_be_looked_at_hold_nothing(tmp_path: Path) -> None:
    chain, handle = deep(tmp_path, 4092)
    os.close(handle)
    with pytest.raises(Unreadable, match="is missing"):
        ChainFiles(chain).read("b", 100)
