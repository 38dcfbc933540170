"""What an event of simulated gossip costs, as a ratio to a bare heap in the same run.

    python benchmarks/simnet_heap.py [--nodes 1000 10000] [--json]

1. gossip: 60 virtual seconds of the shipped scenario with so many nodes: every message over a
   modelled link, in the trace hash, through the node's own code;
2. heap: as many pushes onto a `heapq` and pops from it, with as many entries waiting as the gossip
   world has timers, and nothing else: what no event loop of this kind can be faster than.

CPU seconds of this process; the ratio is gossip over heap. The limits are what the simulator
promises: 3 s for a thousand nodes, 40 s for ten thousand.
"""

import argparse
import gc
import json
import random
import time
from heapq import heappop, heappush

from simnet.nodes.heap.gossip import run_gossip
from simnet.world.determinism import Trace
from simnet.world.links import NS
from simnet.world.scenario_file import open_scenario

LIMITS_S = {1_000: 3.0, 10_000: 40.0}


def heap_cpu_s(events: int, waiting: int) -> float:
    """Push one entry for each that is popped."""
    chance = random.Random(1).random
    heap: list[tuple[int, int]] = []
    started_s = time.process_time()
    for asked in range(waiting):
        heappush(heap, (int(chance() * NS), asked))
    for asked in range(waiting, events):
        when_ns, _ = heappop(heap)
        heappush(heap, (when_ns + int(chance() * NS), asked))
    while heap:
        heappop(heap)
    return time.process_time() - started_s


def measured(nodes: int) -> dict[str, object]:
    gc.collect()
    outcome = run_gossip(open_scenario("gossip", nodes), Trace())
    assert outcome.ok, outcome.invariants
    events = outcome.facts["events"]
    heap_s = heap_cpu_s(events, nodes)
    return {
        "nodes": nodes,
        "events": events,
        "gossip_cpu_s": outcome.cpu_s,
        "heap_cpu_s": heap_s,
        "ratio": outcome.cpu_s / heap_s,
        "limit_s": LIMITS_S.get(nodes),
        "trace_hash": outcome.trace_hash,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=list(LIMITS_S))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measured(nodes) for nodes in options.nodes]
    if options.json:
        print(json.dumps({"schema_version": 1, "rows": rows}))
        return
    for row in rows:
        limit = f", limit {row['limit_s']} s" if row["limit_s"] else ""
        print(
            f"{row['nodes']:6} nodes  {row['events']:8} events  {row['gossip_cpu_s']:6.2f} CPU s"
            f"{limit}  bare heap {row['heap_cpu_s']:5.2f} s  ratio {row['ratio']:5.2f}"
        )


if __name__ == "__main__":
    main()
