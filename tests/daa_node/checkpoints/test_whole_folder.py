"""A folder that is written whole or not at all, and touches nothing beside it."""

from pathlib import Path

import pytest

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


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "full").touch()
    with pytest.raises(UserError, match="cannot write"), whole_folder(tmp_path / "out") as folder:
        (folder / "weights").write_text("w")
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
