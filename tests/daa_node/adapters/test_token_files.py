"""Tokens of the API are made once, for their owner alone; whatever else lies there is refused."""

import stat
from pathlib import Path

import pytest

from daa_node.adapters.system_clock import SystemEntropy
from daa_node.adapters.token_files import ADMIN_NAME, READ_NAME, open_tokens
from daa_node.errors import StorageFailed, UserError


def test_they_are_made_once_differ_and_nobody_else_reads_them(tmp_path: Path) -> None:
    made = open_tokens(tmp_path, SystemEntropy())
    assert open_tokens(tmp_path, SystemEntropy()) == made
    assert made.read != made.admin
    for name, token in [(READ_NAME, made.read), (ADMIN_NAME, made.admin)]:
        path = tmp_path / name
        assert path.read_text() == f"{token}\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert token not in repr(made)
    assert sorted(path.name for path in tmp_path.iterdir()) == [ADMIN_NAME, READ_NAME]


def test_one_that_was_removed_is_drawn_anew(tmp_path: Path) -> None:
    first = open_tokens(tmp_path, SystemEntropy())
    (tmp_path / READ_NAME).unlink()
    (tmp_path / f"{READ_NAME}.new").write_text("of a start that was killed")
    second = open_tokens(tmp_path, SystemEntropy())
    assert (second.admin, second.read == first.read) == (first.admin, False)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_one_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    open_tokens(tmp_path, SystemEntropy())
    (tmp_path / READ_NAME).chmod(mode)
    with pytest.raises(UserError, match="others on this host may read .*api-read.token: remove it"):
        open_tokens(tmp_path, SystemEntropy())


@pytest.mark.parametrize("text", ["", "\n", "short\n", "0" * 64, "0" * 65 + "\n", "Z" * 64 + "\n"])
def test_what_is_no_token_is_refused_with_the_remedy(tmp_path: Path, text: str) -> None:
    path = tmp_path / READ_NAME
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(UserError, match="holds no token of 64 hex digits: remove it"):
        open_tokens(tmp_path, SystemEntropy())


def test_a_link_and_a_directory_are_no_token(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("0" * 64 + "\n")
    (tmp_path / READ_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="cannot read"):
        open_tokens(tmp_path, SystemEntropy())
    (tmp_path / READ_NAME).unlink()
    (tmp_path / READ_NAME).mkdir()
    with pytest.raises(UserError, match="is no file"):
        open_tokens(tmp_path, SystemEntropy())


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="cannot make"):
        open_tokens(tmp_path / "missing", SystemEntropy())


def test_one_that_is_the_other_too_is_refused(tmp_path: Path) -> None:
    open_tokens(tmp_path, SystemEntropy())
    (tmp_path / ADMIN_NAME).write_bytes((tmp_path / READ_NAME).read_bytes())
    with pytest.raises(UserError, match="hold the same token.*: remove both"):
        open_tokens(tmp_path, SystemEntropy())
