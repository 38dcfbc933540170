"""Four members who decide disputes: everything real but keys, disks, wires and training."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import trio

from daa_consensus.bft.evidence import Evidence
from daa_consensus.bft.messages import Block, OfferBody, SetPayload
from daa_consensus.committee import Committee, Validator
from daa_consensus.membership import Membership
from daa_consensus.votes import Signed, Statement
from daa_dag.ids import BlobRoot, BlockId, ChainId, Digest, NodeId, VertexId
from daa_node.agreement.inbound import Inbound
from daa_node.disputes import openings
from daa_node.disputes.disputes import Disputes
from daa_node.disputes.exhibits import UPDATES
from daa_node.disputes.parts import DisputeParts, Reach, Voice
from daa_node.errors import PeerFault, StorageFailed, TrainerFailed, Unavailable
from daa_node.identity.validators import Validators
from daa_node.network.requests import ANSWER_TIMEOUT_S, RequestHandler, Requests
from daa_node.observability.events import EventLog
from daa_node.rounds.peers import BOUNDARY_DEADLINE_S
from daa_node.seams import BlobStore, PeerId, SegmentCheck, SegmentOrder, StateRef, Trainer
from daa_node.spot_checks.checks import Basis, CheckRules
from daa_node.spot_checks.findings import Part
from daa_node.spot_checks.lot import Lot
from daa_node.training.boundaries import BOUNDARIES, CLAIMED, DISPUTED
from tests.daa_consensus.rolls import roll_of
from tests.daa_node.agreement.memory_disk import Disk

CHAIN = ChainId(b"c" * 32)
NAMES = [NodeId(bytes([number]) * 32) for number in range(1, 5)]
STATE = StateRef(BlobRoot(b"m" * 32), BlobRoot(b"o" * 32))
BASIS = Basis(Digest(b"s" * 32), STATE, 0, lambda _author: None)
STEPS, SEGMENT_STEPS = 8, 8  # one segment: both its ends are the round's
BEFORE = BlobRoot(b"before" * 5 + b"it")  # where anybody had left off
FINE = SegmentCheck(1e-6, 1e-6, 1e-6, 0.0, None, steps_agree=True)
WRONG = SegmentCheck(0.02, 0.02, 0.02, 0.0, None, steps_agree=True)


def offer_of(author: NodeId, round_: int) -> OfferBody:
    ends = ends_of(author)
    return OfferBody(
        round_, author, VertexId(b"v" * 32), BlobRoot(author), 9, "int8", STEPS, 1, 1, 1, 0, ends
    )


def state_root(author: NodeId, step: int) -> Digest:
    """Of the author's state after so many steps of a round."""
    return Digest(author[:16] + step.to_bytes(16))


def walked_root(author: NodeId, step: int) -> Digest:
    """Of the state that so many of the author's steps lead to, whatever it says of them."""
    return Digest(b"walked--" + author[:8] + step.to_bytes(16))


def ends_of(author: NodeId) -> tuple[Digest, Digest]:
    return state_root(author, 0), state_root(author, STEPS)


def set_of(*authors: NodeId, round_: int = 1) -> Block:
    offers = tuple(offer_of(author, round_) for author in sorted(authors))
    payload = SetPayload(round_, offers, (1,) * len(offers), "mean", 0, (), (), ())
    return Block(CHAIN, 0, round_, round_, BlockId(b"p" * 32), 0, payload)


