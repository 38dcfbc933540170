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

Adversaries: see simnet/adversaries/conduct.py for the hook, kinds.py there for those there are. A
Stage may arrange who leads which view and who hears whom in it (see simnet/heap/twins.py).
"""

import heapq
import time
from collections.abc import Callable, Container
from functools import partial
from itertools import count
from typing import Any, Protocol, cast

import trio

from daa_consensus.bft.messages import Limits, genesis_block
from daa_consensus.committee import Committee, Validator
from daa_dag.ids import ChainId, NodeId, VertexId
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.letters import Letter, Proposed, Said, encode_letter
from daa_node.errors import PeerFault, UserError
from simnet.adversaries.chosen import chosen_liars
from simnet.adversaries.conduct import Conduct
from simnet.adversaries.kinds import CONDUCTS
from simnet.determinism import BROKEN, Streams, Trace
from simnet.faults import healed_ns, timeline
from simnet.heap.consensus_boot import Make
from simnet.heap.consensus_faults import befall
from simnet.heap.consensus_host import Host
from simnet.heap.consensus_letters import Network, Opened
from simnet.heap.consensus_wire import Wire
from simnet.invariants import (
    ASSERTIONS,
    BOUNDED,
    NO_SLANDER,
    PROGRESS,
    SAME_ROOTS,
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

NODES_MAX = 128  # validators and observers: letters go from each to each
HEAP_MAX = 200_000  # things that are going to happen
EVENTS_MAX = 5_000_000  # of one run: more is a storm
DOUBLINGS_MAX = 4  # of a view's patience: 48 delta, 12 s of 250 ms


class Stage(Protocol):
    """What a script arranges beyond a scenario: leaders, and who hears whom, host by host."""

    def committee(self, validators: tuple[Validator, ...]) -> Committee:
        """The first epoch's, with leaders of the script's choice."""

    def passes(self, now_ns: int, sender: Host, receiver: Host, letter: Letter) -> bool:
        """Whether the letter, sent now, goes on the wire to this receiver."""

    def is_over(self, now_ns: int) -> bool:
        """Whether everything passes from now on."""


class Consensus:
    """The world. `run` it once, inside of a trio run whose clock is `clock`."""

    def __init__(self, scenario: Scenario, trace: Trace, make: Make, stage: Stage | None) -> None:
        self.scenario, self.trace, self.make = scenario, trace, make
        self.streams = Streams(scenario.seed)
        self.now_ns = 0
        self.events = 0
        self._order = count()
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._stage = stage
        self.network = _network(scenario, self.streams, stage)
        self.watch = Watch(self.network.genesis, self.network.committee, self.network.epoch_rounds)
        self.inbound = cast(Inbound, Opened(self.network))
        self.wire = Wire(Topology(scenario, self.streams), self.streams, scenario.node_count)
        self._number = {node_id(self.streams, i): i for i in range(scenario.node_count)}
        self.names = list(self._number)
        self._liars: set[int] = set()
        conducts = self._conducts()
        self.hosts = [h for i in self._number.values() for h in self._hosts(i, conducts.get(i))]
        self.hosts_of = [[h for h in self.hosts if h.node == i] for i in self._number.values()]
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
        votes = self.scenario.group_of(node).role == "validator"
        hosts = []
        for body in range(1 if conduct is None else conduct.bodies):
            place, me = (node, body), self.names[node]
            host = Host(self, self.make, place, me, votes, conduct, self.streams)
            hosts.append(host)
        return hosts

    # What hosts need

    def at(self, at_ns: int, work: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (at_ns, next(self._order), work))

    def is_honest(self, node: int) -> bool:
        return node not in self._liars

    def distrust(self, node: int) -> None:
        """Its disk will make it forget what it signed: it counts among the liars from now on."""
        self._liars.add(node)

    def note(self, what: str, **fields: Any) -> None:
        self.trace.note(self.now_ns, what, **fields)

    def leaves(self, host: Host, payload: bytes) -> None:
        """A letter leaves a host: look at the words in it that are its own."""
        if host.node in self._liars:
            return
        body = self.inbound.open(payload).body
        if isinstance(body, Said | Proposed) and body.signed.signer == host.me:
            self.watch.word(host.node, body.signed)

    def send(self, host: Host, receiver: NodeId, payload: bytes) -> None:
        """Over the wire to a node, as its sender's conduct wants it."""
        to = self._number.get(receiver)
        if to is None or to == host.node:
            return
        if host.conduct is None:
            self._carry(host, to, payload)
            return
        for letter in host.conduct.sends(host.voice, to, self.inbound.open(payload)):
            self._carry(host, to, letter if isinstance(letter, bytes) else encode_letter(letter))

    def _carry(self, host: Host, to: int, payload: bytes) -> None:
        self.trace.frame(self.now_ns, host.node, to, payload)
        receivers = [
            (each, each.lives)
            for each in self.hosts_of[to]
            if each.life is not None
            and (self._stage is None or self._passes(self._stage, host, each, payload))
        ]
        life = host.lives

        def arrive() -> None:
            for each, lives in receivers:
                if each.lives == lives and (
                    each.conduct is None or self._hears(each, each.conduct, host.node, payload)
                ):
                    each.receive(host.me, payload)

        def deliver(at_ns: int) -> None:
            if host.lives == life:
                heapq.heappush(self._heap, (at_ns, next(self._order), arrive))

        self.wire.send(self.now_ns, host.node, to, len(payload), deliver)

    def _hears(self, host: Host, conduct: Conduct, sender: int, payload: bytes) -> bool:
        try:
            return conduct.hears(host.body, sender, self.inbound.open(payload))
        except PeerFault:
            return True  # what is no letter is refused by honest code

    def _passes(self, stage: Stage, sender: Host, receiver: Host, payload: bytes) -> bool:
        try:
            letter = self.inbound.open(payload)
        except PeerFault:
            return True
        return stage.passes(self.now_ns, sender, receiver, letter)

    def convicted(self, host: Host, offender: NodeId) -> None:
        """A host holds evidence against a node."""
        node = self._number[offender]
        if node not in self._liars:
            raise Broken(NO_SLANDER, f"{host} holds evidence against the honest node {node}")

    def progressed(self) -> None:
        """Some host has final blocks that it had not before."""
        if self._target is not None and all(
            self.watch.length(each) >= self._target for each in self._expected()
        ):
            self._done = True

    def _expected(self) -> list[Host]:
        """Of whom progress is demanded: who is honest and not gone for good."""
        return [h for h in self.hosts if h.node not in self._liars and h.is_wanted_up]

    # The run

    def run(self) -> None:
        """Raises Broken."""
        for edge in timeline(self.scenario, self.streams):
            self.at(edge.at_ns, partial(befall, self, edge))
        for host in self.hosts:
            host.start()
        self.greet_all()
        while self._stage is not None and not self._stage.is_over(self.now_ns):
            self._healed_ns = max(self._healed_ns, self.now_ns + self.network.delta_ns)
            self._until(self.now_ns + self.network.delta_ns, exactly=True)
        self._until(self._healed_ns, exactly=True)
        self.greet_all()
        checks = self.scenario.checks
        longest = len(self.watch.chain) - 1
        self._target = longest + checks.finalizations_after_heal
        self.progressed()
        self._until(self._healed_ns + int(checks.heal_s * NS))
        if not self._done:
            behind = {str(h): self.watch.length(h) for h in self._expected()}
            raise Broken(PROGRESS, f"{behind} of {self._target} blocks within {checks.heal_s} s")
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
        archives = [host.disk.archive for host in self._expected()]
        shared = min((len(archive.chain) for archive in archives), default=0)
        return tuple(sorted({archive.root(shared).hex()[:32] for archive in archives}))

    def greet_all(self) -> None:
        self.greet(range(len(self.names)))

    def greet(self, nodes: Container[int]) -> None:
        """Streams from and to these are open anew: both ends say where they stand."""
        for host in self.hosts:
            for node, name in enumerate(self.names):
                if node != host.node and (node in nodes or host.node in nodes):
                    host.greet(name)


