"""A short run of four real daemons, as scenarios of tests begin from."""

from typing import Any

QUICK: dict[str, Any] = {
    "name": "real",
    "fidelity": "process",
    "duration_s": 4,
    "nodes": [{"count": 4}],
    "topology": {"preset": "local", "latency_ms": [10, 20], "mbit_s": 20},
    "work": {"kind": "training", "rounds": 1000, "inner_steps_max": 5, "window_s": 3},
    "checks": {"finalizations_after_heal": 4, "heal_s": 30},
}
