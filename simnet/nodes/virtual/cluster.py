"""A network of whole daemons in one process and in virtual time: to run, to disturb, to look at.

The names of its verbs are those of a scenario's faults, and whoever writes a test uses the same
ones. Nodes are numbered as in the scenario; everything is called from inside of the run.
"""

import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import trio

from daa_consensus.committee import Domain
from daa_dag.checkpoint import Vertex
from daa_node.errors import NodeError
from simnet.checks.invariants import ASSERTIONS
from simnet.checks.training_books import Account, Books
from simnet.nodes.virtual.crowd import Crowd
from simnet.nodes.virtual.disk import Disk
from simnet.nodes.virtual.freight import freight_of
from simnet.nodes.virtual.inline_trainer import Pace, Workbench, shared_examples
from simnet.nodes.virtual.job import Founding
from simnet.nodes.virtual.link_faults import LinkFaults
from simnet.nodes.virtual.machine import Machine, Site
from simnet.nodes.virtual.member_transport import Retries
from simnet.nodes.virtual.message_lines import Lines, Stage
from simnet.nodes.virtual.network import Network, Ways
from simnet.nodes.virtual.scheduling import Processes, now_ns
from simnet.nodes.virtual.sightings import Sightings
from simnet.world.adversaries.disguise import bodies_of
from simnet.world.determinism import DOWN, Streams, Trace
from simnet.world.fault_marks import POWER_CUT, WIPED
from simnet.world.links import NS, LinkModel
from simnet.world.node_classes import newcomers_of
from simnet.world.releases import spoken_by
from simnet.world.scenario import Scenario
from simnet.world.speeds import Speeds
from simnet.world.topology import MBIT, Topology

FALLS_MAX = 3  # of a daemon whose disk has failed it, before somebody comes to look
BOOT_S_MAX = 1.0
RESTART_S = 2.0  # what a supervisor waits before it starts a daemon that fell
WHY_CHARS_MAX = 400


