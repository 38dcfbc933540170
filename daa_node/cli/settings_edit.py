"""A setting in a person's YAML file set to another value; all else stays as it was written.

A value that stands there is replaced where it stands. A key that is missing comes first in its
section, and a section that is missing comes last. Whoever calls reads the outcome again and looks
whether it says what it should: YAML has more ways to write a thing than are known here.
"""

import json
from collections.abc import Sequence

import yaml

from daa_node.errors import UserError

Number = int | float | None


def edited(text: str, key: str, value: Number | Sequence[str], why: str = "") -> str:
    """`text` with `key`, like log.files_max or enroll, set.

    `why` is a comment for a line that was not there. Raises UserError where it cannot be placed.
    """
    section, _, name = key.rpartition(".")
    written = f"{name}: {json.dumps(value)}"
    line = f"{written}  # {why}" if why else written
    root = _root(text, key)
    if root is None:
        added = f"{section}:\n  {line}" if section else line
        return f"{_whole_lines(text)}{added}\n"
    found = _at(root, section) if section else root
    if found is None:
        return f"{_whole_lines(text)}{section}:\n  {line}\n"
    if not isinstance(found, yaml.MappingNode):  # `log:` alone, which is a null
        return _replaced(text, found, f"\n  {line}")
    place = _at(found, name)
    if place is not None:
        return _replaced(text, place, json.dumps(value))
    begin = found.start_mark.index
    if found.flow_style:
        more = ", " if found.value else ""
        return f"{text[: begin + 1]}{written}{more}{text[begin + 1 :]}"
    return f"{text[:begin]}{line}\n{' ' * found.start_mark.column}{text[begin:]}"


def with_items(text: str, key: str, items: Sequence[str], why: str = "") -> str:
    """`text` with these first in the list `key`, like network.bootstrap.

    Raises UserError where they cannot be placed.
    """
    section, _, name = key.rpartition(".")
    found: yaml.Node | None = _root(text, key)
    for step in (section, name):
        found = _at(found, step) if isinstance(found, yaml.MappingNode) else None
    more = ", ".join(map(json.dumps, items))
    if isinstance(found, yaml.SequenceNode):
        begin = found.start_mark.index
        if found.flow_style:
            comma = ", " if found.value else ""
            return f"{text[: begin + 1]}{more}{comma}{text[begin + 1 :]}"
        space = " " * found.start_mark.column
        lines = "".join(f"- {json.dumps(item)}\n{space}" for item in items)
        return f"{text[:begin]}{lines}{text[begin:]}"
    if isinstance(found, yaml.ScalarNode) and found.tag == "tag:yaml.org,2002:str":  # one alone
        alone = text[found.start_mark.index : found.end_mark.index]
        return _replaced(text, found, f"[{more}, {alone}]")
    return edited(text, key, list(items), why)


def _root(text: str, key: str) -> yaml.MappingNode | None:
    """None for a file that says nothing. Raises UserError."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise UserError("the file of settings is no YAML as it is: mend it first") from None
    if root is not None and (not isinstance(root, yaml.MappingNode) or root.flow_style):
        raise UserError(f"the file of settings is no list of sections: set {key} there by hand")
    return root


def _at(mapping: yaml.MappingNode, key: str) -> yaml.Node | None:
    for key_node, value_node in mapping.value:
        if key_node.value == key:
            return value_node if isinstance(value_node, yaml.Node) else None
    return None


def _replaced(text: str, node: yaml.Node, by: str) -> str:
    begin, end = node.start_mark.index, node.end_mark.index
    space = " " if begin == end and not by.startswith("\n") else ""  # nothing stood there
    return f"{text[:begin]}{space}{by}{text[end:]}"


def _whole_lines(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"
