"""Builds the pages into the package, where there is Node.js to build them; all else is in
pyproject.toml.

A wheel or an sdist from a checkout has the pages, whatever builds it. Without Node.js it is built
all the same, with the pages that lie there or none, and its daemons say what is missing. A page
that cannot be built stops it. An sdist brings the pages, not what they are built from.
"""

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
# By goal of make: from where, and what is built.
SITES = {
    "page": ("wasm_worker", [Path("daa_node/gateway/site")]),
    "dashboard": ("dashboard", [Path("daa_node/api/dashboard"), Path("simnet/results/page")]),
}


def make_pages() -> None:
    """Raises SystemExit, after what went wrong was told."""
    goals = [goal for goal, (of, _) in SITES.items() if (ROOT / of / "package.json").exists()]
    if not goals:
        return
    if shutil.which("make") is None or make("page-tools") != 0:
        print("no tools to build the pages with: the package is built without making them anew")
        return
    for goal in goals:
        if make(goal) != 0:
            raise SystemExit(f"the {goal} could not be built: see above")


def make(goal: str) -> int:
    return subprocess.run(["make", "--silent", goal], cwd=ROOT, check=False).returncode


class BuildPy(build_py):
    """An editable install has the pages of its checkout, when that has them."""

    def run(self) -> None:
        if not self.editable_mode:
            make_pages()
            for site in (site for _, sites in SITES.values() for site in sites):
                # setuptools never removes what an earlier build left there
                shutil.rmtree(Path(self.build_lib) / site, ignore_errors=True)
        super().run()


class Sdist(sdist):
    """What is installed from it needs no Node.js."""

    def run(self) -> None:
        make_pages()
        super().run()


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
