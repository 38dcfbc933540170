"""Mistakes that somebody could make in the agreement, each planted by swapping a daemon's part.

Some of them a second line of defence would hide: those that break a voting rule come with a signer
that judges nothing, so that the rule alone stands between the machine and a broken chain.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from daa_consensus.bft.effects import Effect
from daa_consensus.bft.events import Event
from daa_consensus.bft.messages import Block
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.safety import Record, Rules, Seen, Verdict, Vote, may_vote
from daa_consensus.bft.state import Restored, Simplex
from daa_consensus.committee import Committee
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag.ids import ChainId, NodeId
from daa_node.adapters.journal_format import framed, guard_of
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.recovery import BLOCKS, CERTIFICATES, RecoveryStore
from daa_node.agreement.signer import Signer
from daa_node.agreement.slots import SlotEntry, Slots
from daa_node.errors import PeerFault, Refused
from daa_node.identity.keys import NodeKeys
from daa_node.seams import Entropy
from daa_node.seams import Journal as JournalSeam
from simnet.nodes.virtual.disk import GUARD
from simnet.nodes.virtual.disk_mount import Mount
from simnet.nodes.virtual.disk_seams import MemoryJournal, MemoryStore
from tests.simnet.results.mutants.machines import (
    EveryProposal,
    FewerCertify,
    LeaderUnchecked,
    OwnBlock,
    Slander,
    TimerOutlivesView,
)
from tests.simnet.results.mutants.make import Make, honestly_restored

# Disks


class LogNotSynced(MemoryJournal):
    """append() returns before its record is durable."""

    async def append(self, record: bytes) -> None:
        self._check_whole()
        disk = await self._mount.written(len(record), syncs=False)
        assert self._log is not None
        disk.append(self._log, framed(record))


class NothingSynced(LogNotSynced):
    """Nor is the guard."""

    async def write_guard(self, payload: bytes) -> None:
        await self._mount.put(GUARD, guard_of(payload), durable=False)


class LogAfterSend(MemoryJournal):
    """A record is written when the next one comes: its words have been sent by then."""

    def __init__(self, mount: Mount) -> None:
        super().__init__(mount)
        self._late: list[bytes] = []

    async def append(self, record: bytes) -> None:
        late, self._late = self._late, [record]
        for earlier in late:
            await super().append(earlier)

    async def write_guard(self, payload: bytes) -> None:
        if not self._late:
            await super().write_guard(payload)


class GuardBeforeLog(MemoryJournal):
    """The guard is replaced first."""

    def __init__(self, mount: Mount) -> None:
        super().__init__(mount)
        self._late: list[bytes] = []

    async def append(self, record: bytes) -> None:
        self._late.append(record)

    async def write_guard(self, payload: bytes) -> None:
        await super().write_guard(payload)
        late, self._late = self._late, []
        for record in late:
            await super().append(record)


class GuardInPlace(MemoryJournal):
    """The guard is overwritten where it lies, instead of being replaced by a rename."""

    async def write_guard(self, payload: bytes) -> None:
        disk = await self._mount.written(len(payload), syncs=False)
        file = disk.inodes.get(GUARD)
        if file is None:
            await super().write_guard(payload)
            return
        disk.overwrite(file, guard_of(payload))
        (await self._mount.written(0, syncs=True)).sync(file)


class CertificatesNotKept(RecoveryStore):
    """What a vote relies on is in memory only."""

    async def keep(self, certificate: Certificate, block: Block | None) -> None:
        if certificate.statement.kind not in (Kind.NOTARIZE, Kind.NULLIFY):
            await super().keep(certificate, block)


class FinalityNotKept(RecoveryStore):
    """What is final is in memory only until it is published."""

    async def keep(self, certificate: Certificate, block: Block | None) -> None:
        if certificate.statement.kind is not Kind.FINALIZE:
            await super().keep(certificate, block)


class RecordsNotSynced(MemoryStore):
    """put_record() returns before a kept record is durable."""

    async def put_record(
        self, kind: str, name: str, payload: bytes, durable: bool = True, anew: bool = False
    ) -> None:
        is_kept = kind in (CERTIFICATES, BLOCKS)
        await super().put_record(kind, name, payload, durable and not is_kept, anew)


# Signers


class GuardIgnored(Signer):
    """Whatever the guard says, votes are given."""

    async def load(self, history_exists: bool = False) -> None:
        await super().load(history_exists)
        self._quarantine = None


class FloorIgnored(Signer):
    """A Rejoin that is final ends the quarantine, and nothing is forbidden that came before."""

    async def rejoined(self, nonce: bytes, epoch: int, view: int, height: int) -> bool:
        ended = await super().rejoined(nonce, epoch, view, height)
        if ended:
            self._slots = Slots()
        return ended


class RejoinsEarly(Signer):
    """Votes are given again one view too early."""

    async def rejoined(self, nonce: bytes, epoch: int, view: int, height: int) -> bool:
        return await super().rejoined(nonce, epoch, view - 1, height)


class Always:
    """An Entropy without any."""

    def bytes(self, size_bytes: int) -> bytes:
        return bytes(size_bytes)


def stale_rejoin_counts(
    keys: NodeKeys, chain_id: ChainId, journal: JournalSeam, entropy: Entropy
) -> Signer:
    """The nonce of a Rejoin is the same in every life, so an old one ends a new quarantine."""
    return Signer(keys, chain_id, journal, Always())


class Careless(Slots):
    """Remembers words, gives the same ones again, and judges by nothing but a Rejoin's floor."""

    def judge(self, statement: Statement, abort_round: int | None) -> SlotEntry | None:
        try:
            return super().judge(statement, abort_round)
        except Refused as refusal:
            if refusal.reason == "behind-floor":
                raise
            return None

    def note(self, word: SlotEntry) -> None:
        with suppress(ValueError):
            super().note(word)


