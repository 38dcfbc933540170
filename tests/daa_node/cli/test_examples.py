"""Help that shows what to type, and a shell that completes it."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from daa_node.cli.examples import EXAMPLES
from daa_node.cli.main import app
from tests.daa_node.cli.conftest import Command

HIDDEN = ("", "genesis", "checkpoint", "config", "service")  # groups: they do nothing themselves


def all_commands(group: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """(the words after daa-node, the parser's command), groups as well."""
    yield " ".join(above), group
    for name, command in getattr(group, "commands", {}).items():
        yield from all_commands(command, (*above, name))


COMMANDS = dict(all_commands(typer.main.get_command(app)))


def test_each_command_has_an_example_and_each_example_a_command() -> None:
    assert set(EXAMPLES) == COMMANDS.keys() - set(HIDDEN)


@pytest.mark.parametrize("words", ["status", "checkpoint diff", "validators", "genesis create"])
def test_help_ends_with_the_example_on_one_line(command: Command, words: str) -> None:
    done = command(*words.split(), "--help")
    assert done.code == 0
    assert done.out.rstrip().endswith(f"Example:\n    {EXAMPLES[words]}")


@pytest.mark.parametrize("words", EXAMPLES)
def test_the_parser_takes_the_example(words: str) -> None:
    """All of it: names of options, how many arguments, kinds of values. Nothing is run."""
    typed = shlex.split(EXAMPLES[words].split(" > ")[0])
    named = ["daa-node", *words.split()]
    assert typed[: len(named)] == named
    with COMMANDS[words].make_context("daa-node", typed[len(named) :]) as context:
        assert not context.args


def test_every_command_takes_json_except_those_that_the_readme_names() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    said = re.search(r"Every command takes `--json`, except (.+?)\.\s", readme, re.DOTALL)
    assert said is not None
    named = set(re.findall(r"`(.+?)`", said[1]))
    takes = {
        words: any("--json" in option.opts for option in command.params)
        for words, command in COMMANDS.items()
        if words not in HIDDEN
    }
    without = {words for words, does in takes.items() if not does}
    assert {re.sub("^service .*", "service", words) for words in without} == named


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    tool = tmp_path / "daa-node"
    code = "import sys; sys.argv[0] = 'daa-node'; from daa_node.cli.main import main; main()"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n')
    tool.chmod(0o755)
    script = f"""
    eval "$(_DAA_NODE_COMPLETE=source_bash {tool})"
    offered() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _daa_node_completion {tool};
                echo "${{COMPREPLY[@]}}"; }}
    offered daa-node dra
    offered daa-node service install --p
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "drain\n--print\n"
