"""Where a node's dashboard is, and that its token is shown to its operator alone."""

import stat
from pathlib import Path
from typing import Any

import pytest

from daa_node.adapters.token_files import ADMIN_NAME, READ_NAME
from daa_node.cli import dashboard
from daa_node.cli.data_directory import DataDirectory
from daa_node.errors import UserError

TOKEN = "1a" * 32
OPEN: dict[str, Any] = {"url": "http://127.0.0.1:9180/", "failure": None}


@pytest.fixture
def node(tmp_path: Path) -> DataDirectory:
    for name, token in ((READ_NAME, TOKEN), (ADMIN_NAME, "2b" * 32)):
        path = tmp_path / name
        path.touch(0o600)
        path.write_text(f"{token}\n")
    return DataDirectory(tmp_path)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    built = tmp_path / "built"
    built.mkdir()
    (built / "index.html").write_text("<!doctype html>")
    return built


def test_the_address_has_the_token_that_reads_where_it_is_never_sent(
    node: DataDirectory, site: Path
) -> None:
    assert dashboard.address_of(node, OPEN, site) == f"http://127.0.0.1:9180/#token={TOKEN}"


@pytest.mark.parametrize(
    ("api", "words"),
    [
        (None, "has no dashboard: write `api: {listen: '127.0.0.1:9180'}`"),
        ({**OPEN, "url": None, "failure": "address already in use"}, "address already in use"),
        ({**OPEN, "url": None}, "ask again"),
    ],
)
def test_where_there_is_none_it_says_what_to_do(
    node: DataDirectory, site: Path, api: Any, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        dashboard.address_of(node, api, site)


def test_a_token_that_is_gone_and_a_page_that_was_not_built_are_told(
    node: DataDirectory, site: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="is not built: run `make dashboard`"):
        dashboard.address_of(node, OPEN, tmp_path / "nothing")
    (node.root / READ_NAME).unlink()
    with pytest.raises(UserError, match="makes it when it starts"):
        dashboard.address_of(node, OPEN, site)


def test_a_browser_is_given_a_file_that_nobody_else_reads(
    node: DataDirectory, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{opened}"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    way_in = node.root / dashboard.WAY_IN
    way_in.touch(0o644)  # whatever lay there
    address = dashboard.address_of(node, OPEN, site)
    dashboard.open_in_browser(node, address)
    assert stat.S_IMODE(way_in.stat().st_mode) == 0o600
    assert f'content="0; url={address}"' in way_in.read_text()
    assert '<meta name="referrer" content="no-referrer" />' in way_in.read_text()
    assert opened.read_text() == way_in.resolve().as_uri()


def test_without_a_screen_no_browser_takes_the_terminal(
    node: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    dashboard.open_in_browser(node, "http://127.0.0.1:9180/")
    assert not (node.root / dashboard.WAY_IN).exists()
