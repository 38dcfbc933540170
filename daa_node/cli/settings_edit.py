"""One number in a person's YAML file set to another; all else in it stays as it was written.

A value that stands there is replaced where it stands. A key that is missing comes first in its
section, and a section that is missing comes last. Whoever calls reads the outcome again and looks
whether it says what it should: YAML has more ways to write a thing than are known here.
"""

import json

import yaml

from daa_node.errors import UserError

Number = int | float | None


def edited(text: str, key: str, value: Number) -> str:
    """`text` with `key`, like log.files_max, set. Raises UserError where it cannot be placed."""
    section, name = key.split(".")
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise UserError("the file of settings is no YAML as it is: mend it first") from None
    written = f"{name}: {json.dumps(value)}"
    if root is None:
        return f"{_whole_lines(text)}{section}:\n  {written}\n"
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise UserError(f"the file of settings is no list of sections: set {key} there by hand")
    found = _at(root, section)
    if found is None:
        return f"{_whole_lines(text)}{section}:\n  {written}\n"
    if not isinstance(found, yaml.MappingNode):  # `log:` alone, which is a null
        return _replaced(text, found, f"\n  {written}")
    place = _at(found, name)
    if place is not None:
        return _replaced(text, place, json.dumps(value))
    begin = found.start_mark.index
    if found.flow_style:
        more = ", " if found.value else ""
        return f"{text[: begin + 1]}{written}{more}{text[begin + 1 :]}"
    return f"{text[:begin]}{written}\n{' ' * found.start_mark.column}{text[begin:]}"


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
