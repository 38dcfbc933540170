"""The command reference has every command, and no line is taken that the program refuses."""

import re
import shlex

import pytest

from daa_node.cli.examples import EXAMPLES
from handbook import commands
from handbook.commands import NotTaken


@pytest.mark.parametrize(
    "line",
    [
        "daa-node status --dir alice",
        "daa-node --help",
        "daa-node --install-completion",
        "daa-node checkpoint --help",
        "daa-node validators --dir alice",
        "daa-node genesis create job.yaml --validator a.record --validator b.record",
        "simnet run partition --seed 7 --out result",
        "simnet cluster up wan --dir c",
    ],
)
def test_the_parser_takes_what_is_right(line: str) -> None:
    commands.check_line(shlex.split(line))


@pytest.mark.parametrize(
    "line",
    [
        "daa-node",
        "daa-node stats",
        "daa-node status --dirr alice",
        "daa-node status alice",
        "daa-node checkpoint",
        "daa-node checkpoint shows tip",
        "daa-node genesis create job.yaml",
        "daa-node logs -n many",
        "simnet run",
        "simnet cluster sideways",
    ],
)
def test_a_planted_mistake_is_found(line: str) -> None:
    with pytest.raises(NotTaken):
        commands.check_line(shlex.split(line))


@pytest.mark.parametrize(
    "line", ["daa-node", "daa-node checkpoint", "daa-node genesis create --weights", "simnet run"]
)
def test_prose_may_name_a_part(line: str) -> None:
    commands.check_mention(line.split())


@pytest.mark.parametrize(
    "line", ["daa-node statuses", "daa-node genesis make", "daa-node run --fast", "simnet runs"]
)
def test_prose_names_nothing_that_is_not_there(line: str) -> None:
    with pytest.raises(NotTaken):
        commands.check_mention(line.split())


def test_every_command_is_in_the_reference() -> None:
    text = "\n".join(commands.reference("daa-node"))
    for words, example in EXAMPLES.items():
        assert f"### daa-node {words}\n" in text
        assert example in text
    assert "--with-parent" not in text  # hidden from --help as well
    assert "| `--dir D` | The node's directory. [default: daa-data] |" in text
    simnet = "\n".join(commands.reference("simnet"))
    assert "### simnet cluster up\n" in simnet
    assert "Sentinel" not in text + simnet
    assert "| `INVITE` | The text from" in text
    assert "| `--out PATH` |" in text
    assert not re.search(r"^\| `[^`]*<", text + simnet, re.MULTILINE)  # types of Python
