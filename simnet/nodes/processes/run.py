"""One run of real daemons: start, let faults come and go, stop, and check what is on every disk."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns, sleep, time_ns
from typing import Any

from daa_node.checkpoints.listing import view_chain
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import NodeError
from daa_node.genesis import chain_facts
from simnet.checks.invariants import (
    BOUNDED,
    NOTHING_LOST,
    ONE_STATEMENT,
    ONE_VERTEX,
    PASSAGES,
    PROGRESS,
    SAME_ROOTS,
)
from simnet.checks.outcome import ROUTERS, Invariant, Outcome, Stopwatch, nothing
from simnet.nodes.processes.cluster import Cluster, running
from simnet.nodes.processes.event_logs import EventLogs
from simnet.nodes.processes.leftovers import heard, scratch
from simnet.nodes.processes.measurement import Measurement
from simnet.nodes.processes.memory import Memory
from simnet.nodes.processes.node_faults import NodeFaults, gone_for_good, may_sign_twice
from simnet.nodes.processes.nodes import genesis_of
from simnet.nodes.processes.passages import lacking, passages
from simnet.nodes.processes.vouching import Vouching
from simnet.world.determinism import FAULT, Streams, Trace
from simnet.world.faults import Edge, healed_ns, timeline
from simnet.world.link_conditions import OF_LINKS
from simnet.world.links import NS
from simnet.world.scenario import Scenario

SOMETIMES = (
    "round_finalized",
    "round_aborted",
    "view_given_up",
    "caught_up",
    "quarantined",
    "rejoined",
    "storage_failed",
    "events_lost",
    "clock_skewed",
    "peer_fault",
    "evidence_found",
)
LOOK_S = 0.02  # between two looks at logs and clock: faults come at most so late
AS_ASKED = "links are as the scenario asks, within a tenth"
ENDED_WELL = "daemons run until they are told to stop, and then end well"


def run_processes(scenario: Scenario, trace: Trace, out: Path | None) -> Outcome:
    """`out` keeps the nodes' directories. Raises UserError for what real processes cannot do."""
    began = Stopwatch()
    with ExitStack() as stack:
        stack.enter_context(heard())
        place = stack.enter_context(scratch())
        cluster = stack.enter_context(running(scenario, out or place, place))
        measured = cluster.measure()
        run = Run(scenario, cluster, trace)
        run.start()
        run.live(run.is_over)
        ended_badly = run.died + cluster.stop()
        run.logs.read()
        found = _chains(cluster, run.faults.rotten)
        facts = run.facts(measured, found)
    invariants = [
        *run.invariants(measured, found),
        nothing(NOTHING_LOST, found.problems),
        nothing(ENDED_WELL, ended_badly),
    ]
    met = Counter({name.replace("_", " "): run.logs.names[name] for name in SOMETIMES})
    return began.outcome(scenario, trace, run.lasted_s, found.roots, invariants, met, facts)


@dataclass(slots=True)
class Chains:
    """What lies on the disks."""

    problems: list[str] = field(default_factory=list)
    forks: list[str] = field(default_factory=list)
    roots: tuple[str, ...] = ()
    rot: dict[int, list[str]] = field(default_factory=dict)  # what the verifier says, by node