class Trusting(Signer):
    """A signer whose memory speaks against nothing; quarantine it keeps."""

    async def load(self, history_exists: bool = False) -> None:
        await super().load(history_exists)
        careless = Careless()
        vars(careless).update(vars(self._slots))
        self._slots = careless


# Rules


def with_rules(rules: Rules) -> Callable[..., Simplex]:
    return partial(Simplex, rules=rules)


def finalize_after_nullify(record: Record, seen: Seen, vote: Vote) -> Verdict:
    if vote.kind is Kind.FINALIZE:
        record = replace(record, nullified=False)
    return may_vote(record, seen, vote)


def gap_ignored(record: Record, seen: Seen, vote: Vote) -> Verdict:
    """The views between a block and its parent may be anything."""
    return may_vote(record, replace(seen, nullified=frozenset(range(vote.slot[1]))), vote)


def parent_ignored(record: Record, seen: Seen, vote: Vote) -> Verdict:
    """A block may stand on any other."""
    if vote.kind is not Kind.NOTARIZE or vote.parent_id is None:
        return may_vote(record, seen, vote)
    notarized = {**seen.notarized, vote.parent_view: vote.parent_id}
    return may_vote(record, replace(seen, notarized=notarized), vote)


def abort_after_exec(record: Record, seen: Seen, vote: Vote) -> Verdict:
    return may_vote(record, replace(seen, executed=0, certified=0), vote)


def epoch_ignored(record: Record, seen: Seen, vote: Vote) -> Verdict:
    """Slots are compared by their views, which step back between epochs."""
    return may_vote(replace(record, epoch=vote.slot[0]), seen, vote)


# Committees


