"""A wheel needs no checkout: two nodes of it, in an environment of its own, train and verify.

It is built from an sdist, which needs none either.

And one without torch verifies what they have made.

The dependencies are those that this test runs with; the packages are the wheel's alone.
"""

import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from tests.browser.test_wheel import checkout, sdist_of
from tests.daa_node.cli.bare_environment import bare_environment
from tests.daa_node.cli.test_daemon import STARTED_S, network, status

pytestmark = pytest.mark.long

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where its programs are; no test runs in the checkout, or finds it by a variable."""
    tree, place = checkout(tmp_path / "tree", pages=False), tmp_path / "venv"
    tools = tmp_path / "tools"  # without make, and so without the page
    tools.mkdir()
    with monkeypatch.context() as poor:
        poor.setenv("PATH", str(tools))
        source = str(sdist_of(tree).rename(tmp_path / "source.tar.gz"))
        shutil.rmtree(tree)  # the sdist has all that it takes
        built = ["wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), source]
        subprocess.run([*PIP, *built], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (own,) = place.glob("lib/python3*/site-packages")
    # as a line of a .pth: what the checkout has put there of itself is not read
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    (wheel,) = tmp_path.glob("*.whl")
    for programs in (place / "bin", bare_environment(tmp_path / "light")):
        into = ["--python", str(programs / "python"), "install", "-q", "--no-deps", "--no-index"]
        subprocess.run([*PIP, *into, str(wheel)], check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return place / "bin"


def said(*words: str | Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=STARTED_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_nodes_of_a_wheel_train_and_verify_as_their_services_would(
    tmp_path: Path, installed: Path
) -> None:
    code = "import daa_consensus, daa_dag, daa_node, simnet; print(daa_node.__file__)"
    assert str(tmp_path / "venv") in said(installed / "python", "-c", code)
    nodes, daemons = network(tmp_path, 2), []
    try:
        for node in nodes:
            words = ("service", "install", "--user", "--print", "--dir", node)
            unit = said(installed / "daa-node", *words)
            (command,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
            typed = shlex.split(command.removeprefix("ExecStart="))
            assert typed[0] == str(installed / "python")
            daemons.append(subprocess.Popen(typed))
        deadline_s = time.monotonic() + STARTED_S
        while not all((status(node) or {}).get("done") for node in nodes):
            assert time.monotonic() < deadline_s, [status(node) for node in nodes]
            time.sleep(0.2)
        for node, daemon in zip(nodes, daemons, strict=True):
            said(installed / "daa-node", "drain", "--dir", node)
            assert daemon.wait(STARTED_S) == 0
            for programs in (installed, tmp_path / "light/bin"):
                verify = (programs / "daa-node", "checkpoint", "verify", "--dir", node)
                assert "everything holds" in said(*verify)
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.wait()
