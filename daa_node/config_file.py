"""Read a YAML file into a frozen pydantic model, or say everything that is wrong with it and where.

A file holds differences from the defaults. Environment variables and flags go on top of it, in that
order; every value remembers where it came from. All faults are reported at once, each as
`file:line:col: error: key: what`, with the line, a caret, and the closest known key.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from daa_node.errors import UserError

FILE_BYTES_MAX = 1 << 20  # a configuration is a few kilobytes; a larger file is the wrong file
FAULTS_SHOWN_MAX = 12  # more than fit a screen help nobody
LINE_SHOWN_MAX = 160  # characters around the fault: a file that is none of ours may have one line
# what the reader says of a mistake -> what it mostly is
YAML_HINTS = {
    "expected the node content, but found ':'": "in [...] and {...} what begins with : has quotes",
    "expected ',' or": "is a bracket open, or a value without its quotes?",
    "found character '\\t'": "indent with spaces, not with a tab",
}
VALUE_SHOWN_MAX = 80  # characters, so that the message ends on the screen

M = TypeVar("M", bound=BaseModel)
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Override:
    """One value from outside the file: `where` is shown to people, `text` is read as YAML."""

    path: KeyPath
    text: str
    where: str


@dataclass(frozen=True, slots=True)
class Loaded(Generic[M]):
    """The model, and where each value that is not a default came from."""

    value: M
    origins: Mapping[KeyPath, str]

    def origin_of(self, path: KeyPath) -> str:
        """`file:line`, the name of a variable or flag, or "default"."""
        return self.origins.get(path, "default")


@dataclass(frozen=True, slots=True)
class _Span:
    """A piece of one line of the file; all counts start at 0."""

    line: int
    column: int
    width: int


@dataclass(slots=True)
class _Source:
    """A parsed file: plain data, and where each key and value stands."""

    name: str
    lines: list[str]
    keys: dict[KeyPath, _Span] = field(default_factory=dict)
    values: dict[KeyPath, _Span] = field(default_factory=dict)
    overrides: dict[KeyPath, str] = field(default_factory=dict)
    faults: list[tuple[int, str]] = field(default_factory=list)  # (line, message)

    def fault(self, span: _Span | None, message: str) -> None:
        if span is None:
            self.faults.append((0, f"{self.name}: error: {message}"))
            return
        whole = self.lines[span.line] if span.line < len(self.lines) else ""
        begin = max(0, span.column - LINE_SHOWN_MAX // 2) if len(whole) > LINE_SHOWN_MAX else 0
        text, before = whole[begin : begin + LINE_SHOWN_MAX], span.column - begin
        number, carets = str(span.line + 1), "^" * max(1, min(span.width, len(text) - before))
        shown = (
            f"{self.name}:{span.line + 1}:{span.column + 1}: error: {message}\n"
            f"  {number} | {text}\n"
            f"  {' ' * len(number)} | {' ' * before}{carets}"
        )
        self.faults.append((span.line, shown))


def load(name: str, text: str, model: type[M], overrides: Sequence[Override] = ()) -> Loaded[M]:
    """Validate `text`, the content of the file called `name`. Raises UserError with every fault."""
    source = _Source(name, text.splitlines())
    data = _parse(source, text)
    for override in overrides:
        _apply(source, data, override)
    if not source.faults:
        try:
            value = model.model_validate(data)
        except ValidationError as invalid:
            for error in invalid.errors():
                _explain(source, model, error)
        else:
            return Loaded(value, {**_lines(source), **source.overrides})
    raise UserError(_joined(source.faults))


def environment_overrides(
    environment: Mapping[str, str], model: type[BaseModel], prefix: str = "DAA_"
) -> list[Override]:
    """`DAA_NETWORK__PORT=4001` sets `network.port`. A name that sets nothing is refused."""
    known = {prefix + "__".join(map(str, path)).upper(): path for path in leaves(model)}
    overrides = []
    for variable in sorted(environment):
        if not variable.startswith(prefix):
            continue
        if variable not in known:
            close = difflib.get_close_matches(variable, known, 1, 0.6)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UserError(f"the environment variable {variable} sets nothing{hint}")
        where = f"environment {variable}"
        overrides.append(Override(known[variable], environment[variable], where))
    return overrides


def leaves(model: type[BaseModel], above: KeyPath = ()) -> Iterator[KeyPath]:
    """The path of every value of `model` that is not itself a section."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from leaves(info.annotation, (*above, name))
        else:
            yield (*above, name)