def node_id(streams: Streams, index: int) -> NodeId:
    """Ids ascend with the number, as committees are sorted."""
    return NodeId(index.to_bytes(2) + streams.bytes(f"node {index}", 30))


def _network(scenario: Scenario, streams: Streams, stage: Stage | None) -> Network:
    total = scenario.node_count
    if total > NODES_MAX:
        raise UserError(f"heap consensus takes at most {NODES_MAX} nodes, not {total}")
    validators = tuple(
        Validator(node_id(streams, i), scenario.group_of(i).stake)
        for i in range(total)
        if scenario.group_of(i).role == "validator"
    )
    chain_id = ChainId(streams.bytes("chain"))
    return Network(
        chain_id=chain_id,
        genesis=genesis_block(chain_id, VertexId(streams.bytes("genesis"))),
        committee=Committee(validators) if stage is None else stage.committee(validators),
        limits=Limits(len(validators), len(validators)),
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


def run(
    scenario: Scenario, trace: Trace, make: Make | None = None, stage: Stage | None = None
) -> Outcome:
    """One run. `make` swaps parts of every host, for tests that plant a mistake."""
    clock = VirtualClock()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    broken: Broken | None = None
    worlds: list[Consensus] = []

    async def whole() -> None:
        nonlocal broken
        clock.world = Consensus(scenario, trace, make or Make(), stage)
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
        invariants=(*verdicts(broken), *(() if broken else missed(sometimes, wanted))),
        sometimes=marks(sometimes, wanted),
        facts={"blocks": len(world.watch.chain) - 1, "events": world.events},
    )


def _place(failed: AssertionError) -> str:
    trace = failed.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"
