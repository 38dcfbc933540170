"""What whole rounds of a crowd cost to simulate, and that ten times as many take no more memory.

    python benchmarks/simnet_rounds.py [--minutes 1 10] [--json]

The shipped scenario `trainers`, a thousand of them and twenty validators, for so many virtual
minutes, each time in a fresh process: CPU of it, its peak memory, and entries that all nodes keep.
"""

import argparse
import json
import subprocess
import sys

ONE_RUN = """
import json, sys
from simnet.nodes.heap.rounds import run_rounds
from simnet.world.determinism import Trace
from simnet.world.scenario_file import open_scenario
scenario = open_scenario("trainers").model_copy(update={"duration_s": 60 * float(sys.argv[1])})
print(json.dumps(run_rounds(scenario, Trace()).as_json()))
"""
SHOWN = (
    "rounds",
    "rounds_an_hour",
    "drawn_in_set_share",
    "waited_rounds_most",
    "waited_rounds_bound",
    "upload_percent_p50",
    "kept_entries_most",
    "peak_mib",
    "peak_kib_a_node",
    "messages",
    "cpu_s_a_virtual_minute",
)


def measured(minutes: float) -> dict[str, object]:
    command = [sys.executable, "-c", ONE_RUN, str(minutes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    outcome = json.loads(done.stdout)
    # The marks that it must meet, and nothing else, may take longer than a short run has.
    broken = [each for each in outcome["invariants"] if not each["ok"]]
    assert all(each["name"].startswith("sometimes") for each in broken), broken
    return {"minutes": minutes} | {name: outcome["facts"][name] for name in SHOWN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, nargs="+", default=[1, 10])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measured(minutes) for minutes in options.minutes]
    if options.json:
        print(json.dumps({"schema_version": 1, "rows": rows}))
        return
    for name in rows[0]:
        print(f"{name:26}" + "".join(f"{row[name]!s:>12}" for row in rows))


if __name__ == "__main__":
    main()
