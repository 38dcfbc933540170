"""An environment with what a base install brings, made of what this test runs with."""

import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]


def base_distributions() -> dict[str, Distribution]:
    """All that `pip install daa-compute` brings beside it, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [Requirement(line) for line in project["dependencies"]]
    met: set[tuple[str, frozenset[str]]] = set()
    found: dict[str, Distribution] = {}
    while waiting:
        wanted = waiting.pop()
        name, extras = str(canonicalize_name(wanted.name)), frozenset(wanted.extras)
        if (name, extras) in met:
            continue
        met.add((name, extras))
        found[name] = distribution(name)
        for line in found[name].requires or []:
            below = Requirement(line)
            if _is_wanted(below, extras):
                waiting.append(below)
    return found


def _is_wanted(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def bare_environment(place: Path) -> Path:
    """Makes it at `place`; returns where its programs are. Ours are not in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (own,) = place.glob("lib/python3*/site-packages")
    for one in base_distributions().values():
        tops = {file.parts[0] for file in one.files or []} - {"..", "__pycache__"}
        for top in tops:
            link = own / top
            if not link.exists():  # several may share a folder
                link.symlink_to(Path(str(one.locate_file(top))))
    return place / "bin"
