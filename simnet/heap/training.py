"""Training work on the event heap: one run, and beside it the fault-free one that goodput needs.

Goodput is what certified sets hold of useful tokens a second, over the same of a run in which no
fault happens: same seed, same speeds, same conduct. Nodes of any number take part: today's protocol
has at most VALIDATORS_MAX validators, and a blob at most CHUNKS_MAX chunks; what goes beyond shows
what would be if those limits were raised, and the facts say so.
"""

import time
from typing import Any, assert_never

from daa_consensus.committee import VALIDATORS_MAX
from daa_dag.chunking import CHUNK_BYTES_MAX, CHUNKS_MAX
from daa_node.errors import UserError
from daa_node.rounds.config import RoundsConfig
from simnet.determinism import Streams, Trace
from simnet.faults import healed_ns, timeline
from simnet.heap import training_failures
from simnet.heap.training_author import Authors
from simnet.heap.training_closing import Closing
from simnet.heap.training_execution import Execution
from simnet.heap.training_links import BITS_A_BYTE, Access
from simnet.heap.training_settle import Settlement
from simnet.heap.training_transfers import Transfers
from simnet.heap.training_world import Parts, TrainingWorld
from simnet.invariants import marks, missed
from simnet.links import NS
from simnet.outcome import Invariant, Outcome
from simnet.scenario import Scenario
from simnet.topology import MBIT, TIERS
from simnet.training.payloads import Payload, VirtualPayload, shadow_of, sizes_with
from simnet.training.tally import Books, facts

WINDOW_MS_MAX = 86_400_000  # what a genesis allows
MARKS = (
    "a contribution was left out",
    "a node caught up",
    "a node was left behind",
    "a partition healed",
    "a round was aborted",
    "nobody reached a quorum",
    "a view was nullified",
    "training was given up",
)


def run(scenario: Scenario, trace: Trace) -> Outcome:
    """Raises UserError for what this world cannot do."""
    _check(scenario)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    payload = _open_payload(scenario)
    shadow = shadow_of(payload, scenario.seed)
    world = build(scenario, trace, payload)
    end_ns = walk(world)
    found = facts(world.books, scenario, end_ns)
    found |= _goodput(scenario, shadow, found["tokens_per_s"])
    found["beyond_todays_limits"] = _beyond_limits(scenario, shadow)
    found["hop_ms"] = round(world.votes.hop_ns / 1e6, 3)
    return Outcome(
        scenario=scenario.name,
        seed=scenario.seed,
        fidelity=scenario.fidelity,
        nodes=scenario.node_count,
        virtual_s=round(end_ns / NS, 3),
        wall_s=round(time.perf_counter() - wall_s, 3),
        cpu_s=round(time.process_time() - cpu_s, 3),
        trace_hash=trace.digest(),
        final_roots=(world.newest.model_root.hex(),),
        invariants=(
            *world.books.invariants(end_ns),
            _progress(scenario, world.books, end_ns),
            *missed(world.books.hits, scenario.checks.sometimes),
        ),
        sometimes=marks(world.books.hits, (*MARKS, *scenario.checks.sometimes)),
        facts=found,
    )


def _open_payload(scenario: Scenario) -> Payload:
    """The scenario's model, real or virtual."""
    match scenario.work.model:
        case "virtual":
            if scenario.adversaries:
                raise UserError("an update that holds nothing cannot be poisoned: model: mlp")
            work = scenario.work
            sizes = sizes_with(work.updates, work.parameters)
            return VirtualPayload(sizes, work.codec, work.tokens_per_step, scenario.seed)
        case "mlp" if scenario.adversaries:
            from simnet.training.poisoned import Poisoned  # torch

            return Poisoned(scenario)
        case "mlp":
            from simnet.training.perceptrons import Perceptrons  # torch

            return Perceptrons(scenario)
        case _:
            assert_never(scenario.work.model)


