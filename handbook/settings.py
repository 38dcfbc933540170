"""Tables of every setting of a file, as its pydantic model declares them.

The program is the only source: a name, a bound or a default that changes there changes here. They
come from the model's JSON schema, so that a kind of value needs no code of its own.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

# The end of a key says in what it counts. The first that fits counts.
UNITS: tuple[tuple[str, str], ...] = (
    ("_mbit_s", "Mbit/s"),
    ("_gb_a_day", "GB a day (10^9 bytes)"),
    ("parameters_per_s", "parameters a second"),
    ("bytes_max", "bytes"),
    ("_bytes", "bytes"),
    ("_ms", "ms"),
    ("_s", "s"),
    ("_percent", "percent"),
    ("_ppm", "parts in a million"),
    ("_nats", "nats"),
    ("_rounds", "rounds"),
    ("_steps", "steps"),
    ("steps_max", "steps"),
)
_NAMES = {
    "boolean": "`true` or `false`",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "object": "section",
    "null": "`null`",
}
_BOUNDS = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "above {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "below {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
)
_CODE = re.compile(r"(`[^`]*`)")
_LISTS = (("minItems", "at least {} of them"), ("maxItems", "at most {} of them"))


@dataclass(frozen=True, slots=True)
class Setting:
    """One key that takes a value, in words for a reader."""

    path: str  # with dots; `[]` behind a list of sections
    kind: str
    unit: str
    bounds: str
    default: str
    meaning: str

    @property
    def section(self) -> str:
        """What stands before the last dot; "" at the top."""
        return self.path.rpartition(".")[0]


def settings_of(model: type[BaseModel], leave_out: Collection[str] = ()) -> Iterator[Setting]:
    """Each setting of `model` in the order of its file; not what is below a path of `leave_out`."""
    schema = model.model_json_schema()
    yield from _Reader(schema.get("$defs", {}), frozenset(leave_out)).below(schema, "", {})


@dataclass(frozen=True, slots=True)
class _Reader:
    definitions: Mapping[str, Any]
    left_out: frozenset[str]

    def below(
        self, section: Mapping[str, Any], above: str, defaults: Mapping[str, Any]
    ) -> Iterator[Setting]:
        """`defaults` are those that the section itself is given by what holds it."""
        required = section.get("required", ())
        for name, declared in section.get("properties", {}).items():
            path = f"{above}.{name}" if above else name
            if path in self.left_out:
                continue
            default = defaults.get(name, declared.get("default", _NOTHING))
            sections = list(self._sections(declared))
            if not self._is_section_alone(declared):
                yield self._setting(path, declared, default, name in required)
            for inner, is_listed in sections:
                given = default if isinstance(default, dict) and not is_listed else {}
                yield from self.below(inner, f"{path}[]" if is_listed else path, given)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            schema = self.definitions[schema["$ref"].rpartition("/")[2]]
        return schema

    def _choices(self, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The ways of writing a value, each without a reference."""
        found = self._resolved(schema)
        either = found.get("anyOf") or found.get("oneOf")
        return [self._resolved(each) for each in either] if either else [found]

    def _is_section_alone(self, schema: Mapping[str, Any]) -> bool:
        return all("properties" in each for each in self._choices(schema))

    def _sections(self, schema: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
        """(the section's own schema, whether there is a list of them)."""
        for each in self._choices(schema):
            if "properties" in each:
                yield each, False
            for item in filter(None, [each.get("items")]):
                if isinstance(item, Mapping) and self._is_section_alone(item):
                    yield self._resolved(item), True

    def _setting(
        self, path: str, declared: Mapping[str, Any], default: Any, is_required: bool
    ) -> Setting:
        has_sections = any(True for _ in self._sections(declared))
        last = path.rpartition(".")[2]
        choices = self._choices(declared)
        is_counted = any(each.get("type") in ("integer", "number") for each in choices)
        is_counted = is_counted or any(each.get("type") == "array" for each in choices)
        unit = next((unit for end, unit in UNITS if last.endswith(end)), "")
        bounds = (said for each in choices for said in self._bounds(each))
        return Setting(
            path,
            ", or ".join(dict.fromkeys(self._kind(each) for each in choices)),
            unit if is_counted else "",
            ", ".join(dict.fromkeys(bounds)),
            "required" if is_required else _value(default),
            declared.get("description", "its keys are below" if has_sections else ""),
        )

    def _kind(self, schema: Mapping[str, Any]) -> str:
        if "enum" in schema or "const" in schema:
            values = schema.get("enum") or [schema["const"]]
            return ", ".join(f"`{_plain(value)}`" for value in values)
        if schema.get("format") == "path":
            return "path"
        if schema.get("type") != "array":
            return _NAMES.get(schema.get("type", ""), "any value")
        if "prefixItems" in schema:
            kinds = [self._kind(self._resolved(each)) for each in schema["prefixItems"]]
            return f"pair: `[{', '.join(kinds)}]`".replace("`[", "[").replace("]`", "]")
        item = self._resolved(schema.get("items", {}))
        if "properties" in item:
            return "list of sections"
        inside = " or ".join(dict.fromkeys(self._kind(each) for each in self._choices(item)))
        return f"list of {inside}"

    def _bounds(self, schema: Mapping[str, Any]) -> Iterator[str]:
        inner = schema.get("items") if schema.get("type") == "array" else None
        parts = [schema, *([self._resolved(inner)] if isinstance(inner, Mapping) else [])]
        parts += [self._resolved(each) for each in schema.get("prefixItems", [])[:1]]
        for part in parts:
            for key, words in _BOUNDS:
                if key in part:
                    yield words.format(in_figures(part[key]))
            if "pattern" in part:
                yield f"like `{part['pattern']}`"
        if "prefixItems" not in schema:
            for key, words in _LISTS:
                if key in schema:
                    yield words.format(in_figures(schema[key]))


class _Nothing:
    """Where a key has no default of its own."""


_NOTHING = _Nothing()


def in_figures(number: float) -> str:
    """A bound as people write it: 2^63 and 10^9 instead of digits that nobody counts."""
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int):
        return f"{number:g}"
    for base, least in ((10, 7), (2, 17)):
        for exponent in range(least, 66):
            for offset, said in ((0, ""), (-1, " - 1")):
                if number == base**exponent + offset:
                    return f"{base}^{exponent}{said}"
    return f"{number:,}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _value(default: Any) -> str:
    match default:
        case _Nothing():
            return ""
        case str():
            return f"`{default}`" if default else "empty"
        case _:
            return f"`{json.dumps(default)}`"


