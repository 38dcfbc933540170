"""The command that plays Twins: what it prints, and how it ends."""

import pytest
from typer.testing import CliRunner

from daa_node.errors import UserError
from simnet.cli import app


def test_one_script_is_played_again_by_its_name() -> None:
    done = CliRunner().invoke(app, ["twins", "--only", "one-twin-too-many-of-4"])
    assert done.exit_code == 0, "a fork is what this script is for"
    assert "BROKEN" in done.output
    assert "evidence against [0, 1]; as it must be" in done.output


def test_a_run_counts_its_scripts_by_part() -> None:
    done = CliRunner().invoke(app, ["twins", "--n", "10", "--sample", "2", "--jobs", "1"])
    assert done.exit_code == 0
    assert "sample-10: 2 scripts, 0 failed" in done.output


@pytest.mark.parametrize("options", [["--only", "five-2-99999"], ["--only", "no"], ["--n", "6"]])
def test_what_there_is_no_script_of_is_refused(options: list[str]) -> None:
    done = CliRunner().invoke(app, ["twins", *options])
    assert isinstance(done.exception, UserError)
