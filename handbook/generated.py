"""The parts of pages that the program itself writes, and where they stand.

A page has a line `<!-- generated: NAME -->` where such a part belongs. They are made whenever the
site is built and are kept nowhere: so nothing of them can be out of date, and whoever adds a
setting or a command has no second file to change.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from daa_node.advice.of_events import EVENTS
from daa_node.advice.of_findings import FINDINGS
from daa_node.advice.of_messages import FACTS, REMARKS
from daa_node.advice.of_reasons import REFUSALS, VOLUNTEERS
from daa_node.advice.row import Row
from daa_node.advice.table import OF_COMMANDS
from daa_node.config import SAFE_KEYS, NodeConfig
from daa_node.genesis import Job
from handbook import commands
from handbook.settings import settings_of, table
from simnet.world.scenario import Scenario

ROOT = Path(__file__).parents[1]
_MARK = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)


def _config() -> Iterator[str]:
    return table(list(settings_of(NodeConfig)), SAFE_KEYS)


def _job() -> Iterator[str]:
    # what `genesis create` finds out and writes is in no job that a person types
    return table(list(settings_of(Job, leave_out=("model.built",))))


def _scenario() -> Iterator[str]:
    return table(list(settings_of(Scenario)))


def _messages() -> Iterator[str]:
    """By headings: what ends a command is looked for by its words."""
    for row in OF_COMMANDS:
        yield f"### {row.key}"
        yield ""
        yield f"{row.means}. **What to do:** {row.advice}."
        yield ""


def _rows(rows: tuple[Row, ...], head: str) -> Iterator[str]:
    yield f"| {head} | what it means | what to do |"
    yield "|---|---|---|"
    for row in rows:
        cells = (f"`{row.key.strip()}`", f"{row.means}.", f"{row.advice}." if row.do else "")
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _examples() -> Iterator[str]:
    """Every shipped file of settings, each as it is."""
    for path in sorted((ROOT / "configs").rglob("*.yaml")):
        yield f"## {path.relative_to(ROOT).as_posix()}"
        yield ""
        yield from ("```yaml", path.read_text(encoding="utf-8").rstrip(), "```", "")


PARTS: Mapping[str, Callable[[], Iterator[str]]] = {
    "config": _config,
    "job": _job,
    "scenario": _scenario,
    "daa-node": lambda: commands.reference("daa-node"),
    "simnet": lambda: commands.reference("simnet"),
    "messages": _messages,
    "events": lambda: _rows(EVENTS, "event"),
    "refusals": lambda: _rows(REFUSALS, "reason"),
    "volunteers": lambda: _rows(VOLUNTEERS, "reason"),
    "findings": lambda: _rows(FINDINGS, "finding"),
    "facts": lambda: _rows((*FACTS, *REMARKS), "words"),
    "examples": _examples,
}


def filled(text: str) -> str:
    """The page with its generated parts in place. Raises KeyError for a part that nobody makes."""
    return _MARK.sub(lambda mark: "\n".join(PARTS[mark[1]]()), text)
