"""What `pause` and `resume` ask of a running daemon, and what they tell of it."""

import shlex
from pathlib import Path

from daa_node.cli import report
from daa_node.cli.remote import ask


def pause(root: Path, as_json: bool) -> None:
    """Raises UserError if no daemon runs in `root`."""
    answer = ask(root, "pause")
    if as_json:
        report.put_json(answer)
        return
    report.put(
        "paused: it trains no more once the steps under way are done; "
        f"`daa-node resume --dir {shlex.quote(str(root))}` or the next start lets it train again"
    )


def resume(root: Path, as_json: bool) -> None:
    """Raises UserError if no daemon runs in `root`."""
    answer = ask(root, "resume")
    if as_json:
        report.put_json(answer)
    else:
        report.put("resumed: it trains from the next round on")
