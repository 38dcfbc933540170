"""The trio fidelity: whole daemons with real libp2p, over simulated links, in virtual time.

Real: everything that daa_node.node puts together, noise, yamux, gossipsub and Kademlia, every
signature, the bulk channel's sessions (relayed, see machine), and the training itself. Simulated:
sockets, disks, clocks, entropy, and how long an inner step takes.

A run has two phases. Until the last fault has healed, safety alone is checked. From then on every
node that has power must finish the job, or see `finalizations_after_heal` more blocks become final
and `vertices_after_heal` rounds certified, within `heal_s`; where the scenario has a core, every
node of the core, whatever befalls the others for good. A run that is out of its `duration_s` before
the job is done ends there: how far it came is among the facts.
"""

import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from math import inf
from typing import Any

import trio

from daa_dag.checkpoint import Vertex
from daa_node.agreement import inbound
from simnet.checks import training_books as tally
from simnet.checks.invariants import (
    BOUNDED,
    LEARNS,
    PROGRESS,
    WATCHED,
    verdicts,
)
from simnet.checks.outcome import Invariant, Outcome, Stopwatch
from simnet.nodes.virtual import holdings, job, scheduling, third_party
from simnet.nodes.virtual.cheap_signatures import believed
from simnet.nodes.virtual.cluster import Cluster, Script
from simnet.nodes.virtual.message_lines import Stage
from simnet.nodes.virtual.mishaps import Mishaps
from simnet.nodes.virtual.operators import Operators
from simnet.nodes.virtual.plaintext import hashed
from simnet.world import decoded_messages
from simnet.world.determinism import Streams, Trace
from simnet.world.faults import healed_ns
from simnet.world.links import NS
from simnet.world.nominal_models import beyond_limits
from simnet.world.scenario import Scenario

UNSEEN = frozenset({LEARNS})  # but beside another run of the same scenario
# Objects more, before Python looks for dead cycles: its own 700 are little where millions live, and
# looking took a fifth of the time of 24 validators. As many as a hundred have under way at once: at
# 50,000 it was an eighth of theirs. Fifty megabytes, of what would have gone.
COLLECT_EVERY = 500_000
_is_frozen = False  # asked of Python, it counts them one by one
ENDING_S_MAX = 60.0  # of a run whose job and recovery are over
# Who has followed the rounds of a minute deletes what it kept of them: a hundred files, each with
# its write to a slow disk.
PRUNING_S_MAX = 10.0


def run_virtual(scenario: Scenario, trace: Trace) -> Outcome:
    """Run the scenario's job under its faults. Raises UserError for what this world cannot do."""
    outcome = run_script(scenario, trace, _the_job)
    if scenario.is_nominal:
        return _beside_a_calm_run(outcome, scenario)
    bound_nats = scenario.checks.loss_above_twin_nats
    if bound_nats is None or not outcome.ok:
        return outcome
    so_far = partial(_the_job, rounds=len(outcome.facts["losses"]))
    twin = run_script(without_poison(scenario), Trace(), so_far)
    verdict, loss_nats = _learns(outcome, twin, bound_nats)
    return replace(
        outcome,
        wall_s=outcome.wall_s + twin.wall_s,
        cpu_s=outcome.cpu_s + twin.cpu_s,
        invariants=(*outcome.invariants, verdict),
        facts={**outcome.facts, "loss_nats_of_twin": loss_nats},
    )


def _beside_a_calm_run(outcome: Outcome, scenario: Scenario) -> Outcome:
    """With its goodput: useful tokens a second over those of the same run without its faults."""
    tokens_per_s = calm = outcome.facts["tokens_per_s"]
    if scenario.faults and outcome.ok:
        calm = calm_tokens_per_s(scenario.model_copy(update={"faults": ()}))
    found = {
        "goodput": round(tokens_per_s / calm, 4) if calm else None,
        "tokens_per_s_without_faults": calm,
        "beyond_todays_limits": beyond_limits(scenario),
    }
    return replace(outcome, facts={**outcome.facts, **found})


@lru_cache(maxsize=64)
def calm_tokens_per_s(scenario: Scenario) -> float:
    """Run once for all that differ from it by their faults alone."""
    return float(run_script(scenario, Trace(), _the_job).facts["tokens_per_s"])


