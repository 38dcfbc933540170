"""Shipped scenarios of agreement in trouble hold, and meet what they are for.

But for `partition`, which tests/test_readme.py runs: its command ends with 1 if anything broke.
"""

import pytest

from simnet.results.run import run
from simnet.world.scenario_file import open_scenario

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", ["churn", "epochs", "byzantine", "members"])
def test_a_shipped_scenario_holds_and_meets_what_it_is_for(name: str) -> None:
    outcome = run(open_scenario(name))
    broken = [f"{each.name}: {each.detail}" for each in outcome.invariants if not each.ok]
    assert broken == []