class Miscounting(Simplex):
    """Counts by committees of its own, of which `bend` changes something in every epoch."""

    def __init__(
        self,
        bend: Callable[[Committee, NodeId], None],
        chain_id: ChainId,
        committee: Committee,
        me: NodeId,
        timing: Timing,
        epoch_rounds: int,
        restored: Restored,
    ) -> None:
        own = Committee(committee.validators)
        assert restored.membership is not None
        membership = replace(restored.membership, committee=own)
        restored = replace(restored, membership=membership)
        super().__init__(chain_id, own, me, timing, epoch_rounds, restored)
        self._bend, self._bent, self._name = bend, own, me
        bend(own, me)

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        effects = super().step(now_ns, event)
        if self.known.committee is not self._bent:
            self._bent = self.known.committee
            self._bend(self._bent, self._name)
        return effects


def own_vote_twice(committee: Committee, me: NodeId) -> None:
    def weight(node_ids: Sequence[NodeId]) -> int:
        twice = committee.stake_of.get(me, 0) if me in node_ids else 0
        return Committee.weight(committee, frozenset(node_ids)) + twice

    vars(committee).update(weight=weight)


def quorum_less_one(committee: Committee, _me: NodeId) -> None:
    vars(committee).update(quorum=committee.quorum - 1)


# Messages


class FewerVerified(Inbound):
    """A certificate may have the weight that holds an honest node where messages are opened."""

    def verify_certificate(self, certificate: Certificate) -> None:
        try:
            super().verify_certificate(certificate)
        except PeerFault as fault:
            signers = {signer for signer, _ in certificate.signatures}
            committee = self.validators.committee_behind(certificate.statement)
            if fault.reason != "no-quorum" or committee.weight(signers) < committee.blocking:
                raise


# Restarts


async def own_votes_forgotten(*parts: Any) -> Any:
    """A restarted machine does not know what it has voted."""
    path_down, certificate, epoch_rounds, kept, blocks, _ = parts
    return await honestly_restored(path_down, certificate, epoch_rounds, kept, blocks, [])


MUTANTS: dict[str, Make] = {
    "log not synced": Make(journal=LogNotSynced),
    "log and guard not synced": Make(journal=NothingSynced),
    "log written after the word is sent": Make(journal=LogAfterSend),
    "guard written before the log": Make(journal=GuardBeforeLog),
    "guard overwritten in place": Make(journal=GuardInPlace),
    "guard ignored": Make(signer=GuardIgnored),
    "a Rejoin forbids nothing": Make(signer=FloorIgnored),
    "rejoins one view early": Make(signer=RejoinsEarly),
    "old rejoin counts": Make(signer=stale_rejoin_counts),
    "certificates not kept before the vote": Make(kept=CertificatesNotKept),
    "finality not kept": Make(kept=FinalityNotKept),
    "kept records not synced": Make(store=RecordsNotSynced),
    "own votes forgotten by a restart": Make(restored=own_votes_forgotten),
    "own votes forgotten, and the signer trusts": Make(
        restored=own_votes_forgotten, signer=Trusting
    ),
    "own vote counted twice": Make(machine=partial(Miscounting, own_vote_twice)),
    "quorum off by one": Make(machine=partial(Miscounting, quorum_less_one)),
    "finalize after nullify": Make(machine=with_rules(finalize_after_nullify), signer=Trusting),
    "nullify after finalize": Make(machine=TimerOutlivesView, signer=Trusting),
    "notarize twice": Make(machine=EveryProposal, signer=Trusting),
    "view skipped without a certificate": Make(machine=with_rules(gap_ignored)),
    "parent not notarized": Make(machine=with_rules(parent_ignored)),
    "leader not checked": Make(machine=LeaderUnchecked),
    "another block than the leader's": Make(machine=OwnBlock),
    "certificate below a quorum accepted": Make(machine=FewerCertify, inbound=FewerVerified),
    "honest node convicted": Make(machine=Slander),
    "abort after Exec": Make(machine=with_rules(abort_after_exec)),
    "epoch ignored in the order of slots": Make(machine=with_rules(epoch_ignored)),
}
