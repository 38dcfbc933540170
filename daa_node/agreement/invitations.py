"""A validator's invites: made by its operator, and answered for to whoever brings one.

    joiner --[token, nothing]--> looked at:  would it be welcome, and what goes on here
    joiner --[token, Enroll]---> noted in the book -> vouched for -> both offered to everybody
           <-- ["welcome", ...] or ["refused", why]

The use is on disk before anything is offered, so that a crash lets in nobody twice; who comes again
with the same token costs no second use. Whoever comes with a token that is none is held to it, and
all such together are answered at a pace. A refusal is a word: its own host says what it means.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import trio

from daa_consensus.enrolment import (
    ENROLMENT_BYTES_MAX,
    Enroll,
    Enrolment,
    decode_enrolment,
    encode_enrolment,
    signer_of,
)
from daa_consensus.errors import BadMessage
from daa_consensus.roll import Admission, Roll
from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import ChainId, NodeId
from daa_node.agreement.enrolment_requests import (
    EXPIRY_ROUNDS,
    WORD_ROUNDS,
    EnrolmentRequests,
)
from daa_node.agreement.invite_book import (
    INVITES_MAX,
    USES_MAX,
    InviteBook,
    Issued,
    Refusal,
    decode_book,
    digest_of_token,
    encode_book,
)
from daa_node.errors import PeerFault, StorageFailed, Unavailable, UserError
from daa_node.identity.keys import verify
from daa_node.identity.validators import Validators, decode_member_keys
from daa_node.network.invite_text import TOKEN_BYTES, Invite, as_typed, encode_invite
from daa_node.network.pace import Pace
from daa_node.network.requests import Answer, Requests
from daa_node.observability.events import INVITE_HELD_UP, INVITE_USED, INVITES_LOST, EventLog
from daa_node.prompt_lock import PromptLock
from daa_node.seams import Address, BlobStore, Clock, Entropy, OnFault, PeerId

REQUEST = "invite"  # the request's name
REQUEST_BYTES_MAX = ENROLMENT_BYTES_MAX + TOKEN_BYTES + 64
ANSWER_BYTES_MAX = 512
KIND, NAME = "invites", "book"  # of its record in the work store
# Wrong tokens, of all who bring one together: no honest node does, but for a typed one of another
# validator. Beyond it they are told to come again, and nobody's right token waits.
GUESSES_PER_S, GUESSES_BURST = 0.5, 16.0
EXPIRES_S_MIN, EXPIRES_S_MAX = 60, 366 * 86_400
SECOND_NS = 1_000_000_000
LOOK_S = 2.0  # whether who came is in: a round takes as long at least


@dataclass(frozen=True, slots=True)
class RollDesk:
    """What invites have to do with the trainers' roll.

    `let_in` puts an enrolment that a peer hands in, and our word for it where one is needed, before
    everybody; `vouch` says that word again for who has enrolled here. Both raise Unavailable,
    UserError and StorageFailed where that cannot be.
    """

    now: Callable[[], Roll]
    next_round: Callable[[], int]
    let_in: Callable[[Enrolment, PeerId], Awaitable[None]]
    vouch: Callable[[NodeId], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a joiner is told of the network beside its genesis; nobody has proved it."""

    next_round: int
    validators: int
    trainers: int
    known: bool  # whether the joiner is on the roll already


def desk_of(enrolments: EnrolmentRequests) -> RollDesk:
    """Of one node's roll, and its word for trainers."""

    def now() -> Roll:
        return enrolments.validators.now.roll

    async def vouch(name: NodeId) -> None:
        await enrolments.vouch(name)

    async def let_in(enrolment: Enrolment, peer_id: PeerId) -> None:
        subject, roll = signer_of(enrolment.request.action), now()
        entry = roll.entry_of(subject)
        if entry is not None and not entry.is_idle:
            return  # it is in, and was not away for long
        enrolments.offer(enrolment, peer_id)
        if roll.rules.admission is Admission.VOUCHED and entry is None:
            await enrolments.vouch(subject)

    return RollDesk(now, lambda: now().round + 1, let_in, vouch)


