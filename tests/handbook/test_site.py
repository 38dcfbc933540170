"""The site is built, strictly, and fetches nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from handbook.generated import ROOT

pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")


def build(site: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    done = build(built)
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


def test_no_anchor_begins_with_a_digit(site: Path) -> None:
    """The theme's script takes each for a selector, and would stop at such a one."""
    for path in set(site.glob("*.html")) - {site / "404.html"}:  # the theme's own
        assert not re.search(r'<h[1-6] id="\d', path.read_text()), path.name
    assert "protocol.html#part-6-checkpoints" in (site / "history.html").read_text()


def test_a_reader_without_a_network_sees_the_same(site: Path) -> None:
    for path in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img)\b[^>]*>", path.read_text()):
            assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag), (path.name, tag)
    for sheet in ("code-light.css", "code-dark.css"):  # the theme's script needs both
        assert f'assets/{sheet}"' in (site / "index.html").read_text()
        assert (site / "assets" / sheet).is_file()
    for path in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//|@import", path.read_text()), path.name


@pytest.mark.parametrize("wrong", ["#no-such-part", "no-such-page.md"])
def test_a_wrong_link_ends_the_build(tmp_path: Path, wrong: str) -> None:
    """By our own options, on a site of one page."""
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text(f"# A page\n\nSee [there]({wrong}).\n")
    options = tmp_path / "mkdocs.yml"
    own = "docs_dir: pages\nhooks: []\nnav: [index.md]\n"
    theme = f"theme: {{custom_dir: {ROOT}/handbook/theme}}\n"
    options.write_text(f"INHERIT: {ROOT}/mkdocs.yml\n{own}{theme}")
    done = build(tmp_path / "site", "--config-file", str(options))
    assert done.returncode != 0
    assert wrong in done.stdout + done.stderr


def test_a_page_that_is_in_no_list_comes_under_more(tmp_path: Path) -> None:
    hooks = pytest.importorskip("handbook.hooks")
    for name in ("listed.md", "new.md"):
        (tmp_path / name).touch()
    nav: list[dict[str, list[str]]] = [{"Start": ["listed.md"]}]
    turned = hooks.on_config({"mdx_configs": {}, "nav": nav, "docs_dir": str(tmp_path)})
    assert turned["nav"] == [{"Start": ["listed.md"]}, {"More": ["new.md"]}]
