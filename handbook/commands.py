"""The command reference, and whether the parser of a program takes a line that somebody types.

Both ask the parser that typer makes of the commands, and run none of them.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup

from daa_node.cli.main import app as daa_node
from handbook.settings import table_row
from simnet.cli import app as simnet

APPS = {"daa-node": daa_node, "simnet": simnet}
# What the parser calls a value's type -> what stands for the value.
_VALUES = {"int": "N", "int range": "N", "path": "PATH", "str": "WORD", "list[str]": "WORD"}


class NotTaken(Exception):
    """The parser refuses a line; the message says why."""


@cache
def parser_of(program: str) -> Any:
    """The root command of `daa-node` or `simnet`."""
    return typer.main.get_command(APPS[program])


def check_line(words: Sequence[str]) -> None:
    """That the program takes the whole line: command, options, kinds of values. Raises NotTaken."""
    command, rest = parser_of(words[0]), list(words[1:])
    name = words[0]
    while isinstance(command, TyperGroup) and rest and rest[0] in command.commands:
        name = f"{name} {rest[0]}"
        command, rest = command.commands[rest[0]], rest[1:]
    if _asks_for_help(command, rest):
        return
    if isinstance(command, TyperGroup) and not command.invoke_without_command:
        raise NotTaken(f"{name}: there is no command {' '.join(rest[:1]) or 'of that name alone'}")
    try:
        with command.make_context(name, rest) as context:
            left = list(context.args)
    except typer.Exit:
        return
    except _REFUSALS as refusal:
        raise NotTaken(f"{name}: {refusal}") from None
    if left:
        raise NotTaken(f"{name}: nobody takes {' '.join(left)}")


def check_mention(words: Sequence[str]) -> None:
    """That command and options exist, where prose names them without all that a line needs."""
    command, rest = parser_of(words[0]), list(words[1:])
    known = _options(command)
    while rest and isinstance(command, TyperGroup):
        if rest[0].startswith("-"):
            break
        if rest[0] not in command.commands:
            if command.invoke_without_command:
                break
            raise NotTaken(f"{words[0]}: there is no command {rest[0]}")
        command, rest = command.commands[rest[0]], rest[1:]
        known |= _options(command)
    for word in rest:
        option = word.partition("=")[0]
        if option.startswith("-") and option not in known:
            raise NotTaken(f"{' '.join(words)}: there is no option {option}")


def _options(command: Any) -> set[str]:
    named = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    return named | {"--help"}


def _asks_for_help(command: Any, words: Sequence[str]) -> bool:
    """Also what the shell's completion asks: the parser would do it at once."""
    asked = {"--help", "--install-completion", "--show-completion"} & set(words)
    return len(words) == 1 and bool(asked & _options(command))


def _refusals() -> tuple[type[Exception], ...]:
    """What the parser raises; its library is typer's own affair, and so is its name."""
    base: type[Exception] = next(
        each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException"
    )
    return (base,)


_REFUSALS = _refusals()


def reference(program: str) -> Iterator[str]:
    """Every command as lines of Markdown, groups before what is in them."""
    for name, command in _all(program, parser_of(program)):
        if name != program:
            yield f"### {name}"
            yield ""
        yield from _described(name, command)


def _all(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if command.hidden:
        return
    yield name, command
    if isinstance(command, TyperGroup):
        for word, inner in command.commands.items():
            yield from _all(f"{name} {word}", inner)


def _described(name: str, command: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=name)
    usage = command.get_usage(context).removeprefix("Usage:").split()
    yield from (paragraph.replace("\n", " ") + "\n" for paragraph in _paragraphs(command.help))
    if not isinstance(command, TyperGroup) or command.invoke_without_command:
        yield from ("```text", " ".join(usage), "```", "")
    rows = [row for each in command.params if (row := _row(each, context)) is not None]
    if rows:
        yield "| argument or option | meaning |"
        yield "|---|---|"
        yield from map(table_row, rows)
        yield ""
    example = (command.epilog or "").partition("Example:")[2].strip()
    if example:
        yield from ("Example:", "", "```sh", example, "```", "")


def _paragraphs(text: str | None) -> list[str]:
    return [each.strip() for each in (text or "").split("\n\n") if each.strip()]


def _row(parameter: Any, context: Any) -> tuple[str, str] | None:
    """(how it is written, what it means), as --help has it; None for what every command has."""
    record = None if "--help" in parameter.opts else parameter.get_help_record(context)
    if record is None:
        return None
    written, meaning = record
    if written.startswith("-"):
        written = re.sub(r"<(.+)>", lambda kind: _VALUES[kind[1]], written)
    else:
        written = written.partition(" <")[0]  # a name says more than a type of Python
    return f"`{written}`", meaning.removesuffix("[required]").strip() + (
        " Required." if meaning.endswith("[required]") else ""
    )
