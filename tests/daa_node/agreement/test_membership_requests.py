"""What an operator asks for becomes an operation that everybody can check, or is refused."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from daa_consensus.committee import Committee, Validator
from daa_consensus.membership import Membership
from daa_consensus.operations import (
    Approve,
    Join,
    Leave,
    Operation,
    Request,
    Rotate,
    encode_operation,
)
from daa_consensus.votes import Signed, Statement
from daa_dag.ids import ChainId, Digest
from daa_node.agreement.doorstep import Doorstep
from daa_node.agreement.membership_requests import EXPIRY_EPOCHS, REQUEST, MembershipRequests
from daa_node.agreement.signer import Signer
from daa_node.agreement.wan_bft import WanBft
from daa_node.errors import PeerFault, Unavailable, UserError
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys, Validators
from daa_node.network.requests import Requests
from daa_node.seams import PeerId

CHAIN = ChainId(b"c" * 32)
KEYS = sorted((NodeKeys.from_seed(bytes([i])) for i in range(4)), key=lambda k: k.node_id)
NEWCOMER = NodeKeys.from_seed(b"newcomer")


class Desk:
    """One node's requests; what it puts before everybody lies in `operations`."""

    def __init__(self, keys: NodeKeys, members: int = 4, quarantine: str | None = None) -> None:
        self.operations: dict[Digest, Operation] = {}
        self.answers: dict[str, Any] = {}
        founders = KEYS[:members]
        self.connected = [k.peer_id for k in founders]
        self.deaf: set[PeerId] = set()
        self.silent: set[PeerId] = set()
        self.answer_s: dict[PeerId, float] = {}
        self.heard: list[PeerId] = []
        self.full = False
        committee = Committee(tuple(Validator(k.node_id, 1) for k in founders))
        self.validators = Validators(
            CHAIN,
            10,
            Membership(committee),
            {k.node_id: k.ml_dsa_public_key for k in founders},
            {k.node_id: k.peer_id for k in founders},
            [k.node_id for k in founders],
        )

        async def sign(statement: Statement) -> Signed:
            return envelope.sign(statement, keys)

        def ask(operation: Operation) -> bool:
            self.validators.check_operation(operation)
            if self.full:
                return False
            self.operations[operation.request.id] = operation
            return True

        async def tell(peer_id: PeerId, _word: str, _body: bytes, _bytes_max: int) -> bytes:
            if peer_id in self.deaf:
                raise Unavailable("hung up")
            if peer_id in self.silent:
                await trio.sleep_forever()
            if peer_id in self.answer_s:
                await trio.sleep(self.answer_s[peer_id])
            self.heard.append(peer_id)
            return b""

        requests = SimpleNamespace(register=self.answers.__setitem__, ask=tell)
        agreement = SimpleNamespace(ask=ask, facts=SimpleNamespace(operations=self.operations))
        self.membership_requests = MembershipRequests(
            keys,
            self.validators,
            cast(Signer, SimpleNamespace(sign=sign, quarantine=quarantine)),
            cast(WanBft, agreement),
            Doorstep(cast(Requests, requests), lambda: self.connected, lambda: self.connected),
        )


async def test_a_join_is_made_and_a_member_approves_of_it() -> None:
    newcomer, member = Desk(NEWCOMER), Desk(KEYS[0])
    join = await newcomer.membership_requests.propose({"action": "join", "stake": 1})
    assert isinstance(join.request.action, Join)
    assert join.request.expires_epoch == EXPIRY_EPOCHS
    member.operations[join.request.id] = join
    word = await member.membership_requests.approve(join.request.id)
    assert word.request.action == Approve(KEYS[0].node_id, join.request.id)
    assert {row["id"] for row in member.membership_requests.listing()["asked"]} >= {
        join.request.id.hex()
    }