def without_poison(scenario: Scenario) -> Scenario:
    """The same run with those honest who lie about their training alone."""
    about_training = ("poisoner", "free_rider", "cheat")
    liars = tuple(a for a in scenario.adversaries if a.kind not in about_training)
    return scenario.model_copy(update={"adversaries": liars})


def _learns(run: Outcome, twin: Outcome, bound_nats: float) -> tuple[Invariant, float | None]:
    """Whether the loss is near the twin's, at the newest height that both have measured."""
    pairs = zip(run.facts["losses"], twin.facts["losses"], strict=False)
    measured = [(ours, theirs) for ours, theirs in pairs if None not in (ours, theirs)]
    if not measured:
        return Invariant(LEARNS, False, "no round was measured in both runs"), None
    ours, theirs = measured[-1]
    detail = f"round {len(measured)}: {ours} nats, {theirs} without poisoners"
    return Invariant(LEARNS, ours <= theirs + bound_nats, detail), theirs


@contextmanager
def _forgetting_others() -> Iterator[None]:
    """A run is asked what it holds at its end, and not what another has held.

    What was there before the first run, modules above all, is looked at no more: it never ends.
    """
    global _is_frozen
    gc.collect()
    if not _is_frozen:
        gc.freeze()
        _is_frozen = True
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_forgetting_others()  # around its frame: when all of the run is dead
def run_script(
    scenario: Scenario, trace: Trace, script: Script, stage: Stage | None = None
) -> Outcome:
    """Run `script` in a cluster that nobody has started yet; the run ends when it returns.

    What the script raises is raised here as it is. A `stage` arranges who leads and who hears whom.
    """
    began, streams = Stopwatch(), Streams(scenario.seed)
    light = scenario.fidelity == "light"

    async def main(processes: scheduling.Processes) -> tuple[Cluster, float]:
        cluster = Cluster(scenario, founding, processes, trace, stage)
        await _play(cluster, script)
        return cluster, trio.current_time()

    decoded_messages.forget()
    once = scheduling.replaced(inbound, decode_message=decoded_messages.decoded)
    real_keys: set[bytes] = set()
    with believed(but_of=real_keys) if light else nullcontext(), once:
        founding = replace(job.found(scenario, streams), real_keys=real_keys)
        if stage is not None:
            founding = stage.founded(founding)
        written = hashed(trace, founding.numbers)
        with nullcontext() if light else third_party.subdued(streams, written):
            cluster, virtual_s = scheduling.run(main, scenario.seed)
    sightings = cluster.sightings
    sometimes = sightings.sometimes + cluster.network.befallen + cluster.retries.befallen
    return began.outcome(
        scenario,
        trace,
        virtual_s,
        _final_roots(cluster),
        [
            *(v for v in verdicts(sightings.broken) if v.name not in UNSEEN),
            cluster.books.invariant(),
            *cluster.crowd.invariants(),
        ],
        sometimes,
        _facts(cluster),
    )


async def _play(cluster: Cluster, script: Script) -> None:
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.run)
            nursery.start_soon(_until_broken, cluster, nursery.cancel_scope)
            await script(cluster)
            await cluster.crowd.leave()
            await cluster.until(lambda: cluster.sightings.excess() is None, PRUNING_S_MAX)
            tasks = trio.lowlevel.current_statistics().tasks_living
            cluster.sightings.at_the_end(cluster.network.unread_bytes_max, tasks)
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _alone(group) from None


def _alone(error: BaseException) -> BaseException:
    """What a nursery wrapped, if that is one thing: a test's own assertion, say."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _until_broken(cluster: Cluster, scope: trio.CancelScope) -> None:
    """Nothing that comes after the first broken invariant is worth seeing."""
    await cluster.sightings.is_broken.wait()
    scope.cancel()


async def _the_job(cluster: Cluster, rounds: int | None = None) -> None:
    """To its end; a run that is only to be compared is over with so many rounds."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_end, cluster)
        if rounds is not None:
            nursery.start_soon(_until_told, cluster, rounds, nursery.cancel_scope)
        await _walk(cluster)
        nursery.cancel_scope.cancel()


async def _until_told(cluster: Cluster, rounds: int, scope: trio.CancelScope) -> None:
    told = cluster.books.rounds
    await cluster.until(lambda: rounds <= len(told), inf)
    scope.cancel()


