"""A folder that is written whole or not at all, and touches nothing beside it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from daa_node.checkpoints.beside import INSIDE, PREFIX, room_beside, temporary_room
from daa_node.checkpoints.model_folder import whole_folder
from daa_node.errors import UserError


def test_it_appears_whole_and_what_lies_beside_it_stays(tmp_path: Path) -> None:
    other = tmp_path / "out.part"
    other.mkdir()
    (other / "mine").write_text("kept")
    with whole_folder(tmp_path / "out") as folder:
        assert not (tmp_path / "out").exists()
        (folder / "weights").write_text("w")
    assert (tmp_path / "out" / "weights").read_text() == "w"
    assert (tmp_path / "out").stat().st_mode == other.stat().st_mode
    assert (other / "mine").read_text() == "kept"
    assert {path.name for path in tmp_path.iterdir()} == {"out", "out.part"}


def test_what_a_killed_process_has_left_goes_and_whose_process_lives_stays(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}left"
    (left / INSIDE).mkdir(parents=True)
    (left / INSIDE / "weights").write_bytes(bytes(1000))
    (tmp_path / f"{PREFIX}just begun").mkdir()
    with room_beside(tmp_path / "one") as one, room_beside(tmp_path / "two") as two:
        assert not left.exists()
        assert set(tmp_path.iterdir()) == {one.parent, two.parent}
        assert list(one.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_what_another_process_is_about_to_make_is_left_to_it(tmp_path: Path) -> None:
    begins = "import sys; from pathlib import Path; "
    begins += "from daa_node.checkpoints.beside import room_beside\n"
    begins += "with room_beside(Path(sys.argv[1])): print('begun', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", begins, str(tmp_path / "out")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "begun\n"
        (room,) = tmp_path.iterdir()
        with room_beside(tmp_path / "ours"):
            assert room.is_dir()
        other.kill()  # at any moment, with no chance to tidy up
    assert room.is_dir()
    with room_beside(tmp_path / "ours"):
        assert not room.exists()


def test_what_others_give_a_rooms_name_stays(tmp_path: Path) -> None:
    """Whoever may write there may rename a folder of ours, and so may whoever did it since."""
    photos = tmp_path / f"{PREFIX}photos"
    (photos / INSIDE).mkdir(parents=True)
    (photos / "summer").touch()
    links = tmp_path / f"{PREFIX}links"
    links.mkdir()
    (links / INSIDE).symlink_to(photos)
    (tmp_path / f"{PREFIX}link").symlink_to(photos)
    os.mkfifo(tmp_path / f"{PREFIX}pipe")
    with room_beside(tmp_path / "out") as room:
        room.parent.rename(tmp_path / "away")
        photos.rename(room.parent)
        photos = room.parent
    assert (photos / "summer").exists()
    assert (photos / INSIDE).exists()
    assert not (tmp_path / "away" / INSIDE).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_room_stays(tmp_path: Path) -> None:
    theirs = tmp_path / f"{PREFIX}theirs"
    (theirs / INSIDE).mkdir(parents=True)
    os.chown(theirs, 65534, 65534)
    with room_beside(tmp_path / "out"):
        pass
    assert (theirs / INSIDE).exists()


def test_temporary_files_without_room_are_told_with_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_room() as room:
        assert room.parent.parent == tmp_path
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(UserError, match=r"gone.*: No such file .* Set TMPDIR"), temporary_room():
        pass


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "full").touch()
    with pytest.raises(UserError, match="cannot write"), whole_folder(tmp_path / "out") as folder:
        (folder / "weights").write_text("w")
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
