"""Builds the dashboard into the package, where there is Node.js to build it; all else is in
pyproject.toml.

A wheel or an sdist from a checkout has the dashboard, whatever builds it. Without Node.js it is
built all the same, with the dashboard that lies there or none, and its daemons say what is missing.
One that cannot be built stops it. An sdist brings the dashboard, not what it is built from.

The page for volunteers is large, and few nodes serve it: it is a package of its own, built in
wasm_worker/.
"""

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
# What `make dashboard` builds: the operator's page, and what draws that of `simnet report`.
DASHBOARD = (Path("daa_node/api/dashboard"), Path("simnet/results/page"))


def make_dashboard() -> None:
    """Raises SystemExit, after what went wrong was told."""
    if not (ROOT / "dashboard/package.json").exists():
        return
    if shutil.which("make") is None or make("page-tools") != 0:
        print("no tools to build the dashboard with: the package has what lies there")
        return
    if make("dashboard") != 0:
        raise SystemExit("the dashboard could not be built: see above")


def make(goal: str) -> int:
    return subprocess.run(["make", "--silent", goal], cwd=ROOT, check=False).returncode


class BuildPy(build_py):
    """An editable install has the dashboard of its checkout, when that has it."""

    def run(self) -> None:
        if not self.editable_mode:
            make_dashboard()
            for built in DASHBOARD:
                # setuptools never removes what an earlier build left there
                shutil.rmtree(Path(self.build_lib) / built, ignore_errors=True)
        super().run()


class Sdist(sdist):
    """What is installed from it needs no Node.js."""

    def run(self) -> None:
        make_dashboard()
        super().run()


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
