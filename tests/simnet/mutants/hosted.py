"""The same mistakes as in `mutants` and `members`, planted in whole daemons by their parts' names.

Some of them a second line of defence would hide: those that break a voting rule come with a signer
that judges nothing, so that the rule alone stands between the machine and a broken chain.
"""

from functools import partial
from typing import Any

from daa_consensus.votes import Certificate
from daa_node.adapters.journal_format import framed, guard_of
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.kept import BLOCKS, CERTIFICATES
from daa_node.errors import PeerFault
from simnet.virtual.disk import GUARD
from simnet.virtual.disk_seams import MemoryJournal, MemoryStore, Mount
from tests.simnet.mutants import members
from tests.simnet.mutants.machines import (
    EveryProposal,
    FewerCertify,
    LeaderUnchecked,
    OwnBlock,
    Slander,
    TimerOutlivesView,
)
from tests.simnet.mutants.make import Make, honestly_restored
from tests.simnet.mutants.mutants import (
    CertificatesNotKept,
    FinalityNotKept,
    FloorIgnored,
    GuardIgnored,
    Miscounting,
    RejoinsEarly,
    Trusting,
    abort_after_exec,
    epoch_ignored,
    finalize_after_nullify,
    gap_ignored,
    own_vote_twice,
    parent_ignored,
    quorum_less_one,
    stale_rejoin_counts,
    with_rules,
)


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


class RecordsNotSynced(MemoryStore):
    """put_record() returns before a kept record is durable."""

    async def put_record(self, kind: str, name: str, payload: bytes, durable: bool = True) -> None:
        is_kept = kind in (CERTIFICATES, BLOCKS)
        await super().put_record(kind, name, payload, durable and not is_kept)


class FewerVerified(Inbound):
    """A certificate may have the weight that holds an honest node where letters are opened."""

    def verify_certificate(self, certificate: Certificate) -> None:
        try:
            super().verify_certificate(certificate)
        except PeerFault as fault:
            signers = {signer for signer, _ in certificate.signatures}
            committee = self.validators.committee_behind(certificate.statement)
            if fault.reason != "no-quorum" or committee.weight(signers) < committee.blocking:
                raise


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

MEMBER_MUTANTS: dict[str, Make] = {
    "new committee one epoch early": Make(machine=members.ChangesEarly),
    "old quorum after the boundary": Make(machine=members.OldQuorum),
    "leaver still counts": Make(machine=members.LeaversCount),
    "rotation leaves the old key its seat": Make(machine=members.OldKeyToo),
    "requests applied before they are final": Make(machine=members.AppliesWhatIsNotFinal),
    "catch-up keeps to the first committee": Make(machine=members.OthersStay),
    "waiting requests lost by a restart": Make(roll=members.RequestsForgotten),
    "words judged by the committee before": Make(history=members.JudgesLate),
}
