"""Consensus on a heap: the daemon's machine, signer, letters and restart in a world that fails.

    faults' edges --+
    letters --------+--> heap of (virtual ns, work) --> hosts --> letters over the wire
    timers ---------+                                     |
                                                          +--> everything seen goes to the Watch

Real: every decision, what is signed and when, what is kept, the letters' bytes, what a restart
makes of a disk. Not here: signatures (constant, so that traces agree), training, offers, Acks.

A run has two phases. Until the last fault has healed, safety alone is checked. From then on the
world is kind, and every honest node has to finalize `finalizations_after_heal` more blocks within
`heal_s`.

Adversaries: see simnet/adversaries/conduct.py for the hook, kinds.py there for those there are.
"""

import heapq
import time
from collections.abc import Callable, Container
from functools import partial
from itertools import count
from typing import Any

import trio

from daa_consensus.bft.messages import genesis_block
from daa_consensus.committee import Committee, Validator
from daa_dag.ids import ChainId, NodeId, VertexId
from daa_node.errors import UserError
from simnet.adversaries.chosen import chosen_liars
from simnet.adversaries.conduct import Conduct
from simnet.adversaries.kinds import CONDUCTS
from simnet.determinism import BROKEN, Streams, Trace
from simnet.faults import Aims, healed_ns, timeline
from simnet.heap.consensus_boot import Make
from simnet.heap.consensus_carrier import Carrier
from simnet.heap.consensus_faults import befall, leader
from simnet.heap.consensus_host import Host
from simnet.heap.consensus_letters import Desk, Network, keys_of
from simnet.heap.consensus_operators import Operators
from simnet.heap.consensus_wire import Wire
from simnet.invariants import (
    ASSERTIONS,
    BOUNDED,
    NO_SLANDER,
    OF_DAEMONS,
    PROGRESS,
    SAME_ROOTS,
    WATCHED,
    Broken,
    Watch,
    marks,
    missed,
    verdicts,
)
from simnet.links import MS, NS
from simnet.outcome import Outcome
from simnet.scenario import Scenario
from simnet.topology import Topology

NODES_MAX = 128  # validators and observers: validators write to each other
HEAP_MAX = 200_000  # things that are going to happen
EVENTS_MAX = 5_000_000  # of one run: more is a storm
BLOCKS_AFTER_CHANGES = 4  # that the last of them must not stop
LATE_DELTAS = 24  # within which data is everywhere, where a puppet may wait for that
DOUBLINGS_MAX = 4  # of a view's patience: 48 delta, 12 s of 250 ms


