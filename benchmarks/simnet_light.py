"""What three rounds of many whole daemons cost on light seams, and what one message costs of it.

    python benchmarks/simnet_light.py [--scenarios hundred lookers-on] [--json]

Every node is `daa_node.node` with its own disk; links are regional, nobody fails. Each scenario has
a process of its own, and so a peak of memory:

1. light: CPU seconds and peak memory of the shipped scenario; its messages are messages, requests,
   frames of the bulk channel and announcements, as their senders write them;
2. trio: as many messages of the same mean size, hashed and handed from one task to another through
   a memory channel, and nothing else: no world whose nodes are tasks can be faster.

The ratio is light over trio. The limits of both scenarios are 120 CPU seconds and 4 GB.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import trio
from blake3 import blake3

from simnet.nodes.virtual.world import run_virtual
from simnet.world.determinism import Trace
from simnet.world.scenario_file import open_scenario

LIMIT_CPU_S, LIMIT_MB = 120, 4000
SCENARIOS = ("hundred", "lookers-on")
LENGTH_BYTES = 4  # the trace has each write once more by its size


class Counted(Trace):
    """A trace that counts its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = self.size_bytes = 0

    def frame(self, now_ns: int, sender: int, receiver: int, payload: bytes | memoryview) -> None:
        if len(payload) > LENGTH_BYTES:
            self.messages += 1
            self.size_bytes += len(payload)
        super().frame(now_ns, sender, receiver, payload)


def trio_cpu_s(messages: int, size_bytes: int) -> float:
    """One task hands them to another; each is waited for, as a message is."""

    async def main() -> None:
        send, receive = trio.open_memory_channel[bytes](0)
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                told = blake3()
                async for message in receive:
                    told.update(message)

            nursery.start_soon(read)
            message = bytes(size_bytes)
            for _ in range(messages):
                await send.send(message)
            await send.aclose()

    started_s = time.process_time()
    trio.run(main)
    return time.process_time() - started_s


def measured(name: str) -> dict[str, object]:
    scenario, trace = open_scenario(name), Counted()
    outcome = run_virtual(scenario, trace)
    assert outcome.ok, outcome.invariants
    assert outcome.facts["rounds"] >= scenario.work.rounds, outcome.facts
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    bare_s = trio_cpu_s(trace.messages, trace.size_bytes // trace.messages)
    voters = sum(group.count for group in scenario.nodes if group.role == "validator")
    return {
        "scenario": name,
        "voters": voters,
        "observers": scenario.node_count - voters,
        "rounds": outcome.facts["rounds"],
        "done": outcome.facts["done"],
        "participation": outcome.facts["participation"],
        "virtual_s": outcome.virtual_s,
        "messages": trace.messages,
        "megabytes": trace.size_bytes / 1e6,
        "cpu_s": outcome.cpu_s,
        "peak_mb": peak_mb,
        "trio_cpu_s": bare_s,
        "ratio": outcome.cpu_s / bare_s,
        "trace_hash": outcome.trace_hash,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if len(options.scenarios) > 1:  # each in a process of its own: its peak is its own
        for name in options.scenarios:
            command = [sys.executable, __file__, "--scenarios", name]
            subprocess.run([*command, *(["--json"] if options.json else [])], check=True)
        return
    row = measured(options.scenarios[0])
    if options.json:
        print(json.dumps({"schema_version": 1, "rows": [row]}))
        return
    print(
        f"{row['scenario']:10} {row['voters']:4} voters {row['observers']:4} observers"
        f"  {row['rounds']} rounds  {row['messages']:8} messages"
        f"  {row['cpu_s']:6.1f} CPU s (limit {LIMIT_CPU_S})"
        f"  {row['peak_mb']:6.0f} MB (limit {LIMIT_MB})"
        f"  bare trio {row['trio_cpu_s']:5.1f} s  ratio {row['ratio']:5.1f}"
    )


if __name__ == "__main__":
    main()
