"""What a test of somebody's module imports is gone again after it."""

import sys
from collections.abc import Iterator

import pytest

from tests.daa_node.training.own_modules import PACKAGE


@pytest.fixture(autouse=True)
def _forgets_modules() -> Iterator[None]:
    finders = list(sys.meta_path)
    yield
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