class Invitations:
    """Those of one node. `load` before anything else."""

    def __init__(
        self,
        me: NodeId,
        validators: Validators,
        desk: RollDesk,
        store: BlobStore,
        outside: tuple[Clock, Entropy],
        told: Callable[[], list[Address]],
        events: EventLog,
    ) -> None:
        """`told` are the addresses at which others may dial us."""
        self._me = me
        self._validators = validators
        self._desk = desk
        self._store = store
        self._clock, self._entropy = outside
        self._told = told
        self._events = events
        self._book = InviteBook()
        self._promised: dict[NodeId, int] = {}  # vouched for, not on the roll yet; when it lapses
        self._held_up: set[NodeId] = set()  # and logged as such: no more than have used an invite
        self._turn = PromptLock()
        self._guesses: Pace | None = None
        self._blame: OnFault = lambda _peer_id, _fault: None
        self._node_of: Callable[[PeerId], NodeId | None] = lambda _peer_id: None

    async def load(self) -> None:
        """The book as it was; one that cannot be read is told of and begun anew."""
        self._guesses = Pace(GUESSES_PER_S, GUESSES_BURST)
        try:
            payload = await self._store.get_record(KIND, NAME)
            if payload is not None:
                self._book = decode_book(payload)
        except (StorageFailed, NotCanonical) as failure:
            self._events.emit(INVITES_LOST, why=str(failure))

    def serve(
        self, requests: Requests, node_of: Callable[[PeerId], NodeId | None], blame: OnFault
    ) -> None:
        """Answer who brings one from now on; `node_of` knows who has proved its name."""
        self._blame, self._node_of = blame, node_of
        requests.register(REQUEST, self._answer)

    async def run(self) -> None:
        """See to it that who has come gets in, over our restarts and theirs. Until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            if self._book.coming:
                with suppress(StorageFailed):  # the next look comes soon
                    await self._see_in()

    async def _see_in(self) -> None:
        async with self._turn:
            roll = self._desk.now()
            by_name = {entry.name: entry for entry in roll.entries}
            here = [by_name[name] for name in self._book.coming if name in by_name]
            # Whom another member has let in first it may let go again: our invite holds for it yet.
            entered = [entry.name for entry in here if entry.voucher in (None, self._me)]
            if entered:
                await self._keep(self._book.with_in(entered))
            if roll.rules.admission is not Admission.VOUCHED:
                return
            taken = self._vouched(roll)  # forgets what has lapsed
            for name in self._book.coming:
                is_known = name in by_name or name in self._promised
                if not is_known and taken < roll.rules.per_voucher:
                    with suppress(Unavailable, UserError):  # it has not enrolled here since
                        await self._desk.vouch(name)
                        self._promised[name] = word_until(self._desk.next_round())
                        taken += 1

    def by_command(self) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        """What the operator may ask."""
        return {"invite": self.invite, "invites": self.listing, "revoke": self.revoke}

    async def invite(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make one for `uses` nodes and `expires_s` seconds. Raises UserError, StorageFailed."""
        uses, expires_s = wanted.get("uses"), wanted.get("expires_s")
        check_terms(uses, expires_s)
        assert isinstance(uses, int), "as check_terms has seen"
        assert isinstance(expires_s, int), "as check_terms has seen"
        self._check_may_invite(uses)
        addresses = as_typed(self._told())
        if not addresses:
            raise UserError(
                "nobody can dial this node, so nobody could use its invite: set network.announce "
                "if you know an address that others reach, or invite on another validator. "
                "`daa-node status` says how this node can be reached"
            )
        token = self._entropy.bytes(TOKEN_BYTES)
        now_ns = self._clock.wall_ns()
        new = Issued(digest_of_token(token), uses, now_ns + expires_s * SECOND_NS)
        async with self._turn:
            book = self._book.with_new(new, now_ns)
            if book is None:
                raise UserError(
                    f"{INVITES_MAX} invites of this node are open already: revoke some, "
                    "`daa-node invite --list` shows them"
                )
            await self._keep(book)
        text = encode_invite(Invite(self._validators.chain_id, self._me, token, addresses))
        return {"invite": text, **self._row(new)}

    async def listing(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        roll = self._desk.now()
        return {
            "admission": str(roll.rules.admission),
            "per_voucher": roll.rules.per_voucher,
            "vouched": self._vouched(roll),
            "invites": [self._row(one) for one in self._book.issued],
        }

    async def revoke(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The invite of this name lets nobody in any more. Raises UserError, StorageFailed."""
        name = str(request.get("id"))
        async with self._turn:
            found = self._book.named(name) if name else []
            if len(found) > 1:
                raise UserError(f"{len(found)} invites begin with {name}: give more of the one")
            if not found:
                raise UserError(
                    f"no invite {name[:80]} of this node: `daa-node invite --list` shows them"
                )
            await self._keep(self._book.without(found[0]))
        return {"id": found[0].name, "revoked": True}

    def _check_may_invite(self, uses: int) -> None:
        roll, me = self._desk.now(), self._me
        if me not in self._validators.now.committee.stake_of:
            raise UserError(
                "this node is no validator: only a validator's word lets a trainer in. Ask one of "
                "them for an invite (`daa-node validators` lists them)"
            )
        if roll.rules.admission is Admission.CLOSED:
            raise UserError(
                "this network takes no more trainers: its genesis has trainers.admission closed. "
                "Who wants to look on needs no invite: `daa-node init --join` on the new host, and "
                "`daa-node id` here shows what to give"
            )
        left = roll.rules.per_voucher - self._vouched(roll)
        if roll.rules.admission is Admission.VOUCHED and uses > left:
            raise UserError(
                f"--uses {uses}: a validator of this network vouches for "
                f"{roll.rules.per_voucher} at a time (trainers.per_voucher), and this one "
                f"has room for {max(0, left)} more"
            )

    def _vouched(self, roll: Roll) -> int:
        """Places of ours that are taken, or promised to who is not on the roll yet."""
        now = self._desk.next_round()
        waiting = {
            node: lapses
            for node, lapses in self._promised.items()
            if lapses >= now and roll.entry_of(node) is None
        }
        self._promised = waiting
        return roll.vouched_by(self._me) + len(waiting)

    def _row(self, one: Issued) -> dict[str, Any]:
        return {
            "id": one.name,
            "uses": one.uses,
            "used_by": [node.hex() for node in one.used_by],
            "expires": one.expires_ns // SECOND_NS,
            "expired": self._clock.wall_ns() >= one.expires_ns,
            "revoked": one.revoked,
        }

    async def _keep(self, book: InviteBook) -> None:
        """Durable before it holds. Raises StorageFailed."""
        await self._store.put_record(KIND, NAME, encode_book(book))
        self._book = book

    async def _answer(self, peer_id: PeerId, body: bytes) -> Answer:
        """Raises PeerFault for what is no such request."""
        token, enrolment = decode_request(body)
        async with self._turn:
            answer = await self._judged(peer_id, token, enrolment)
        return Answer(answer, len(body))

    async def _judged(self, peer_id: PeerId, token: bytes, enrolment: Enrolment | None) -> bytes:
        issued = self._book.find(token)
        if issued is None:
            assert self._guesses is not None, "loaded"
            if not self._guesses.take_at_once():
                return _no(Refusal.NOT_NOW)
            self._blame(peer_id, PeerFault("invite-unknown", "a token that this node never gave"))
            return _no(Refusal.UNKNOWN)
        if enrolment is None:
            subject = self._node_of(peer_id)  # who has come before is still welcome
        else:
            subject = _checked(peer_id, enrolment, self._validators.chain_id)
        refusal = self._refusal(issued, subject)
        if refusal is not None:
            return _no(refusal)
        if enrolment is not None and subject is not None:
            refusal = await self._let_in(issued, subject, enrolment, peer_id)
            if refusal is not None:
                return _no(refusal)
        roll, committee = self._desk.now(), self._validators.now.committee
        known = subject is not None and roll.entry_of(subject) is not None
        counts: list[canonical.Value] = [len(committee.validators), len(roll.entries)]
        return canonical.encode(["welcome", self._desk.next_round(), *counts, int(known)])

    def _refusal(self, issued: Issued, subject: NodeId | None) -> Refusal | None:
        """Why this node, or, if none is named, a fresh one, is not let in."""
        why = issued.refusal(subject, self._clock.wall_ns())
        if why is not None:
            return why
        roll, members = self._desk.now(), self._validators.now.committee.stake_of
        if subject in members:
            return Refusal.MEMBER
        entry = None if subject is None else roll.entry_of(subject)
        if entry is not None:
            return None if entry.until is None else Refusal.GOING
        if subject in issued.used_by and subject not in issued.coming:
            return Refusal.GONE
        if self._me not in members:
            return Refusal.NO_MEMBER
        if roll.rules.admission is Admission.CLOSED:
            return Refusal.CLOSED
        if roll.why_full(members) is not None:
            return Refusal.FULL
        is_promised = subject is not None and subject in self._promised
        has_room = is_promised or self._vouched(roll) < roll.rules.per_voucher
        if roll.rules.admission is Admission.VOUCHED and not has_room:
            return Refusal.OVER_QUOTA
        return None

    async def _let_in(
        self, issued: Issued, subject: NodeId, enrolment: Enrolment, peer_id: PeerId
    ) -> Refusal | None:
        """Note the use, then put it before everybody. Raises StorageFailed."""
        noted = self._book.with_use(issued, subject)
        if noted is not self._book:  # else whoever comes again keeps our disk busy, and our log
            await self._keep(noted)
            self._events.emit(INVITE_USED, invite=issued.name, node_id=subject)
        try:
            await self._desk.let_in(enrolment, peer_id)
        except (Unavailable, UserError) as failure:
            if subject not in self._held_up:  # it comes again as often as it likes
                self._held_up.add(subject)
                self._events.emit(INVITE_HELD_UP, node_id=subject, why=str(failure))
            return Refusal.NOT_NOW
        self._held_up.discard(subject)
        # no longer than our word counts, however far ahead the joiner's own request expires
        lapses = word_until(self._desk.next_round())
        self._promised[subject] = min(enrolment.request.expires_round, lapses)
        return None


def check_terms(uses: object, expires_s: object) -> None:
    """Raises UserError where no invite is for so many, or for so long."""
    if type(uses) is not int or not 1 <= uses <= USES_MAX:
        raise UserError(f"--uses {uses}: 1 to {USES_MAX} nodes")
    if type(expires_s) is not int or not EXPIRES_S_MIN <= expires_s <= EXPIRES_S_MAX:
        raise UserError(f"--expires: a minute to {EXPIRES_S_MAX // 86_400} days")


def _checked(peer_id: PeerId, enrolment: Enrolment, chain_id: ChainId) -> NodeId:
    """Who enrols. Raises PeerFault unless it is whoever brings it, and says so for this chain."""
    request = enrolment.request
    if not isinstance(request.action, Enroll):
        raise PeerFault("malformed", "an invite is used with an Enroll")
    keys = decode_member_keys(request.action.keys, request.action.subject)
    if keys.peer_id != peer_id:
        raise PeerFault("malformed", "an Enroll is handed in by the peer that it names")
    keys.check_proof()
    statement = request.statement(chain_id)
    payload, context = statement.sign_bytes(), statement.context
    if not verify(keys.ml_dsa, enrolment.signature, payload, context):
        raise PeerFault("bad-signature", "an Enroll that its subject did not sign")
    return request.action.subject


def _no(refusal: Refusal) -> bytes:
    return canonical.encode(["refused", str(refusal)])


def encode_request(token: bytes, enrolment: Enrolment | None) -> bytes:
    return canonical.encode([token, encode_enrolment(enrolment) if enrolment else b""])


def decode_request(body: bytes) -> tuple[bytes, Enrolment | None]:
    """Raises PeerFault("malformed")."""
    try:
        match canonical.decode(body, REQUEST_BYTES_MAX):
            case [bytes(token), bytes(enrolment)] if len(token) == TOKEN_BYTES:
                return token, decode_enrolment(enrolment) if enrolment else None
    except (NotCanonical, BadMessage) as fault:
        raise PeerFault("malformed", f"invite: {fault}") from None
    raise PeerFault("malformed", f"an invite is {TOKEN_BYTES} bytes, and an enrolment or nothing")


def decode_answer(payload: bytes) -> Prospect | Refusal:
    """Raises PeerFault("malformed")."""
    try:
        match canonical.decode(payload, ANSWER_BYTES_MAX):
            case ["refused", str(word)] if word in list(Refusal):
                return Refusal(word)
            case ["welcome", int(next_round), int(validators), int(trainers), 0 | 1 as known]:
                if min(next_round, validators, trainers) >= 0:
                    return Prospect(next_round, validators, trainers, bool(known))
    except NotCanonical as fault:
        raise PeerFault("malformed", f"invite: {fault}") from None
    raise PeerFault("malformed", "neither a welcome nor a refusal")


def enrolment_until(next_round: int) -> int:
    """The last round in whose set a joiner's Enroll may stand."""
    return next_round - 1 + EXPIRY_ROUNDS


def word_until(next_round: int) -> int:
    """The last round in whose set our word for a joiner may stand, said now."""
    return next_round - 1 + WORD_ROUNDS
