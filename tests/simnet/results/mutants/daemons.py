"""Mistakes that somebody could make in a daemon's rounds, checkpoints and agreement.

Each is planted in the daemon's own code, in one place, for all nodes of a cluster: a plant takes
pytest's monkeypatch, which takes it out again.
"""

from collections.abc import Callable, Sequence
from collections.abc import Collection as Many
from typing import Any

import pytest

from daa_consensus.bft.events import Event, ExecSigned
from daa_consensus.bft.messages import Block, OfferBody, SetPayload
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import BlobRoot, ContributionRoot
from daa_dag.retention import Prunable, Retention, prunable
from daa_node.agreement import questions
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.inbox import Inbox
from daa_node.agreement.reception import Reception
from daa_node.agreement.recovery import RecoveryStore, Slot
from daa_node.agreement.round_talk import RoundTalk
from daa_node.checkpoints import page_server, restore, snapshots
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.publish import Proved
from daa_node.checkpoints.writes import GroupWriter
from daa_node.rounds.closing import Closing
from daa_node.rounds.collect import Collection
from daa_node.rounds.holding import Holding
from daa_node.seams import BlobStore
from simnet.checks.invariants import (
    CONVICTED,
    DURABLE,
    NO_SLANDER,
    NOTHING_LOST,
    ONE_CHAIN,
    PROGRESS,
    QUORUMS,
    RULES_AGREE,
)

Plant = Callable[[pytest.MonkeyPatch], None]

# The inbox and the agreement


def own_word_wakes_nobody(patch: pytest.MonkeyPatch) -> None:
    def step_with(self: Inbox, event: Event) -> None:
        self._first.append(event)

    patch.setattr(Inbox, "step_with", step_with)


def own_word_unheard(patch: pytest.MonkeyPatch) -> None:
    hear = Reception.hear

    def hear_others(self: Reception, signed: Signed) -> None:
        if signed.signer != self._parts.me:
            hear(self, signed)

    patch.setattr(Reception, "hear", hear_others)


def exec_not_told(patch: pytest.MonkeyPatch) -> None:
    step_with = Inbox.step_with

    def step_with_others(self: Inbox, event: Event) -> None:
        if not isinstance(event, ExecSigned):
            step_with(self, event)

    patch.setattr(Inbox, "step_with", step_with_others)


def executions_by_heads(patch: pytest.MonkeyPatch) -> None:
    def execution(self: RoundTalk, like: Statement) -> Certificate | None:
        members = self._validators.committee(self._validators.epoch_of(like.height)).validators
        pairs = sorted(
            (signer, signed.signature)
            for (kind, signer), signed in self._heard[like.height].items()
            if kind is Kind.EXEC and signed.statement == like
        )
        return Certificate(like, tuple(pairs)) if 3 * len(pairs) > 2 * len(members) else None

    patch.setattr(RoundTalk, "_execution", execution)


# Questions


def evidence_left_out(patch: pytest.MonkeyPatch) -> None:
    def loaded(chosen: SetPayload, facts: Facts, inbound: Inbound) -> SetPayload:
        return chosen

    patch.setattr(questions, "loaded", loaded)


# What is kept until a checkpoint has it


def voted_blocks_not_kept(patch: pytest.MonkeyPatch) -> None:
    async def keep_blocks(self: RecoveryStore, blocks: Sequence[Block]) -> None:
        return

    patch.setattr(RecoveryStore, "keep_blocks", keep_blocks)


def kept_forgotten_too_early(patch: pytest.MonkeyPatch) -> None:
    forget = RecoveryStore.forget

    async def forget_more(self: RecoveryStore, slot: Slot) -> None:
        await forget(self, (slot[0], slot[1] + 2))

    patch.setattr(RecoveryStore, "forget", forget_more)


# Rounds


def own_update_not_synced(patch: pytest.MonkeyPatch) -> None:
    store_durably = Holding._store_durably

    async def stored(self: Holding, contribution: OfferBody, *sources: Any) -> None:
        if await self._context.store.blob_manifest("updates", contribution.blob_root) is None:
            await store_durably(self, contribution, *sources)

    patch.setattr(Holding, "_store_durably", stored)