async def test_who_is_no_member_has_asked_when_a_member_has_heard_it() -> None:
    desk, first = Desk(NEWCOMER), KEYS[0].peer_id
    join: dict[str, Any] = {"action": "join", "stake": 1}
    desk.deaf = set(desk.connected)
    with pytest.raises(UserError, match="no member of the network has taken this"):
        await desk.membership_requests.propose(join)
    desk.connected = []
    with pytest.raises(UserError, match="no member of the network has taken this"):
        await desk.membership_requests.propose(join)
    assert not desk.operations
    desk.connected = [first, KEYS[1].peer_id]
    desk.deaf = {first}
    asked = await desk.membership_requests.propose(join)
    assert desk.heard == [KEYS[1].peer_id]
    assert list(desk.operations) == [asked.request.id]


async def test_a_request_is_told_until_a_quorum_has_heard_it(autojump_clock: object) -> None:
    """The first to hear it may keep it for itself; of a quorum somebody honest passes it on."""
    desk = Desk(NEWCOMER)
    desk.answer_s = {keys.peer_id: float(place) for place, keys in enumerate(KEYS)}
    await desk.membership_requests.propose({"action": "join", "stake": 1})
    assert desk.heard == [keys.peer_id for keys in KEYS[:3]]
    assert trio.current_time() == pytest.approx(2.0)


async def test_a_member_that_does_not_answer_keeps_nobody_waiting() -> None:
    desk = Desk(NEWCOMER)
    desk.silent = {KEYS[0].peer_id}
    with trio.fail_after(30):
        await desk.membership_requests.propose({"action": "join", "stake": 1})
    assert sorted(desk.heard) == sorted(keys.peer_id for keys in KEYS[1:])


def join_of(keys: NodeKeys) -> Operation:
    request = Request(Join(keys.node_id, 1, MemberKeys.of(keys).encode()), 8)
    word = envelope.sign(request.statement(CHAIN), keys)
    return Operation(request, ((keys.node_id, word.signature),))


async def test_however_many_strangers_knock_the_next_one_is_heard_and_can_be_approved() -> None:
    desk = Desk(KEYS[0])
    desk.membership_requests.serve()
    strangers = [NodeKeys.from_seed(b"stranger %d" % i) for i in range(20)]
    for keys in (*strangers, NEWCOMER):
        desk.connected.append(keys.peer_id)
        for _ in range(2):  # again and again
            await desk.answers[REQUEST](keys.peer_id, encode_operation(join_of(keys)))
    assert not desk.operations  # nobody's word has reached anybody else
    assert len(desk.membership_requests.listing()["asked"]) == len(strangers) + 1
    wanted = join_of(NEWCOMER).request
    await desk.membership_requests.approve(wanted.id)
    actions = [operation.request.action for operation in desk.operations.values()]
    assert actions == [wanted.action, Approve(KEYS[0].node_id, wanted.id)]


async def test_a_knock_lies_with_its_connection_and_names_who_knocks() -> None:
    desk = Desk(KEYS[0])
    desk.membership_requests.serve()
    body = encode_operation(join_of(NEWCOMER))
    with pytest.raises(PeerFault):
        await desk.answers[REQUEST](KEYS[1].peer_id, body)
    desk.connected = [NEWCOMER.peer_id]
    await desk.answers[REQUEST](NEWCOMER.peer_id, body)
    desk.connected = []
    assert not desk.membership_requests.listing()["asked"]
    with pytest.raises(UserError, match="no request .* waits"):
        await desk.membership_requests.approve(join_of(NEWCOMER).request.id)


async def test_the_knock_of_who_has_gone_is_forgotten_when_the_next_one_comes() -> None:
    """Else whoever comes back under ever new names leaves one behind each time."""
    desk, other = Desk(KEYS[0]), NodeKeys.from_seed(b"other")
    desk.membership_requests.serve()
    for keys in (NEWCOMER, other):
        desk.connected = [keys.peer_id]
        await desk.answers[REQUEST](keys.peer_id, encode_operation(join_of(keys)))
    desk.connected = [NEWCOMER.peer_id, other.peer_id]
    asked = [row["id"] for row in desk.membership_requests.listing()["asked"]]
    assert asked == [join_of(other).request.id.hex()]


