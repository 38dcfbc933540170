"""The site is built, strictly, and fetches nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from handbook.generated import ROOT

pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(built)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return built


def test_every_page_is_there_with_what_the_program_wrote(site: Path) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages | {"index", "changelog"} <= {path.stem for path in site.glob("*.html")}
    assert "DAA_TRAINER__THREADS" in (site / "configuration.html").read_text()
    assert "data_gb_a_day" in (site / "configuration.html").read_text()
    assert 'id="daa-node-checkpoint-verify"' in (site / "commands.html").read_text()
    assert "generated:" not in (site / "commands.html").read_text()
    assert 'id="configscloudyaml"' in (site / "example-files.html").read_text()


def test_a_reader_without_a_network_sees_the_same(site: Path) -> None:
    for path in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img)\b[^>]*>", path.read_text()):
            assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag), (path.name, tag)
    for path in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//|@import", path.read_text()), path.name