class Consensus:
    """The world. `run` it once, inside of a trio run whose clock is `clock`."""

    def __init__(self, scenario: Scenario, trace: Trace, make: Make) -> None:
        self.scenario, self.trace, self.make = scenario, trace, make
        self.streams = Streams(scenario.seed)
        self.now_ns = 0
        self.events = 0
        self._order = count()
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self.network = _network(scenario, self.streams)
        self.watch = Watch(self.network.genesis, self.network.committee, self.network.epoch_rounds)
        self.desk = Desk()
        self.wire = Wire(Topology(scenario, self.streams), self.streams, scenario.node_count)
        self.carrier = Carrier(self, self.wire)
        # Nobody but a puppet tells the others that all is well while it keeps its Finalize.
        puppets = any(adversary.kind == "puppet" for adversary in scenario.adversaries)
        self.data_deltas = LATE_DELTAS if puppets else 1
        self._liars: set[int] = set()
        conducts = self._conducts()
        nodes = range(scenario.node_count)
        self.hosts = [host for node in nodes for host in self._hosts(node, conducts.get(node))]
        self.hosts_of = [[host for host in self.hosts if host.node == node] for node in nodes]
        self.aims = Aims(partial(leader, self))
        self._operators = Operators(self)
        self._healed_ns = healed_ns(scenario)
        self._target: int | None = None  # final blocks that end the run
        self._done = False

    def _conducts(self) -> dict[int, Conduct]:
        chosen = chosen_liars(self.scenario, self.streams)
        for adversary in chosen.values():
            if adversary.kind not in CONDUCTS:
                raise UserError(f"heap consensus has no adversary {adversary.kind}")
        self._liars |= chosen.keys()
        return {node: CONDUCTS[adversary.kind]() for node, adversary in chosen.items()}

    def _hosts(self, node: int, conduct: Conduct | None) -> list[Host]:
        keys = self.network.keys[node]
        return [
            Host(self, self.make, (node, body), keys, conduct, self.streams)
            for body in range(1 if conduct is None else conduct.bodies)
        ]

    # What hosts need

    def at(self, at_ns: int, work: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (at_ns, next(self._order), work))

    @property
    def is_whole(self) -> bool:
        """Whether the last fault has healed."""
        return self._target is not None

    def is_honest(self, node: int) -> bool:
        return node not in self._liars

    def is_in_core(self, node: int) -> bool:
        """Whether it must make progress, whoever else is broken for good."""
        return not self.scenario.checks.core or node in self.scenario.checks.core

    def distrust(self, node: int) -> None:
        """Its disk will make it forget what it signed: it counts among the liars from now on."""
        self._liars.add(node)

    def note(self, what: str, **fields: Any) -> None:
        self.trace.note(self.now_ns, what, **fields)

    def convicted(self, host: Host, offender: NodeId) -> None:
        """A host holds evidence against a node."""
        node = self.network.number_of.get(offender)  # None: a key that some liar made up
        if node is not None and node not in self._liars:
            raise Broken(NO_SLANDER, f"{host} holds evidence against the honest node {node}")

    def progressed(self) -> None:
        """Some host has final blocks that it had not before."""
        if self._target is None:
            return
        self._operators.check_patience()
        if self._operators.unsettled:
            # The committee that is to come has to make progress, too.
            self._target = max(self._target, len(self.watch.chain) - 1 + BLOCKS_AFTER_CHANGES)
        elif all(self.watch.length(each) >= self._target for each in self._expected()):
            self._done = True

    def _expected(self) -> list[Host]:
        """Of whom progress is demanded: who is honest and not gone for good, of a core if any."""
        return [host for host in self._up() if self.is_in_core(host.node)]

    def _up(self) -> list[Host]:
        return [h for h in self.hosts if h.node not in self._liars and h.is_wanted_up]

    # The run

    def run(self) -> None:
        """Raises Broken."""
        for edge in timeline(self.scenario, self.streams):
            self.at(edge.at_ns, partial(befall, self, edge))
        for host in self.hosts:
            host.start()
        self._operators.begin()
        self.greet_all()
        self._until(self._healed_ns, exactly=True)
        checks = self.scenario.checks
        longest = len(self.watch.chain) - 1
        self._target = longest + checks.finalizations_after_heal
        if not self._expected():
            raise Broken(WATCHED, "nobody honest is up once all has healed")
        self.progressed()
        self._until(self._healed_ns + int(checks.heal_s * NS))
        if not self._done:
            behind = ", ".join(f"{h} has {self.watch.length(h)}" for h in self._expected())
            open_ = "".join(f", nothing came of {each}" for each in self._operators.unsettled)
            detail = f"{behind} of {self._target} blocks within {checks.heal_s} s{open_}"
            raise Broken(PROGRESS, detail)
        if len(self.roots()) > 1:
            raise Broken(SAME_ROOTS, " ".join(self.roots()))

    def _until(self, at_ns: int, exactly: bool = False) -> None:
        """Everything up to then; `exactly`: and let it be that late."""
        heap = self._heap
        while heap and heap[0][0] <= at_ns and not self._done:
            self.now_ns, _, work = heapq.heappop(heap)
            self.events += 1
            if self.events > EVENTS_MAX or len(heap) > HEAP_MAX:
                raise Broken(BOUNDED, f"{self.events} events, {len(heap)} to come")
            work()
        if exactly:
            self.now_ns = max(self.now_ns, at_ns)

    def roots(self) -> tuple[str, ...]:
        """Of what each honest node has on its disk, as far as all of them have it."""
        archives = [host.disk.archive for host in self._up()]
        shared = min((len(archive.chain) for archive in archives), default=0)
        return tuple(sorted({archive.root(shared).hex()[:32] for archive in archives}))

    def committees(self) -> list[str]:
        """Each that votes after another: the stake of every member, by number."""
        found: list[str] = []
        for epoch in self.watch.rolls.epochs:
            stakes = sorted(
                (self.network.number_of.get(name, -1), stake)
                for name, stake in epoch.committee.stake_of.items()
            )
            text = " ".join(f"{node}:{stake}" for node, stake in stakes)
            if found[-1:] != [text]:
                found.append(text)
        return found

    def greet_all(self) -> None:
        self.greet(range(len(self.network.keys)))

    def greet(self, nodes: Container[int]) -> None:
        """Streams from and to these are open anew: both ends say where they stand."""
        for host in self.hosts:
            names = self.network.number_of
            host.greet([name for name in names if host.node in nodes or names[name] in nodes])


