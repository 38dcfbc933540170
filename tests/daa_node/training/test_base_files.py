"""A base's folder without torch: which files count, and what is noticed of them while in use."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from daa_node.errors import UserError
from daa_node.training import base_files
from daa_node.training.base_config import FILES_MAX, BaseFolder
from daa_node.training.base_files import (
    CONFIG,
    INDEX,
    check_there,
    check_unchanged,
    digests_of,
    marks_of,
    opened,
    weights_files,
)


def folder_of(directory: Path, *names: str) -> Path:
    """A base in several files, each with its own name in it."""
    directory.mkdir(exist_ok=True)
    (directory / CONFIG).write_text("{}")
    weight_map = {f"tensor {at}": name for at, name in enumerate(names)}
    (directory / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    for name in names:
        (directory / name).write_text(name)
    return directory


def base_of(folder: Path) -> BaseFolder:
    return BaseFolder(path=folder, files=digests_of(folder))


def test_the_view_has_each_file_of_the_genesis_and_none_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["b.safetensors", "a.safetensors", "c.safetensors"]
    base = base_of(folder_of(tmp_path / "base", *names))
    (tmp_path / "base" / "d.safetensors").write_text("of another model")
    monkeypatch.chdir(tmp_path)  # a place of one's own may be said from here
    for path in (tmp_path / "base", Path("base")):
        with opened(base.model_copy(update={"path": path})) as view:
            assert [file.name for file in weights_files(view)] == sorted(names)
            assert {file.name for file in view.iterdir()} == {*names, CONFIG, INDEX}
            assert [(view / name).read_text() for name in names] == names


@pytest.mark.parametrize("name", [CONFIG, INDEX, "a.safetensors"])
def test_one_byte_of_any_file_that_differs_is_refused(tmp_path: Path, name: str) -> None:
    base = base_of(folder_of(tmp_path / "base", "a.safetensors"))
    with (tmp_path / "base" / name).open("a") as file:
        file.write(" ")
    assert base.files is not None
    check_there(base)  # it looks at no content
    refused = pytest.raises(UserError, match=f"{name}: .* the genesis names {base.files[name]}")
    with refused, opened(base):
        pass
    (tmp_path / "base" / name).unlink()
    with pytest.raises(UserError, match=f"{name}: cannot read .*{base.files[name]}"):
        check_there(base)


def test_a_base_has_so_many_files_as_a_genesis_may_name(tmp_path: Path) -> None:
    most = FILES_MAX - 2  # and the index, and config.json
    names = [f"{number}.safetensors" for number in range(most)]
    folder = folder_of(tmp_path / "base", *names)
    assert len(base_of(folder).files or ()) == FILES_MAX
    folder_of(folder, *names, "more.safetensors")
    with pytest.raises(UserError, match=f"it names {most + 1}, and not its files"):
        digests_of(folder)
    folder_of(folder)
    with pytest.raises(UserError, match="it names 0, and not its files"):
        digests_of(folder)


def test_an_index_longer_than_any_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path / "base", "a.safetensors")
    size_bytes = (folder / INDEX).stat().st_size
    monkeypatch.setattr(base_files, "INDEX_BYTES_MAX", size_bytes)
    digests_of(folder)
    monkeypatch.setattr(base_files, "INDEX_BYTES_MAX", size_bytes - 1)
    with pytest.raises(UserError, match=f"has more than {size_bytes - 1} bytes"):
        digests_of(folder)


def change_a_byte(file: Path) -> None:
    file.write_text("A.safetensors")


def lengthen_at_the_same_time(file: Path) -> None:
    written_ns = file.stat().st_mtime_ns
    with file.open("a") as written:
        written.write(" ")
    os.utime(file, ns=(written_ns, written_ns))


def replace(file: Path) -> None:
    file.with_name("new").write_text("another")
    file.with_name("new").rename(file)


@pytest.mark.parametrize("change", [change_a_byte, lengthen_at_the_same_time])
def test_a_file_that_is_written_to_while_it_is_mapped_is_named(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    base = base_of(folder_of(tmp_path / "base", "a.safetensors"))
    file = tmp_path / "base" / "a.safetensors"
    os.utime(file, ns=(1, 1))  # long ago: no two writes of one moment
    marks = marks_of(base)
    check_unchanged(marks)
    change(file)
    with pytest.raises(UserError, match=f"{file}: .* was written to while it was in use") as told:
        check_unchanged(marks)
    assert told.value.exit_code == 1


@pytest.mark.parametrize("change", [replace, Path.unlink])
def test_a_file_that_another_replaces_or_that_is_gone_stays_to_who_has_mapped_it(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    marks = marks_of(base_of(folder_of(tmp_path / "base", "a.safetensors")))
    assert len(marks) == 3
    change(tmp_path / "base" / "a.safetensors")
    check_unchanged(marks)


def test_what_has_no_place_here_has_no_marks(tmp_path: Path) -> None:
    base = base_of(folder_of(tmp_path / "base", "a.safetensors"))
    assert marks_of(None) == marks_of(base.model_copy(update={"path": None})) == {}
