"""A run says "held" only of what its world looks for: of what it could have seen broken."""

import ast
from collections.abc import Iterator
from pathlib import Path

import simnet
from simnet.checks import invariants
from simnet.results.run import run
from simnet.world.scenario import Scenario

FOLDER = Path(simnet.__file__).parent
PATTERNS = ("nodes/virtual/*.py", "checks/training_books.py", "checks/spot_check_audit.py")
TELLS = ("Broken", "breaks", "Invariant")  # calls whose first argument names what is broken


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call below, with the last part of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name, node


def told(tree: ast.AST) -> set[str]:
    """Invariants that are told broken in there."""
    names = {
        call.args[0].id
        for name, call in calls(tree)
        if name in TELLS and call.args and isinstance(call.args[0], ast.Name)
    }
    return {getattr(invariants, name) for name in names if hasattr(invariants, name)}


def seen_by_the_watch(asked: set[str]) -> set[str]:
    """What these methods of it tell broken, and those that they call."""
    tree = ast.parse((FOLDER / "checks" / "invariants.py").read_text())
    (watch,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Watch")
    methods = {n.name: n for n in watch.body if isinstance(n, ast.FunctionDef)}
    left, found, done = list(asked & methods.keys()), set[str](), set[str]()
    while left:
        name = left.pop()
        done.add(name)
        found |= told(methods[name])
        left += {called for called, _ in calls(methods[name])} & methods.keys() - done
    return found


def test_a_run_lists_nothing_that_its_world_cannot_see_broken() -> None:
    files = [path for pattern in PATTERNS for path in FOLDER.glob(pattern)]
    trees = [ast.parse(path.read_text()) for path in files]
    asked = {name for tree in trees for name, _ in calls(tree)}
    seen = set().union(*map(told, trees)) | seen_by_the_watch(asked)
    outcome = run(Scenario.model_validate({"name": "short", "work": {"rounds": 1}}))
    assert outcome.ok
    assert {each.name for each in outcome.invariants} - seen == set()
