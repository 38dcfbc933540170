"""Mistakes where random clusters seldom came: joining, following, leaping, scouting, answering.

Planted as those of tests.simnet.results.mutants.daemons, each in a scene that shows it.
"""

from collections.abc import Iterable, Sequence

import pytest
import trio

from daa_consensus.bft.messages import Block
from daa_consensus.operations import Join, Operation
from daa_consensus.votes import Certificate
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlockId, NodeId
from daa_node.agreement.wan_bft import WanBft
from daa_node.checkpoints import gap, page_server
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.pages import Part
from daa_node.checkpoints.publish import Page, Proved
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.checkpoints.writes import Write
from daa_node.network.mailbox import Mailbox
from daa_node.network.outbox import Outbox
from daa_node.network.requests import Requests
from daa_node.rounds import scouting
from daa_node.rounds.holding import Holding
from daa_node.rounds.state_sync import LANDINGS_MAX, StateSync
from simnet.checks.invariants import (
    ADMITTED,
    ASSERTIONS,
    NO_SLANDER,
    ONE_CHAIN,
    PROGRESS,
)
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.operators import Operators
from simnet.nodes.virtual.world import recover
from simnet.world.random_clusters import NIGHT_S
from tests.simnet.results.mutants.daemons import Plant
from tests.simnet.results.mutants.scenes import WITHIN_S, Scene, away, goes_on, until_height

LOOK_S = 0.01  # a write and its sync take longer
TURNED_ROUNDS = 8
UPDATES = "work/updates/"

# Joining


def approved_knock_lies(patch: pytest.MonkeyPatch) -> None:
    """A member says Yes to a Join that nobody else has heard of."""
    ask = WanBft.ask

    def ask_for_own(self: WanBft, operation: Operation) -> bool:
        action = operation.request.action
        return (isinstance(action, Join) and action.subject != self.me) or ask(self, operation)

    patch.setattr(WanBft, "ask", ask_for_own)


def nobody_writes_to_who_joined(patch: pytest.MonkeyPatch) -> None:
    """Who has become a member is read, and has no outbox at the others."""
    follow, open_boxes = Mailbox.follow, Mailbox._open_boxes
    joined: set[NodeId] = set()

    def follow_all(self: Mailbox, members: Iterable[NodeId], is_one: bool = True) -> None:
        everybody = set(members)
        if self._begin_delivery is not None:
            joined.update(everybody - self._members)
        follow(self, everybody, is_one)

    def open_for_others(self: Mailbox) -> None:
        members = self._members
        self._members = members - joined
        open_boxes(self)
        self._members = members

    patch.setattr(Mailbox, "follow", follow_all)
    patch.setattr(Mailbox, "_open_boxes", open_for_others)


# Answers and updates


def answered_request_counts_on(patch: pytest.MonkeyPatch) -> None:
    forget = Requests._forget_idle

    def forget_nobody(self: Requests) -> None:
        for load in self._loads.values():
            load.running += 1
        forget(self)

    patch.setattr(Requests, "_forget_idle", forget_nobody)


def sent_messages_count_on(patch: pytest.MonkeyPatch) -> None:
    def sent(self: Outbox, message: bytes) -> None:
        if self._messages and self._messages[0][0] is message:
            self._messages.popleft()

    patch.setattr(Outbox, "sent", sent)


def updates_unchecked(patch: pytest.MonkeyPatch) -> None:
    async def check(*_: object) -> None:
        return

    patch.setattr(Holding, "_check", check)


def turned_bits_unseen(patch: pytest.MonkeyPatch) -> None:
    async def look_again(*_: object) -> None:
        return

    patch.setattr(Holding, "look_again", look_again)


# Following


def pages_a_block_too_high(patch: pytest.MonkeyPatch) -> None:
    page_after, part_below = page_server.page_after, page_server.part_below

    async def vertices_of(chain: ChainStore, blocks: Sequence[Block]) -> tuple[Proved, ...]:
        return await page_server._vertices_of(chain, [*blocks])

    async def page_above(chain: ChainStore, block_id: BlockId) -> Page | None:
        page = await page_after(chain, block_id)
        if page is None or len(page.blocks) < 2:
            return page
        blocks = page.blocks[1:]
        return Page(blocks, page.certificate, await vertices_of(chain, blocks))

    async def part_above(chain: ChainStore, block_id: BlockId, upper_id: BlockId) -> Part | None:
        part = await part_below(chain, block_id, upper_id)
        blocks = () if part is None else part.blocks[1:]
        return Part(blocks, await vertices_of(chain, blocks))

    patch.setattr(page_server, "page_after", page_above)
    patch.setattr(page_server, "part_below", part_above)


