"""What a base install brings, weighed: packaging/base_wheels.tsv has every wheel, as it is pinned.

No test downloads anything. Who changes a pin weighs anew, by benchmarks/base_wheels.py. The wheel
of our own is added where it is built, in tests/browser/test_wheel.py.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.daa_node.cli.bare_environment import base_distributions

ROOT = Path(__file__).parent.parent
BASE_BYTES_MAX = 60_000_000
OURS_BYTES = 3_000_000  # with the dashboard; more than it has
TABLE = ROOT / "packaging/base_wheels.tsv"


@dataclass(frozen=True, slots=True)
class Weighed:
    name: str
    version: str
    size_bytes: int


def measured() -> list[Weighed]:
    """The largest first."""
    _, *lines = TABLE.read_text().splitlines()
    split = [line.split("\t") for line in lines]
    return [Weighed(name, version, int(size)) for name, version, size in split]


def test_every_wheel_of_the_base_was_weighed_in_the_version_that_is_pinned() -> None:
    pins = re.findall(r"^([^#\s=]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    pinned = {str(canonicalize_name(name)): version for name, version in pins}
    weighed = {one.name: one.version for one in measured()}
    assert weighed == {name: pinned[name] for name in base_distributions()}


def test_together_they_leave_room_for_our_own() -> None:
    assert sum(one.size_bytes for one in measured()) < BASE_BYTES_MAX - OURS_BYTES


def test_the_pages_tell_the_largest_of_them() -> None:
    told = (ROOT / "docs/architecture.md").read_text()
    rows = [f"| {one.name} | {one.size_bytes / 1e6:.1f} MB |" for one in measured()[:10]]
    assert [row for row in rows if row not in told] == []


def test_all_versions_of_ours_are_one() -> None:
    """A gateway takes the page of its own version, and the page asks for that gateway."""
    base = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = tomllib.loads((ROOT / "wasm_worker/pyproject.toml").read_text())["project"]
    assert page["version"] == base["version"]
    assert page["dependencies"] == [f"{base['name']}=={base['version']}"]
    assert base["optional-dependencies"]["gateway"] == [f"{page['name']}=={page['version']}"]
