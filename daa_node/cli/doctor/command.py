"""`daa-node doctor`: asks every check, and tells people or programs what they found."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import trio

from daa_node.cli import report
from daa_node.cli.doctor.findings import Finding, Level
from daa_node.cli.doctor.registry import findings_of
from daa_node.cli.doctor.scene import Host, open_scene


def doctor(root: Path, config: Path | None, as_json: bool, host: Host | None = None) -> bool:
    """Whether no error was found. Changes nothing in the directory."""
    findings = trio.run(findings_of, open_scene(root, config, host or Host()))
    is_well = all(finding.level is not Level.ERROR for finding in findings)
    if as_json:
        report.put_json({"ok": is_well, "findings": [asdict(finding) for finding in findings]})
        return is_well
    for line in told(findings):
        report.put(line)
    return is_well


def told(findings: list[Finding]) -> Iterator[str]:
    """Lines for a person: a line a check, its cause, and what to do below it."""
    names = max(len(finding.check) for finding in findings)
    levels = max(map(len, Level))
    for finding in findings:
        first, *more = finding.cause.splitlines()
        yield f"{finding.check:<{names}}  {finding.level:<{levels}}  {first}"
        margin = " " * (names + levels + 4)
        yield from (margin + line for line in more)
        if finding.advice:
            yield f"{margin}What to do: {finding.advice}."
    counts = Counter(finding.level for finding in findings)
    yield ", ".join(f"{counts[level]} {level}" for level in Level if counts[level])
