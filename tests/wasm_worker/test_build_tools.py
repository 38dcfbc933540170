"""What is missing to build and test the page is told once, with what to install."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("make", "sh", "expr", "find", "getconf")  # that any make of ours needs


def told(tmp_path: Path, goal: str, **there: str) -> tuple[int, list[str]]:
    """Exit code of `make goal` and its words, where only `there` is installed beside TOOLS."""
    for tool in TOOLS:
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    for name, answer in there.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho {answer}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["make", "--silent", goal],
        cwd=ROOT,
        env={"PATH": str(tmp_path), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stderr.splitlines()
    return done.returncode, [line for line in lines if not line.startswith("make: ***")]


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ({}, "none here"),
        ({"node": "v20.20.2"}, "none here"),
        ({"node": "v18.19.0", "npm": "9"}, "v18.19.0"),
        ({"node": "v20.18.3", "npm": "9"}, "v20.18.3"),
        ({"node": "v22.11.0", "npm": "9"}, "v22.11.0"),
    ],
)
@pytest.mark.parametrize("goal", ["page-tools", "test-browser"])
def test_without_node_and_npm_one_error_says_which_are_wanted(
    tmp_path: Path, goal: str, there: dict[str, str], found: str
) -> None:
    code, words = told(tmp_path, goal, **there)
    assert code == 2
    assert words == [
        f"the page is built by Node.js 20.19, 22.12 or newer with its npm, and there is {found}:",
        "install it from nodejs.org or your distribution; daemons run without the page.",
    ]


def test_without_chromium_one_error_says_so_before_anything_is_built(tmp_path: Path) -> None:
    code, words = told(tmp_path, "test-browser", node="v20.19.0", npm="10")
    assert (code, len(words)) == (2, 2)
    assert "apt-get install chromium" in words[1]


@pytest.mark.parametrize("version", ["v20.19.0", "v22.12.0", "v24.1.0"])
def test_newer_versions_will_do(tmp_path: Path, version: str) -> None:
    assert told(tmp_path, "page-tools", node=version, npm="10") == (0, [])