def table(settings: Collection[Setting], reloaded: Collection[str] | None = None) -> Iterator[str]:
    """Lines of Markdown: a heading and a table for each section.

    `reloaded` names what a running daemon takes over; None where the question makes no sense.
    """
    sections = dict.fromkeys(each.section for each in settings)
    for section in sections:
        yield f"### {section or 'At the top'}"
        yield ""
        columns = ["setting", "value", "default", "meaning"]
        if reloaded is not None:
            columns.insert(3, "SIGHUP")
        yield f"| {' | '.join(columns)} |"
        yield f"|{'---|' * len(columns)}"
        for each in settings:
            if each.section != section:
                continue
            last = each.path.rpartition(".")[2]
            value = "; ".join(filter(None, [each.kind, each.unit, each.bounds]))
            cells = [f"`{last}`", value, each.default, each.meaning]
            if reloaded is not None:
                cells.insert(3, "applies" if each.path in reloaded else "restart")
            yield table_row(cells)
        yield ""


def table_row(cells: Collection[str]) -> str:
    """One line of a table. A bar within code stays: our renderer knows that it parts no cells."""
    whole = (_CODE.split(" ".join(cell.split())) for cell in cells)
    escaped = (
        "".join(part if at % 2 else part.replace("|", "\\|") for at, part in enumerate(parts))
        for parts in whole
    )
    return f"| {' | '.join(escaped)} |"
