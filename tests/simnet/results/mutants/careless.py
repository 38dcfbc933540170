"""Mistakes that only one kind of fault can show: of disks, of streams, or one that never heals.

Planted as those of tests.simnet.results.mutants.daemons: in the daemon's own code, or, for what its
adapters do to files, in the seams that do it step by step on simulated disks.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import cast

import pytest
import trio

from daa_consensus.bft.events import Event
from daa_consensus.bft.messages import Block
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import BlockId, NodeId
from daa_node.adapters import journal_format
from daa_node.agreement.effects_host import EffectsHost
from daa_node.agreement.messages import Body, Greeting, Proposed, SentBlock, Stated
from daa_node.agreement.reception import Reception
from daa_node.agreement.recovery import BLOCKS, RecoveryStore
from daa_node.agreement.signer import Signer
from daa_node.agreement.slots import SlotEntry
from daa_node.autonomy import loop
from daa_node.autonomy.policy import Policy
from daa_node.autonomy.reason import Decision, Gathering, stop_waiting
from daa_node.checkpoints.writes import GroupWriter
from daa_node.errors import PeerFault, Refused, StorageFailed
from daa_node.network.gossip import Gossip
from daa_node.seams import Announcement, BlobStore
from simnet.checks.invariants import (
    ASSERTIONS,
    NO_NEED,
    NO_SLANDER,
    NOTHING_LOST,
    ONE_CHAIN,
    PROGRESS,
    REMEMBERED,
    RULES_AGREE,
)
from simnet.nodes.virtual.disk import Disk, File
from simnet.nodes.virtual.disk_mount import Mount
from simnet.nodes.virtual.disk_seams import MemoryJournal
from tests.simnet.results.mutants.daemons import Plant, state_of_right_length

# What a crash leaves of bytes that were not synced


def record_cut_short(patch: pytest.MonkeyPatch) -> None:
    """What there is of the last record is taken for it."""
    record_at, prefix = journal_format._record_at, journal_format._PREFIX_BYTES

    def part_of_one(log: bytes, offset: int) -> bytes | None:
        whole = record_at(log, offset)
        return whole or log[offset + prefix :] or None

    patch.setattr(journal_format, "_record_at", part_of_one)


def record_unchecked(patch: pytest.MonkeyPatch) -> None:
    """A record of the right length is taken, whatever it digests to."""
    marker, length = journal_format._MARKER, journal_format._LENGTH

    def one_of_right_length(log: bytes, offset: int) -> bytes | None:
        start = offset + journal_format._PREFIX_BYTES
        if log[offset : offset + len(marker)] != marker or start > len(log):
            return None
        (size,) = length.unpack_from(log, offset + len(marker))
        return log[start : start + size] if start + size <= len(log) else None

    patch.setattr(journal_format, "_record_at", one_of_right_length)


def log_must_not_lead(patch: pytest.MonkeyPatch) -> None:
    check = Signer._check_guard

    def equal(self: Signer, guard: dict[str, object]) -> str | None:
        fault = check(self, guard)
        behind = guard["sequence"] != self._sequence
        return fault or ("log and guard disagree" if behind else None)

    patch.setattr(Signer, "_check_guard", equal)


def voted_blocks_not_synced(patch: pytest.MonkeyPatch) -> None:
    keep_blocks = RecoveryStore.keep_blocks

    async def kept_loosely(self: RecoveryStore, blocks: Sequence[Block]) -> None:
        store = self._store
        self._store = cast(BlobStore, Loose(store))
        try:
            await keep_blocks(self, blocks)
        finally:
            self._store = store

    patch.setattr(RecoveryStore, "keep_blocks", kept_loosely)


class Loose:
    """A store that syncs no records."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    async def put_record(self, kind: str, name: str, payload: bytes) -> None:
        assert kind == BLOCKS
        await self._store.put_record(kind, name, payload, durable=False)


# Names that a crash undoes