async def _end(cluster: Cluster) -> None:
    """Break a run that waits for what never comes: for a stopped node, say."""
    scenario = cluster.scenario
    limit_s = scenario.duration_s + scenario.checks.heal_s + ENDING_S_MAX
    await trio.sleep(limit_s)
    cluster.sightings.breaks(PROGRESS, f"the run itself does not end within {limit_s:g} s")
    cluster.resume(*range(scenario.node_count))


@asynccontextmanager
async def troubled(cluster: Cluster) -> AsyncIterator[Operators]:
    """Everybody is switched on; the block begins when all that heals has healed.

    People go on asking for changes until it ends, and what never heals goes on.
    """
    healed_s = min(healed_ns(cluster.scenario) / NS, cluster.scenario.duration_s)
    cluster.start()
    mishaps, operators = Mishaps(cluster), Operators(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mishaps.run)
        nursery.start_soon(operators.run)
        await trio.sleep_until(healed_s)
        await mishaps.done_until(healed_s)
        yield operators
        nursery.cancel_scope.cancel()


async def _walk(cluster: Cluster) -> None:
    scenario, sightings = cluster.scenario, cluster.sightings
    async with troubled(cluster) as operators:
        if not cluster.wanted:
            at_s = trio.current_time()
            sightings.breaks(WATCHED, f"nobody honest is up once all has healed, at {at_s:g} s")
        sightings.healed = cluster.wanted
        if scenario.checks.finalizations_after_heal or scenario.checks.vertices_after_heal:
            await recover(cluster, operators)

        def done() -> bool:
            return all(node in sightings.ended for node in cluster.wanted)

        await cluster.until(done, max(0.0, scenario.duration_s - trio.current_time()))


async def recover(cluster: Cluster, operators: Operators) -> None:
    """As many more blocks as are wanted, within the time that the scenario gives; for everybody."""
    scenario, sightings, checks = cluster.scenario, cluster.sightings, cluster.scenario.checks
    since_s, recovery = trio.current_time(), Recovery(cluster)
    left_s = max(0.0, scenario.duration_s - since_s)
    within_s = checks.heal_s if scenario.faults else left_s
    is_whole = await cluster.until(recovery.is_whole, within_s)
    cluster.recovered_s = trio.current_time() - since_s if is_whole else None
    if recovery.left_others_behind():
        sightings.sometimes["core went on alone"] += 1
    if not is_whole:
        sightings.breaks(PROGRESS, f"{recovery.lacks()} within {within_s:g} s")
        return
    if checks.loss_above_twin_nats is not None:
        # A round is measured, and told of, a moment after its vertex is on a disk.
        height, told = sightings.newest_height, cluster.books.rounds
        await cluster.until(lambda: height in told, within_s)
    now = sightings.watch.audit.now
    excess = holdings.excess(len(now.committee.validators), len(now.roll.entries))
    if excess is not None:
        sightings.breaks(BOUNDED, excess)
    if scenario.changes:

        def settled() -> bool:
            """And the newest committee has made a block."""
            watch = sightings.watch
            goes_on = watch.chain[-1].epoch == watch.audit.now.epoch
            return (goes_on and not operators.unsettled) or _is_over(cluster)

        left_s = max(0.0, within_s - (trio.current_time() - since_s))
        if not await cluster.until(settled, left_s):
            wanted = [*operators.unsettled, "the newest committee makes no block"][0]
            sightings.breaks(PROGRESS, f"never settled within {within_s:g} s: {wanted}")


def _is_over(cluster: Cluster) -> bool:
    """Whether no more sets will come: the job is done."""
    return any(node in cluster.sightings.ended for node in cluster.honest)