async def test_who_wants_to_join_knocks_until_a_set_carries_it() -> None:
    desk = Desk(NEWCOMER)
    join = await desk.membership_requests.propose({"action": "join", "stake": 1})
    assert len(desk.heard) == len(KEYS)
    await desk.membership_requests.send_join()
    assert len(desk.heard) == 2 * len(KEYS)
    sponsor = KEYS[0].node_id
    word = Operation(Request(Approve(sponsor, join.request.id), 8), ((sponsor, b"s"),))
    desk.validators.now = desk.validators.now.decided([join, word])
    await desk.membership_requests.send_join()
    assert len(desk.heard) == 2 * len(KEYS)


async def test_what_finds_no_place_is_told_to_who_asked() -> None:
    desk = Desk(KEYS[0])
    desk.full = True
    with pytest.raises(UserError, match="another request of this node waits"):
        await desk.membership_requests.propose({"action": "leave"})
    desk.membership_requests.serve()
    leave = Request(Leave(KEYS[1].node_id), 4)
    word = envelope.sign(leave.statement(CHAIN), KEYS[1])
    operation = Operation(leave, ((KEYS[1].node_id, word.signature),))
    with pytest.raises(Unavailable, match="no place"):
        await desk.answers[REQUEST](KEYS[2].peer_id, encode_operation(operation))


async def test_a_seat_is_handed_on_with_the_consent_of_both() -> None:
    heir, holder = Desk(NEWCOMER), Desk(KEYS[1])
    consent = await heir.membership_requests.consent(KEYS[1].node_id)
    rotate = await holder.membership_requests.propose({"action": "rotate", "consent": consent})
    assert isinstance(rotate.request.action, Rotate)
    assert rotate.request.action.successor == NEWCOMER.node_id
    for broken in ({}, {**consent, "signature": "00"}, {**consent, "keys": "zz"}):
        with pytest.raises(UserError):
            await holder.membership_requests.propose({"action": "rotate", "consent": broken})
    with pytest.raises(UserError):  # given for another seat
        await Desk(KEYS[2]).membership_requests.propose({"action": "rotate", "consent": consent})


async def test_who_holds_the_seat_withdraws_a_rotation_that_waits_in_its_name() -> None:
    heir, holder, other = Desk(NEWCOMER), Desk(KEYS[1]), Desk(KEYS[0])
    consent = await heir.membership_requests.consent(KEYS[1].node_id)
    rotate = await holder.membership_requests.propose({"action": "rotate", "consent": consent})
    wanted = {"action": "withdraw", "request": rotate.request.id.hex()}
    with pytest.raises(UserError, match="no request .* waits"):
        await holder.membership_requests.propose(wanted)
    for desk in (holder, other):
        desk.validators.now = desk.validators.now.decided([rotate])
    with pytest.raises(UserError):
        await other.membership_requests.propose(wanted)
    withdrawal = await holder.membership_requests.propose(wanted)
    assert not holder.validators.now.decided([withdrawal]).waiting


@pytest.mark.parametrize("members", [1, 2, 3, 4])
async def test_who_may_not_vote_takes_no_seat_that_must_vote(members: int) -> None:
    """Of four or more the others end its quarantine; of three or fewer everything needs all."""
    newcomer = Desk(NEWCOMER, members, quarantine="the guard file is missing")
    seat = KEYS[0].node_id
    if members == 3:
        await newcomer.membership_requests.propose({"action": "join", "stake": 1})
    elif members < 3:
        with pytest.raises(UserError, match="stand for good.*daa-node init"):
            await newcomer.membership_requests.propose({"action": "join", "stake": 1})
        assert not newcomer.operations
        assert not newcomer.heard
    if members == 4:
        await newcomer.membership_requests.propose({"action": "join", "stake": 1})
        await newcomer.membership_requests.consent(seat)
    else:
        with pytest.raises(UserError, match="stand for good"):
            await newcomer.membership_requests.consent(seat)
    whole = Desk(NEWCOMER, members)
    await whole.membership_requests.propose({"action": "join", "stake": 1})
    await whole.membership_requests.consent(seat)


