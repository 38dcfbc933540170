"""The house rules that a program can check; each rule is also shown to catch a planted breach.

Rules look at syntax trees only. What may break a rule stands in a table here, with its reason.
"""

import ast
import gc
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("daa_dag", "daa_consensus", "daa_node", "simnet")
FOLDERS = (*PACKAGES, "handbook", "tests", "benchmarks", "wasm_worker/src")
PAGES = ("wasm_worker", "dashboard")
# the pages' own sources; node_modules and what is built are not ours
PAGE_SOURCES = ("*.html", "*.ts", "src/*", "src/*/*", "kernels/*", "test/*", "test/*/*")

FUNCTION_LINES_MAX, ARGUMENTS_MAX, METHODS_MAX, MODULE_LINES_MAX = 70, 8, 20, 500
LINE_CHARS_MAX = 100

# file -> why `except Exception` is right there; how many of them
BROAD_EXCEPT = {
    "daa_node/adapters/bulk_channel.py": (1, "one session, whatever its handler raises"),
    "daa_node/adapters/libp2p_dht.py": (1, "one round of upkeep that parses peers' answers"),
    "daa_node/adapters/libp2p_pubsub.py": (2, "one task, one heartbeat"),
    "daa_node/adapters/libp2p_sockets.py": (2, "a connection each way: the library's bytes"),
    "daa_node/adapters/libp2p_host.py": (1, "one stream of a stranger"),
    "daa_node/adapters/libp2p_swarm.py": (2, "one connection of a stranger, each way"),
    "daa_node/adapters/libp2p_yamux.py": (1, "one connection: cipher, socket, format"),
    "daa_node/adapters/http_door.py": (2, "one visit; the gateway as a whole"),
    "daa_node/network/requests.py": (1, "one request, whatever its handler raises"),
    "daa_node/training/datasets/tokenizer.py": (2, "the library raises nothing narrower"),
    "daa_node/adapters/control_socket.py": (1, "one bad request must not end the daemon"),
    "daa_node/training/module_source.py": (1, "an import: the code of whoever made the job"),
    "daa_node/training/datasets/built.py": (2, "a build and a read: that code, too"),
    "daa_node/training/models/module.py": (1, "a call: that code, whatever it raises"),
    "daa_node/training/models/opening.py": (1, "a build: that code, whatever it raises"),
    "daa_node/training/models/causal_lm.py": (1, "a library's build: whatever a folder holds"),
    "daa_node/training/site/shards.py": (1, "a call: that code, on one of several devices"),
    "simnet/results/shrink.py": (1, "what a run raises is the failure that is looked for"),
    "simnet/results/sweep.py": (1, "one seed: what it raises is a finding, and others are to come"),
    "simnet/nodes/virtual/machine.py": (1, "a node that was just killed may stumble while it ends"),
    "simnet/nodes/virtual/cluster.py": (1, "a bug of a node is what the run is there to tell of"),
}
# file -> why it may look at the clock or draw randomness itself
TIME_AND_CHANCE = {
    "daa_node/adapters/": "reality behind the seams",
    "daa_node/cli/": "the commands of a person at a terminal",
    "daa_node/training/torch_worker.py": "a process of its own: it measures steps",
    "daa_node/training/orders.py": "the same process: it saves when idle, and sends heartbeats",
    "simnet/": "the world itself: seeded chance, and how long a run took",
    "tests/": "seeded interleavings, and limits on wall time",
    "benchmarks/": "they measure time",
}
# file -> why it may import torch
TORCH = {
    "daa_node/training/": "the worker's own code; the daemon never imports it",
    "simnet/nodes/virtual/inline_trainer.py": "the same core as the worker's, run inline",
    "daa_node/updates/torch_kernels.py": "the second implementation of the integer kernels",
    "tests/": "tests of both",
    "benchmarks/": "torch's own all_reduce is the yardstick",
}
# modules that a process starts by name instead of importing them
ENTRIES = {"daa_node.__main__", "daa_node.cli.main", "simnet.cli", "simnet.pytest_plugin"}

VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager", "core_utils"}
OUTDATED = re.compile(r"(^|_)(legacy|compat|old|deprecated|v[2-9]|part[1-9])(_|$)")
UNFINISHED = re.compile(
    r"\b(TODO|FIXME|XXX|HACK|NotImplementedError|placeholder|for now|simplified"
    r"|in a real (?:system|implementation))\b"
)
OUR_ERRORS = re.compile(r"(Error|Fault|Failed|Unavailable|Malformed|Refused)$")


@dataclass(frozen=True)
class Module:
    """One parsed file; `path` is relative to the top of the tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.path.split("/")[0]

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def classes(self) -> Iterator[ast.ClassDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                yield node

    def imports(self) -> Iterator[tuple[int, str]]:
        """(line, dotted name) of everything imported; `from a import b` gives a and a.b."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.lineno, node.module
                for alias in node.names:
                    yield node.lineno, f"{node.module}.{alias.name}"


Breach = tuple[int, str]
Rule = Callable[[Module], Iterator[Breach]]


def parsed(path: str, text: str) -> Module:
    return Module(path, text, ast.parse(text))


@cache
def modules() -> tuple[Module, ...]:
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    gc.disable()  # millions of nodes, and all of them stay: its rounds would take most of the time
    try:
        return tuple(
            parsed(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8"))
            for file in files
        )
    finally:
        gc.freeze()
        gc.enable()


@cache
def page_files() -> tuple[tuple[str, str], ...]:
    """(path, text) of what the pages are made of, Python apart."""
    files = [
        file
        for page in PAGES
        for pattern in PAGE_SOURCES
        for file in sorted((ROOT / page).glob(pattern))
    ]
    return tuple(
        (file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8"))
        for file in files
        if file.is_file() and file.suffix not in (".py", ".json")
    )


def excused(path: str, table: dict[str, str]) -> bool:
    return any(path.startswith(prefix) for prefix in table)


def line_sizes(text: str) -> Iterator[Breach]:
    lines = text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield 1, f"module of {lines} lines, at most {MODULE_LINES_MAX}"
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > LINE_CHARS_MAX:
            yield number, f"line of {len(line)} characters, at most {LINE_CHARS_MAX}"


def sizes(module: Module) -> Iterator[Breach]:
    yield from line_sizes(module.text)
    for function in module.functions():
        assert function.end_lineno is not None
        length = function.end_lineno - function.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield function.lineno, f"{function.name} has {length} lines"
        a = function.args
        count = len([*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, [a.vararg, a.kwarg])])
        if count > ARGUMENTS_MAX:
            yield function.lineno, f"{function.name} takes {count} arguments"
    for each in module.classes():
        methods = [n for n in each.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        if len(methods) > METHODS_MAX:
            yield each.lineno, f"class {each.name} has {len(methods)} methods"


def names(module: Module) -> Iterator[Breach]:
    for part in Path(module.path).with_suffix("").parts:
        if part in VAGUE or OUTDATED.search(part):
            yield 1, f"'{part}' says nothing, or says that there is another one"
    for node in [*module.functions(), *module.classes()]:
        if OUTDATED.search(node.name) and not node.name.startswith("test_"):
            yield node.lineno, f"'{node.name}' lives beside its successor: replace means delete"


def words(module: Module) -> Iterator[Breach]:
    if module.path == "tests/test_tidy.py":
        return  # it names them
    yield from unfinished(module.text)


def unfinished(text: str) -> Iterator[Breach]:
    for number, line in enumerate(text.splitlines(), 1):
        found = UNFINISHED.search(line)
        if found:
            yield number, f"'{found.group()}' marks unfinished work"


def docstrings(module: Module) -> Iterator[Breach]:
    if module.path.endswith("__init__.py"):
        if module.text.strip():
            yield 1, "an __init__.py is empty: say where a thing lives by importing it from there"
        return
    first = (ast.get_docstring(module.tree) or "").split("\n\n")[0]
    if not first:
        yield 1, "no module docstring"
    elif not first.rstrip().endswith((".", ":", "?")):
        yield 1, "the module docstring does not begin with a sentence"


def exceptions(module: Module) -> Iterator[Breach]:
    broad = 0
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = ast.unparse(node.type) if node.type else ""
        reraises = any(isinstance(inner, ast.Raise) and not inner.exc for inner in ast.walk(node))
        if not caught:
            yield node.lineno, "bare except"
        elif re.search(r"\bBaseException\b|\bCancelled\b", caught) and not reraises:
            yield node.lineno, f"swallows {caught}"
        elif re.search(r"\bException\b", caught):
            broad += 1
            if broad > BROAD_EXCEPT.get(module.path, (0, ""))[0]:
                yield node.lineno, "except Exception, not in the table of this test"


def inheritance(module: Module) -> Iterator[Breach]:
    own = own_bases()
    for each in module.classes():
        depth, name = 0, each.name
        seen = {name}
        while True:
            above = [base for base in own.get(name, ()) if base in own and base not in seen]
            if not above:
                break
            depth, name = depth + 1, above[0]
            seen.add(name)
        allowed = 2 if OUR_ERRORS.search(each.name) or "Error" in name else 1
        if depth > allowed:
            yield each.lineno, f"class {each.name} stands {depth} deep among our own: compose"


@cache
def own_bases() -> dict[str, tuple[str, ...]]:
    return {
        each.name: tuple(ast.unparse(base).split("[")[0].split(".")[-1] for base in each.bases)
        for module in modules()
        if module.package in PACKAGES
        for each in module.classes()
    }


def floats(module: Module) -> Iterator[Breach]:
    if module.package != "daa_consensus":
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            yield node.lineno, f"float {node.value} in consensus"
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
            yield node.lineno, "true division in consensus: use // "
        elif isinstance(node, ast.Name) and node.id == "float":
            yield node.lineno, "float in consensus"


def prints(module: Module) -> Iterator[Breach]:
    if module.path.startswith(("daa_node/cli/", "simnet/cli", "benchmarks/", "tests/")):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.stdout.write"):
            yield node.lineno, "print: emit an event instead"


def worlds(module: Module) -> Iterator[Breach]:
    for line, name in module.imports():
        top = name.split(".")[0]
        if name in ("unittest.mock", "mock") or top == "pytest_mock":
            yield line, "a mock: swap a seam instead"
        if top == "asyncio":
            yield line, "asyncio: this house runs on trio"
        if top in ("time", "random", "secrets") and not excused(module.path, TIME_AND_CHANCE):
            yield line, f"{top}: take time, chance and keys as arguments"
        may_torch = excused(module.path, TORCH) and module.path != "daa_node/training/config.py"
        if top == "torch" and not may_torch:
            yield line, "torch: only the worker process may import it"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            yield node.lineno, "__all__: a leading underscore says what is private"
        if isinstance(node, ast.Name) and node.id in ("MagicMock", "Mock"):
            yield node.lineno, "a mock: swap a seam instead"


RULES: list[Rule] = [
    sizes,
    names,
    words,
    docstrings,
    exceptions,
    inheritance,
    floats,
    prints,
    worlds,
]

BREACHES: list[tuple[Rule, str, str]] = [
    (sizes, "daa_node/a.py", "def f():\n" + "    pass\n" * 70),
    (sizes, "daa_node/a.py", "def f(a, b, c, d, e, f, g, h, i): ...\n"),
    (sizes, "daa_node/a.py", "class A:\n" + "".join(f" def m{i}(s): ...\n" for i in range(21))),
    (sizes, "daa_node/a.py", "x = 1\n" * 501),
    (sizes, "daa_node/a.py", "x = '" + "y" * 100 + "'\n"),
    (names, "daa_node/network/utils.py", ""),
    (names, "daa_node/codec_v2.py", ""),
    (names, "daa_node/a.py", "def load_legacy(): ...\n"),
    (words, "daa_node/a.py", "x = 1  # TODO: more\n"),
    (docstrings, "daa_node/a.py", "x = 1\n"),
    (docstrings, "daa_node/a.py", '"""Things and more things"""\n'),
    (docstrings, "daa_node/__init__.py", "from daa_node import cli\n"),
    (exceptions, "daa_node/a.py", "try:\n    x\nexcept:\n    pass\n"),
    (exceptions, "daa_node/a.py", "try:\n    x\nexcept Exception:\n    pass\n"),
    (exceptions, "daa_node/a.py", "try:\n    x\nexcept (OSError, Exception):\n    pass\n"),
    (exceptions, "daa_node/a.py", "try:\n    x\nexcept trio.Cancelled:\n    pass\n"),
    (exceptions, "daa_node/a.py", "try:\n    x\nexcept BaseException:\n    y()\n"),
    (floats, "daa_consensus/a.py", "x = 0.5\n"),
    (floats, "daa_consensus/a.py", "x = a / b\n"),
    (floats, "daa_consensus/a.py", "x = float(y)\n"),
    (prints, "daa_node/rounds/a.py", "print(1)\n"),
    (worlds, "tests/test_a.py", "from unittest.mock import patch\n"),
    (worlds, "daa_node/a.py", "import asyncio\n"),
    (worlds, "daa_node/rounds/a.py", "import time\n"),
    (worlds, "daa_consensus/bft/a.py", "from random import random\n"),
    (worlds, "daa_node/training/config.py", "import torch\n"),
    (worlds, "daa_node/node.py", "from torch import nn\n"),
    (worlds, "daa_node/a.py", "__all__ = ['x']\n"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_whole_tree_keeps_the_rule(rule: Rule) -> None:
    found = [
        f"{module.path}:{line}: {message}" for module in modules() for line, message in rule(module)
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("rule", [line_sizes, unfinished], ids=lambda rule: rule.__name__)
def test_the_page_keeps_the_rules_that_need_no_python(
    rule: Callable[[str], Iterator[Breach]],
) -> None:
    found = [f"{path}:{line}: {words}" for path, text in page_files() for line, words in rule(text)]
    assert page_files()
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("rule", "path", "text"), BREACHES, ids=[f"{b[0].__name__}-{i}" for i, b in enumerate(BREACHES)]
)
def test_a_planted_breach_is_found(rule: Rule, path: str, text: str) -> None:
    assert list(rule(parsed(path, text)))


def test_every_broad_except_in_the_table_still_exists() -> None:
    for path, (count, reason) in BROAD_EXCEPT.items():
        assert reason
        text = (ROOT / path).read_text(encoding="utf-8")
        assert len(re.findall(r"except\*? [^:]*\bException\b", text)) == count, path


def test_every_module_is_imported_by_more_than_tests() -> None:
    reached = set(ENTRIES)
    for module in modules():
        if module.package != "tests":
            reached |= {name for _, name in module.imports()}
            # the worker is started by its name: `python -m <module>`
            reached |= {
                node.value
                for node in ast.walk(module.tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
    lonely = [
        dotted
        for module in modules()
        if module.package in PACKAGES and not module.path.endswith("__init__.py")
        for dotted in [module.path.removesuffix(".py").replace("/", ".")]
        if dotted not in reached
    ]
    assert not lonely, f"replace means delete; test tools live under tests/: {lonely}"


def test_every_event_name_is_emitted_somewhere() -> None:
    path = "daa_node/observability/events.py"
    events = next(module for module in modules() if module.path == path)
    declared = {
        node.targets[0].id
        for node in events.tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "EventName"
    }
    used = {
        node.id if isinstance(node, ast.Name) else node.attr
        for module in modules()
        if module.package in PACKAGES and module.path != path
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name | ast.Attribute)
    }
    assert not declared - used, "declared and never emitted"
