"""Make a life out of what a disk holds, in the order in which the daemon starts.

load signer -> load what is kept -> restore the machine -> recall words -> go
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from daa_consensus.bft.messages import Block, Limits
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.safety import Record
from daa_consensus.bft.state import Restored, Simplex
from daa_consensus.votes import Kind, Signed
from daa_node.agreement import restart
from daa_node.agreement.kept import Kept, KeptCertificate
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.signer import Signer
from daa_node.errors import StorageFailed
from daa_node.identity.keys import NodeKeys
from daa_node.network.mailbox import Mailbox
from daa_node.observability.events import EventLog
from daa_node.seams import BlobStore
from daa_node.seams import Journal as JournalSeam
from simnet.determinism import UP
from simnet.heap.consensus_contact import Contact, World
from simnet.heap.consensus_letters import Keys
from simnet.heap.consensus_life import Life, at_once
from simnet.heap.disk import GUARD, Disk, Journal, Records
from simnet.invariants import NO_NEED, Broken

if TYPE_CHECKING:
    from simnet.heap.consensus_host import Host


@dataclass(frozen=True, slots=True)
class Make:
    """How a host's parts are made: a test plants a broken one here, nothing else changes."""

    journal: Callable[[Disk], JournalSeam] = Journal
    records: Callable[[Disk], Any] = Records
    signer: Callable[..., Signer] = Signer
    kept: Callable[[BlobStore, Limits], Kept] = Kept
    restored: Callable[..., Awaitable[tuple[Any, Block | None]]] = restart.restored
    machine: Callable[..., Simplex] = Simplex


class Chance:
    """The Entropy seam: nonces of Rejoins."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def bytes(self, size_bytes: int) -> bytes:
        return self._chance.randbytes(size_bytes)


def boot(world: World, host: "Host", make: Make) -> tuple[Life, Callable[[], None]]:
    """A life, and what begins it.

    Raises PowerCut if the disk loses power meanwhile, StorageFailed if it is full.
    """
    watch = world.watch
    try:
        signer, kept = at_once(_loaded(world, host, make))
    except StorageFailed:
        if not host.disk.is_damaged:
            raise
        watch.sometimes["damaged file moved away by the operator"] += 1
        host.disk.mend()
        signer, kept = at_once(_loaded(world, host, make))
    host.begun = True
    if signer.quarantine is not None:
        watch.sometimes["quarantine entered"] += 1
        if not host.impaired and world.is_honest(host.node):
            raise Broken(NO_NEED, f"{host}: {signer.quarantine}")
    for name in host.disk.torn:
        watch.sometimes["power lost while writing"] += 1
        if name == GUARD:
            watch.sometimes["log led the guard after a power cut"] += 1
    host.disk.torn.clear()
    return at_once(_revived(world, host, make, signer, kept))


async def _loaded(world: World, host: "Host", make: Make) -> tuple[Signer, Kept]:
    """Raises StorageFailed for what is damaged."""
    keys, journal = cast(NodeKeys, Keys(host.me)), make.journal(host.disk)
    signer = make.signer(keys, world.network.chain_id, journal, Chance(host.chance))
    await signer.load(host.begun)
    kept = make.kept(cast(BlobStore, make.records(host.disk)), world.network.limits)
    await kept.load()
    return signer, kept


async def _revived(
    world: World, host: "Host", make: Make, signer: Signer, kept: Kept
) -> tuple[Life, Callable[[], None]]:
    network, disk = world.network, host.disk
    certificates, blocks = await kept.load()
    await kept.forget((disk.archive.tip.epoch, disk.archive.tip.view))
    words = signer.restored().words
    state, open_set = await make.restored(
        disk.archive.path_down(),
        disk.archive.proof,
        network.epoch_rounds,
        certificates,
        blocks,
        words,
    )
    machine = make.machine(
        network.chain_id,
        network.committee,
        host.me if host.votes else None,
        Timing(network.delta_ns, network.doublings_max),
        network.epoch_rounds,
        state,
    )
    if state.record != Record(0, 0) and state.record.view > machine.known.chain.tip.view:
        world.watch.sometimes["restart mid-vote"] += 1
    contact = Contact(world, host, kept)
    resolved = state.tip.height - (1 if state.tip_open else 0)
    parts = _parts(world, host, contact, signer, kept)
    life = Life(parts, machine, resolved, open_set, contact, host.chance)
    _watch(world, host, state, certificates, words)

    def begin() -> None:
        executions = [k.certificate for k in certificates if _kind(k) is Kind.EXEC]
        beside = [item.block for item in certificates if item.block is not None]
        own = [word for word in words if word.statement.kind in (Kind.OFFER, Kind.EXEC)]
        world.note(UP, node=host.node)
        life.begin(own, executions, [*blocks, *beside])

    return life, begin


def _watch(
    world: World,
    host: "Host",
    state: Restored,
    certificates: list[KeptCertificate],
    words: Sequence[Signed],
) -> None:
    if world.is_honest(host.node):
        votes = [w.statement for w in words if w.statement.view]
        newest_vote = max([(v.domain.epoch, v.view) for v in votes], default=(0, 0))
        world.watch.remembers(host.node, newest_vote)
        tip = host.disk.archive.tip
        slots = [k.slot for k in certificates if _kind(k) is Kind.FINALIZE]
        newest = max([*slots, (tip.epoch, tip.view)])
        world.watch.started(host, state.tip, newest, not host.impaired)


def _kind(kept: KeptCertificate) -> Kind:
    return kept.certificate.statement.kind


def _parts(
    world: World, host: "Host", contact: Contact, signer: Signer, kept: Kept
) -> AgreementParts:
    network = world.network
    return AgreementParts(
        me=host.me,
        validators=network.validators(),
        delta_ns=network.delta_ns,
        signer=signer,
        inbound=world.inbound,
        mailbox=cast(Mailbox, contact),
        kept=kept,
        stored_block=host.disk.archive.block,
        events=cast(EventLog, contact),
        fault=contact.fault,
    )
