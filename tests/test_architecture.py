"""Imports point one way, the daemon stays free of torch, and `--help` is quick.

Between files they point one way, too. Every import counts there, also one inside a function or
under `if TYPE_CHECKING`: a reader who follows a name does not care when Python does.
"""

import ast
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("daa_dag", "daa_consensus", "daa_node", "simnet")
HELP_SHARE_MAX = 0.5  # of the CPU time in which a daemon is loaded
HEAVY = ("torch", "libp2p", "numpy", "trio", "pydantic", "rich")


def modules_after(statement: str) -> set[str]:
    """Top-level names in sys.modules of a fresh interpreter that ran `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def lint_imports(root: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


def test_every_import_points_down() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout


PLANTED = [
    ("daa_dag/ids.py", "import time", "daa_dag and daa_consensus do no I/O"),
    (
        "daa_dag/ids.py",
        "import daa_consensus.errors",
        "simnet > daa_node > daa_consensus > daa_dag",
    ),
    ("daa_node/seams.py", "import daa_node.node", "daa_node reads downwards"),
    ("daa_node/network/topics.py", "import libp2p", "only adapters speak libp2p"),
    ("daa_node/node.py", "import torch", "torch lives where tensors are the subject"),
    ("daa_node/strange.py", '"""A layer of its own."""', "daa_node.strange"),
]


def test_each_planted_import_breaks_its_contract(tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.xz")
        )
    shutil.copy(ROOT / ".importlinter", tmp_path)
    for path, line, _ in PLANTED:
        planted = tmp_path / path
        planted.write_text(f"{planted.read_text() if planted.exists() else ''}\n{line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode != 0
    broken = [text for text in done.stdout.splitlines() if "KEPT" not in text]
    for _, _, contract in PLANTED:
        assert any(contract in text for text in broken), (contract, done.stdout)


def files_imported(text: str, files: Collection[str]) -> set[str]:
    """Which of `files`, by dotted name, a source text imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import: say where a thing lives"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found & set(files)


@cache
def import_graph() -> Mapping[str, Collection[str]]:
    """File by dotted name -> the files that it imports. Packages are empty and do not count."""
    texts = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path.read_text()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "__init__.py"
    }
    return {name: files_imported(text, texts) - {name} for name, text in texts.items()}


def circle_through(start: str, graph: Mapping[str, Collection[str]]) -> list[str] | None:
    """The shortest way from a file back to itself; None if there is none."""
    ways, seen = [[start]], {start}
    for way in ways:
        if start in graph[way[-1]]:
            return [*way, start]
        new = sorted(set(graph[way[-1]]) - seen)
        seen |= set(new)
        ways += [[*way, name] for name in new]
    return None


def circles(graph: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Each file that lies on a circle, with the shortest that it lies on."""
    found = {name: circle_through(name, graph) for name in graph}
    return {name: circle for name, circle in found.items() if circle is not None}


def test_no_files_import_each_other_in_a_circle() -> None:
    found = [" -> ".join(circle) for circle in circles(import_graph()).values()]
    assert not found, "\n".join(["files import each other in a circle:", *found])


@pytest.mark.parametrize(
    "line",
    [
        "import daa_node.autonomy.loop",
        "from daa_node.autonomy import loop",
        "from daa_node.autonomy.loop import AutonomyLoop",
        "if TYPE_CHECKING:\n    from daa_node.autonomy.loop import AutonomyLoop",
        "def later() -> None:\n    from daa_node.autonomy.loop import AutonomyLoop",
    ],
)
def test_a_planted_circle_is_found_and_named(line: str) -> None:
    graph = dict(import_graph())
    planted = "daa_node.autonomy.reason"
    text = (ROOT / "daa_node/autonomy/reason.py").read_text()
    graph[planted] = files_imported(f"{text}\n{line}\n", graph)
    found = circles(graph)
    assert found[planted] == [planted, "daa_node.autonomy.loop", planted]
    assert "daa_node.errors" not in found


def reached_from(start: str, graph: Mapping[str, Collection[str]]) -> set[str]:
    """All files that this one imports, directly or through others."""
    found, waiting = set[str](), [start]
    while waiting:
        new = set(graph[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def test_the_pictures_of_ways_show_modules_that_use_those_below_them() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    _, _, rest = page.partition("## A contribution's way\n")
    pictures = rest.partition("\n## ")[0].split("```")[1::2]
    assert len(pictures) == 2
    graph = import_graph()
    for picture in pictures:
        above: list[str] = []
        lines = picture.strip("\n").splitlines()
        assert 1 < len(lines) <= 12, "a way that takes a reader more is a detour"
        for line in lines:
            depth = (len(line) - len(line.lstrip())) // 2
            module = "daa_node." + line.split()[0].replace("/", ".")
            assert module in graph, f"{module} is no module"
            above = [*above[:depth], module]
            assert len(above) == depth + 1, line
            assert depth == 0 or module in reached_from(above[-2], graph), line


def test_the_daemon_is_composed_without_torch() -> None:
    loaded = modules_after("import daa_node.cli.compose")
    assert {"libp2p", "numpy", "trio"} <= loaded
    assert "torch" not in loaded


def test_the_verifier_needs_neither_torch_nor_a_network() -> None:
    loaded = modules_after("import daa_node.cli.checkpoint")
    assert not loaded & {"torch", "libp2p"}


@pytest.mark.parametrize("module", ["daa_node.cli.main", "simnet.cli"])
def test_the_command_line_loads_nothing_heavy_before_a_command_runs(module: str) -> None:
    assert not modules_after(f"import {module}") & set(HEAVY)


def cpu_of(*command: str) -> tuple[float, str]:
    """Seconds of CPU that a second run of it takes, and what it prints."""
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)  # bytecode, disk cache
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


@cache
def cpu_to_load_s() -> float:
    """Of a daemon."""
    spent_s, _ = cpu_of(sys.executable, "-c", "import daa_node.cli.compose")
    return spent_s


@pytest.mark.parametrize(("module", "word"), [("daa_node", "demo"), ("simnet.cli", "report")])
def test_help_takes_a_fraction_of_what_a_daemon_takes_to_load(module: str, word: str) -> None:
    """Both are as slow as the machine is."""
    spent_s, told = cpu_of(sys.executable, "-m", module, "--help")
    whole_s = cpu_to_load_s()
    assert word in told
    assert spent_s < HELP_SHARE_MAX * whole_s, f"{spent_s:.2f} s of {whole_s:.2f} s"