@dataclass
class World:
    """`wrong_steps`: after which steps of whose work the state is not what follows."""

    wrong_steps: dict[NodeId, set[int]] = field(default_factory=dict)
    lies: dict[NodeId, bool] = field(default_factory=dict)  # says that all follows, or nothing
    hides: set[NodeId] = field(default_factory=set)  # opens no segment, and shows nothing
    opens_nothing: set[NodeId] = field(default_factory=set)
    hides_opened: set[NodeId] = field(default_factory=set)  # what it opens, it does not show
    drips: set[NodeId] = field(default_factory=set)  # shows that in vain, for as long as it may
    hides_from: dict[NodeId, set[NodeId]] = field(default_factory=dict)
    stalls: set[NodeId] = field(default_factory=set)  # takes a request, and never answers
    tired: set[NodeId] = field(default_factory=set)  # whose worker has no time for what it is shown
    hides_its_past: set[NodeId] = field(default_factory=set)
    explodes: set[NodeId] = field(default_factory=set)  # whose steps lead to what are no numbers
    silent: set[NodeId] = field(default_factory=set)  # reached by nobody, reaches nobody
    trainers: set[NodeId] = field(default_factory=set)  # have no vote
    epoch_rounds: int = 64
    starts_wrongly: set[NodeId] = field(default_factory=set)
    seals_wrongly: set[NodeId] = field(default_factory=set)
    shapeless: set[int] = field(default_factory=set)  # what is opened after these steps is no state
    bases_are_gone: bool = False
    chains_cannot_be_read: bool = False  # now: each disk fails
    off: float = 0.02  # of a wrong step; of so many more steps as much less
    tolerance: float = 1e-3  # of who doubts; judges' is 1e-3
    steps_convict: bool = True  # canonical kernels take the model's steps
    repeats_itself: bool = True  # whoever trains again comes to where it came the first time

    def __post_init__(self) -> None:
        self.members = {name: LittleMember(self, name, Disk()) for name in NAMES}

    @property
    def committee(self) -> Committee:
        return Committee(tuple(Validator(n, 1) for n in NAMES if n not in self.trainers))

    def restart(self, name: NodeId) -> None:
        """It has its disk, and nothing else."""
        self.members[name] = LittleMember(self, name, self.members[name].disk)

    def decide(self, *authors: NodeId, round_: int = 1, away: NodeId | None = None) -> None:
        """The set is final at everybody's who is not away."""
        for name, member in self.members.items():
            if name != away:
                member.disputes.decided(BASIS, set_of(*authors, round_=round_))

    def recall(self, name: NodeId, *authors: NodeId, round_: int) -> None:
        """It was away, and reads in its chain of that set."""
        self.members[name].disputes.recalled(BASIS, set_of(*authors, round_=round_))

    def doubt(
        self, accuser: NodeId, author: NodeId, round_: int = 1, part: Part = Part.WEIGHTS
    ) -> None:
        member, offer = self.members[accuser], offer_of(author, round_)
        if member.disputes.doubt(offer, (part,)):
            member.claimed |= {BlobRoot(root) for root in offer.snapshot_roots}

    def convicted(self) -> dict[NodeId, set[NodeId]]:
        """Whom each member has evidence against."""
        return {
            name: {evidence.offender for evidence in member.evidence}
            for name, member in self.members.items()
        }

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            for member in self.members.values():
                nursery.start_soon(member.disputes.run)
                nursery.start_soon(member.train)
            yield
            nursery.cancel_scope.cancel()