def build(scenario: Scenario, trace: Trace, payload: Payload | None = None) -> TrainingWorld:
    """A world at its beginning, with all of its parts and its faults to come."""
    if payload is None:
        payload = _open_payload(scenario)
    world = TrainingWorld(scenario, payload, _access(scenario), trace)
    world.parts = Parts(
        Authors(world), Transfers(world), Closing(world), Settlement(world), Execution(world)
    )
    edges = timeline(scenario, Streams(scenario.seed))
    training_failures.Failures(world).schedule(edges, int(scenario.duration_s * NS))
    for member in world.members:
        world.parts.authors.enter(member, 0)
    return world


def walk(world: TrainingWorld) -> int:
    """All rounds, or all the time there is; returns how long it took, in ns."""
    scenario = world.scenario
    world.agenda.run(
        int(scenario.duration_s * NS), lambda: len(world.books.sets) >= scenario.work.rounds
    )
    for member in world.members:
        member.account.enter(member.account.stage, world.now_ns)
        member.account.received_bytes += int(world.links.received_bytes[member.node])
    return world.now_ns


def _goodput(scenario: Scenario, shadow: Payload, tokens_per_s: float) -> dict[str, Any]:
    """Against the same run without its faults; 1 if it has none."""
    fault_free = tokens_per_s
    if scenario.faults:
        calm = scenario.model_copy(update={"faults": ()})
        world = build(calm, Trace(), shadow)
        end_ns = walk(world)
        fault_free = world.books.tokens_total / max(end_ns / NS, 1e-9)
    return {
        "goodput": round(tokens_per_s / fault_free, 4) if fault_free else None,
        "tokens_per_s_without_faults": round(fault_free, 3),
    }


def _progress(scenario: Scenario, books: Books, end_ns: int) -> Invariant:
    """Once the last fault has healed, a round is certified in time; or the run was over before.

    That is `heal_s` later, and what one round may take: its collection and its execution.
    """
    since_ns, bound_s = healed_ns(scenario), scenario.checks.heal_s + 2 * scenario.work.window_s
    until_ns = since_ns + int(bound_s * NS)
    ok = end_ns < until_ns or any(since_ns <= at_ns <= until_ns for at_ns in books.certified_ns)
    done = f"{len(books.sets)} of {scenario.work.rounds} rounds"
    why = "" if ok else f", none in the {bound_s:g} s from {since_ns / NS:g} s on"
    return Invariant("progress", ok, done + why)


def _access(scenario: Scenario) -> list[Access]:
    """Rates of the class, else the topology's; between regions a three-tier world is a WAN."""
    topology = scenario.topology
    preset = "wan" if topology.preset == "three_tier" else topology.preset
    mbit_s = topology.mbit_s or TIERS[preset].mbit_s
    found = []
    for node in range(scenario.node_count):
        group = scenario.group_of(node)
        up, down = group.up_mbit_s or mbit_s, group.down_mbit_s or mbit_s
        found.append(Access(up * MBIT / BITS_A_BYTE, down * MBIT / BITS_A_BYTE))
    return found


def _beyond_limits(scenario: Scenario, payload: Payload) -> list[str]:
    """Which limits of today's protocol this scenario ignores."""
    found = []
    if scenario.node_count > VALIDATORS_MAX:
        found.append(f"{scenario.node_count} validators, today at most {VALIDATORS_MAX}")
    blob_max = CHUNK_BYTES_MAX * CHUNKS_MAX
    largest = max(*payload.sizes.update_bytes.values(), payload.sizes.delta_bytes)
    if largest > blob_max:
        found.append(f"blobs of {largest} bytes, today at most {blob_max}")
    return found


def _check(scenario: Scenario) -> None:
    training_failures.check(scenario)
    if any(group.role != "validator" for group in scenario.nodes):
        raise UserError("training: contributors are validators in this version of the protocol")
    window_ms = round(scenario.work.window_s * 1000)
    if not 100 <= window_ms <= WINDOW_MS_MAX:
        raise UserError(
            f"work.window_s {scenario.work.window_s}: a genesis allows 0.1 to {WINDOW_MS_MAX / 1e3}"
        )
    steps_max = RoundsConfig.model_json_schema()["properties"]["inner_steps_max"]["maximum"]
    if scenario.work.inner_steps_max > steps_max:
        raise UserError(f"work.inner_steps_max: a genesis allows at most {steps_max}")