def _parse(source: _Source, text: str) -> dict[str, Any]:
    if len(text) > FILE_BYTES_MAX:
        raise UserError(f"{source.name}: {len(text)} characters; a configuration has few")
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as broken:
        mark = broken.problem_mark or broken.context_mark
        span = _Span(mark.line, mark.column, 1) if mark else None
        source.fault(span, _with_hint(broken.problem or "this is not YAML"))
        return {}
    except yaml.reader.ReaderError as broken:
        *above, before = text[: broken.position].split("\n")
        source.fault(_Span(len(above), len(before), 1), f"this is not YAML: {broken.reason}")
        return {}
    except RecursionError:
        source.fault(_Span(0, 0, 0), "sections lie in each other too deeply")
        return {}
    if root is None:
        source.values[()] = _Span(0, 0, 0)  # where a key that is required is missing
        return {}
    if not isinstance(root, yaml.MappingNode):
        source.fault(_span_of(root), "the file must hold `key: value` lines")
        return {}
    data = _plain(source, root, (), set())
    assert isinstance(data, dict)
    return data


def _with_hint(problem: str) -> str:
    """What YAML's own words leave to guess."""
    found = (hint for begin, hint in YAML_HINTS.items() if problem.startswith(begin))
    return f"{problem}; {hint}" if (hint := next(found, None)) else problem


def _plain(source: _Source, node: yaml.Node, path: KeyPath, seen: set[int]) -> Any:
    """The node as dicts, lists and scalars; marks and faults go into `source`."""
    source.values[path] = _span_of(node)
    if id(node) in seen:
        source.fault(_span_of(node), "aliases (&name, *name) are not read here; write it out")
        return None
    seen.add(id(node))
    match node:
        case yaml.MappingNode():
            mapping: dict[str, Any] = {}
            for key_node, value_node in node.value:
                key, span = key_node.value, _span_of(key_node)
                if not isinstance(key, str):
                    source.fault(span, "a key is a word")
                    continue
                if key in mapping:
                    first = source.keys[(*path, key)].line + 1
                    source.fault(span, f"duplicate key '{key}' (first at line {first})")
                    continue
                source.keys[(*path, key)] = span
                mapping[key] = _plain(source, value_node, (*path, key), seen)
            return mapping
        case yaml.SequenceNode():
            return [
                _plain(source, item, (*path, index), seen) for index, item in enumerate(node.value)
            ]
        case _:
            return _scalar(source, node)