class LittleMember:
    """One of them, its worker and its shelves."""

    def __init__(self, world: World, name: NodeId, disk: Disk) -> None:
        self.world, self.name, self.disk = world, name, disk
        self.put_record, self.get_record = disk.work.put_record, disk.work.get_record
        self.evidence: list[Evidence] = []
        self.faults: list[PeerFault] = []
        self.log = EventLog(lambda: 0)
        self.shelf: set[BlobRoot] = set()  # of disputed states
        self.claimed: set[BlobRoot] = set()  # what a check of ours has brought
        self.orders: list[SegmentOrder] = []
        self.fetched: list[BlobRoot] = []
        self.seen_bases: set[StateRef] = set()
        self.handlers: dict[str, RequestHandler] = {}
        self.validators = Validators(
            CHAIN,
            world.epoch_rounds,
            Membership(world.committee, roll=roll_of(world.trainers)),
            {each: b"key" for each in NAMES},
            {each: PeerId(each.hex()) for each in NAMES},
            NAMES,
            check=lambda _key, signature, _payload, _context: signature == b"signature",
        )
        self.disputes = Disputes(
            DisputeParts(
                me=name,
                rules=CheckRules(Lot((1, 1), 2), SEGMENT_STEPS, (1, 1000), (), world.steps_convict),
                trainer=cast(Trainer, self),
                store=cast(BlobStore, self),
                fetch=self.fetch,
                named_fault=self.named_fault,
                last_boundary=self.last_boundary,
                see_base=self.see_base,
                tolerance_of=lambda _author: world.tolerance,
                reach=Reach(
                    lambda: set() if name in world.silent else {*NAMES} - {name} - world.silent,
                    lambda peer_id: NodeId(bytes.fromhex(peer_id)),
                    self.ask,
                ),
                voice=Voice(
                    self.validators,
                    Inbound(self.validators).verify,
                    self.sign,
                    self.evidence.append,
                ),
                events=self.log,
            )
        )
        self.disputes.serve(cast(Requests, self))

    def told(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.log.tail() if each["name"] == event]

    async def train(self) -> None:
        while True:
            await self.disputes.work_off(10)
            await trio.sleep(1)

    # what a node's other parts do for it

    def register(self, name: str, handler: RequestHandler) -> None:
        self.handlers[name] = handler

    async def ask(self, node: NodeId, name: str, body: bytes, _answer_bytes_max: int) -> bytes:
        await trio.sleep(ANSWER_TIMEOUT_S if node in self.world.stalls else 0.1)
        if (
            {node, self.name} & self.world.silent
            or node in self.world.stalls
            or (name == openings.REQUEST and node in self.world.hides | self.world.opens_nothing)
        ):
            raise Unavailable("no answer")
        return await self.world.members[node].asked(self.name, name, body)

    async def asked(self, by: NodeId, name: str, body: bytes) -> bytes:
        try:
            answer = await self.handlers[name](PeerId(by.hex()), body)
        except PeerFault as fault:
            self.faults.append(fault)
            raise Unavailable(str(fault)) from None
        assert isinstance(answer, bytes)
        return answer

    async def sign(self, statement: Statement) -> Signed:
        return Signed(statement, self.name, b"signature")

    async def named_fault(self, drawn: Any) -> str | None:
        if drawn.author in self.world.hides_its_past:
            raise Unavailable("where it left off before is not shown")
        if self.world.bases_are_gone and drawn.basis.state not in self.seen_bases:
            raise Unavailable("the base is not here")
        starts_wrongly = self.judges_wrong(drawn.author, drawn.author in self.world.starts_wrongly)
        return "its weights are not the base's" if starts_wrongly else None

    async def last_boundary(self, drawn: Any) -> BlobRoot:
        if self.world.chains_cannot_be_read:
            raise StorageFailed("a read failed")
        return BEFORE

    async def see_base(self, base: StateRef) -> None:
        assert not self.world.bases_are_gone
        assert base.model_root in self.disputes.states()
        self.seen_bases.add(base)

    def judges_wrong(self, author: NodeId, is_wrong: bool) -> bool:
        """What this member says of it, which is the truth unless it lies."""
        return self.world.lies.get(self.name, is_wrong)

    async def fetch(
        self, root: BlobRoot, node: NodeId, kind: str, shelf: str, is_state: bool
    ) -> None:
        assert shelf == DISPUTED
        assert is_state or bytes(root) in NAMES
        await trio.sleep(0.1)
        if node in self.world.silent or self.name in self.world.silent:
            raise Unavailable("no answer")
        if kind == DISPUTED and root not in self.world.members[node].shelf:
            raise Unavailable("it is not there")
        if kind == UPDATES and bytes(root) != bytes(node):
            raise Unavailable("it is not there")
        if is_state and int.from_bytes(root[16:]) in self.world.shapeless:
            raise PeerFault("malformed-manifest", "no state of this job")
        if kind == BOUNDARIES and (node in self.world.hides or root[:16] != node[:16]):
            raise Unavailable("it is not shown")
        if kind == BOUNDARIES and self.name in self.world.hides_from.get(node, ()):
            raise Unavailable("it is not shown to us")
        if (
            kind == BOUNDARIES
            and node in self.world.hides_opened
            and Digest(root) not in ends_of(node)
        ):
            await trio.sleep(BOUNDARY_DEADLINE_S if node in self.world.drips else 0)
            raise Unavailable("it is not shown")
        self.fetched.append(root)
        self.shelf.add(root)

    async def blob_roots(self, kind: str) -> list[BlobRoot]:
        assert kind == DISPUTED
        return sorted(self.shelf)

    async def blob_manifest(self, _kind: str, _root: BlobRoot) -> None:
        """Nothing of it is here already."""

    async def delete_blob(self, kind: str, root: BlobRoot) -> None:
        if kind == DISPUTED:
            self.shelf.discard(root)
        else:
            assert kind == CLAIMED
            self.claimed.discard(root)

    async def check_segment(self, order: SegmentOrder) -> SegmentCheck:
        self.orders.append(order)
        await trio.sleep(0.5)
        if self.name in self.world.tired:
            raise TrainerFailed("no time")
        sealed, author = order.sealed, order.author
        needed = {order.start_root, order.end_root, *([] if sealed is None else [sealed.blob_root])}
        if order.shelf == DISPUTED and not needed <= self.shelf:
            raise TrainerFailed("something is not in the store")
        if sealed is not None:
            assert order.exact
            assert (Digest(order.start_root), Digest(order.end_root)) == ends_of(author)
            is_wrong = self.judges_wrong(author, author in self.world.seals_wrongly)
            return replace(FINE, sealed=0.5 if is_wrong else 0.0)
        if order.shelf == BOUNDARIES:  # our own last step, before we sign
            assert (order.exact, order.steps) == (True, 1)
            assert Digest(order.end_root) == ends_of(self.name)[1]
            return FINE if self.world.repeats_itself else WRONG
        begun = order.step if order.origin_root is None else 0
        steps = range(begun + 1, order.step + order.steps + 1)
        is_wrong = bool(self.world.wrong_steps.get(order.author, set()) & set(steps))
        off = self.world.off / order.steps
        wrong = replace(WRONG, weights=off, first=off, second=off)
        return wrong if self.judges_wrong(order.author, is_wrong) else FINE

    async def open_segment(self, order: SegmentOrder) -> tuple[Digest, ...]:
        self.orders.append(order)
        await trio.sleep(0.5)
        if not order.exact:
            return tuple(state_root(self.name, step) for step in range(1, order.steps))
        if order.author in self.world.explodes:
            return ()
        if order.start_root not in self.shelf:
            raise TrainerFailed("it is not in the store")
        reached = [walked_root(order.author, order.step + step) for step in range(1, order.steps)]
        self.shelf.update(map(BlobRoot, reached))
        return tuple(reached)