def deletions_not_settled(patch: pytest.MonkeyPatch) -> None:
    delete = GroupWriter._delete

    async def delete_loosely(self: GroupWriter, names: Sequence[str]) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(type(self._store), "settle", _settles_nothing)
            await delete(self, names)

    patch.setattr(GroupWriter, "_delete", delete_loosely)


async def _settles_nothing(_store: BlobStore, _kinds: Sequence[str]) -> None:
    return


def folder_not_synced(patch: pytest.MonkeyPatch) -> None:
    def sync_names(self: Disk, folder: str) -> None:
        return

    patch.setattr(Disk, "sync_names", sync_names)


def named_before_its_sync(patch: pytest.MonkeyPatch) -> None:
    moving = Mount.moving

    def rename_first(
        self: Mount, file: File, path: str, durable: bool, dirty_bytes: int = 0
    ) -> Iterator[float]:
        yield from moving(self, file, path, durable=False)
        if durable:
            yield from self.now().drive.spend(0, syncs=True)
            self.now().sync(file)
            self.now().sync_names(path.rpartition("/")[0])

    patch.setattr(Mount, "moving", rename_first)


# What a disk fails at


def log_never_anew(patch: pytest.MonkeyPatch) -> None:
    """The next word is to follow what the disk has refused; the journal takes none."""
    append = Signer._append

    async def append_again(self: Signer, batch: list[SlotEntry]) -> None:
        before = self._log_bytes
        try:
            await append(self, batch)
        except StorageFailed:
            self._log_bytes = before
            raise

    patch.setattr(Signer, "_append", append_again)


def failed_sync_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The log goes on where it was: the next sync succeeds, for nothing."""

    def check_whole(self: MemoryJournal) -> None:
        return

    log_never_anew(patch)
    patch.setattr(MemoryJournal, "_check_whole", check_whole)


def half_a_record_stays(patch: pytest.MonkeyPatch) -> None:
    """The next word follows what there was room for of the last one."""

    def truncate(self: Disk, file: File, size_bytes: int) -> None:
        return

    log_never_anew(patch)
    patch.setattr(Disk, "truncate", truncate)


def failed_rename_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    rename = Disk.rename

    def rename_if_possible(self: Disk, file: File, path: str) -> None:
        with suppress(StorageFailed):
            rename(self, file, path)

    patch.setattr(Disk, "rename", rename_if_possible)


def refused_words_count(patch: pytest.MonkeyPatch) -> None:
    """Whatever the disk says, what was given to it once is never given again."""

    async def make_durable(self: Signer, ticket: int) -> None:
        async with self._disk:
            if self._durable >= ticket:
                return
            batch, self._durable = list(self._pending), self._admitted
            del self._pending[: len(batch)]
            with trio.CancelScope(shield=True):
                await self._append(batch)

    patch.setattr(Signer, "_make_durable", make_durable)


# Its time


def impatient_with_the_disk(patch: pytest.MonkeyPatch) -> None:
    sign = Signer.sign

    async def sign_soon(
        self: Signer, statement: Statement, abort_round: int | None = None
    ) -> Signed:
        began_s = trio.current_time()
        signed = await sign(self, statement, abort_round)
        if trio.current_time() - began_s > 0.1:
            raise Refused("too-slow", "nobody waits for this any more")
        return signed

    patch.setattr(Signer, "sign", sign_soon)


# Streams


def vote_before_its_block(patch: pytest.MonkeyPatch) -> None:
    """The leader's message was under way before any vote for it, so it must have come."""
    take = Reception._take
    come: set[tuple[int, BlockId]] = set()

    async def take_in_order(self: Reception, sender: NodeId, body: Body) -> Event | None:
        host: EffectsHost = self._host
        match body:
            case Proposed(block=block) | SentBlock(block=block):
                come.add((id(self), block.id))
            case Stated(signed) if signed.statement.kind is Kind.NOTARIZE:
                value = signed.statement.value
                if isinstance(value, bytes) and not (
                    BlockId(value) in host._blocks or (id(self), BlockId(value)) in come
                ):
                    raise PeerFault("no-block", "a vote for what nobody has proposed")
        return await take(self, sender, body)

    patch.setattr(Reception, "_take", take_in_order)


