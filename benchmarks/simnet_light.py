"""What three rounds of many whole daemons cost on light seams: CPU and peak memory of the process.

    python benchmarks/simnet_light.py [--voters 10 30] [--observers 0 0] [--json]
    python benchmarks/simnet_light.py --voters 100 20 --observers 0 480

Every node is `daa_node.node` with its own disk; all voters contribute to every round, and everybody
holds the last one. Links are regional, nobody fails. The limits are 120 s and 4 GB each.
"""

import argparse
import json
import resource
import subprocess
import sys

from simnet.determinism import Trace
from simnet.scenario import NodesConfig, Scenario, TopologyConfig, WorkConfig
from simnet.virtual.world import run_virtual

LIMIT_CPU_S, LIMIT_MB = 120, 4000
ROUNDS = 3


def scenario_of(voters: int, observers: int) -> Scenario:
    groups = [NodesConfig(name="voter", count=voters)]
    if observers:
        groups.append(NodesConfig(name="watcher", count=observers, role="observer"))
    return Scenario(
        name=f"light-{voters}-{observers}",
        fidelity="light",
        duration_s=300,
        nodes=tuple(groups),
        topology=TopologyConfig(preset="regional"),
        work=WorkConfig(kind="training", rounds=ROUNDS, inner_steps_max=10, window_s=30),
    )


def measured(voters: int, observers: int) -> dict[str, object]:
    outcome = run_virtual(scenario_of(voters, observers), Trace())
    assert outcome.ok, outcome.invariants
    assert outcome.facts["rounds"] >= ROUNDS, outcome.facts
    return {
        "voters": voters,
        "observers": observers,
        "cpu_s": outcome.cpu_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "virtual_s": outcome.virtual_s,
        "contributions": outcome.facts["participation"] * voters * outcome.facts["rounds"],
        "done": outcome.facts["done"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--voters", type=int, nargs="+", default=[10, 30])
    parser.add_argument("--observers", type=int, nargs="+", default=[0, 0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    worlds = list(zip(options.voters, options.observers, strict=True))
    if len(worlds) > 1:  # each in a process of its own: its peak is its own
        for voters, observers in worlds:
            command = [sys.executable, __file__, "--voters", str(voters)]
            command += ["--observers", str(observers), *(["--json"] if options.json else [])]
            subprocess.run(command, check=True)
        return
    row = measured(*worlds[0])
    if options.json:
        print(json.dumps({"schema_version": 1, "rows": [row]}))
        return
    print(
        f"{row['voters']:4} voters {row['observers']:4} observers  {row['cpu_s']:6.1f} CPU s (limit"
        f" {LIMIT_CPU_S})  {row['peak_mb']:6.0f} MB (limit {LIMIT_MB})  {row['virtual_s']:5.1f} "
        f"virtual s  {row['contributions']:.0f} contributions in {ROUNDS} rounds"
    )


if __name__ == "__main__":
    main()
