"""Builds the page into the package, where there is Node.js to build it; all else is in
pyproject.toml.

A wheel or an sdist from a checkout has the page, whatever builds it. Without Node.js it is built
all the same, with the page that lies there or none, and its daemons say what is missing. A page
that cannot be built stops it. An sdist brings the page, not what it is built from.
"""

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
SITE = Path("daa_node/gateway/site")


def make_page() -> None:
    """Raises SystemExit, after what went wrong was told."""
    if not (ROOT / "wasm_worker" / "package.json").exists():
        return
    if shutil.which("make") is None or make("page-tools") != 0:
        print("no tools to build the page with: the package is built without making it anew")
        return
    if make("page") != 0:
        raise SystemExit("the page could not be built: see above")


def make(goal: str) -> int:
    return subprocess.run(["make", "--silent", goal], cwd=ROOT, check=False).returncode


class BuildPy(build_py):
    """An editable install has the page of its checkout, when that has it."""

    def run(self) -> None:
        if not self.editable_mode:
            make_page()
            # setuptools never removes what an earlier build left there
            shutil.rmtree(Path(self.build_lib) / SITE, ignore_errors=True)
        super().run()


class Sdist(sdist):
    """What is installed from it needs no Node.js."""

    def run(self) -> None:
        make_page()
        super().run()


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