def _scalar(source: _Source, node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        value = loader.construct_object(node)
    except (yaml.YAMLError, ValueError) as broken:
        source.fault(_span_of(node), f"cannot be read: {broken}")
        return None
    finally:
        loader.dispose()
    # YAML 1.1 takes "1e-3" for text although everybody means the number.
    if isinstance(value, str) and isinstance(node, yaml.ScalarNode) and node.style is None:
        try:
            return float(value) if "e" in value.lower() else value
        except ValueError:
            return value
    return value


def _apply(source: _Source, data: dict[str, Any], override: Override) -> None:
    try:
        value = yaml.safe_load(override.text)
    except yaml.YAMLError:
        value = override.text
    section: Any = data
    for depth, key in enumerate(override.path[:-1]):
        if isinstance(section, list):
            if not (isinstance(key, int) and key < len(section)):
                dotted = ".".join(map(str, override.path[: depth + 1]))
                source.faults.append((-1, f"{override.where}: error: there is no {dotted}"))
                return
            section = section[key]
        elif isinstance(section, dict):
            # A list that the file does not have begins with what is changed about its first item.
            section = section.setdefault(key, [{}] if override.path[depth + 1] == 0 else {})
        else:
            return  # the section itself is told to be wrong
    if isinstance(section, dict):
        section[override.path[-1]] = value
        source.overrides[override.path] = override.where


def _explain(source: _Source, model: type[BaseModel], error: ErrorDetails) -> None:
    path = _as_written(source, tuple(error["loc"]), error["type"])
    if error["type"] == "string_pattern_mismatch":
        error = _in_words(model, path, error)
    dotted = ".".join(map(str, path))
    unknown = ""
    if error["type"] == "extra_forbidden":
        hint = _hint(model, _model_at(model, path[:-1]), str(path[-1]))
        unknown = f"{dotted}: unknown key{hint}"
    for depth in range(len(path), 0, -1):
        if path[:depth] in source.overrides:
            where = source.overrides[path[:depth]]
            words = unknown or f"{dotted}: {_words(error)}"
            source.faults.append((-1, f"{where}: error: {words}"))
            return
    if unknown:
        source.fault(source.keys.get(path), unknown)
    elif error["type"] == "missing":
        source.fault(_nearest(source, path[:-1]), f"{dotted}: this key is required")
    else:
        source.fault(
            _nearest(source, path), f"{dotted}: {_words(error)}" if path else _words(error)
        )


def _as_written(source: _Source, path: KeyPath, fault: str) -> KeyPath:
    """Without the names that the library gives to ways of writing one value: no file has them."""
    if any(path[:depth] in source.overrides for depth in range(1, len(path) + 1)):
        return path  # it stands in no file
    kept: KeyPath = ()
    for place, key in enumerate(path, 1):
        is_lacking = place == len(path) and fault == "missing"
        is_there = (*kept, key) in source.values or kept not in source.values
        if is_there or is_lacking:
            kept = (*kept, key)
    return kept


def _in_words(model: type[BaseModel], path: KeyPath, error: ErrorDetails) -> ErrorDetails:
    """With what the setting is before the pattern, which few people read."""
    names = tuple(key for key in path if isinstance(key, str))
    section = _model_at(model, names[:-1])
    info = section.model_fields.get(names[-1]) if section is not None and names else None
    if info is None or info.description is None:
        return error
    pattern = error["msg"].partition("'")[2].rstrip("'")
    return {**error, "msg": f"should be {info.description}, by {pattern}"}


def _words(error: ErrorDetails) -> str:
    message = error["msg"].removeprefix("Value error, ")
    # what the library calls these is not what a person writes in YAML
    if error["type"] in ("tuple_type", "list_type"):
        message = "this is a list: write [...]"
    elif error["type"] in ("model_type", "dict_type"):
        message = "this is a section: its keys stand in lines below it, or in {...}"
    elif error["type"] in ("bool_type", "bool_parsing"):
        message = "this is true or false"
    elif error["type"] == "string_type":
        message = "this is text: write it in quotes"
    elif error["type"] == "path_type":
        message = "this is the path of a file"
    message = message[:1].lower() + message[1:]
    given = error["input"]
    if not isinstance(given, str | int | float | bool):
        return message
    shown = repr(given)
    cut = f"{shown[:VALUE_SHOWN_MAX]}..." if len(shown) > VALUE_SHOWN_MAX else shown
    return f"{message} (got {cut})"


def _hint(root: type[BaseModel], section: type[BaseModel] | None, key: str) -> str:
    if section is None:
        return ""
    known = list(section.model_fields)
    close = difflib.get_close_matches(key, known, 1, 0.6)
    if close:
        return f"; did you mean '{close[0]}'? known keys: {', '.join(known)}"
    elsewhere = [path for path in leaves(root) if path[-1] == key and len(path) > 1]
    if elsewhere:
        return f"; it belongs under '{'.'.join(map(str, elsewhere[0][:-1]))}'"
    near = difflib.get_close_matches(key, known, 1, 0.3)
    guess = f"; did you mean '{near[0]}'?" if near else ";"
    return f"{guess} known keys: {', '.join(known)}"


def _nearest(source: _Source, path: KeyPath) -> _Span | None:
    while path:
        span = source.values.get(path)
        # an inner section is too wide to underline: its key says where it is
        if span is not None and (span.width or path not in source.keys):
            return span
        if path in source.keys:
            return source.keys[path]
        path = path[:-1]
    return source.values.get(())


def _lines(source: _Source) -> dict[KeyPath, str]:
    return {path: f"{source.name}:{span.line + 1}" for path, span in source.keys.items()}


def _span_of(node: yaml.Node) -> _Span:
    """Zero wide for what fills more than one line, and for sections."""
    start, end = node.start_mark, node.end_mark
    one_line = start.line == end.line and isinstance(node, yaml.ScalarNode)
    return _Span(start.line, start.column, end.column - start.column if one_line else 0)


def _model_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    found: type[BaseModel] | None = model
    for key in path:
        if found is None or isinstance(key, int):
            continue  # an index: the list's items are of the model found already
        info = found.model_fields.get(key)
        found = model_in(info.annotation) if info is not None else None
    return found


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside `Model`, `Model | None`, `list[Model]` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for m in map(model_in, get_args(annotation)) if m is not None), None)


def _joined(faults: Sequence[tuple[int, str]]) -> str:
    shown = [text for _, text in sorted(faults)[:FAULTS_SHOWN_MAX]]
    if len(faults) > len(shown):
        shown.append(f"and {len(faults) - len(shown)} more")
    return "\n".join(shown)
