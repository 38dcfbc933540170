"""The pytest fixture `simnet_cluster`: a test's own little network of whole daemons.

pytest loads this for every run, so everything heavy is imported when a test asks for a cluster.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from simnet.checks.outcome import Outcome
    from simnet.nodes.virtual.cluster import Cluster
    from simnet.world.scenario import Scenario

NODES, ROUNDS = 4, 3  # of a network that nothing else is said of


class RunCluster:
    """What the fixture gives: call it with a script, get the run's outcome."""

    def __call__(
        self,
        script: "Callable[[Cluster], Awaitable[None]]",
        scenario: "Scenario | str | Path | None" = None,
        *,
        nodes: int | None = None,
        rounds: int | None = None,
        seed: int | None = None,
        **changes: Any,
    ) -> "Outcome":
        """Run `script(cluster)` in virtual time; see docs/simnet.md.

        `scenario` is a Scenario, a file, or the name of a shipped one; without it a network of
        `nodes` nodes (4) on regional links trains `rounds` rounds (3). `seed` and `changes`, other
        keys of a scenario (`faults=`, `topology=`, ...), replace its own. Raises what the script
        raises, and AssertionError when an invariant broke.
        """
        from simnet.nodes.virtual.world import run_script
        from simnet.world.determinism import Trace
        from simnet.world.scenario import Scenario
        from simnet.world.scenario_file import open_scenario

        if scenario is None:
            fields: dict[str, Any] = {
                "name": "test",
                "duration_s": 600,
                "nodes": [{"count": NODES if nodes is None else nodes}],
                "topology": {"preset": "regional"},
                "work": {
                    "kind": "training",
                    "rounds": ROUNDS if rounds is None else rounds,
                    "inner_steps_max": 10,
                },
            }
        else:
            if nodes is not None or rounds is not None:
                raise TypeError("a scenario has its own `nodes`, and its rounds in `work`")
            if not isinstance(scenario, Scenario):
                scenario = open_scenario(str(scenario))
            fields = scenario.model_dump(mode="json", exclude_defaults=True)
        if seed is not None:
            changes["seed"] = seed
        played = Scenario.model_validate({**fields, "fidelity": "trio", **changes})
        try:
            outcome = run_script(played, Trace(), script)
        except BaseException as raised:
            raised.add_note(f"simnet: scenario {played.name}, seed {played.seed}")
            raise
        broken = [f"{each.name}: {each.detail}" for each in outcome.invariants if not each.ok]
        assert not broken, f"seed {played.seed}: {'; '.join(broken)}"
        return outcome


@pytest.fixture
def simnet_cluster() -> RunCluster:
    """Runs a script in a simulated network of real daemons: `simnet_cluster(script, nodes=4)`."""
    return RunCluster()
