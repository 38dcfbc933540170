"""The pytest fixture `simnet_cluster`: a test's own little network of whole daemons.

pytest loads this for every run, so everything heavy is imported when a test asks for a cluster.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from simnet.outcome import Outcome
    from simnet.scenario import Scenario
    from simnet.virtual.cluster import Cluster


class RunCluster(Protocol):
    """What the fixture gives: call it with a script, get the run's outcome."""

    def __call__(
        self,
        script: "Callable[[Cluster], Awaitable[None]]",
        scenario: "Scenario | str | Path | None" = None,
        *,
        nodes: int = 4,
        rounds: int = 3,
        seed: int = 0,
        **changes: Any,
    ) -> "Outcome":
        """Run `script(cluster)` in virtual time; see docs/simnet.md.

        `scenario` is a Scenario, a file, or the name of a shipped one; without it a network of
        `nodes` nodes on regional links trains `rounds` rounds, and `changes` are further keys of a
        scenario (`faults=`, `topology=`, ...). Raises what the script raises, and AssertionError
        when an invariant broke.
        """


@pytest.fixture
def simnet_cluster() -> RunCluster:
    """Runs a script in a simulated network of real daemons: `simnet_cluster(script, nodes=4)`."""
    return _run_cluster


def _run_cluster(
    script: "Callable[[Cluster], Awaitable[None]]",
    scenario: "Scenario | str | Path | None" = None,
    *,
    nodes: int = 4,
    rounds: int = 3,
    seed: int = 0,
    **changes: Any,
) -> "Outcome":
    from simnet.determinism import Trace
    from simnet.scenario import Scenario
    from simnet.scenario_file import open_scenario
    from simnet.virtual.world import run_script

    if scenario is None:
        fields: dict[str, Any] = {
            "name": "test",
            "fidelity": "trio",
            "seed": seed,
            "duration_s": 600,
            "nodes": [{"count": nodes}],
            "topology": {"preset": "regional"},
            "work": {"kind": "training", "rounds": rounds, "inner_steps_max": 10},
        }
        scenario = Scenario.model_validate({**fields, **changes})
    elif not isinstance(scenario, Scenario):
        scenario = open_scenario(str(scenario))
    try:
        outcome = run_script(scenario, Trace(), script)
    except BaseException as raised:
        raised.add_note(f"simnet: scenario {scenario.name}, seed {scenario.seed}")
        raise
    broken = [f"{each.name}: {each.detail}" for each in outcome.invariants if not each.ok]
    assert not broken, f"seed {scenario.seed}: {'; '.join(broken)}"
    return outcome