def acknowledged_when_offered(patch: pytest.MonkeyPatch) -> None:
    def held_roots(self: Collection) -> Sequence[ContributionRoot]:
        return sorted(self._signed.values())

    patch.setattr(Collection, "held_roots", held_roots)


def closing_tells_nobody(patch: pytest.MonkeyPatch) -> None:
    async def run(self: Closing) -> None:
        self.why, self._closed_s = "at once", 0.0

    patch.setattr(Closing, "run", run)


# Checkpoints


def state_of_right_length(patch: pytest.MonkeyPatch) -> None:
    async def intact(work: BlobStore, kind: str, root: BlobRoot) -> bool:
        manifest = await work.blob_manifest(kind, root)
        return manifest is not None and len(await work.view_blob(kind, root)) == (
            manifest.size_bytes
        )

    patch.setattr(restore, "intact", intact)


def floor_goes_too(patch: pytest.MonkeyPatch) -> None:
    def prunable_and_one_more(
        policy: Retention, tip: int, deltas: Many[int], snapshots: Many[int]
    ) -> Prunable:
        going = prunable(policy, tip, deltas, snapshots)
        floor = max(going.delta_heights, default=0)
        return Prunable(going.delta_heights, tuple(h for h in snapshots if h <= floor))

    patch.setattr(snapshots, "prunable", prunable_and_one_more)


def deltas_go_before_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    def all_below_the_tip(
        policy: Retention, tip: int, deltas: Many[int], snapshots: Many[int]
    ) -> Prunable:
        going = prunable(policy, tip, deltas, snapshots)
        return Prunable(tuple(h for h in deltas if h < tip), going.snapshot_heights)

    patch.setattr(snapshots, "prunable", all_below_the_tip)


def last_write_unfinished(patch: pytest.MonkeyPatch) -> None:
    async def finish_last_write(self: GroupWriter) -> None:
        return

    patch.setattr(GroupWriter, "_finish_last_write", finish_last_write)


# Catching up


def page_without_its_last_vertex(patch: pytest.MonkeyPatch) -> None:
    vertices_of = page_server._vertices_of

    async def all_but_the_last(chain: ChainStore, blocks: list[Block]) -> tuple[Proved, ...]:
        return (await vertices_of(chain, blocks))[:-1]

    patch.setattr(page_server, "_vertices_of", all_but_the_last)
    patch.setattr(page_server, "_has_vertices", lambda _page: True)


# Where each shows, and by which invariants.
MUTANTS: dict[str, tuple[Plant, str, set[str]]] = {
    "an own word does not wake the inbox": (own_word_wakes_nobody, "alone", {PROGRESS}),
    "an own word is not heard by who says it": (own_word_unheard, "alone", {PROGRESS}),
    "a leader leaves out what it holds against others": (
        evidence_left_out,
        "two words",
        {CONVICTED},
    ),
    "the machine is not told of an own Exec": (
        exec_not_told,
        "executed by two of four",
        {RULES_AGREE},
    ),
    "executions are counted by heads": (executions_by_heads, "heavy one gone", {QUORUMS}),
    "a voted block is not kept": (voted_blocks_not_kept, "power cuts", {NOTHING_LOST}),
    "what is kept goes before a checkpoint has it": (
        kept_forgotten_too_early,
        "power cuts",
        {NOTHING_LOST},
    ),
    "an own update is acknowledged unsynced": (
        own_update_not_synced,
        "cuts while waiting",
        {DURABLE},
    ),
    "an offer is acknowledged before its blob is here": (
        acknowledged_when_offered,
        "cuts while waiting",
        {DURABLE, PROGRESS},
    ),
    "a collection closes and tells nobody": (closing_tells_nobody, "alone", {PROGRESS}),
    "a cached state of right length is trusted": (
        state_of_right_length,
        "damaged states",
        {ONE_CHAIN},
    ),
    "retention lets go of its floor": (floor_goes_too, "lost states", {PROGRESS}),
    "deltas go that no snapshot replaces": (
        deltas_go_before_a_snapshot,
        "lost states",
        {ONE_CHAIN},
    ),
    "a write does not finish the one before": (last_write_unfinished, "torn writes", {PROGRESS}),
    "a page lacks its last vertex": (page_without_its_last_vertex, "away", {NO_SLANDER}),
}