class Run:
    """The time from the moment that all daemons answer."""

    def __init__(self, scenario: Scenario, cluster: Cluster, trace: Trace) -> None:
        self._scenario = scenario
        self._cluster = cluster
        self._trace = trace
        self._edges = timeline(scenario, Streams(scenario.seed))
        self.faults = NodeFaults(cluster, Streams(scenario.seed), trace)
        natures = [node.nature for node in cluster.nodes]
        self._liars = {index for index, nature in enumerate(natures) if nature.liar is not None}
        forgetful = {n for edge in self._edges if may_sign_twice(edge.fault) for n in edge.nodes}
        self._may_sign_twice = {natures[index].node_id for index in self._liars | forgetful}
        away = self._liars | gone_for_good(self._edges)
        # honest nodes that are back once every fault has healed
        self._staying = [index for index in range(len(natures)) if index not in away]
        self._healed_ns = healed_ns(scenario)
        self._flap_ns: int | None = None
        self._heights: set[int] = set()  # of those that stay, at the last look
        self._start_ns = 0
        self.ready_s = 0.0
        self.lasted_s = 0.0
        self.died: list[str] = []  # who ended by itself
        self.logs = EventLogs([], trace, 0)
        self._memory = Memory()
        self._vouching = Vouching(scenario, cluster)

    def start(self) -> None:
        """Start every daemon; time runs from the moment that all of them answer."""
        self.ready_s = self._cluster.start()
        self._start_ns, wall_ns = monotonic_ns(), time_ns()
        directories = [node.directory for node in self._cluster.nodes]
        self.logs = EventLogs(directories, self._trace, wall_ns)

    def live(self, is_over: Callable[[int], bool]) -> None:
        """Let faults come and go, and read, until `is_over` at a moment of the run."""
        while not is_over(now_ns := monotonic_ns() - self._start_ns):
            while self._edges and self._edges[0].at_ns <= now_ns:
                self._turn(self._edges.pop(0), now_ns)
            if self._flap_ns is not None and now_ns >= self._flap_ns:
                self._set_links(now_ns)
            self.logs.read()
            self._look_for_the_dead(now_ns)
            self.faults.look(now_ns)
            self._vouching.look(now_ns)
            self._memory.look(now_ns / NS, self._groups_at_work())
            sleep(LOOK_S)
        self.lasted_s = (monotonic_ns() - self._start_ns) / NS
        for node in self._cluster.nodes:
            self._cluster.pause_node(node, False)

    def _groups_at_work(self) -> dict[int, int]:
        """Honest nodes that have seen a round certified, by process group of daemon and worker."""
        logs = self.logs.of_nodes
        nodes = [node for node in self._cluster.nodes if node.index not in self._liars]
        return {n.pid: n.index for n in nodes if n.pid is not None and logs[n.index].height}

    def _turn(self, edge: Edge, now_ns: int) -> None:
        """A fault begins or ends."""
        self._trace.note(now_ns, FAULT, **edge.told())
        if edge.fault.kind in OF_LINKS:
            self._cluster.conditions.turn(edge)
            self._set_links(now_ns)
        else:
            self.faults.turn(edge, now_ns)

    def _set_links(self, now_ns: int) -> None:
        conditions = self._cluster.conditions
        self._cluster.internet.set_links(conditions.states(now_ns))
        self._flap_ns = conditions.next_flap_ns(now_ns)

    def _look_for_the_dead(self, now_ns: int) -> None:
        for node in self._cluster.nodes:
            code = self._cluster.died(node)
            if code is None:
                continue
            node.pid = None
            if not self.faults.fell(node, now_ns) and node.nature.liar is None:
                self.died.append(f"node {node.index} ended by itself with {code}: {node.words()}")

    def is_over(self, now_ns: int) -> bool:
        """The job is done, or what was to be seen; time is up, or a daemon has ended by itself."""
        if self._all_ended() or self.died or self._has_seen_passages():
            return True
        if now_ns < self._scenario.duration_s * NS:
            return False
        late_ns = self._healed_ns + int(self._scenario.checks.heal_s * NS)
        return self._progressed() or now_ns >= late_ns

    def _all_ended(self) -> bool:
        return all(self.logs.of_nodes[index].ended for index in self._staying)

    def _has_seen_passages(self) -> bool:
        """And a round has just ended everywhere, so that none is cut short here and not there."""
        heights = {self.logs.of_nodes[index].height for index in self._staying}
        has_ended, self._heights = len(heights) == 1 and heights != self._heights, heights
        return self._scenario.checks.passages and has_ended and not self._lacking()

    def _lacking(self) -> list[str]:
        """Of the passages that there can be."""
        names = [node.nature.node_id for node in self._cluster.nodes]
        roles = [self._scenario.group_of(node).role for node in range(len(names))]
        validators = [node for node, role in enumerate(roles) if role == "validator"]
        logs, nats = self.logs.of_nodes, self._scenario.nats
        return lacking(logs, nats, names, self._staying, validators)

    def _progressed(self) -> bool:
        wanted = self._scenario.checks.finalizations_after_heal
        return all(count >= wanted for count in self._finals())

    def _finals(self) -> list[int]:
        """Blocks that became final on each node that stays, once all has healed."""
        logs = [self.logs.of_nodes[index] for index in self._staying]
        return [sum(at_ns >= self._healed_ns for at_ns in log.finals_ns) for log in logs]

    def invariants(self, measured: Measurement | None, found: Chains) -> list[Invariant]:
        told = self.logs.evidence.items()
        forks = [f"height {h}: {ids}" for h, ids in self.logs.vertices.items() if len(ids) > 1]
        blocks = f"blocks final on each node since {self._healed_ns / NS:.1f} s: {self._finals()}"
        held = [
            nothing(BOUNDED, self._memory.excess()),
            nothing(ONE_VERTEX, forks + found.forks),
            nothing(ONE_STATEMENT, [why for name, why in told if name not in self._may_sign_twice]),
            Invariant(SAME_ROOTS, len(found.roots) == 1, ", ".join(found.roots)),
            Invariant(PROGRESS, self._all_ended() or self._progressed(), blocks),
        ]
        if self._scenario.checks.passages:
            held.append(nothing(PASSAGES, self._lacking()))
        return held if measured is None else [*held, nothing(AS_ASKED, measured.faults())]

    def _passages(self) -> dict[str, Any]:
        if not any(self._scenario.nats):
            return {}
        numbers = {node.nature.node_id: node.index for node in self._cluster.nodes}
        return {ROUTERS: passages(self.logs.of_nodes, self._scenario.nats, numbers)}

    def facts(self, measured: Measurement | None, found: Chains) -> dict[str, Any]:
        logs, backend, rotten = self.logs, self._cluster.backend, self.faults.rotten
        return {
            "backend": f"{backend.name}: {backend.why}",
            "ready_s": round(self.ready_s, 3),
            "rounds": [log.height for log in logs.of_nodes],
            "job_ended": [log.ended for log in logs.of_nodes],
            "losses_nats": [logs.losses.get(h) for h in sorted(logs.contributors)],
            "contributors": [logs.contributors[h] for h in sorted(logs.contributors)],
            **self._passages(),
            "faults_not_reached": len([edge for edge in self._edges if edge.begins]),
            "fell": self.faults.falls,
            "rot": [{"node": n, "file": f, "found": found.rot[n]} for n, f in rotten.items()],
            "memory": self._memory.as_facts(),
            "switch": self._cluster.internet.counts(),
            **(measured.as_facts() if measured is not None else {}),
        }


