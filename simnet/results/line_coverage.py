"""Which lines inside functions a run has been through, by package.

A tracer that stops looking at a function once all of its lines were seen, in whichever run of the
process, makes a run cost twice its CPU or so. Lines at the top of modules and classes,
and of `def` itself, are not counted: importing runs them.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import daa_node

ROOT = Path(daa_node.__file__).parent.parent
PACKAGES = ("daa_dag", "daa_consensus", "daa_node")

Lines = dict[str, set[int]]  # by file, relative to ROOT
TraceFunction = Callable[[FrameType, str, Any], Any]


class LineCoverage:
    """What was seen so far; `watching` adds to it."""

    def __init__(self) -> None:
        self._left: dict[int, set[int]] = {}  # lines not seen yet, by the code object's id
        self._codes: dict[int, CodeType] = {}  # kept, so that an id stays its own
        self._tracers: dict[int, TraceFunction | None] = {}  # None: all of its lines were seen

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note every line that this thread runs until the block ends."""
        before, tracers, tracer_of = sys.gettrace(), self._tracers, self._tracer_of

        def on_call(frame: FrameType, _event: str, _argument: Any) -> TraceFunction | None:
            code = frame.f_code
            try:
                return tracers[id(code)]
            except KeyError:
                return tracer_of(code)

        sys.settrace(on_call)
        try:
            yield
        finally:
            sys.settrace(before)

    @property
    def seen(self) -> Lines:
        found: Lines = {}
        for name, left in self._left.items():
            code = self._codes[name]
            path = _place(code.co_filename)
            assert path is not None, "others are not watched"
            found.setdefault(path, set()).update(_lines(code) - left)
        return found

    def _tracer_of(self, code: CodeType) -> TraceFunction | None:
        """What is called for each line of it, from its first call on until all were seen."""
        name, tracers = id(code), self._tracers
        self._codes[name], tracers[name] = code, None
        if _place(code.co_filename) is None or code.co_name == "<module>":
            return None
        left = self._left[name] = _lines(code)

        def on_line(frame: FrameType, _event: str, _argument: Any) -> TraceFunction | None:
            left.discard(frame.f_lineno)  # where it returns or raises, too: it was there
            if left:
                return on_line
            tracers[name] = None
            return None

        tracers[name] = on_line
        return on_line


@cache
def _place(filename: str) -> str | None:
    """The file's path in the tree; None unless it is of one of the packages."""
    path = Path(filename)
    if not path.is_relative_to(ROOT):
        return None
    place = path.relative_to(ROOT)
    return place.as_posix() if place.parts[0] in PACKAGES else None


def _lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None} - {code.co_firstlineno}


def _functions(code: CodeType, inside: bool = False) -> Iterator[CodeType]:
    """All code objects of functions below; a class body is none."""
    for each in (constant for constant in code.co_consts if isinstance(constant, CodeType)):
        is_function = inside or "__qualname__" not in each.co_names
        if is_function:
            yield each
        yield from _functions(each, is_function)


def package_of(path: str) -> str:
    """daa_node/rounds/job_runner.py is of daa_node/rounds, daa_node/node.py of daa_node."""
    return "/".join(path.split("/")[:-1][:2])


def by_package(seen: Lines) -> list[tuple[str, int, int]]:
    """(package, lines seen, all lines inside functions), sorted by name."""
    lines_seen: Counter[str] = Counter()
    lines_all: Counter[str] = Counter()
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        whole = compile(path.read_text(encoding="utf-8"), str(path), "exec")
        lines = {line for code in _functions(whole) for line in _lines(code)}
        lines_all[package_of(place)] += len(lines)
        lines_seen[package_of(place)] += len(lines & seen.get(place, set()))
    return [(name, lines_seen[name], lines_all[name]) for name in sorted(lines_all)]
