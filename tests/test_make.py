"""`make` says in one line which Python it needs, before it makes anything; and clears it all."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# a Python that says that it is another one, and can make no virtual environment
OTHER = """\
#!/bin/sh
[ "$1" = --version ] && echo "Python {said}" && exit
[ "$1" = -c ] || exit 1
exec {python} -c 'import sys; sys.version_info = {version}; exec(sys.argv[2])' "$@"
"""


def said_by(tmp_path: Path, version: tuple[int, int, int]) -> list[str]:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "wasm_worker").symlink_to(ROOT / "wasm_worker")
    python = tmp_path / "python"
    number = ".".join(map(str, version))
    python.write_text(OTHER.format(said=number, version=version, python=sys.executable))
    python.chmod(0o755)
    words = ["make", "--silent", f"PYTHON={python}", "demo"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert not (tmp_path / ".venv").exists()
    return done.stderr.splitlines()


@pytest.mark.parametrize("version", [(3, 10, 9), (3, 14, 0)])
def test_a_python_that_is_too_old_or_too_new_is_told_at_once(
    tmp_path: Path, version: tuple[int, int, int]
) -> None:
    told, what_to_do, *_ = said_by(tmp_path, version)
    number = ".".join(map(str, version))
    assert told.startswith("daa-compute needs Python 3.11, 3.12 or 3.13, and")
    assert told.endswith(f"is Python {number}.")
    assert what_to_do == "Name another one: make PYTHON=python3.12 demo"


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 13, 5)])
def test_one_that_fits_is_used(tmp_path: Path, version: tuple[int, int, int]) -> None:
    assert said_by(tmp_path, version)[0].startswith("no virtual environment: ")


def test_all_that_is_built_is_cleared() -> None:
    words = ["make", "--dry-run", "clean"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    built = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    pages = {path for path in built if "/" in path}
    assert len(pages) == 3
    assert pages <= set(done.stdout.split())
