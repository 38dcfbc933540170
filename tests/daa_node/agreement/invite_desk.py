"""A validator's invites over a store in memory, and a roll that a test sets."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

from daa_consensus.committee import Committee, Validator
from daa_consensus.enrolment import Enroll, Enrolment, TrainerRequest
from daa_consensus.membership import Membership
from daa_consensus.roll import Admission, Entry, Roll, RollRules
from daa_dag.ids import ChainId, NodeId
from daa_node.agreement.invitations import (
    Invitations,
    Prospect,
    RollDesk,
    decode_answer,
    encode_request,
)
from daa_node.agreement.invite_book import Refusal
from daa_node.errors import Unavailable, UserError
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys, Validators
from daa_node.network.invite_text import decode_invite
from daa_node.network.requests import Requests
from daa_node.observability.events import EventLog
from daa_node.seams import Address, BlobStore, PeerId
from tests.daa_node.agreement.memory_disk import Disk

CHAIN = ChainId(b"c" * 32)
KEYS = [NodeKeys.from_seed(bytes([i])) for i in range(8)]
ME, COMERS = KEYS[0], KEYS[4:]
DAY_S = 86_400


class Outside:
    """A clock that the test sets, and tokens that it can tell apart."""

    def __init__(self) -> None:
        self.now_ns, self.count = 0, 0

    def wall_ns(self) -> int:
        return self.now_ns

    def bytes(self, size_bytes: int) -> bytes:
        self.count += 1
        return bytes([self.count]) * size_bytes


@dataclass
class Desk:
    """One validator's invites, over a roll that the test sets."""

    rules: RollRules = RollRules(Admission.VOUCHED, per_voucher=2)
    disk: Disk = field(default_factory=Disk)
    keys: NodeKeys = ME
    addresses: list[Address] = field(default_factory=lambda: [Address("/ip4/192.0.2.1/tcp/4001")])

    def __post_init__(self) -> None:
        self.roll, self.round, self.outside = Roll(self.rules), 10, Outside()
        self.offered: list[tuple[Enrolment, PeerId]] = []
        self.blamed: list[tuple[PeerId, str]] = []
        self.vouched: list[NodeId] = []
        self.full = False
        self.busy: set[NodeId] = set()  # for whom no word is said now
        self.handlers: dict[str, Any] = {}
        self.events = EventLog(lambda: 0)
        self.made = self.started()

    def started(self) -> Invitations:
        """As after a start of the daemon."""
        members = KEYS[:4]
        committee = Committee(tuple(Validator(n, 1) for n in sorted(k.node_id for k in members)))
        validators = Validators(
            CHAIN,
            4,
            Membership(committee),
            {k.node_id: k.ml_dsa_public_key for k in members},
            {k.node_id: k.peer_id for k in members},
            [k.node_id for k in members],
        )
        desk = RollDesk(lambda: self.roll, lambda: self.round, self.let_in, self.vouch)
        made = Invitations(
            self.keys.node_id,
            validators,
            desk,
            cast(BlobStore, self.disk.work),
            (self.outside, self.outside),
            lambda: self.addresses,
            self.events,
        )
        registry = cast(Requests, type("R", (), {"register": self.handlers.__setitem__})())
        nodes = {k.peer_id: k.node_id for k in KEYS}
        made.serve(
            registry, nodes.get, lambda peer_id, fault: self.blamed.append((peer_id, fault.reason))
        )
        return made

    async def let_in(self, enrolment: Enrolment, peer_id: PeerId) -> None:
        if self.full:
            raise Unavailable("no place")
        self.offered.append((enrolment, peer_id))

    async def vouch(self, name: NodeId) -> None:
        if self.full:
            raise UserError("it has not enrolled here")
        if name in self.busy:
            raise Unavailable("no place")
        self.vouched.append(name)

    async def token(self, uses: int = 1, expires_s: int = DAY_S) -> bytes:
        await self.made.load()
        told = await self.made.invite({"uses": uses, "expires_s": expires_s})
        return decode_invite(told["invite"]).token

    async def bring(self, token: bytes, keys: NodeKeys | None = None) -> Prospect | Refusal:
        return await self.hand_in(token, keys, None if keys is None else enrolled(keys))

    async def hand_in(
        self, token: bytes, keys: NodeKeys | None, enrolment: Enrolment | None
    ) -> Prospect | Refusal:
        peer_id = (keys or COMERS[0]).peer_id
        answer = await self.handlers["invite"](peer_id, encode_request(token, enrolment))
        return decode_answer(answer.body)

    def enter(
        self, keys: NodeKeys, until: int | None = None, voucher: NodeKeys | None = None
    ) -> None:
        entry = Entry(keys.node_id, b"k", (voucher or self.keys).node_id, 12, 0, 11, until)
        self.roll = replace(self.roll, entries=(*self.roll.entries, entry))


def enrolled(
    keys: NodeKeys, chain: ChainId = CHAIN, signed_by: NodeKeys | None = None, expires: int = 70
) -> Enrolment:
    request = TrainerRequest(Enroll(keys.node_id, MemberKeys.of(keys).encode()), expires)
    return Enrolment(request, envelope.sign(request.statement(chain), signed_by or keys).signature)
