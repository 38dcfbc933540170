"""A wheel brings the page where it could be built, and does without it elsewhere."""

import json
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.daa_node.cli.test_daemon import network, running, until

ROOT = Path(__file__).parents[2]
SITE, DASHBOARD = "daa_node/gateway/site/", "daa_node/api/dashboard/"
REPORT = "simnet/results/page/"
OURS = ("daa_dag", "daa_consensus", "daa_node", "simnet", "configs", "wasm_worker")
FILES = ("Makefile", "setup.py", "pyproject.toml", "README.md", "LICENSE")


def checkout(folder: Path, *, site: bool) -> Path:
    """What of this tree a wheel is built from, with or without the pages built in it."""
    pages = [] if site else ["site", "dashboard", "page"]
    left_out = [".*", "node_modules", "build", "__pycache__", *pages]
    for name in OURS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(*left_out))
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    return folder


def wheel_of(tree: Path) -> Path:
    """Built there and unpacked."""
    options = ["-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", tree / "dist", tree],
        check=True,
    )
    (wheel,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tree / "unpacked")
    return tree / "unpacked"


@pytest.fixture
def without_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("make", "sh", "expr", "find", "getconf"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    monkeypatch.setenv("PATH", str(tools))


def test_the_page_of_a_wheel_is_whole_and_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_node: None
) -> None:
    tree = checkout(tmp_path / "tree", site=True)
    stale = tree / "build/lib" / SITE / "assets/of-an-earlier-build.js"
    stale.parent.mkdir(parents=True)
    stale.touch()
    installed = wheel_of(tree)
    built = {path.relative_to(tree / SITE) for path in (tree / SITE).rglob("*")}
    assert {path.relative_to(installed / SITE) for path in (installed / SITE).rglob("*")} == built
    assert (installed / DASHBOARD / "index.html").exists()
    assert {path.name for path in (installed / REPORT).iterdir()} == {
        "report.js",
        "report.css",
        "LICENSES.txt",
    }
    assert Path("pyodide/pyodide.asm.wasm.br") in built
    (installed / SITE / "told.txt").write_text("by the page of the wheel")
    monkeypatch.chdir(tmp_path)  # Python looks there first
    monkeypatch.setenv("PYTHONPATH", str(installed))
    (node,) = network(tmp_path, 1)
    with (node / "config.yaml").open("a") as config:
        config.write("gateway: {enabled: true, listen: '127.0.0.1:0'}\n")
    with running(node):
        address = until(node, "gateway open", lambda said: said["gateway"]["url"])["gateway"]["url"]
        with urllib.request.urlopen(f"{address}told.txt", timeout=60) as answer:
            assert answer.read() == b"by the page of the wheel"
        with urllib.request.urlopen(f"{address}gateway.json", timeout=60) as answer:
            assert json.load(answer)["site"]


def test_without_node_a_wheel_is_built_without_the_page(tmp_path: Path, without_node: None) -> None:
    installed = wheel_of(checkout(tmp_path / "tree", site=False))
    assert (installed / "daa_node/wire/page_files.py").exists()
    assert not (installed / SITE).exists()
    assert not (installed / DASHBOARD).exists()
    assert (installed / "simnet/results/report.py").exists()
    assert not (installed / REPORT).exists()