def proofs_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Until a restart reads them again, nobody is shown what was published since the last one."""
    advance = ChainStore.advance

    def advance_alone(self: ChainStore, tip: Block, certificate: Certificate) -> None:
        known = len(self.certified)
        advance(self, tip, certificate)
        self.certified.cut(known)

    patch.setattr(ChainStore, "advance", advance_alone)


def nobody_is_ever_silent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scouting, "is_silent", lambda *_: False)


# Leaping


def snapshots_a_height_early(patch: pytest.MonkeyPatch) -> None:
    def has_one(self: Snapshots, vertex: Vertex) -> bool:
        return (vertex.height + 1) % self.every == 0

    patch.setattr(Snapshots, "_has_one", has_one)


def landings_oldest_first(patch: pytest.MonkeyPatch) -> None:
    def landings(self: StateSync, vertices: Sequence[Vertex]) -> list[int]:
        whole = [i for i, v in enumerate(vertices) if v.height % self._snapshot_every == 0]
        return whole[:LANDINGS_MAX]

    patch.setattr(StateSync, "_landings", landings)


def landing_not_stored(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> list[Write]:
        return []

    patch.setattr(gap, "snapshot_writes", nothing)


# Scenes


async def joins(cluster: Cluster) -> None:
    """Its operator asks, the other one's approves, and both are needed from then on."""
    cluster.start()
    await until_height(cluster, 1)
    cluster.sightings.healed = cluster.wanted
    operators = Operators(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(operators.run)
        await recover(cluster, operators)
        nursery.cancel_scope.cancel()
    await goes_on(cluster)


async def three_rounds(cluster: Cluster) -> None:
    """Of the job."""
    cluster.start()
    await until_height(cluster, 3)


async def turning(cluster: Cluster) -> None:
    """A bit turns in each update that one holds, at some moment of its stay."""
    cluster.start()
    disk, seen = cluster.machines[0].disk, set[str]()
    with trio.move_on_after(WITHIN_S):
        while cluster.sightings.newest_height < TURNED_ROUNDS:
            here = {path for path in disk.files if path.startswith(UPDATES)}
            for path in sorted(here - seen):
                disk.rot(path)
            seen |= here
            await trio.sleep(LOOK_S)
    await until_height(cluster, TURNED_ROUNDS)


async def long_away(cluster: Cluster) -> None:
    """Who looks on comes back after more rounds than a page has, and than deltas are kept for."""
    cluster.start()
    await until_height(cluster, 2)
    cluster.kill(1)
    await until_height(cluster, 13, 0)
    cluster.start(1)
    await goes_on(cluster)


async def night(cluster: Cluster) -> None:
    """One voter comes back when no other is up any more: who looks on knows what it missed."""
    cluster.start()
    await until_height(cluster, 1)
    cluster.wipe(3)  # else what it has kept tells it of others
    await until_height(cluster, 4, 0, 1, 2, 4)
    cluster.kill(0, 1, 2)
    cluster.start(3)
    await trio.sleep(NIGHT_S - WITHIN_S)
    await until_height(cluster, 4, 3)


FARTHER: dict[str, Scene] = {
    # whose end, which leads those on who are shown no page, does not come
    "away in a long epoch": Scene(away, observers=1, work={"epoch_rounds": 1000}),
    "joins": Scene(
        joins,
        observers=1,
        work={"epoch_rounds": 1},
        others={
            "changes": [{"kind": "join", "at_s": 0, "node": 1, "stake": 1}],
            "checks": {"vertices_after_heal": 1},
        },
    ),
    "turning": Scene(turning, stakes=(1, 1)),
    "long away": Scene(
        long_away, observers=1, work={"snapshot_every": 2, "vertices_restorable": 1}
    ),
    "night": Scene(night, stakes=(1, 1, 1, 1), observers=1),
    "broken update": Scene(
        three_rounds,
        stakes=(1, 1, 1, 1),
        others={"adversaries": [{"kind": "poisoner", "poison": "nan", "nodes": [3]}]},
    ),
}

# Where each shows, and by which invariants.
UNREACHED: dict[str, tuple[Plant, str, set[str]]] = {
    "an approved Join is not brought before the others": (
        approved_knock_lies,
        "joins",
        {ADMITTED, PROGRESS},
    ),
    "nobody writes to who has joined": (
        nobody_writes_to_who_joined,
        "joins",
        {ONE_CHAIN, PROGRESS},
    ),
    "a request counts on when it is answered": (answered_request_counts_on, "away", {PROGRESS}),
    "an update is acknowledged unchecked": (updates_unchecked, "broken update", {ASSERTIONS}),
    "what was sent still fills the outbox": (sent_messages_count_on, "two words", {PROGRESS}),
    "a bit that turned is not looked for": (turned_bits_unseen, "turning", {ASSERTIONS, PROGRESS}),
    "a page begins a block too high": (pages_a_block_too_high, "away", {NO_SLANDER}),
    "what proves a page is forgotten": (proofs_forgotten, "away in a long epoch", {PROGRESS}),
    "a state sync stores no state where it lands": (landing_not_stored, "long away", {ONE_CHAIN}),
    "nobody is ever silent": (nobody_is_ever_silent, "night", {PROGRESS}),
    "snapshots are a height early": (snapshots_a_height_early, "long away", {PROGRESS}),
    "a state sync lands at the oldest snapshot": (landings_oldest_first, "long away", {PROGRESS}),
}
