"""What operators and trainers ask of the trainers' roll: made, signed, and told to everybody.

    enroll           -> told to each member connected, again and again -> lies with the connection
    vouch of a member -> both told to all members -> the next set that a leader proposes
    retire, or to be back -> told to a member, which brings it in a place of its own

A trainer is in nobody's mailbox until it is on the roll. Its enrolment lies on the doorstep of
each member, until that one vouches for it.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio

from daa_consensus.enrolment import (
    PAIRS_A_SET_MAX,
    Enroll,
    Enrolment,
    Retire,
    TrainerAction,
    TrainerRequest,
    Vouch,
    decode_enrolment,
    encode_enrolment,
    summary,
)
from daa_consensus.errors import BadMessage
from daa_consensus.roll import EXPIRY_ROUNDS_MAX, Admission
from daa_dag.ids import NodeId
from daa_node.agreement.doorstep import Doorstep
from daa_node.agreement.roll_requests import is_open
from daa_node.agreement.signer import Signer
from daa_node.agreement.wan_bft import WanBft
from daa_node.agreement.withdrawal import Withdrawal
from daa_node.errors import PeerFault, Refused, Unavailable, UserError
from daa_node.identity.enrolling import check_enrolment
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import (
    LATER_EPOCH,
    TAKEN,
    MemberKeys,
    Validators,
    decode_member_keys,
)
from daa_node.network.requests import Answer
from daa_node.seams import PeerId

REQUEST = "enrolment"  # the request's name
EXPIRY_ROUNDS = EXPIRY_ROUNDS_MAX * 3 // 4  # others may stand a few rounds behind or ahead
# Of a word that lets a trainer in, or makes it go: the next sets take it. As long as it lasts, who
# leads may bring it again once the trainer has gone, or is back: the roll remembers no words.
WORD_ROUNDS = EXPIRY_ROUNDS // 4
RENEWED_AT = EXPIRY_ROUNDS // 2  # rounds left of an enrolment that waits for somebody's word
# Between two looks whether to enroll: a round takes seconds at least. What was said is said again
# more seldom: a connection ends now and then, and with it what lay there.
LOOK_S = 1.0
RESEND_S = 10.0
TELL_S_MAX = 5.0  # who does not answer by then is told again


class EnrolmentRequests:
    """Those of one node: its operator's, its own, and of who asks it.

    `wants`: this node is to train without a vote. `on_asked` hears of each new enrolment of a
    stranger that lies here; it may call `vouch` later.
    """

    def __init__(
        self,
        keys: NodeKeys,
        validators: Validators,
        signer: Signer,
        agreement: WanBft,
        doorstep: Doorstep[Enrolment],
        withdrawal: Withdrawal,
    ) -> None:
        """On the doorstep lie enrolments of strangers."""
        self.validators = validators
        self.on_asked: Callable[[Enrolment], None] = lambda _enrolment: None
        self._keys = keys
        self._me = keys.node_id
        self._signer = signer
        self._agreement = agreement
        self._doorstep = doorstep
        self._withdrawal = withdrawal
        self.wants = False
        self._own: Enrolment | None = None

    def serve(self) -> None:
        """Take requests of who is no member from now on."""
        self._doorstep.requests.register(REQUEST, self._take)

    async def run(self) -> None:
        """Enroll, and enroll again, as long as this node is to train and is not on the roll."""
        told = frozenset[PeerId]()
        told_at_s = -RESEND_S
        while True:
            await trio.sleep(LOOK_S)
            members = frozenset(self._doorstep.members_connected())
            is_due = trio.current_time() - told_at_s >= RESEND_S
            if self.is_to_enroll() and members and (is_due or members - told):
                with suppress(UserError):  # nobody has heard it: it is said again
                    await self.enroll()
                told, told_at_s = members, trio.current_time()

    def is_to_enroll(self) -> bool:
        """Whether this node is to train, has not retired, and is on no roll, or idles there."""
        now = self.validators.now
        entry = now.roll.entry_of(self._me)
        if self._me in now.committee.stake_of or self._withdrawal.is_kept:
            return False
        if entry is None:
            return self.wants and now.roll.rules.admission is not Admission.CLOSED
        return entry.until is None and entry.is_idle

    async def enroll(self) -> Enrolment:
        """Ask the members that are connected to be let in, or back; who has retired, has not now.

        Raises UserError and StorageFailed.
        """
        if self._withdrawal.is_kept:
            await self._withdrawal.forget()
        now, own = self.validators.now, self._own
        if own is None or own.request.expires_round - now.roll.round < RENEWED_AT:
            keys = MemberKeys.of(self._keys).encode()
            self._own = own = await self._signed(Enroll(self._me, keys))
        why = self._why_not(own)
        if why is not None:
            raise UserError(f"this node cannot enroll: {why}")
        await self._tell_members(own)
        return own

    async def vouch(self, node_id: NodeId) -> Enrolment:
        """Let in who has enrolled here, in this validator's name. Raises UserError."""
        now = self.validators.now
        roll, short = now.roll, node_id.hex()[:16]
        if roll.rules.admission is not Admission.VOUCHED:
            raise UserError(
                f"nobody vouches in this network: its admission is {roll.rules.admission} "
                "(`trainers` in the genesis)"
            )
        if self._me not in now.committee.stake_of:
            raise UserError("only a validator vouches for a trainer, and this node is none")
        if roll.entry_of(node_id) is not None:
            raise UserError(f"{short} is on the roll already: see `daa-node trainers`")
        taken, quota = roll.vouched_by(self._me), roll.rules.per_voucher
        if taken >= quota:
            raise UserError(
                f"this node vouches for {taken} of {quota} trainers already, so not for {short}: "
                "`daa-node trainers retire NODE` frees a place two rounds later"
            )
        asked = self._asked_by(node_id)
        if asked is None:
            raise UserError(
                f"{short} has not enrolled here: its daemon must run, with `enroll: true` in its "
                "config.yaml, and be connected to this one (`daa-node peers`)"
            )
        if self._agreement.facts.of_roll.words_of(self._me) >= PAIRS_A_SET_MAX:
            raise UserError(
                f"{PAIRS_A_SET_MAX} others that this node vouches for wait for the next set: try "
                f"{short} again in a round"
            )
        word = await self._signed(Vouch(self._me, asked.request.id), WORD_ROUNDS)
        for each in (asked, word):
            self._check(each)
            if not self._agreement.ask(each):
                raise UserError(f"no place for this at present: {summary(each.request.action)}")
        return word

    async def retire(self, node_id: NodeId) -> Enrolment:
        """Take off the roll this node itself, or whom it vouches for.

        This node itself stays off until `enroll`, over restarts too. Raises UserError and
        StorageFailed.
        """
        request = await self._signed(Retire(node_id, self._me), WORD_ROUNDS)
        why = self._why_not(request)
        if why is not None:
            raise UserError(f"{node_id.hex()[:16]} cannot be retired by this node: {why}")
        self._check(request)
        is_new = node_id == self._me and not self._withdrawal.is_kept
        if is_new:  # first: who dies right after others have heard it comes back to the same
            await self._withdrawal.keep()
        try:
            await self._ask_to_retire(request)
        except UserError:
            if is_new:
                await self._withdrawal.forget()
            raise
        return request

    async def _ask_to_retire(self, request: Enrolment) -> None:
        if self._me not in self.validators.listeners:  # nobody reads our messages
            await self._tell_members(request)
        elif not self._agreement.ask(request):
            raise UserError("this cannot be asked for at present: see `daa-node trainers`")

    def offer(self, enrolment: Enrolment, peer_id: PeerId | None = None) -> None:
        """Take in what a peer hands in, or anybody who has it: for the next sets to carry.

        An enrolment that needs a word lies with the connection of `peer_id`, whom it names. Raises
        PeerFault for what is false, Unavailable for what is not possible now.
        """
        try:
            check_enrolment(enrolment, self.validators)
        except PeerFault as fault:
            if fault.reason in (LATER_EPOCH, TAKEN):
                raise Unavailable(str(fault)) from None
            raise
        now, action = self.validators.now, enrolment.request.action
        # No set takes it yet: till one does, it would hold the word that somebody says for it.
        is_far_ahead = enrolment.request.expires_round > now.roll.round + EXPIRY_ROUNDS_MAX
        if is_far_ahead or not is_open(enrolment, now):
            why = self._why_not(enrolment) or "it is over"
            raise Unavailable(f"the chain does not admit this now: {summary(action)}: {why}")
        needs_word = now.roll.rules.admission is Admission.VOUCHED
        if isinstance(action, Enroll) and needs_word and now.roll.entry_of(action.subject) is None:
            named = decode_member_keys(action.keys, action.subject).peer_id
            if peer_id != named:
                raise PeerFault("malformed", "an enrolment is handed in by the peer that it names")
            if self._doorstep.put(named, enrolment):
                self.on_asked(enrolment)
        elif not self._agreement.ask(enrolment):
            raise Unavailable(f"there is no place for this: {summary(action)}")

    def listing(self) -> dict[str, Any]:
        """The roll, its rules, and who has asked here."""
        now = self.validators.now
        roll, upcoming = now.roll, now.roll.round + 1
        drawn = self.validators.rolls.trainers(upcoming)
        return {
            "round": roll.round,
            "admission": str(roll.rules.admission),
            "per_voucher": roll.rules.per_voucher,
            "roll_max": roll.rules.roll_max,
            "root": roll.root.hex(),
            "trainers": [
                {
                    "node_id": entry.name.hex(),
                    "peer_id": self.validators.peer_ids.get(entry.name),
                    "voucher": None if entry.voucher is None else entry.voucher.hex(),
                    "since": entry.since,
                    "missed": entry.missed,
                    "until": entry.until,
                    "idle": entry.is_idle,
                    "drawn": entry.name in drawn,
                }
                for entry in roll.entries
            ],
            "asked": [
                {"node_id": action.subject.hex(), "peer_id": peer_id}
                for peer_id, _, action in self._asking()
            ],
        }

    def _asking(self) -> list[tuple[PeerId, Enrolment, Enroll]]:
        """Strangers that are connected, wait for a word, and are in no set."""
        found, roll = [], self.validators.now.roll
        for peer_id, enrolment in self._doorstep.here():
            action = enrolment.request.action
            if isinstance(action, Enroll) and roll.entry_of(action.subject) is None:
                found.append((peer_id, enrolment, action))
        return found

    def _asked_by(self, node_id: NodeId) -> Enrolment | None:
        asking = self._asking()
        return next((each for _, each, action in asking if action.subject == node_id), None)

    def _why_not(self, enrolment: Enrolment) -> str | None:
        now = self.validators.now
        voting = now.committee.stake_of.keys() - {*now.convicted}
        return now.roll.why_not(enrolment.request, voting, now.convicted)

    def _check(self, enrolment: Enrolment) -> None:
        """Raises UserError for what others would refuse."""
        try:
            check_enrolment(decode_enrolment(encode_enrolment(enrolment)), self.validators)
        except (BadMessage, PeerFault) as fault:
            raise UserError(f"the others would refuse this: {fault}") from None

    async def _signed(self, action: TrainerAction, rounds: int = EXPIRY_ROUNDS) -> Enrolment:
        request = TrainerRequest(action, self.validators.now.roll.round + rounds)
        try:
            signed = await self._signer.sign(request.statement(self.validators.chain_id))
        except Refused as refusal:
            raise UserError(f"this node does not sign that: {refusal.detail}") from None
        return Enrolment(request, signed.signature)

    async def _tell_members(self, enrolment: Enrolment) -> None:
        """Raises UserError when no member takes it."""
        payload = encode_enrolment(enrolment)
        await self._doorstep.tell_members(REQUEST, payload, TELL_S_MAX)

    async def _take(self, peer_id: PeerId, body: bytes) -> Answer:
        try:
            enrolment = decode_enrolment(body)
        except BadMessage as fault:
            raise PeerFault("malformed", str(fault)) from None
        self.offer(enrolment, peer_id)
        return Answer(b"", len(body) * len(self.validators.listeners))
