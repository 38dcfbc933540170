"""What mkdocs calls while it builds the site: pages from the checkout, generated parts, links.

Started by `make docs` as `python -m mkdocs`, so that `handbook` and the program are importable.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from pygments.formatters import HtmlFormatter

from handbook import generated, outside
from handbook.markdown import slug

# Style sheets that handbook/theme/main.html asks for, and Pygments' style of each.
COLOURS = {"assets/code-light.css": "default", "assets/code-dark.css": "github-dark"}


def on_config(config: Any) -> Any:
    """Anchors as GitHub makes them, so that links work in both places. And no page is left out."""
    toc = config["mdx_configs"].setdefault("toc", {})
    toc["slugify"] = lambda text, _: outside.site_anchor(slug(text))
    listed = set(_pages_in(config["nav"]))
    more = [each.name for each in sorted(Path(config["docs_dir"]).glob("*.md"))]
    more = [name for name in more if name not in listed]
    if more:
        config["nav"].append({"More": more})
    return config


def _pages_in(nav: Any) -> Iterator[str]:
    """Every page that mkdocs.yml lists, at whatever depth."""
    match nav:
        case str():
            yield nav
        case list():
            for each in nav:
                yield from _pages_in(each)
        case dict():
            for each in nav.values():
                yield from _pages_in(each)


def on_files(files: Any, config: Any) -> Any:
    """Add what lies outside docs/, and colours for code on light and on dark."""
    for page, text in outside.page_sources():
        files.append(File.generated(config, page, content=text))
    for sheet, style in COLOURS.items():
        colours = HtmlFormatter(style=style).get_style_defs(".highlight")
        files.append(File.generated(config, sheet, content=colours))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page as the site shows it."""
    return outside.turned(page.file.src_uri, generated.filled(markdown))