class Recovery:
    """Blocks that become final after the last fault, rounds certified, and who has got there.

    To have followed is to have published as much as the first had then, by whatever way.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        checks, sightings = cluster.scenario.checks, cluster.sightings
        self._blocks = len(sightings.watch.chain) + checks.finalizations_after_heal
        self._vertices = sightings.newest_height + checks.vertices_after_heal
        self._height: int | None = None  # of the newest vertex when there were that many

    def is_whole(self) -> bool:
        sightings = self._cluster.sightings
        grown = len(sightings.watch.chain) >= self._blocks
        if self._height is None and grown and sightings.newest_height >= self._vertices:
            self._height = sightings.newest_height
        return not self._behind(self._cluster.wanted)

    def lacks(self) -> str:
        """What did not come about, and for whom."""
        sightings = self._cluster.sightings
        return (
            f"nodes {self._behind(self._cluster.wanted)} stand: {len(sightings.watch.chain)} blocks"
            f" of {self._blocks}, {sightings.newest_height} vertices of {self._vertices}"
        )

    def left_others_behind(self) -> bool:
        """Whether somebody honest outside of the core has not come so far."""
        others = set(self._cluster.honest) - set(self._cluster.wanted)
        return bool(self._cluster.scenario.checks.core and self._behind(sorted(others)))

    def _behind(self, nodes: Sequence[int]) -> list[int]:
        return [node for node in nodes if not self._has_followed(node)]

    def _has_followed(self, node: int) -> bool:
        sightings = self._cluster.sightings
        return node in sightings.ended or (
            self._height is not None and sightings.height(node) >= self._height
        )


def _final_roots(cluster: Cluster) -> tuple[str, ...]:
    """Model roots at the height that every running node has reached."""
    chains = [cluster.chain(node) for node in cluster.honest if cluster.machines[node].is_on]
    chains = [chain for chain in chains if chain]
    if not chains:
        return ()
    height = min(chain[-1].height for chain in chains)
    at_height = [v.model_root.hex() for chain in chains for v in chain if v.height == height]
    return tuple(sorted(set(at_height)))


def _facts(cluster: Cluster) -> dict[str, Any]:
    """What a report always shows: what the books say, and what this world alone knows."""
    chain, numbers = _longest(cluster), cluster.numbers
    return {
        **tally.facts(cluster.books, cluster.scenario, _sets(chain, numbers), _traffic(cluster)),
        "blocks": len(cluster.sightings.watch.chain) - 1,
        "unread_bytes_max": cluster.network.unread_bytes_max,
        "done": len(cluster.sightings.ended),
        "committees": _committees(cluster),
        "recovered_s": cluster.recovered_s,
        "liars": _liars(cluster, chain),
        **cluster.crowd.facts(),
    }


def _committees(cluster: Cluster) -> list[str]:
    """Each that votes after another: the stake of every member, by number."""
    number_of = {machine.node_id: node for node, machine in enumerate(cluster.machines)}
    found: list[str] = []
    for epoch in cluster.sightings.watch.audit.epochs:
        stakes = sorted((number_of.get(n, -1), s) for n, s in epoch.committee.stake_of.items())
        text = " ".join(f"{node}:{stake}" for node, stake in stakes)
        if found[-1:] != [text]:
            found.append(text)
    return found


def _longest(cluster: Cluster) -> list[Vertex]:
    return max((cluster.chain(node) for node in cluster.honest), key=len)


def _sets(chain: Sequence[Vertex], numbers: Mapping[str, int]) -> list[tally.Set]:
    return [
        tally.Set(
            vertex.training_round,
            tuple((numbers[made.author.hex()], made) for made in vertex.contributors),
            vertex.tokens_total,
        )
        for vertex in chain[1:]
    ]


def _traffic(cluster: Cluster) -> tally.Traffic:
    """All bytes that were written, and what they weigh."""
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for (sender, receiver), size_bytes in cluster.network.bytes_sent.items():
        sent[sender] += size_bytes
        received[receiver] += size_bytes
    if cluster.freight is not None:
        sent.update({n: round(b) for n, b in cluster.freight.sent_bytes.items()})
        received.update({n: round(b) for n, b in cluster.freight.received_bytes.items()})
    return tally.Traffic(sent, received)


def _liars(cluster: Cluster, chain: Sequence[Vertex]) -> list[dict[str, Any]]:
    """What became of each: contributions that count, and what is held against it."""
    made = (facts for vertex in chain for facts in vertex.contributors)
    authors = Counter(facts.author for facts in made if facts.weight)
    return [
        {
            "node": node,
            "kind": liar.config.kind,
            "contributions": authors[cluster.machines[node].node_id],
            "excluded": any(cluster.machines[node].node_id in vertex.excluded for vertex in chain),
            "held_against": dict(sorted(cluster.sightings.held_against[node].items())),
        }
        for node, liar in sorted(cluster.liars.items())
    ]
