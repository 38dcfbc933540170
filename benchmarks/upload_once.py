"""How often a contribution leaves its author, beside the floor of once: on the heap and for real.

    python benchmarks/upload_once.py [heap snapshot real] [--receivers 4 20 50]
        [--real-receivers 4 8] [--rounds 3] [--width 2000] [--json]

1. heap: one author, so many receivers, 40 chunks of 256 KiB over uplinks of 100 Mbit/s; the time
   until the last one is whole stands over what the author's uplink takes for one copy. The same
   again with a quarter of the receivers liars, who claim whatever they are offered as soon as they
   are, and answer nothing for long.
2. snapshot: the same for one who alone has a snapshot, and knows neither that nor how many ask;
   without liars, and once more over uplinks of a twentieth.
3. real: `benchmarks/outer_sync.py` with one daemon more than receivers, on loopback; each tells
   at a round's end how much of its contribution it has sent (`update_spread` in its log).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from simnet.nodes.heap.upload import RATIO_MAX, Upload, run_upload
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

CHUNKS, CHUNK_BYTES, UP_MBIT_S = 40, 256 * 1024, 100.0
PARTS = ("heap", "snapshot", "real")


def scenario_of(receivers: int, liars: int, up_mbit_s: float) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "upload-once",
            "seed": 1,
            "fidelity": "heap",
            "duration_s": 60,
            "nodes": [{"count": receivers + 1, "up_mbit_s": up_mbit_s}],
            "topology": {"preset": "regional"},
            "work": {"kind": "upload", "chunks": CHUNKS, "chunk_bytes": CHUNK_BYTES},
            "adversaries": [{"kind": "staller", "nodes": [1 + node]} for node in range(liars)],
        }
    )


def snapshot(receivers: int, up_mbit_s: float) -> dict[str, Any]:
    world = Upload(scenario_of(receivers, 0, up_mbit_s), Trace(), is_expected=False)
    world.run()
    floor_s = CHUNKS * CHUNK_BYTES * 8 / up_mbit_s / 1e6
    return {
        "receivers": receivers,
        "up_mbit_s": up_mbit_s,
        "sent_over_size": round(world.ratio, 4),
        "time_over_one_copy": round(max(world.whole_ns.values()) / 1e9 / floor_s, 2),
    }


def heap(receivers: int, liars: int) -> dict[str, Any]:
    facts = run_upload(scenario_of(receivers, liars, UP_MBIT_S), Trace()).facts
    floor_ms = CHUNKS * CHUNK_BYTES * 8 / UP_MBIT_S / 1000
    return {
        "receivers": receivers,
        "liars": liars,
        "sent_over_size": facts["author_sent_over_size"],
        "most_relayed_over_size": facts["most_relayed_over_size"],
        "whole_ms_last": facts["whole_ms_last"],
        "time_over_one_copy": round(facts["whole_ms_last"] / floor_ms, 2),
    }


def real(receivers: int, rounds: int, width: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="upload-once-") as directory:
        root = Path(directory)
        command = [sys.executable, str(Path(__file__).with_name("outer_sync.py")), "--json"]
        command += ["--nodes", str(receivers + 1), "--rounds", str(rounds)]
        command += ["--width", str(width), "--dir", str(root)]
        # which fails where the machine is so busy that no round has everybody: ours count anyway
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        report = json.loads(done.stdout) if done.returncode == 0 else None
        lines = [
            json.loads(line)
            for log in root.glob("node-*/events.jsonl*")
            for line in log.read_text().splitlines()
        ]
    spread = [line for line in lines if line["name"] == "update_spread"]
    first, ratios = list[float](), list[float]()
    for line in spread:
        is_first = line["round"] <= 1  # every session is being opened
        (first if is_first else ratios).append(line["sent_bytes"] / line["size_bytes"])
    return {
        "receivers": receivers,
        "contributions": len(ratios),
        "size_bytes": spread[0]["size_bytes"],
        "sent_over_size": round(statistics.median(ratios), 4),
        "sent_over_size_most": round(max(ratios), 4),
        "first_round_most": round(max(first), 4),
        "exchange_s": report and report["summary"]["exchange"]["median_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=PARTS)
    parser.add_argument("--receivers", type=int, nargs="+", default=[4, 20, 50])
    parser.add_argument("--real-receivers", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=2000, help="of the perceptron")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    if "heap" in options.parts:
        found["heap"] = [heap(n, liars) for n in options.receivers for liars in (0, n // 4)]
    if "snapshot" in options.parts:
        rates = (UP_MBIT_S, UP_MBIT_S / 20)
        found["snapshot"] = [snapshot(n, rate) for rate in rates for n in options.receivers]
    if "real" in options.parts:
        found["real"] = [real(n, options.rounds, options.width) for n in options.real_receivers]
    if options.json:
        print(json.dumps({"schema_version": 1, **found}))
        return
    print(f"sent by an author over its contribution's size; the floor is 1, the aim {RATIO_MAX}")
    for name, rows in found.items():
        for row in rows:
            print(f"  {name}: " + ", ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