class Cluster:
    """All machines of a run. `run` must be running; nothing is on before `start`."""

    def __init__(
        self,
        scenario: Scenario,
        founding: Founding,
        processes: Processes,
        trace: Trace,
        stage: Stage | None = None,
    ) -> None:
        self.scenario = scenario
        self.genesis = founding.genesis
        self.trace = trace
        self.numbers = founding.numbers
        self.streams = Streams(scenario.seed)
        self._processes = processes
        topology, speeds = Topology(scenario, self.streams), Speeds(scenario, self.streams)
        ways = Ways(topology.link, self._access_of, self.streams)
        self.network = Network(ways, trace)
        self.lines = None if stage is None else Lines(stage, self.network)
        disks = [Machine.disk_for(self.streams, n) for n in range(scenario.node_count)]
        self.liars = founding.liars
        self.honest = [n for n in range(scenario.node_count) if n not in self.liars]
        self.sightings = Sightings(
            *(self.genesis, trace, founding.numbers, disks, self.liars),
            lambda node: self.machines[node].desk.handlers,
        )
        nominal = scenario.is_nominal
        self.freight = freight_of(scenario, founding, self.network, processes) if nominal else None
        self.books = Books([Account(now_ns) for _ in range(scenario.node_count)])
        site = Site(
            genesis=self.genesis,
            workbench=Workbench(
                founding.training, None if nominal else shared_examples(founding.training)
            ),
            network=self.network,
            retries=Retries(self.streams.random("retries")),
            processes=processes,
            streams=self.streams,
            node_of=founding.numbers,
            on_event=_hearing(self.sightings, self.books, self.liars),
            on_message=self.sightings.on_message,
            freight=self.freight,
            is_light=scenario.fidelity == "light",
            lines=self.lines,
            vertices_restorable=scenario.work.vertices_restorable,
            gateways=frozenset(group.node for group in scenario.volunteers),
            newcomers=newcomers_of(scenario.nodes),
            speaks=lambda node: spoken_by(scenario.nodes, node, now_ns() / NS),
        )
        self.machines = _machines(scenario, speeds, site, founding, disks, self.books)
        # Further machines under a liar's key, by its number; they share its power and its links.
        self._twins = {
            n: [self._twin(site, self.machines[n], body) for body in range(1, bodies_of(liar))]
            for n, liar in self.liars.items()
        }
        self.crowd = Crowd(
            *(scenario, self.streams, self.network, self.machines),
            *(self.genesis.chain_id, founding.real_keys),
        )
        self.retries = site.retries
        self.recovered_s: float | None = None  # how long the blocks after the last fault took
        self._nursery: trio.Nursery | None = None
        self._boots = self.streams.random("boots")
        self.links = LinkFaults(self.network, site.retries, topology.link, scenario.node_count)

    def _twin(self, site: Site, first: Machine, body: int) -> Machine:
        assert first.liar is not None
        disk = Machine.disk_for(self.streams, first.number, body)
        liar = replace(first.liar, body=body, seed=first.liar.seed + body)
        return Machine(site, first.number, first.keys, disk, first.pace, first.account, liar)

    def _access_of(self, node: int) -> tuple[LinkModel | None, LinkModel | None]:
        if node >= self.scenario.node_count:
            return None, None  # a volunteer's
        group = self.scenario.group_of(node)
        up, down = (
            None if mbit_s is None else LinkModel(bits_per_s=int(mbit_s * MBIT))
            for mbit_s in (group.up_mbit_s, group.down_mbit_s)
        )
        return up, down

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.crowd.run)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self.resume(*range(len(self.machines)))  # what is stopped could not end

    def start_soon(self, work: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run it beside the machines: what a stopped one is at can end with the run alone."""
        assert self._nursery is not None, "run() first"
        self._nursery.start_soon(work, *args)

    # Machines

    def start(self, *nodes: int) -> None:
        """Switch on these machines, or all; who runs already goes on.

        A machine's first start takes it up to BOOT_S_MAX: hosts do not boot in one millisecond, and
        if they did, all of them would dial each other twice.
        """
        assert self._nursery is not None, "run() first"
        for machine in self._with_twins(nodes):
            if not machine.is_on:
                machine.is_on = True
                machine.account.comes_up()
                boot_s = 0.0 if machine.power_ons else self._boots.uniform(0, BOOT_S_MAX)
                self._nursery.start_soon(self._supervise, machine, machine.power_ons, boot_s)

    def kill(self, *nodes: int) -> None:
        """Their power goes; what they had synced stays on disk."""
        for machine in self._with_twins(nodes):
            if machine.is_on:
                self.note(DOWN, node=machine.number)
                self.sightings.sometimes[POWER_CUT] += 1
                machine.kill()
                machine.account.goes_down()
                self.sightings.after_crash(machine.number)

    def wipe(self, *nodes: int) -> None:
        """Kill them, and take everything but their keys."""
        self.kill(*nodes)
        for machine in self._with_twins(nodes):
            self.sightings.lossy.add(machine.number)
            self.sightings.sometimes[WIPED] += 1
            machine.wipe()

    def pause(self, *nodes: int) -> None:
        """Stop their processes in the middle of everything; timers go on."""
        for node in nodes:
            self._processes.stop(node)
            self.machines[node].account.pauses(True)
        self.network.on_change()

    def resume(self, *nodes: int) -> None:
        for node in nodes:
            self._processes.go_on(node)
            self.machines[node].account.pauses(False)
        self.network.on_change()

    async def _supervise(self, machine: Machine, life: int, boot_s: float) -> None:
        """Start the daemon, again and again when it falls, in this life of its machine.

        A daemon refuses to run on a chain that its disk has damaged, and says so: then an operator
        gives it an empty disk.
        """
        falls = 0
        await trio.sleep(boot_s)
        while machine.is_on and machine.power_ons == life:
            try:
                await machine.run()
            except* NodeError as fallen:
                falls += 1
                self.note("daemon_fell", node=machine.number, why=_first(fallen))
            except* Exception as broken:
                if machine.liar is not None and broken.split(AssertionError)[1] is None:
                    # honest code, made to disagree with itself
                    self.note("liar_fell", node=machine.number, why=_first(broken))
                else:  # a bug of the daemon's, or of who lies: the run ends, and says which
                    self.sightings.breaks(ASSERTIONS, f"node {machine.number}: {_first(broken)}")
            if machine.ended is not None:
                return
            await trio.sleep(RESTART_S)
            if falls >= FALLS_MAX and machine.number in self.sightings.lossy:
                self.sightings.sometimes["disk replaced by the operator"] += 1
                self.wipe(machine.number)
                self.start(machine.number)

    def _with_twins(self, nodes: Sequence[int]) -> list[Machine]:
        chosen = [self.machines[node] for node in nodes] if nodes else self.machines
        return [m for first in chosen for m in (first, *self._twins.get(first.number, ()))]

    # Looking

    @property
    def wanted(self) -> list[int]:
        """Of whom progress is demanded: who is honest and up, of the core if any."""
        core = self.scenario.checks.core or self.honest
        return [node for node in self.honest if node in core and self.machines[node].is_on]

    def leader(self) -> int:
        """Who leads the newest view that an honest node has told others of."""
        epoch, view = self.sightings.messages.newest_view
        committee = self.sightings.watch.audit.committee(epoch) or self.genesis.committee
        domain = Domain(self.genesis.chain_id, epoch, committee.root)
        return self.numbers[committee.leader(domain, view).hex()]

    def note(self, what: str, **fields: Any) -> None:
        self.trace.note(now_ns(), what, **fields)

    def chain(self, node: int) -> list[Vertex]:
        """The certified vertices on the node's disk, by height; the genesis is the first."""
        return self.sightings.shelves.chain(node)

    async def ask(self, node: int, command: str, **words: Any) -> Mapping[str, Any]:
        """What `daa-node status | peers | rounds` would say; `drain` stops it after the round.

        Raises KeyError as long as the daemon is not up.
        """
        return await self.machines[node].ask(command, **words)

    async def until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for something that becomes so when a block is final, or somebody's job ends."""
        with trio.move_on_after(timeout_s):
            while not is_so() and self.sightings.broken is None:
                await self.sightings.changed.wait()
        return is_so()

    async def until_done(self, timeout_s: float, *nodes: int) -> bool:
        """Whether the job has ended for all honest, or these, nodes in time."""
        ended, chosen = self.sightings.ended, nodes or self.honest
        return await self.until(lambda: all(node in ended for node in chosen), timeout_s)

    async def until_height(self, height: int, timeout_s: float, *nodes: int) -> bool:
        """Whether all honest, or these, nodes have published a vertex of that height in time."""

        def there() -> bool:
            chosen = nodes or self.honest
            return all(self.sightings.height(node) >= height for node in chosen)

        return await self.until(there, timeout_s)


def _machines(
    scenario: Scenario,
    speeds: Speeds,
    site: Site,
    founding: Founding,
    disks: Sequence[Disk],
    books: Books,
) -> list[Machine]:
    """One for each node, off, with what its group allows it."""
    made = [
        Machine(site, n, keys, disk, _pace(scenario, speeds, n), account, founding.liars.get(n))
        for n, (keys, disk, account) in enumerate(
            zip(founding.keys, disks, books.accounts, strict=True)
        )
    ]
    for machine in made:
        group = scenario.group_of(machine.number)
        machine.limits, machine.trains = group.limits, group.trainer.contribute
    return made


def _hearing(
    sightings: Sightings, books: Books, liars: Collection[int]
) -> Callable[[int, dict[str, Any]], None]:
    """What hears of every daemon's events."""

    def on_event(node: int, event: dict[str, Any]) -> None:
        sightings.on_event(node, event)
        if node not in liars:
            books.on_event(node, event, now_ns())

    return on_event


def _pace(scenario: Scenario, speeds: Speeds, node: int) -> Pace:
    work = scenario.work

    def step_s(round_number: int) -> float:
        return speeds.step_ns(node, round_number, now_ns()) / NS

    if not scenario.is_nominal:
        return Pace(step_s, naive=not work.adaptive)
    # Sealing reads the model once, and so do merging and stepping, and replaying a delta.
    once_s = work.parameters / work.parameters_per_s
    return Pace(step_s, naive=not work.adaptive, seal_s=once_s, merge_s=once_s)


def _first(group: BaseExceptionGroup[Exception]) -> str:
    """The first cause, in words, and where it was raised: traces must not tell of lines of code."""
    cause: BaseException = group
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    frames = traceback.extract_tb(cause.__traceback__)
    where = f" ({frames[-1].filename.rpartition('/')[2]}, {frames[-1].name})" if frames else ""
    return f"{type(cause).__name__}: {cause}"[:WHY_CHARS_MAX] + where


Script = Callable[[Cluster], Awaitable[None]]
