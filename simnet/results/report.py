"""One file that shows a run: a page that opens from a disk, and asks no network for anything.

It is drawn by the components of the operator's dashboard (dashboard/src/report/). `make dashboard`
builds them into `page/` beside this file, as one script and one style; here both are written into
the page, with what there is to tell as data. The page's policy names both by their hashes: nothing
that a run has said can become code, and nothing else is loaded.
"""

import base64
import hashlib
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from daa_node.api.replies import as_json
from daa_node.errors import UserError
from simnet.results.kept_comparison import open_comparison
from simnet.results.run_story import story_of
from simnet.results.sides import first_run, sides_of, sides_of_two

PAGE = Path(__file__).parent / "page"  # where `make dashboard` puts what it builds
SCRIPT, STYLE, LICENSES = "report.js", "report.css", "LICENSES.txt"


@dataclass(frozen=True, slots=True)
class Drawn:
    """What draws the page; the licenses are those of the packages in it."""

    script: str
    style: str
    licenses: str


def make_report(folder: Path, beside: Path | None = None, page: Path = PAGE) -> str:
    """The page of the run in `folder`, with the run `beside` it; or of a comparison in `folder`.

    Raises UserError if a run's files are not there, or are those of something else, or if what
    draws the page is not there.
    """
    try:
        return _made(folder, beside, page)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as odd:
        # of another version, or changed by hand
        raise UserError(
            f"{folder}: the files of a run in it have another form than this simnet writes "
            f"({odd!r}): make them anew with `simnet run SCENARIO --out FOLDER`"
        ) from None


def _made(folder: Path, beside: Path | None, page: Path) -> str:
    kept = open_comparison(folder)
    if kept is None:
        sides = None if beside is None else sides_of_two(folder, beside)
        return page_of(story_of(folder) | {"sides": sides}, read_drawn(page))
    if beside is not None:
        raise UserError(f"--beside {beside}: {folder} holds a comparison, with its sides already")
    story = story_of(first_run(folder, kept)) | {"sides": sides_of(folder, kept)}
    return page_of(story, read_drawn(page))


def read_drawn(page: Path = PAGE) -> Drawn:
    """Raises UserError where the page was not built."""
    try:
        texts = [(page / name).read_text(encoding="utf-8") for name in (SCRIPT, STYLE, LICENSES)]
    except FileNotFoundError:
        raise UserError(
            "simnet report: its page is not built: run `make dashboard` in the source tree, with "
            "Node.js"
        ) from None
    except OSError as fault:
        raise UserError(f"simnet report: its page cannot be read: {fault}") from None
    return Drawn(*texts)


def page_of(story: dict[str, Any], drawn: Drawn) -> str:
    """`story` as `story_of` tells it. What it says is data, whatever stands in it."""
    told = as_json({**story, "licenses": drawn.licenses})  # a browser reads no NaN
    return _PAGE.substitute(
        policy=(
            f"default-src 'none'; script-src '{_source(drawn.script)}'; "
            f"style-src '{_source(drawn.style)}'; img-src data:; base-uri 'none'; "
            "form-action 'none'"
        ),
        # half a character, which JSON may hold, would keep the page from being written
        title=escape(str(story["scenario"])).encode("ascii", "xmlcharrefreplace").decode(),
        style=drawn.style,
        script=drawn.script,
        # no end of its own element, and no begin of a comment, lies in it
        story=told.decode().rstrip().replace("<", "\\u003c"),
    )


def _source(text: str) -> str:
    """As a policy names a text that stands in its page."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title &middot; simnet</title>
<link rel="icon" href="data:,">
<style>$style</style>
</head>
<body>
<div id="page"><noscript>This page draws a run: it needs JavaScript.</noscript></div>
<script type="application/json" id="story">$story</script>
<script>$script</script>
</body>
</html>
""")
