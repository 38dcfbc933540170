"""Changes of the validator set as operators ask for them: made, signed, and told to everybody.

    propose | approve -> signed -> told to all members -> the next set that a leader proposes

Members write it to each other. Who is no member yet is in nobody's mailbox, and knocks: its Join
goes XX doorstep; a member that approves of it brings it before the others, in a place of its own.
"""

from collections.abc import Mapping, Set
from contextlib import suppress
from typing import Any

import trio

from daa_consensus.errors import BadMessage
from daa_consensus.membership import EXPIRY_EPOCHS_MAX
from daa_consensus.operations import (
    Approve,
    Join,
    Leave,
    Operation,
    Request,
    Rotate,
    Stake,
    Withdraw,
    decode_operation,
    encode_operation,
    signers_of,
    summary,
)
from daa_consensus.votes import Signed
from daa_dag.ids import Digest, NodeId
from daa_node.agreement.doorstep import Doorstep
from daa_node.agreement.feasible import check_fits, check_voice
from daa_node.agreement.signer import Signer
from daa_node.agreement.wan_bft import WanBft
from daa_node.errors import PeerFault, Refused, Unavailable, UserError
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

REQUEST = "membership"  # the request's name
EXPIRY_EPOCHS = EXPIRY_EPOCHS_MAX // 2  # how long a request waits for approval and room
# between two tries: a connection ends now and then, and with it what lay there
JOIN_RESEND_S = 10.0


