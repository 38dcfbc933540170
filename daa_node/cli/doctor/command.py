"""`daa-node doctor`: asks every check, and tells people or programs what they found."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import trio

from daa_node.cli import report
from daa_node.cli.doctor.bundle import check_new, members_of, write
from daa_node.cli.doctor.findings import Finding, Level
from daa_node.cli.doctor.registry import findings_of
from daa_node.cli.doctor.scene import Host, open_scene


def doctor(
    root: Path,
    config: Path | None,
    as_json: bool,
    host: Host | None = None,
    bundle: Path | None = None,
) -> bool:
    """Whether no error was found. Changes nothing in the directory.

    Raises UserError for a `bundle` that cannot be written, before it looks.
    """
    if bundle is not None:
        check_new(bundle)
    scene = open_scene(root, config, host or Host())
    findings = trio.run(findings_of, scene)
    is_well = all(finding.level is not Level.ERROR for finding in findings)
    if not as_json:
        for line in told(findings):
            report.put(line)
    answer = {"ok": is_well, "findings": [asdict(finding) for finding in findings]}
    if bundle is not None:
        size_bytes = write(bundle, members_of(scene, findings))
        answer["bundle"] = str(bundle.absolute())
        report.note(
            f"wrote {bundle}, {report.size(size_bytes)}. Look through it before you send it: `tar "
            f"-xzOf {bundle}` shows all of it"
        )
    if as_json:
        report.put_json(answer)
    return is_well


def told(findings: list[Finding]) -> Iterator[str]:
    """Lines for a person: a line a check, its cause, and what to do below it."""
    names = max(len(finding.check) for finding in findings)
    levels = max(map(len, Level))
    for finding in findings:
        first, *more = finding.cause.splitlines() or [""]
        yield f"{finding.check:<{names}}  {finding.level:<{levels}}  {first}"
        margin = " " * (names + levels + 4)
        yield from (margin + line for line in more)
        if finding.advice:
            yield f"{margin}What to do: {finding.advice}."
    counts = Counter(finding.level for finding in findings)
    yield ", ".join(f"{counts[level]} {level}" for level in Level if counts[level])
