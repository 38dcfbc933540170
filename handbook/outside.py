"""Files of a checkout that pages link to and that are no pages of docs/: where the site has them.

A link in a page is right for a reader of the checkout, `../configs/cloud.yaml`. The site has no
checkout beside it, so it takes in what is linked, and its links are turned there.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from handbook.generated import ROOT
from handbook.markdown import slug

HOME = "README.md"
# Path in the checkout -> page of the site.
TAKEN_IN = {
    HOME: "index.md",
    "CHANGELOG.md": "changelog.md",
    "LOG.md": "log.md",
    "LICENSE": "licence.md",
    "daa_node/training/datasets/SOURCE.md": "texts-source.md",
}
EXAMPLES_PAGE = "example-files.md"
_TARGET = re.compile(r"(\]\()([^()\s]+)(\))")
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


def page_sources() -> Iterator[tuple[str, str]]:
    """(page of the site, its text) of what is taken in."""
    for path, page in TAKEN_IN.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        yield page, text if path.endswith(".md") else f"# Licence\n\n```text\n{text}```\n"


def path_of(page: str) -> str:
    """Where the source of a page lies in the checkout."""
    return next((path for path, name in TAKEN_IN.items() if name == page), f"docs/{page}")


def site_target(page: str, target: str) -> str:
    """What a link of `page` says in the site. Raises LookupError if the site has no such file."""
    if re.match(r"[a-z]+:", target):
        return target
    path, _, anchor = target.partition("#")
    behind = f"#{site_anchor(anchor)}" if anchor else ""
    if not path:
        return behind
    source = path_of(page)
    found = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if not (ROOT / found).exists():
        raise LookupError(f"{source}: there is no {found}")
    if found in TAKEN_IN:
        return TAKEN_IN[found] + behind
    if found == "configs":
        return EXAMPLES_PAGE
    if found.startswith("configs/") and found.endswith(".yaml"):
        return f"{EXAMPLES_PAGE}#{slug(found)}"
    if found.startswith("docs/") and Path(found).suffix == ".md":
        return posixpath.relpath(found, "docs") + behind
    raise LookupError(f"{source}: {found} is in the checkout and not in the site")


def site_anchor(anchor: str) -> str:
    """As the site has it: the theme's script knows no anchor that begins with a digit."""
    return f"part-{anchor}" if anchor[:1].isdigit() else anchor


def turned(page: str, text: str) -> str:
    """The page with its links as the site has them; code stays as it is."""
    parts = _CODE.split(text)
    for at in range(0, len(parts), 2):
        parts[at] = _TARGET.sub(
            lambda link: f"{link[1]}{site_target(page, link[2])}{link[3]}", parts[at]
        )
    return "".join(parts)
