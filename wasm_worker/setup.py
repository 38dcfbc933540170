"""Builds the page into its package, in a checkout with Node.js; all else is in pyproject.toml.

Elsewhere the page that lies there is taken, as in an sdist. Without one there is nothing to pack.
"""

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
SITE = Path("daa_compute_page/site")


def make_page() -> None:
    """Raises SystemExit, after what went wrong was told."""
    if (ROOT / "package.json").exists() and shutil.which("make") is not None:
        if make("page-tools") != 0:
            print("no tools to build the page with: it is packed as it lies there")
        elif make("page") != 0:
            raise SystemExit("the page could not be built: see above")
    if not (ROOT / SITE / "index.html").exists():
        raise SystemExit("there is no page to pack: `make page` builds it in a checkout")


def make(goal: str) -> int:
    return subprocess.run(["make", "--silent", goal], cwd=ROOT.parent, check=False).returncode


class BuildPy(build_py):
    def run(self) -> None:
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
