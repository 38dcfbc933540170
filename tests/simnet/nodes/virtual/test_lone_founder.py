"""Whole daemons: a network of one validator grows."""

from simnet.nodes.virtual.world import run_virtual
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario


def test_somebody_joins_who_was_all_by_itself_and_both_vote() -> None:
    outcome = run_virtual(
        Scenario.model_validate(
            {
                "name": "lone-founder",
                "seed": 3,
                "fidelity": "light",
                "duration_s": 20,
                "nodes": [{"count": 1}, {"name": "later", "count": 1, "role": "observer"}],
                "topology": {"preset": "regional"},
                "work": {
                    "kind": "training",
                    "rounds": 24,
                    "inner_steps_max": 2,
                    "epoch_rounds": 2,
                },
                "changes": [{"kind": "join", "at_s": 1, "node": 1, "stake": 1}],
                "checks": {"finalizations_after_heal": 1, "sometimes": ["joiner voted"]},
            }
        ),
        Trace(),
    )
    assert [f"{each.name}: {each.detail}" for each in outcome.invariants if not each.ok] == []