def _network(scenario: Scenario, streams: Streams) -> Network:
    total = scenario.node_count
    if total > NODES_MAX:
        raise UserError(f"heap consensus takes at most {NODES_MAX} nodes, not {total}")
    keys = keys_of(streams, total)
    validators = tuple(
        Validator(keys[i].node_id, scenario.group_of(i).stake)
        for i in range(total)
        if scenario.group_of(i).role == "validator"
    )
    chain_id = ChainId(streams.bytes("chain"))
    return Network(
        chain_id=chain_id,
        genesis=genesis_block(chain_id, VertexId(streams.bytes("genesis"))),
        committee=Committee(validators),
        keys=keys,
        epoch_rounds=scenario.work.epoch_rounds,
        delta_ns=scenario.work.delta_ms * MS,
        doublings_max=DOUBLINGS_MAX,
    )


class VirtualClock(trio.abc.Clock):
    """Trio's time is the world's."""

    def __init__(self) -> None:
        self.world: Consensus | None = None

    def start_clock(self) -> None:
        """Nothing to start."""

    def current_time(self) -> float:
        return 0.0 if self.world is None else self.world.now_ns / NS

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return 0.0


def run(scenario: Scenario, trace: Trace, make: Make | None = None) -> Outcome:
    """One run. `make` swaps parts of every host, for tests that plant a mistake."""
    clock = VirtualClock()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    broken: Broken | None = None
    worlds: list[Consensus] = []

    async def whole() -> None:
        nonlocal broken
        clock.world = Consensus(scenario, trace, make or Make())
        worlds.append(clock.world)
        try:
            clock.world.run()
        except Broken as found:
            broken = found
        except AssertionError as failed:
            broken = Broken(ASSERTIONS, str(failed) or _place(failed))
        if broken is not None:
            clock.world.note(BROKEN, name=broken.name, detail=broken.detail)

    trio.run(whole, clock=clock)
    (world,) = worlds
    sometimes, wanted = world.watch.sometimes, scenario.checks.sometimes
    return Outcome(
        scenario=scenario.name,
        seed=scenario.seed,
        fidelity="heap",
        nodes=scenario.node_count,
        virtual_s=world.now_ns / NS,
        wall_s=time.perf_counter() - wall_s,
        cpu_s=time.process_time() - cpu_s,
        trace_hash=trace.digest(),
        final_roots=world.roots(),
        invariants=(
            *(v for v in verdicts(broken) if v.name not in OF_DAEMONS),
            *(() if broken else missed(sometimes, wanted)),
        ),
        sometimes=marks(sometimes, wanted),
        facts={
            "blocks": len(world.watch.chain) - 1,
            "events": world.events,
            "committees": world.committees(),
        },
    )


def _place(failed: AssertionError) -> str:
    trace = failed.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"
