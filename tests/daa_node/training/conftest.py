"""What a test of somebody's module imports is gone again after it, and what others left before."""

import sys
from collections.abc import Iterator

import pytest

from tests.daa_node.training.own_modules import PACKAGE


@pytest.fixture(autouse=True)
def _forgets_modules() -> Iterator[None]:
    finders = list(sys.meta_path)
    _forget()
    yield
    sys.meta_path[:] = finders
    _forget()


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