def message_twice(patch: pytest.MonkeyPatch) -> None:
    """Nobody but who greets says the same at the same moment again: it must be a replay."""
    receive = Reception.receive
    newest: dict[tuple[int, NodeId], bytes] = {}

    async def receive_once(self: Reception, sender: NodeId, payload: bytes) -> None:
        before = newest.get((id(self), sender))
        newest[id(self), sender] = payload
        greets = isinstance(self._parts.inbound.open(payload).body, Greeting)
        if before == payload and not greets:
            raise PeerFault("bad-signature", "the same message twice")
        await receive(self, sender, payload)

    patch.setattr(Reception, "receive", receive_once)


def head_twice(patch: pytest.MonkeyPatch) -> None:
    may_be_head = Gossip.may_be_head
    newest: dict[tuple[int, str], bytes] = {}

    def may_be_once(self: Gossip, announcement: Announcement) -> bool:
        key = (id(self), announcement.source)
        before, newest[key] = newest.get(key), announcement.payload
        if before == announcement.payload:
            raise PeerFault("bad-signature", "the same head twice")
        return may_be_head(self, announcement)

    patch.setattr(Gossip, "may_be_head", may_be_once)


# What never heals


def waits_for_everybody(patch: pytest.MonkeyPatch) -> None:
    def when_all_are_there(gathering: Gathering, policy: Policy) -> Decision | None:
        all_here = gathering.eligible >= gathering.expected
        return stop_waiting(gathering, policy) if all_here else None

    patch.setattr(loop, "stop_waiting", when_all_are_there)


# Where each shows, and by which invariants.
CARELESS: dict[str, tuple[Plant, str, set[str]]] = {
    "a record cut short is read as whole": (record_cut_short, "log torn", {REMEMBERED}),
    "a record's digest is not checked": (record_unchecked, "log zeroed", {NO_SLANDER}),
    "a log that leads its guard is a loss": (log_must_not_lead, "log whole", {NO_NEED}),
    "a voted block is kept unsynced": (voted_blocks_not_synced, "cuts gone", {PROGRESS}),
    "a cached state of right length is trusted after a cut": (
        state_of_right_length,
        "cuts other",
        {ASSERTIONS, ONE_CHAIN, PROGRESS},
    ),
    "a deletion is not settled before its note goes": (
        deletions_not_settled,
        "cuts pruning",
        {ONE_CHAIN},
    ),
    "a folder is not synced after a rename": (
        folder_not_synced,
        "cuts",
        {NO_NEED, NOTHING_LOST, ONE_CHAIN},
    ),
    "a file has its name before its sync": (named_before_its_sync, "cuts", {PROGRESS}),
    "a failed sync is forgotten": (failed_sync_forgotten, "syncs fail", {REMEMBERED}),
    "a log that failed is never begun anew": (log_never_anew, "syncs fail", {PROGRESS}),
    "a failed rename is taken for done": (
        failed_rename_taken_for_done,
        "renames fail",
        {NOTHING_LOST},
    ),
    "half a record stays behind on a full disk": (half_a_record_stays, "full", {REMEMBERED}),
    "a word that a full disk refused counts": (refused_words_count, "full", {REMEMBERED}),
    "a word is given up when its disk is slow": (impatient_with_the_disk, "slow", {RULES_AGREE}),
    "a vote before its block is held against its sender": (
        vote_before_its_block,
        "out of order",
        {NO_SLANDER},
    ),
    "a message that comes twice is held against its sender": (message_twice, "twice", {NO_SLANDER}),
    "a head that comes twice is held against its sender": (head_twice, "told twice", {NO_SLANDER}),
    "a round waits for everybody": (waits_for_everybody, "one dead for good", {PROGRESS}),
}