def _chains(cluster: Cluster, rotten: dict[int, str]) -> Chains:
    """What every honest directory holds, as `daa-node checkpoint verify` and `list` would say."""
    found, newest = Chains(), dict[int, int]()
    heights: dict[int, dict[str, str]] = {}
    for node in cluster.nodes:
        if node.nature.liar is not None:
            continue
        chain = node.directory / "chain"
        try:
            report = verify_chain(chain, chain_facts(genesis_of(node.directory)))
        except NodeError as fault:  # its own files end no other node's judgement
            found.problems.append(f"node {node.index}: {fault}")
            continue
        wrong = [f"{problem.what} ({problem.where})" for problem in report.problems]
        if node.index in rotten:  # it has lost what its disk did not keep, and must say so
            found.rot[node.index] = wrong
            continue
        found.problems += [f"node {node.index}: {words}" for words in wrong]
        for row in view_chain(chain).rows if report.ok else ():
            newest[node.index] = row.vertex.height
            vertex_id, root = row.vertex_id.hex(), row.vertex.model_root.hex()
            kept = heights.setdefault(row.vertex.height, {}).setdefault(vertex_id, root)
            assert kept == root, "one vertex has one root"
    for height, vertices in heights.items():
        if len(vertices) > 1:
            found.forks.append(f"height {height}: {sorted(vertices)}")
    if newest:
        lowest = heights.get(min(newest.values()), {})
        found.roots = tuple(sorted(set(lowest.values())))
    return found
