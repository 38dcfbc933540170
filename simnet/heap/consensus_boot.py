"""Make a life out of what a disk holds, in the order in which the daemon starts.

load signer -> load what is kept -> restore the machine -> recall words -> go
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import Block
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.safety import Record
from daa_consensus.bft.state import Restored, Simplex
from daa_consensus.committee import VALIDATORS_MAX
from daa_consensus.votes import Kind, Signed
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.kept import Kept, KeptCertificate, restored
from daa_node.agreement.member_roll import MemberRoll
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.petitions import Petitions
from daa_node.agreement.signer import Signer
from daa_node.agreement.slots import Slot
from daa_node.agreement.wan_bft import WanBft
from daa_node.errors import StorageFailed
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import Validators
from daa_node.network.directory import Directory
from daa_node.network.mailbox import Mailbox
from daa_node.network.requests import Requests as RequestsOfTheDaemon
from daa_node.observability.events import EventLog
from daa_node.seams import BlobStore
from daa_node.seams import Journal as JournalSeam
from simnet.determinism import UP
from simnet.heap.consensus_contact import Contact, World
from simnet.heap.consensus_course import Course
from simnet.heap.consensus_letters import Desk, Network, Opening
from simnet.heap.consensus_life import Life, at_once
from simnet.heap.consensus_post import Post
from simnet.heap.consensus_requests import Requests
from simnet.heap.disk import GUARD, Disk, Journal, Records
from simnet.invariants import NO_NEED, Broken

DISK_LIMITS = Limits(VALIDATORS_MAX, VALIDATORS_MAX)  # our own files, of any epoch

if TYPE_CHECKING:
    from simnet.heap.consensus_host import Host


@dataclass(frozen=True, slots=True)
class Make:
    """How a host's parts are made: a test plants a broken one here, nothing else changes."""

    journal: Callable[[Disk], JournalSeam] = Journal
    records: Callable[[Disk], Any] = Records
    signer: Callable[..., Signer] = Signer
    kept: Callable[[BlobStore, Limits], Kept] = Kept
    restored: Callable[..., Awaitable[tuple[Any, Block | None]]] = restored
    machine: Callable[..., Simplex] = Simplex
    inbound: Callable[[Desk, Validators], Inbound] = Opening
    history: Callable[[Network], Validators] = Network.validators
    roll: Callable[..., MemberRoll] = MemberRoll


@dataclass(frozen=True, slots=True)
class Office:
    """What one life does besides agreeing: answer requests, take petitions, follow others."""

    requests: Requests
    petitions: Petitions
    course: Course


class Chance:
    """The Entropy seam: nonces of Rejoins."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def bytes(self, size_bytes: int) -> bytes:
        return self._chance.randbytes(size_bytes)


def boot(world: World, host: "Host", make: Make) -> tuple[Life, Office, Callable[[], None]]:
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
    keys, journal = cast(NodeKeys, host.keys), make.journal(host.disk)
    signer = make.signer(keys, world.network.chain_id, journal, Chance(host.chance))
    await signer.load(host.begun)
    kept = make.kept(cast(BlobStore, make.records(host.disk)), DISK_LIMITS)
    await kept.load()
    return signer, kept


async def _revived(
    world: World, host: "Host", make: Make, signer: Signer, kept: Kept
) -> tuple[Life, Office, Callable[[], None]]:
    network, disk = world.network, host.disk
    post, contact = Post(world, host), Contact(world, host, kept)
    validators = make.history(network)
    roll = make.roll(
        host.me, validators, cast(Directory, post), cast(Mailbox, post), cast(EventLog, contact)
    )
    await roll.follow_chain(disk.archive.path_down(disk.archive.tip.id))
    certificates, blocks = await kept.load()
    await kept.forget((disk.archive.tip.epoch, disk.archive.tip.view))
    words = signer.restored().words
    state, open_set = await make.restored(
        disk.archive.path_down(disk.archive.tip.id),
        disk.archive.proof,
        network.epoch_rounds,
        certificates,
        blocks,
        words,
    )
    machine = make.machine(
        network.chain_id,
        validators.now.committee,
        host.me,
        Timing(network.delta_ns, network.doublings_max),
        network.epoch_rounds,
        replace(state, membership=validators.now),
    )
    if state.record != Record(0, 0) and state.record.view > machine.known.chain.tip.view:
        world.watch.sometimes["restart mid-vote"] += 1
    resolved = state.tip.height - (1 if state.tip_open else 0)
    parts = AgreementParts(
        me=host.me,
        validators=validators,
        delta_ns=network.delta_ns,
        signer=signer,
        inbound=make.inbound(world.desk, validators),
        mailbox=cast(Mailbox, post),
        kept=kept,
        stored_block=disk.archive.block,
        events=cast(EventLog, contact),
        fault=contact.fault,
        members_changed=roll.changed,
    )
    life = Life(parts, machine, resolved, open_set, contact, host.chance)
    office = _office(world, host, life, contact, parts, post)
    contact.begins(validators, state.tip.id)
    _watch(world, host, state, certificates, words, signer.restored().floor)

    def begin() -> None:
        executions = [k.certificate for k in certificates if _kind(k) is Kind.EXEC]
        beside = [item.block for item in certificates if item.block is not None]
        own = [word for word in words if word.statement.kind in (Kind.OFFER, Kind.EXEC)]
        world.note(UP, node=host.node)
        life.begin(own, executions, [*blocks, *beside])
        if world.is_honest(host.node) and not host.impaired:
            known = machine.known
            kept = [k.slot for k in certificates if _kind(k) is not Kind.EXEC]
            certified = max(kept, default=(0, 0))  # of blocks that it may have to ask for
            certified = max(certified, (known.domain.epoch, known.ballots.highest_certified()))
            world.watch.relies(host, state.record.slot, certified)
        office.course.look()

    return life, office, begin


def _office(
    world: World, host: "Host", life: Life, contact: Contact, parts: AgreementParts, post: Post
) -> Office:
    requests, validators, keys = (
        Requests(world, host, contact.misled),
        parts.validators,
        world.network.keys,
    )

    def connected() -> list[int]:
        return [
            number for number in world.carrier.connected(host) if post.reads(keys[number].node_id)
        ]

    petitions = Petitions(
        cast(NodeKeys, host.keys),
        validators,
        parts.signer,
        cast(WanBft, life),
        cast(RequestsOfTheDaemon, requests),
        lambda: [keys[number].peer_id for number in connected()],
        lambda: [keys[number].peer_id for number in world.carrier.connected(host)],
    )
    petitions.serve()
    anybody = partial(world.carrier.connected, host)
    course = Course(host, life, contact, requests, validators, connected, anybody)
    course.serve()
    return Office(requests, petitions, course)


def _watch(
    world: World,
    host: "Host",
    state: Restored,
    certificates: list[KeptCertificate],
    words: Sequence[Signed],
    floor: Slot,
) -> None:
    if world.is_honest(host.node):
        votes = [w.statement for w in words if w.statement.view]
        newest_vote = max([floor, *((v.domain.epoch, v.view) for v in votes)])
        world.watch.remembers(host.node, newest_vote)
        tip = host.disk.archive.tip
        slots = [k.slot for k in certificates if _kind(k) is Kind.FINALIZE]
        newest = max([*slots, (tip.epoch, tip.view)])
        world.watch.started(host, state.tip, newest, not host.impaired)


def _kind(kept: KeptCertificate) -> Kind:
    return kept.certificate.statement.kind
