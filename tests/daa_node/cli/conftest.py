"""Runs `daa-node` in this process, as a person would type it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from daa_node.cli.main import main


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]
JOB = "name: test\nend: {rounds: 3}\n"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`command("init", "--dir", path)` -> exit code and what was printed."""

    def run(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["daa-node", *map(str, words)])
        code: Any = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        return Outcome(int(code or 0), said.out, said.err)

    return run


def make_node(command: Command, directory: Path, port: int = 4001) -> Path:
    """A node with a fixed loopback address; returns the file of its record."""
    assert command("init", "--dir", directory).code == 0
    config = directory / "config.yaml"
    config.write_text(f"network:\n  listen: [/ip4/127.0.0.1/tcp/{port}]\n" + config.read_text())
    record = directory.with_suffix(".record")
    record.write_text(command("id", "--record", "--dir", directory).out)
    return record
