"""One run of real daemons: start, let faults come and go, stop, and check what is on every disk."""

import json
import resource
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, monotonic_ns, sleep, time_ns
from typing import Any

from daa_node.checkpoints.listing import view_chain
from simnet.determinism import FAULT, Streams, Trace
from simnet.faults import Edge, healed_ns, timeline
from simnet.invariants import (
    BOUNDED,
    NOTHING_LOST,
    ONE_VERTEX,
    ONE_WORD,
    PROGRESS,
    SAME_ROOTS,
    marks,
    missed,
)
from simnet.links import NS
from simnet.outcome import Invariant, Outcome
from simnet.processes import weather
from simnet.processes.cluster import Cluster, running
from simnet.processes.leftovers import heard, noted, scratch
from simnet.processes.measurement import Measurement
from simnet.processes.memory import Memory
from simnet.processes.mishaps import Mishaps, forgets, gone_for_good
from simnet.processes.story import Story
from simnet.scenario import Scenario

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
    began_s = monotonic()
    with ExitStack() as stack:
        stack.enter_context(heard())
        note = stack.enter_context(noted(scenario.name))
        root = stack.enter_context(scratch(note)) if out is None else out
        cluster = stack.enter_context(running(scenario, root, note))
        cluster.warm()
        measured = cluster.measure()
        run = Run(scenario, cluster, trace)
        run.start()
        run.live(run.is_over)
        problems = {"ended": run.died + cluster.stop()}
        run.story.listen()
        found = _chains(cluster, cluster.verify(), run.rotten)
        facts = run.facts(measured, found)
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Outcome(
        scenario=scenario.name,
        seed=scenario.seed,
        fidelity=scenario.fidelity,
        nodes=scenario.node_count,
        virtual_s=round(run.lasted_s, 3),
        wall_s=round(monotonic() - began_s, 3),
        cpu_s=round(sum(u.ru_utime + u.ru_stime for u in usage), 3),
        trace_hash=trace.digest(),
        final_roots=found.roots,
        invariants=(
            *run.invariants(measured, found),
            Invariant(NOTHING_LOST, not found.problems, "; ".join(found.problems)),
            Invariant(ENDED_WELL, not problems["ended"], "; ".join(problems["ended"])),
            *missed(run.met(), scenario.checks.sometimes),
        ),
        sometimes=marks(run.met(), (*run.met(), *scenario.checks.sometimes)),
        facts=facts,
    )


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
        self._mishaps = Mishaps(cluster, Streams(scenario.seed), trace)
        natures = [node.nature for node in cluster.nodes]
        self._liars = {index for index, nature in enumerate(natures) if nature.lies is not None}
        forgetful = {index for edge in self._edges if forgets(edge.fault) for index in edge.nodes}
        self._may_sign_twice = {natures[index].node_id for index in self._liars | forgetful}
        self._gone = gone_for_good(self._edges)
        self._active: list[Edge] = []
        self._healed_ns = healed_ns(scenario)
        self._flap_ns: int | None = None
        self._start_ns = 0
        self.ready_s = 0.0
        self.lasted_s = 0.0
        self.died: list[str] = []  # who ended by itself
        self.story = Story([], trace, 0)
        self._memory = Memory()

    def start(self) -> None:
        """Start every daemon; time runs from the moment that all of them answer."""
        self.ready_s = self._cluster.start()
        self._start_ns, wall_ns = monotonic_ns(), time_ns()
        directories = [node.directory for node in self._cluster.nodes]
        self.story = Story(directories, self._trace, wall_ns)

    def live(self, is_over: Callable[[int], bool]) -> None:
        """Let faults come and go, and listen, until `is_over` at a moment of the run."""
        while not is_over(now_ns := monotonic_ns() - self._start_ns):
            while self._edges and self._edges[0].at_ns <= now_ns:
                self._turn(self._edges.pop(0), now_ns)
            if self._flap_ns is not None and now_ns >= self._flap_ns:
                self._change_weather(now_ns)
            self.story.listen()
            self._look_for_the_dead(now_ns)
            self._mishaps.look(now_ns)
            self._memory.look(now_ns / NS, self._honest_groups())
            sleep(LOOK_S)
        self.lasted_s = (monotonic_ns() - self._start_ns) / NS
        for node in self._cluster.nodes:
            self._cluster.pause_node(node, False)

    def _honest_groups(self) -> dict[int, int]:
        """Nodes by the process group of daemon and worker."""
        nodes = [node for node in self._cluster.nodes if node.index not in self._liars]
        return {node.pid: node.index for node in nodes if node.pid is not None}

    def _turn(self, edge: Edge, now_ns: int) -> None:
        """A fault begins or ends."""
        fault = edge.fault
        self._trace.note(now_ns, FAULT, **edge.told())
        if fault.kind in weather.OF_LINKS:
            if edge.begins:
                self._active.append(edge)
            else:
                self._active = [e for e in self._active if e.fault is not fault]
            self._change_weather(now_ns)
            return
        self._mishaps.turn(edge, now_ns)

    def _change_weather(self, now_ns: int) -> None:
        self._cluster.internet.set_links(self._cluster.weather.states(self._active, now_ns))
        self._flap_ns = self._cluster.weather.next_flap_ns(self._active, now_ns)

    def _look_for_the_dead(self, now_ns: int) -> None:
        for node in self._cluster.nodes:
            code = self._cluster.died(node)
            if code is None:
                continue
            node.pid = None
            if not self._mishaps.fell(node, now_ns) and node.nature.lies is None:
                self.died.append(f"node {node.index} ended by itself with {code}: {node.words()}")

    def is_over(self, now_ns: int) -> bool:
        """The job is done everywhere, or time is up, or a daemon has ended by itself."""
        if self._all_ended() or self.died:
            return True
        if now_ns < self._scenario.duration_s * NS:
            return False
        late_ns = self._healed_ns + int(self._scenario.checks.heal_s * NS)
        return self._progressed() or now_ns >= late_ns

    def _staying(self) -> list[int]:
        """Honest nodes that are back once every fault has healed."""
        away = self._liars | self._gone
        return [node.index for node in self._cluster.nodes if node.index not in away]

    def _all_ended(self) -> bool:
        return all(self.story.tellers[index].ended for index in self._staying())

    def _progressed(self) -> bool:
        wanted, since_ns = self._scenario.checks.finalizations_after_heal, self._healed_ns
        finals = [self.story.finals_since(index, since_ns) for index in self._staying()]
        return all(count >= wanted for count in finals)

    def invariants(self, measured: Measurement | None, found: Chains) -> list[Invariant]:
        story = self.story
        forks = [f"height {h}: {ids}" for h, ids in story.vertices.items() if len(ids) > 1]
        since_ns = self._healed_ns
        finals = [story.finals_since(index, since_ns) for index in self._staying()]
        broken = [why for name, why in story.evidence.items() if name not in self._may_sign_twice]
        grown = self._memory.excess()
        held = [
            Invariant(BOUNDED, not grown, "; ".join(grown)),
            Invariant(ONE_VERTEX, not forks + found.forks, "; ".join(forks + found.forks)),
            Invariant(ONE_WORD, not broken, "; ".join(broken)),
            Invariant(SAME_ROOTS, len(found.roots) == 1, ", ".join(found.roots)),
            Invariant(
                PROGRESS,
                self._all_ended() or self._progressed(),
                f"blocks final on each node since {since_ns / NS:.1f} s: {finals}",
            ),
        ]
        if measured is not None:
            wrong = measured.faults()
            held.append(Invariant(AS_ASKED, not wrong, "; ".join(wrong)))
        return held

    def met(self) -> Counter[str]:
        """Situations, by the nodes' own events, with the names that other fidelities have."""
        return Counter({name.replace("_", " "): self.story.names[name] for name in SOMETIMES})

    @property
    def rotten(self) -> dict[int, str]:
        """Nodes under which a bit was turned, and in which file."""
        return dict(self._mishaps.rotten)

    def facts(self, measured: Measurement | None, found: Chains) -> dict[str, Any]:
        story, switch = self.story, self._cluster.internet.counts()
        return {
            "backend": f"{self._cluster.backend.name}: {self._cluster.backend.why}",
            "ready_s": round(self.ready_s, 3),
            "warm_up_s": round(self._cluster.warm_s, 3),
            "rounds": [teller.height for teller in story.tellers],
            "job_ended": [teller.ended for teller in story.tellers],
            "losses_nats": [story.losses.get(h) for h in sorted(story.contributors)],
            "contributors": [story.contributors[h] for h in sorted(story.contributors)],
            "faults_not_reached": len([edge for edge in self._edges if edge.begins]),
            "fell": self._mishaps.falls,
            "rot": [{"node": n, "file": f, "found": found.rot[n]} for n, f in self.rotten.items()],
            "memory": self._memory.as_facts(),
            "switch": switch,
            **(measured.as_facts() if measured is not None else {}),
        }


def _chains(cluster: Cluster, checked: dict[int, str], rotten: Collection[int]) -> Chains:
    """Compare what the verifier and the lists of vertices say of every honest directory."""
    found, newest = Chains(), dict[int, int]()
    heights: dict[int, dict[str, str]] = {}
    for node in cluster.nodes:
        if node.nature.lies is not None:
            continue
        try:
            said = json.loads(checked[node.index])
        except ValueError:
            found.problems.append(f"node {node.index}: {checked[node.index][-300:]}")
            continue
        wrong = [f"{problem['what']} ({problem['where']})" for problem in said["problems"]]
        if node.index in rotten:  # it has lost what its disk did not keep, and must say so
            found.rot[node.index] = wrong
            continue
        found.problems += [f"node {node.index}: {words}" for words in wrong]
        rows = view_chain(node.directory / "chain").rows
        newest[node.index] = rows[-1].vertex.height
        for row in rows:
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
