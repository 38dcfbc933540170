"""What this program can tell its operator, read from its source: with {} for what is filled in."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import daa_node

PACKAGE = Path(daa_node.__file__).parent
ENDINGS = ("UserError", "StorageFailed")  # what ends a command as "error: ..."
REMARKED = ("remark", "note", "Again", "Ended")  # what a daemon, or who watches it, says beside
OF_DAEMON = ("compose", "starting", "supervise", "live_settings", "join")  # in cli/
_WORD = re.compile("[a-z]{4}")  # without one, nothing of the text is the program's own


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def paths() -> tuple[Path, ...]:
    """Of the whole program without the table itself."""
    return tuple(path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "advice")


@cache
def all_texts() -> tuple[str, ...]:
    """Every text of the program but docstrings."""
    return tuple(text for path in paths() for text in texts_of(tree_of(path)))


def texts_of(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Expr(value=ast.Constant()):
                continue  # a docstring
            case ast.Constant(value=str()) | ast.JoinedStr():
                yield text_of(child, {})
            case _:
                yield from texts_of(child)


def text_of(node: ast.AST, constants: dict[str, str]) -> str:
    """As it is told; of two that it may be, both."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part, constants) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name)) if name in constants:
            return constants[name]
        case ast.BinOp(left=left, right=right):
            return text_of(left, constants) + text_of(right, constants)
        case ast.IfExp(body=body, orelse=other):
            return f"{text_of(body, constants)} {text_of(other, constants)}"
    return "{}"


def constants_of(tree: ast.Module) -> dict[str, str]:
    return {
        statement.targets[0].id: text_of(statement.value, {})
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }


def told_by(names: tuple[str, ...], path: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of each call by one of those names whose text stands in the call."""
    tree = tree_of(path)
    constants = constants_of(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in names:
            for text in (text_of(argument, constants) for argument in node.args):
                if _WORD.search(text):
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}", text


def reasons_in(*places: str) -> set[str]:
    """The reasons of every PeerFault that is raised there by a word."""
    found = set()
    for path in paths():
        where = path.relative_to(PACKAGE).as_posix()
        if where.startswith(places):
            for node in ast.walk(tree_of(path)):
                match node:
                    case ast.Call(
                        func=ast.Name(id="PeerFault"), args=[ast.Constant(value=str(word)), *_]
                    ):
                        found.add(word)
    return found
