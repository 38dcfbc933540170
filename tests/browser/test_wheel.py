"""The wheels: the base one stays small, with the dashboard where it could be built; the page for
volunteers is one of its own, which gateways take."""

import json
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.daa_node.cli.test_daemon import network, running, until
from tests.test_base_wheels import BASE_BYTES_MAX, measured

ROOT = Path(__file__).parents[2]
PAGE, DASHBOARD = Path("daa_compute_page/site"), Path("daa_node/api/dashboard")
REPORT = Path("simnet/results/page")
OURS = ("daa_dag", "daa_consensus", "daa_node", "simnet", "configs", "wasm_worker")
FILES = ("Makefile", "setup.py", "pyproject.toml", "README.md", "LICENSE")
LEFT_OUT = shutil.ignore_patterns(".*", "node_modules", "build", "__pycache__", "*.egg-info")


def checkout(folder: Path, *, pages: bool) -> Path:
    """What of this tree is packed, with or without the pages built in it."""
    for name in OURS:
        shutil.copytree(ROOT / name, folder / name, ignore=LEFT_OUT)
    for file in FILES:
        shutil.copy(ROOT / file, folder)
    if not pages:
        shutil.rmtree(folder / "wasm_worker" / PAGE, ignore_errors=True)
        shutil.rmtree(folder / DASHBOARD, ignore_errors=True)
        shutil.rmtree(folder / REPORT, ignore_errors=True)
    return folder


def sdist_of(project: Path) -> Path:
    """Made there, as any tool that builds has it made."""
    code = "from setuptools import build_meta; build_meta.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", code], cwd=project, check=True)
    (made,) = (project / "dist").glob("*.tar.gz")
    return made


def wheel_of(project: Path) -> Path:
    """Of a source tree, or of an sdist; it lies beside it."""
    options = ["-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    into = project.parent / f"wheel-of-{project.name}"
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", into, project], check=True
    )
    (wheel,) = into.glob("*.whl")
    return wheel


def unpack(wheel: Path, into: Path) -> set[Path]:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(into)
        return {Path(name) for name in packed.namelist() if not name.endswith("/")}


def files_below(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def leave_stale_file(folder: Path) -> None:
    """Of an earlier build, which setuptools would pack again."""
    (folder / "assets").mkdir(parents=True)
    (folder / "assets/of-an-earlier-build.js").touch()


@pytest.fixture
def without_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("make", "sh", "expr", "find", "getconf"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    monkeypatch.setenv("PATH", str(tools))


def test_the_base_is_small_and_a_gateway_serves_the_page_of_the_other_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_node: None
) -> None:
    tree, installed = checkout(tmp_path / "tree", pages=True), tmp_path / "installed"
    leave_stale_file(tree / "build/lib" / DASHBOARD)
    base = wheel_of(tree)
    ours = unpack(base, installed)
    assert base.stat().st_size + sum(one.size_bytes for one in measured()) < BASE_BYTES_MAX
    assert {path for path in ours if DASHBOARD in path.parents} == {
        DASHBOARD / path for path in files_below(tree / DASHBOARD)
    }
    report = {path.name for path in ours if REPORT in path.parents}
    assert report == {"report.js", "report.css", "LICENSES.txt"}
    assert not {path for path in ours if "daa_compute_page" in path.parts}

    with tarfile.open(sdist_of(tree / "wasm_worker")) as packed:
        packed.extractall(tmp_path / "sdist", filter="data")
    (unpacked,) = (tmp_path / "sdist").iterdir()
    leave_stale_file(unpacked / "build/lib" / PAGE)
    theirs = unpack(wheel_of(unpacked), installed)
    pages = {path.relative_to(PAGE) for path in theirs if PAGE in path.parents}
    assert pages == files_below(tree / "wasm_worker" / PAGE)
    assert Path("pyodide/pyodide.asm.wasm.br") in pages
    assert any(path.name == "LICENSE" for path in theirs)

    (installed / PAGE / "told.txt").write_text("by the page of the wheel")
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


def test_without_node_the_base_is_built_without_dashboard_and_no_page_is_packed(
    tmp_path: Path, without_node: None, capfd: pytest.CaptureFixture[str]
) -> None:
    tree = checkout(tmp_path / "tree", pages=False)
    ours = unpack(wheel_of(tree), tmp_path / "installed")
    assert Path("daa_node/wire/page_files.py") in ours
    assert Path("simnet/results/report.py") in ours
    assert not {path for path in ours if {DASHBOARD, REPORT} & set(path.parents)}
    with pytest.raises(subprocess.CalledProcessError):
        wheel_of(tree / "wasm_worker")
    assert "there is no page to pack: `make page` builds it" in capfd.readouterr().err