@pytest.mark.parametrize(("members", "most"), [(1, 1), (3, 3), (4, 1)])
async def test_a_stake_that_would_be_dropped_is_refused_when_it_is_asked_for(
    members: int, most: int
) -> None:
    newcomer, member = Desk(NEWCOMER, members), Desk(KEYS[0], members)
    for desk, action, base in ((newcomer, "join", 0), (member, "stake", 1)):
        words = f"a weight of {most} may come or go at most, as {members} validators weigh"
        with pytest.raises(UserError, match=words):
            await desk.membership_requests.propose({"action": action, "stake": base + most + 1})
        assert not desk.operations
        asked = await desk.membership_requests.propose({"action": action, "stake": base + most})
        after = desk.validators.now.decided([asked])
        waiting = tuple(
            replace(w, approvers=frozenset(after.committee.stake_of)) for w in after.waiting
        )
        if action == "stake":  # a Join waits for a sponsor
            assert replace(after, waiting=waiting).next_epoch().applied == (asked.request,)


async def test_the_last_validator_is_told_that_it_cannot_leave() -> None:
    with pytest.raises(UserError, match="nobody would be left"):
        await Desk(KEYS[0], 1).membership_requests.propose({"action": "leave"})


async def test_who_is_no_validator_is_told_so_and_how_to_become_one() -> None:
    desk = Desk(NEWCOMER)
    desk.operations[Digest(b"j" * 32)] = other = join_of(NodeKeys.from_seed(b"other"))
    words = "this node is no validator in epoch 0.*propose join"
    heir = await Desk(NodeKeys.from_seed(b"heir")).membership_requests.consent(KEYS[0].node_id)
    asked: list[dict[str, Any]] = [
        {"action": "leave"},
        {"action": "stake", "stake": 2},
        {"action": "withdraw", "request": "00"},
        {"action": "rotate", "consent": heir},
    ]
    for wanted in asked:
        with pytest.raises(UserError, match=words):
            await desk.membership_requests.propose(wanted)
    with pytest.raises(UserError, match=words):
        await desk.membership_requests.approve(other.request.id)
    with pytest.raises(UserError, match="is no validator in epoch 0"):
        await desk.membership_requests.consent(NEWCOMER.node_id)


WRONG: list[dict[str, Any]] = [
    {"action": "leave"},
    {"action": "stake", "stake": 2},
    {"action": "join", "stake": 0},
    {"action": "crown"},
    {"action": "rotate"},
]


@pytest.mark.parametrize("wanted", WRONG, ids=str)
async def test_what_a_stranger_cannot_ask_for_is_refused(wanted: dict[str, Any]) -> None:
    desk = Desk(NEWCOMER)
    with pytest.raises(UserError):
        await desk.membership_requests.propose(wanted)
    assert not desk.operations


async def test_nobody_approves_of_what_nobody_asked_for_nor_joins_twice() -> None:
    with pytest.raises(UserError):
        await Desk(KEYS[0]).membership_requests.approve(Digest(b"n" * 32))
    with pytest.raises(UserError):
        await Desk(KEYS[0]).membership_requests.propose({"action": "join", "stake": 1})


async def test_a_word_of_a_member_that_we_have_yet_to_hear_of_is_declined_and_no_lie() -> None:
    desk = Desk(KEYS[0])
    desk.membership_requests.serve()
    request = Request(Leave(NEWCOMER.node_id), 4)
    word = envelope.sign(request.statement(CHAIN), NEWCOMER)
    operation = Operation(request, ((NEWCOMER.node_id, word.signature),))
    with pytest.raises(Unavailable):
        await desk.answers[REQUEST](KEYS[1].peer_id, encode_operation(operation))
    assert not desk.operations


async def test_a_knock_in_a_name_or_as_a_peer_that_the_chain_has_given_away_is_no_lie() -> None:
    """Who looks on may be behind us, and knocks until it knows."""
    join = encode_operation(join_of(NEWCOMER))
    for name, peer in ((NEWCOMER, KEYS[1]), (KEYS[1], NEWCOMER)):
        desk = Desk(KEYS[0])
        desk.membership_requests.serve()
        desk.validators.peer_ids[name.node_id] = peer.peer_id
        with pytest.raises(Unavailable, match=r"another (member|peer)"):
            await desk.answers[REQUEST](NEWCOMER.peer_id, join)
        assert not desk.membership_requests.listing()["asked"]
