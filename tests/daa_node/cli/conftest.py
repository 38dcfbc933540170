"""Runs `daa-node` in this process, as a person would type it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
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