class MembershipRequests:
    """Those of one node: its operator's, and of who asks it."""

    def __init__(
        self,
        keys: NodeKeys,
        validators: Validators,
        signer: Signer,
        agreement: WanBft,
        doorstep: Doorstep[Operation],
    ) -> None:
        """On the doorstep lie Joins."""
        self.validators = validators
        self._keys = keys
        self._me = keys.node_id
        self._signer = signer
        self._agreement = agreement
        self._doorstep = doorstep
        self._own_join: Operation | None = None

    def serve(self) -> None:
        """Take requests of who is no member from now on."""
        self._doorstep.requests.register(REQUEST, self._take)

    async def run(self) -> None:
        """Send it again as long as our Join is in no set."""
        while True:
            await trio.sleep(JOIN_RESEND_S)
            await self.send_join()

    async def send_join(self) -> None:
        """Hand our Join, if it waits to get into the chain, to whom we are connected with now."""
        if self._own_join is not None and self.validators.now.admits(self._own_join.request):
            with suppress(UserError):  # nobody is there
                await self._tell_members(self._own_join)

    async def propose(self, wanted: Mapping[str, Any]) -> Operation:
        """Ask for what the operator wants. Raises UserError for what cannot be."""
        match wanted:
            case {"action": "join", "stake": int(stake)}:
                return await self._ask_for(Join(self._me, stake, self._own_keys()))
            case {"action": "leave"}:
                return await self._ask_for(Leave(self._me))
            case {"action": "stake", "stake": int(stake)}:
                return await self._ask_for(Stake(self._me, stake))
            case {"action": "rotate", "consent": dict(consent)}:
                self._check_member()
                return await self._put(await self._rotation(consent))
            case {"action": "withdraw", "request": str(digits)}:
                self._check_member()
                return await self._withdraw(digits)
            case _:
                raise UserError(
                    "propose join, leave, stake, rotate or withdraw, a stake as a whole number, "
                    "a request by its id"
                )

    async def _ask_for(self, action: Join | Leave | Stake) -> Operation:
        if not isinstance(action, Join):
            self._check_member()
        signed = await self._signed(Request(action, self._expiry()))
        return await self._put(signed)

    def _own_keys(self) -> bytes:
        return MemberKeys.of(self._keys).encode()

    def _check_member(self) -> None:
        """Raises UserError unless this node is a validator, as far as it knows."""
        now = self.validators.now
        if self._me not in now.committee.stake_of:
            raise UserError(
                f"this node is no validator in epoch {now.epoch}, the newest that it knows. Only "
                "a validator may do this. To become one, run `daa-node validators propose join`; "
                "the validators have to approve"
            )

    async def _withdraw(self, digits: str) -> Operation:
        for request in (waiting.request for waiting in self.validators.now.waiting):
            if request.id.hex() == digits:
                action = Withdraw(self._me, request.id)
                return await self._put(await self._signed(Request(action, request.expires_epoch)))
        raise UserError(f"no request {digits} waits: `daa-node validators` lists those that do")

    async def approve(self, request_id: Digest) -> Operation:
        """Agree to a request that waits, or that was heard of. Raises UserError."""
        known = {w.request.id: w.request for w in self.validators.now.waiting}
        known |= {o.request.id: o.request for o in self._asked()}
        wanted = known.get(request_id)
        if wanted is None or isinstance(wanted.action, Approve):
            raise UserError(
                f"no request {request_id.hex()} waits: `daa-node validators` lists those that do"
            )
        self._check_member()
        action = Approve(self._me, request_id)
        approval = await self._signed(Request(action, wanted.expires_epoch))
        for _, join in self._doorstep.here():
            if join.request.id == request_id:
                self._agreement.ask(join)
        return await self._put(approval)

    def _asked(self) -> list[Operation]:
        """What is not in the chain yet: of members, and of who has asked here."""
        held, joins = self._agreement.facts.operations, [join for _, join in self._doorstep.here()]
        new = [k for k in joins if k.request.id not in held]
        return [*held.values(), *(k for k in new if self.validators.now.admits(k.request))]

    async def consent(self, seat: NodeId) -> dict[str, Any]:
        """Our half of a rotation that hands us the seat: for the other node's `propose`."""
        action = Rotate(seat, self._me, self._own_keys())
        if seat not in self.validators.now.committee.stake_of:
            raise UserError(
                f"{seat.hex()} is no validator in epoch {self.validators.now.epoch}, the newest "
                "that this node knows: see `daa-node validators`"
            )
        check_voice(action, self.validators.now, self._signer.quarantine)
        request = Request(action, self._expiry())
        signed = await self._sign(request)
        return {
            "successor": self._me.hex(),
            "keys": action.keys.hex(),
            "expires_epoch": request.expires_epoch,
            "signature": signed.signature.hex(),
        }

    def listing(self) -> dict[str, Any]:
        """The validators, the epoch, and what waits."""
        now = self.validators.now
        return {
            "epoch": now.epoch,
            "epoch_rounds": self.validators.epoch_rounds,
            "quorum": now.committee.quorum,
            "stake": now.committee.total,
            "validators": [
                {
                    "node_id": v.node_id.hex(),
                    "stake": v.stake,
                    "peer_id": self.validators.peer_ids.get(v.node_id),
                }
                for v in now.committee.validators
            ],
            "waiting": [
                _row(w.request, now.committee.weight(w.approvers), in_chain=True)
                for w in now.waiting
            ],
            "asked": [_row(o.request, 0, in_chain=False) for o in self._asked()],
            "dropped": [
                {**_row(request, 0, in_chain=True), "why": str(rule)}
                for request, rule in now.dropped
            ],
        }

    async def _rotation(self, consent: Mapping[str, Any]) -> Operation:
        try:
            successor = NodeId(bytes.fromhex(consent["successor"]))
            keys = bytes.fromhex(consent["keys"])
            decode_member_keys(keys, successor)
            request = Request(Rotate(self._me, successor, keys), consent["expires_epoch"])
            theirs = bytes.fromhex(consent["signature"])
        except (KeyError, TypeError, ValueError, PeerFault) as fault:
            raise UserError(f"this is no consent of another node: {fault}") from None
        half = await self._sign(request)
        by_signer = {self._me: half.signature, successor: theirs}
        pairs = tuple((signer, by_signer[signer]) for signer in signers_of(request.action))
        return Operation(request, pairs)

    async def _signed(self, request: Request) -> Operation:
        signed = await self._sign(request)
        return Operation(request, ((self._me, signed.signature),))

    async def _sign(self, request: Request) -> Signed:
        try:
            return await self._signer.sign(request.statement(self.validators.chain_id))
        except Refused as refusal:
            raise UserError(f"this node does not sign that: {refusal.detail}") from None

    async def _put(self, operation: Operation) -> Operation:
        try:
            self.validators.check_operation(decode_operation(encode_operation(operation)))
        except (BadMessage, PeerFault) as fault:
            raise UserError(f"the others would refuse this: {fault}") from None
        if not self.validators.now.admits(operation.request):
            raise UserError(
                f"this cannot be asked for at present: {summary(operation.request.action)}. "
                "`daa-node validators` lists the validators and the requests that wait"
            )
        check_fits(operation.request.action, self.validators.now, self._signer.quarantine)
        if self._me not in self.validators.now.committee.stake_of:  # nobody reads our messages
            await self._tell_members(operation)
        if not self._agreement.ask(operation):
            raise UserError(
                f"another request of this node waits, so this one cannot be asked for: "
                f"{summary(operation.request.action)}. `daa-node validators` lists what waits"
            )
        if isinstance(operation.request.action, Join):
            self._own_join = operation
        return operation

    async def _tell_members(self, operation: Operation) -> None:
        """Raises UserError when nobody takes it.

        A quorum that has heard it is enough: all whose approval it takes can give it.
        """
        committee, peer_ids = self.validators.now.committee, self.validators.peer_ids

        def are_enough(heard: Set[PeerId]) -> bool:
            told = {node for node, its_peer_id in peer_ids.items() if its_peer_id in heard}
            return committee.weight(told) >= committee.quorum

        payload = encode_operation(operation)
        await self._doorstep.tell_members(REQUEST, payload, are_enough=are_enough)

    async def _take(self, peer_id: PeerId, body: bytes) -> Answer:
        try:
            operation = decode_operation(body)
        except BadMessage as fault:
            raise PeerFault("malformed", str(fault)) from None
        try:
            self.validators.check_operation(operation)
        except PeerFault as fault:
            if fault.reason in (LATER_EPOCH, TAKEN):
                raise Unavailable(str(fault)) from None
            raise
        action = operation.request.action
        if not self.validators.now.admits(operation.request):
            raise Unavailable(f"the chain does not admit this now: {summary(action)}")
        if not isinstance(action, Join):
            if not self._agreement.ask(operation):
                raise Unavailable(f"there is no place for this: {summary(action)}")
            sent_bytes = len(body) * len(self.validators.listeners)  # it goes to all of them
            return Answer(b"", sent_bytes)
        if decode_member_keys(action.keys, action.subject).peer_id != peer_id:
            raise PeerFault("malformed", "a Join is handed in by the peer that it names")
        self._doorstep.put(peer_id, operation)
        return Answer(b"", len(body))

    def _expiry(self) -> int:
        return self.validators.now.epoch + EXPIRY_EPOCHS


def _row(request: Request, approved_weight: int, in_chain: bool) -> dict[str, Any]:
    return {
        "id": request.id.hex(),
        "what": summary(request.action),
        "expires_epoch": request.expires_epoch,
        "approved_weight": approved_weight,
        "in_chain": in_chain,
    }
