"""What a run is seen to do, told to the invariants' Watch, and counted for the outcome.

Three windows: what members write to each other (see Messages), the events that every node emits,
and the disks: after a crash, and at the end, when each node's chain is written out and judged by
the verifier that operators use.

Of liars nothing is believed, and only what honest nodes hold against them is counted.

What breaks is kept and not raised: most of what calls this runs inside a node, which would take
the exception for one of its own.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from daa_consensus.votes import Kind
from daa_node.genesis import Genesis, chain_facts
from daa_node.network.reputation import MILD_COSTS
from daa_node.observability import events as names
from daa_node.wire.limits import FRAME_BYTES_MAX
from daa_node.wire.protocols import Versions
from simnet.checks.daemon_events import retold
from simnet.checks.invariants import (
    ASSERTIONS,
    BOUNDED,
    IN_TIME,
    NO_BANS,
    NO_NEED,
    NO_SLANDER,
    NOTHING_LOST,
    ONE_CHAIN,
    ONE_VERTEX,
    RULES_AGREE,
    SAME_ROOTS,
    Broken,
    Watch,
)
from simnet.checks.spot_check_audit import SpotCheckAudit
from simnet.nodes.virtual import holdings
from simnet.nodes.virtual.completeness import Completeness
from simnet.nodes.virtual.disk import Disk
from simnet.nodes.virtual.insides import Desks, Insides
from simnet.nodes.virtual.messages import Messages
from simnet.nodes.virtual.network import WINDOW_BYTES
from simnet.nodes.virtual.scheduling import now_ns
from simnet.nodes.virtual.shelves import Shelves, first_block
from simnet.world.adversaries.disguise import Liar
from simnet.world.determinism import BROKEN, Trace
from simnet.world.releases import NEXT_RELEASE

# Why a signer may refuse what the rules allow: it knows of votes before a quarantine, and of blocks
# that the disk has lost.
MAY_REFUSE = ("quarantined", "unknown-block", "behind-floor")
LEADER_TWIN = f"two {Kind.PROPOSAL} in one slot"  # of evidence
# Events that a sweep must have seen, and what it calls them.
MARKS = {
    **{
        name: name.replace("_", " ")
        for name in (
            *(names.CAUGHT_UP, names.EVIDENCE_FOUND, names.GAP_CROSSED, names.QUARANTINED),
            *(names.REJOINED, names.ROUND_ABORTED, names.SCOUTED, names.VIEW_GIVEN_UP),
        )
    },
    names.STORAGE_FAILED: "refused by the disk",
    names.OFFER_REFUSED: "update refused",
}
TASKS_MAX, TASKS_A_PAIR_MAX = 100, 40  # measured: some 25 for each direction of a pair


class Sightings:
    """All that was seen of one run; `disks` by the nodes' number, `numbers` as a Founding has."""

    def __init__(
        self,
        genesis: Genesis,
        trace: Trace,
        numbers: Mapping[str, int],
        disks: Sequence[Disk],
        liars: Mapping[int, Liar],
        desks: Desks,
    ) -> None:
        self._trace = trace
        self._numbers = numbers
        self._disks = disks
        all_versions = Versions(*NEXT_RELEASE).numbers  # a chain is read whatever nodes speak
        self.shelves = Shelves(disks, replace(chain_facts(genesis), speaks=all_versions))
        self._liars = liars
        self._honest = [node for node in range(len(disks)) if node not in liars]
        self._vertices: dict[int, str] = {}  # by height, as the first node said
        self._published: dict[int, dict[int, str]] = {n: {} for n in range(len(disks))}
        self._heights: Counter[int] = Counter()
        self.watch = Watch(
            first_block(genesis),
            genesis.committee,
            genesis.job.agreement.epoch_rounds,
            genesis.membership.roll,
            bad_among=genesis.job.updates.f_agg_among,
        )
        self._completeness = Completeness(self.watch, numbers)
        self.healed: Collection[int] = ()  # of whom progress is demanded, since all has healed
        self.broken: Broken | None = None
        self.is_broken = trio.Event()
        self.changed = trio.Event()  # set at every final block and ended job
        self.sometimes = self.watch.sometimes  # what all judges have been in
        self.lossy: set[int] = set()  # nodes whose disk has failed them
        self.distrusted: set[int] = set()  # of these, who may not know that they have forgotten
        self.messages = Messages(self.watch, self._completeness, numbers, liars, self.distrusted)
        self._insides = Insides(
            *(self.watch, desks, self.lossy),
            lambda name: numbers.get(name.hex()) not in {None, *liars, *self.distrusted},
            self.shelves.keeps,
        )
        self._checks = SpotCheckAudit(
            *(self.watch, numbers, len(disks)),
            steps=genesis.job.rounds.inner_steps_max,
            rules=genesis.job.spot_checks,
            liars={node: liar.config for node, liar in liars.items()},
            lossy=self.lossy,
        )
        self.ended: dict[int, str] = {}  # nodes whose job is done, and why
        self.held_against: dict[int, Counter[str]] = {node: Counter() for node in liars}

    def breaks(self, name: str, detail: str) -> None:
        """Only the first counts: the rest may follow from it."""
        if self.broken is None:
            self.broken = Broken(name, detail)
            self._trace.note(now_ns(), BROKEN, name=name, detail=detail)
            self.is_broken.set()
            self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    # Messages

    def on_message(self, node: int, payload: bytes) -> None:
        """`node` writes this to another member."""
        self._judged(self.messages.read, node, payload)

    def _judged(self, look: Callable[..., None], *at: Any) -> None:
        try:
            look(*at)
        except Broken as broken:
            self.breaks(broken.name, broken.detail)

    # Events

    def on_event(self, node: int, event: dict[str, Any]) -> None:
        """A living node says so."""
        what, fields = retold(event)
        self._trace.note(now_ns(), what, node=node, **fields)
        self._judged(self._checks.on_event, node, event, now_ns())
        if node in self._liars:
            return
        if event["name"] in MARKS:
            self.sometimes[MARKS[event["name"]]] += 1
        self._judged(self._hears, node, event)
        if node not in self.distrusted:
            self._judged(self._insides.look, node, event)

    def _hears(self, node: int, event: dict[str, Any]) -> None:
        """Of an honest node. Raises Broken."""
        match event["name"]:
            case names.CHECKPOINT_PUBLISHED:
                self._on_vertex(node, event["height"], event["vertex_id"])
            case names.CHECKPOINT_RESTORED | names.GAP_CROSSED | names.CAUGHT_UP:
                self._stands(node, event["height"])
            case names.BLOCK_FINALIZED:
                self._insides.final(node, event)
                self._wake()
            case names.JOB_ENDED:
                self.ended[node] = event["reason"]
                self._wake()
            case names.REQUEST_FAILED:
                raise Broken(ASSERTIONS, f"node {node}: {event}")
            case names.QUARANTINED if node not in self.lossy:
                raise Broken(NO_NEED, f"node {node}: {event['why']}")
            case names.VOTE_REFUSED if node not in self.lossy:
                if event["why"].partition(":")[0] not in MAY_REFUSE:
                    raise Broken(RULES_AGREE, f"node {node}: {event['kind']}, {event['why']}")
            case names.VIEW_GIVEN_UP:
                self._completeness.given_up(node, event["view"], event["reason"], self.healed)
            case names.EVIDENCE_FOUND:
                if event["offence"] == LEADER_TWIN:
                    self.sometimes["leader twin seen"] += 1
                self._completeness.charged(node, event["offender"])
                offender = self._numbers.get(event["offender"])
                liar = self._held(event["offender"], "evidence")
                if liar is None and offender is not None and offender not in self.lossy:
                    raise Broken(NO_SLANDER, f"node {node} holds evidence: {event}")
            case names.PEER_FAULT | names.PEER_BANNED:
                self._blames(node, event)
            case names.OFFER_REFUSED:
                self._held(event["author"], "update refused")
            case _:
                pass

    def _held(self, name: str, what: str) -> int | None:
        """The liar that somebody holds this against; None for an honest node."""
        liar = self._numbers.get(name)
        if liar is None or liar not in self._liars:
            return None
        self.held_against[liar][what] += 1
        return liar

    def _blames(self, node: int, event: dict[str, Any]) -> None:
        """Lateness is nobody's fault; whom a disk has failed may have forgotten what it said."""
        is_ban = event["name"] == names.PEER_BANNED
        what = "ban" if is_ban else event["reason"]
        is_liar = self._held(event["peer_id"], what) is not None
        told = "peer banned" if is_ban else f"blamed for {what}"
        self.sometimes[f"liar {told}" if is_liar and not is_ban else told] += 1
        other = self._numbers.get(event["peer_id"])
        if is_liar or other is None or other in self.lossy or what in MILD_COSTS:
            return
        if is_ban:
            raise Broken(NO_BANS, f"node {node} bans node {other}: {event}")
        if node not in self.lossy:
            raise Broken(NO_SLANDER, f"node {node} blames node {other}: {event}")

    @property
    def newest_height(self) -> int:
        """Of the newest vertex that anybody has published."""
        return max(self._vertices, default=0)

    def height(self, node: int) -> int:
        """Of the newest vertex that the node's daemon has told of, in its present life."""
        return self._heights[node]

    def _on_vertex(self, node: int, height: int, vertex_id: str) -> None:
        if self._vertices.setdefault(height, vertex_id) != vertex_id:
            raise Broken(ONE_VERTEX, f"two vertices at height {height}, one of them node {node}'s")
        self._published[node][height] = vertex_id
        self._stands(node, height)

    def _stands(self, node: int, height: int) -> None:
        self._heights[node] = height
        self._wake()

    # Disks

    def after_crash(self, node: int) -> None:
        """What the node had published must be there still, unless its disk has failed it."""
        self._heights[node] = 0
        self.ended.pop(node, None)
        self._completeness.forgets(node)
        if node in self.lossy:
            self._published[node].clear()
        elif node in self._honest:
            self._judged(self._outlasts, node)

    def _outlasts(self, node: int) -> None:
        for height, vertex_id in self._published[node].items():
            if not self.shelves.holds(node, vertex_id):
                raise Broken(NOTHING_LOST, f"node {node} lost vertex {height} in a crash")
        self._completeness.holds(node, partial(self.shelves.holds_update, node))
        self._completeness.remembers(node, partial(self.shelves.words, node))

    def excess(self) -> str | None:
        """What an honest node has not pruned: for a moment after it followed many rounds, yet."""
        now = self.watch.audit.now
        members = len(now.committee.validators) + len(now.roll.entries)  # all contribute
        for node in self._honest:
            behind = self.newest_height - self.height(node)
            excess = None if node in self.lossy else self.shelves.excess(node, members, behind)
            if excess is not None:
                return excess
        return None

    def at_the_end(self, unread_bytes_max: int, tasks: int) -> None:
        """Every chain by every rule, and all of them beside each other."""
        for disk in self._disks:
            self.sometimes += disk.befallen
        self._judged(self._is_bounded, unread_bytes_max, tasks)
        self._judged(self._completeness.convicted, self.healed or self._honest)
        self._judged(self._checks.at_the_end)
        for node in self._honest:
            problem = None if node in self.lossy else self.shelves.problem(node)
            if problem is not None:
                self.breaks(ONE_CHAIN, f"node {node}'s chain, {problem}")
        self._judged(self._compare)

    def _is_bounded(self, unread_bytes_max: int, tasks: int) -> None:
        if unread_bytes_max > WINDOW_BYTES + FRAME_BYTES_MAX:
            raise Broken(BOUNDED, f"{unread_bytes_max} bytes lay unread on one stream")
        if tasks > TASKS_MAX + TASKS_A_PAIR_MAX * len(self._disks) ** 2:
            raise Broken(BOUNDED, f"{tasks} tasks in {len(self._disks)} nodes")
        excess, overdue = self.excess(), holdings.overdue()
        if excess is not None:
            raise Broken(BOUNDED, excess)
        if overdue is not None:
            raise Broken(IN_TIME, overdue)

    def _compare(self) -> None:
        for node in self._honest:
            for vertex in self.shelves.chain(node):
                told = self._vertices.setdefault(vertex.height, vertex.vertex_id.hex())
                if told != vertex.vertex_id.hex():
                    detail = f"node {node} has another vertex {vertex.height} than was published"
                    raise Broken(SAME_ROOTS, detail)
