"""A validator lets in who brings its invite, as often as it said, and nobody for a guess."""

from dataclasses import replace

import pytest
import trio

from daa_consensus.enrolment import Enrolment, TrainerRequest, Vouch
from daa_consensus.roll import Admission, Roll, RollRules
from daa_dag.ids import ChainId, Digest
from daa_node.agreement import invite_book
from daa_node.agreement.enrolment_requests import WORD_ROUNDS
from daa_node.agreement.invitations import (
    EXPIRES_S_MAX,
    EXPIRES_S_MIN,
    GUESSES_BURST,
    LOOK_S,
    Prospect,
    check_terms,
    encode_request,
)
from daa_node.agreement.invite_book import USES_MAX, Refusal
from daa_node.errors import PeerFault, StorageFailed, UserError
from daa_node.identity.keys import NodeKeys
from daa_node.observability.events import INVITE_HELD_UP, INVITE_USED
from tests.daa_node.agreement.invite_desk import (
    COMERS,
    KEYS,
    ME,
    Desk,
    enrolled,
)

WELCOME = Prospect(10, 4, 0, known=False)


async def test_who_brings_an_invite_is_put_before_everybody() -> None:
    desk = Desk()
    assert await desk.bring(await desk.token(), COMERS[0]) == WELCOME
    ((enrolment, peer_id),) = desk.offered
    assert enrolment.request == enrolled(COMERS[0]).request
    assert peer_id == COMERS[0].peer_id
    assert not desk.blamed


async def test_a_look_uses_nothing_up() -> None:
    desk = Desk()
    token = await desk.token()
    assert await desk.bring(token) == await desk.bring(token) == WELCOME
    assert not desk.offered
    assert await desk.bring(token, COMERS[0]) == WELCOME


async def test_with_open_admission_an_invite_lets_in_as_well() -> None:
    desk = Desk(RollRules(Admission.OPEN))
    assert await desk.bring(await desk.token(), COMERS[0]) == WELCOME
    assert len(desk.offered) == 1


async def test_the_same_comes_again_and_costs_no_second_use() -> None:
    desk = Desk()
    token = await desk.token()
    assert await desk.bring(token, COMERS[0]) == await desk.bring(token, COMERS[0]) == WELCOME
    assert await desk.bring(token, COMERS[1]) is Refusal.USED_UP
    assert await desk.bring(token) == WELCOME  # it looks again
    desk.enter(COMERS[0])
    offered = len(desk.offered)
    assert await desk.bring(token, COMERS[0]) == Prospect(10, 4, 1, known=True)
    assert len(desk.offered) == offered + 1  # an Enroll of who is on the roll: it is back


async def test_who_came_is_vouched_for_again_until_it_is_in_over_a_start_of_the_daemon(
    autojump_clock: object,
) -> None:
    desk = Desk()
    token = await desk.token()
    await desk.bring(token, COMERS[0])
    desk.made = desk.started()
    await desk.made.load()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.made.run)
        desk.full = True
        await trio.sleep(10 * LOOK_S)  # it has not enrolled here since
        desk.full = False
        await trio.sleep(10 * LOOK_S)
        assert desk.vouched == [COMERS[0].node_id]  # once, as long as that word may count
        desk.round += 1000
        await trio.sleep(10 * LOOK_S)
        assert desk.vouched == 2 * [COMERS[0].node_id]
        desk.enter(COMERS[0])
        await trio.sleep(10 * LOOK_S)
        desk.roll = Roll(desk.rules)  # and it was made to go
        desk.round += 1000
        await trio.sleep(10 * LOOK_S)
        assert len(desk.vouched) == 2
        nursery.cancel_scope.cancel()
    assert await desk.bring(token, COMERS[0]) is Refusal.GONE


async def test_whom_another_member_lets_in_first_and_makes_go_is_vouched_for_again(
    autojump_clock: object,
) -> None:
    """Else one member that lies could bar whomever another one invites."""
    desk = Desk()
    token = await desk.token()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.made.run)
        await desk.bring(token, COMERS[0])
        desk.enter(COMERS[0], voucher=KEYS[1])
        await trio.sleep(2 * LOOK_S)
        assert not desk.vouched
        desk.roll = Roll(desk.rules)
        await trio.sleep(2 * LOOK_S)
        assert desk.vouched == [COMERS[0].node_id]  # though the first word would count yet
        nursery.cancel_scope.cancel()
    assert await desk.bring(token, COMERS[0]) == WELCOME


async def test_who_has_come_with_an_invite_that_was_taken_back_is_vouched_for_no_more(
    autojump_clock: object,
) -> None:
    desk = Desk()
    await desk.bring(await desk.token(), COMERS[0])
    desk.made = desk.started()  # the word that was said may be lost with the process
    await desk.made.load()
    (row,) = (await desk.made.listing({}))["invites"]
    await desk.made.revoke({"id": row["id"]})
    with trio.move_on_after(10 * LOOK_S):
        await desk.made.run()
    assert not desk.vouched


async def test_a_disk_or_a_desk_that_fails_now_is_asked_again_at_the_next_look(
    autojump_clock: object,
) -> None:
    """Nobody's daemon ends for it."""
    desk = Desk(RollRules(Admission.VOUCHED, per_voucher=3))
    token = await desk.token(uses=2)
    for keys in COMERS[:2]:
        await desk.bring(token, keys)
    desk.made = desk.started()
    await desk.made.load()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.made.run)
        desk.busy.add(COMERS[0].node_id)
        desk.enter(COMERS[3])
        await trio.sleep(2 * LOOK_S)
        assert desk.vouched == [COMERS[1].node_id]
        desk.busy.clear()
        desk.enter(COMERS[1])
        desk.disk.refuses.add("invites")
        await trio.sleep(2 * LOOK_S)
        desk.disk.refuses.clear()
        await trio.sleep(2 * LOOK_S)
        assert desk.vouched == [COMERS[1].node_id, COMERS[0].node_id]
        nursery.cancel_scope.cancel()
    desk.roll = Roll(desk.rules)  # and it was made to go
    assert await desk.bring(token, COMERS[1]) is Refusal.GONE


async def test_a_start_of_the_daemon_forgets_no_use_and_no_invite() -> None:
    desk = Desk()
    token = await desk.token()
    await desk.bring(token, COMERS[0])
    desk.made = desk.started()
    await desk.made.load()
    assert await desk.bring(token, COMERS[1]) is Refusal.USED_UP
    assert await desk.bring(token, COMERS[0]) == WELCOME


async def test_a_use_is_on_disk_before_anything_is_offered() -> None:
    desk = Desk()
    token = await desk.token()

    desk.disk.refuses.add("invites")
    with pytest.raises(StorageFailed):
        await desk.bring(token, COMERS[0])
    assert not desk.offered


async def test_who_comes_again_and_again_has_nothing_written() -> None:
    """With an invite that leaked: each time was a sync of the book, and a line in the log."""
    desk = Desk()
    token = await desk.token()
    assert await desk.bring(token, COMERS[0]) == WELCOME
    desk.disk.refuses.add("invites")
    for _ in range(3):
        assert await desk.bring(token, COMERS[0]) == WELCOME
    assert len(desk.offered) == 4
    assert desk.events.counts[INVITE_USED] == 1
    for times in (1, 2):
        desk.full = True
        for _ in range(3):
            assert await desk.bring(token, COMERS[0]) is Refusal.NOT_NOW
        assert desk.events.counts[INVITE_HELD_UP] == times
        desk.full = False
        assert await desk.bring(token, COMERS[0]) == WELCOME


async def test_a_use_that_the_disk_refuses_is_none() -> None:
    desk = Desk()
    token = await desk.token()
    desk.disk.refuses.add("invites")
    with pytest.raises(StorageFailed):
        await desk.bring(token, COMERS[0])
    with pytest.raises(StorageFailed):
        await desk.token()
    desk.disk.refuses.clear()
    assert len((await desk.made.listing({}))["invites"]) == 1
    assert await desk.bring(token, COMERS[1]) == WELCOME


async def test_of_two_that_come_at_once_one_has_the_last_use(autojump_clock: object) -> None:
    desk = Desk()
    token = await desk.token()
    desk.disk.slow_s["invites"] = 1.0
    answers: list[Prospect | Refusal] = []

    async def come(keys: NodeKeys) -> None:
        answers.append(await desk.bring(token, keys))

    async with trio.open_nursery() as nursery:
        for keys in COMERS[:2]:
            nursery.start_soon(come, keys)
    assert answers == [WELCOME, Refusal.USED_UP]
    assert len(desk.offered) == 1


async def test_the_token_is_nowhere_in_the_book() -> None:
    desk = Desk()
    token = await desk.token()
    kept = await desk.disk.work.get_record("invites", "book")
    assert kept is not None
    assert token not in kept


async def test_an_invite_ends_with_its_time_and_by_its_makers_word() -> None:
    desk = Desk()
    token = await desk.token(expires_s=60)
    desk.outside.now_ns = 60 * 10**9
    assert await desk.bring(token, COMERS[0]) is Refusal.EXPIRED
    desk.outside.now_ns = 0
    (row,) = (await desk.made.listing({}))["invites"]
    await desk.made.revoke({"id": row["id"]})
    assert await desk.bring(token, COMERS[0]) is Refusal.REVOKED
    with pytest.raises(UserError, match="no invite 00"):
        await desk.made.revoke({"id": "00"})


async def test_what_several_invites_begin_with_revokes_none_of_them() -> None:
    desk = Desk()
    for _ in range(17):  # of sixteen digits two begin with one
        await desk.token()
    names = [row["id"] for row in (await desk.made.listing({}))["invites"]]
    starts = [name[0] for name in names]
    shared = next(start for start in starts if starts.count(start) > 1)
    with pytest.raises(UserError, match=f"invites begin with {shared}: give more"):
        await desk.made.revoke({"id": shared})
    assert not any(row["revoked"] for row in (await desk.made.listing({}))["invites"])
    assert (await desk.made.revoke({"id": names[3]}))["id"] == names[3]


async def test_a_made_up_token_is_held_against_who_brings_it_and_slowed_down() -> None:
    desk = Desk()
    right = await desk.token()
    answers = [await desk.bring(bytes([200 + i]) * 16, COMERS[1]) for i in range(40)]
    assert answers[0] is Refusal.UNKNOWN
    assert answers.count(Refusal.UNKNOWN) == len(desk.blamed) == GUESSES_BURST
    assert answers[-1] is Refusal.NOT_NOW
    assert await desk.bring(right, COMERS[0]) == WELCOME  # nobody's right token waits


async def test_a_voucher_over_its_quota_lets_in_nobody_more_also_before_the_chain_has_it() -> None:
    desk = Desk(RollRules(Admission.VOUCHED, per_voucher=1))
    first, second = await desk.token(), await desk.token()
    assert await desk.bring(first, COMERS[0]) == WELCOME
    assert await desk.bring(second, COMERS[1]) is Refusal.OVER_QUOTA
    desk.enter(COMERS[0])
    assert await desk.bring(second, COMERS[1]) is Refusal.OVER_QUOTA
    with pytest.raises(UserError, match="has room for 0 more"):
        await desk.token()
    desk.roll = Roll(desk.rules)
    desk.round = 80  # what was promised has lapsed
    assert await desk.bring(second, COMERS[1]) == replace(WELCOME, next_round=80)


async def test_no_joiner_holds_a_promised_place_for_longer_than_the_word_for_it_counts(
    autojump_clock: object,
) -> None:
    """Who comes back then waits: of two words for one place a set takes either."""
    desk = Desk(RollRules(Admission.VOUCHED, per_voucher=1))
    first, second = await desk.token(), await desk.token()
    far_ahead, other = enrolled(COMERS[0], expires=10**6), enrolled(COMERS[1], expires=1100)
    assert await desk.hand_in(first, COMERS[0], far_ahead) == WELCOME
    desk.round += 1000
    assert await desk.hand_in(second, COMERS[1], other) == replace(WELCOME, next_round=1010)
    with trio.move_on_after(2 * LOOK_S):
        await desk.made.run()
    assert not desk.vouched


@pytest.mark.parametrize(("expires", "rounds"), [(10**6, WORD_ROUNDS), (12, 3)])
async def test_a_promised_place_is_anothers_once_the_word_for_it_has_lapsed(
    expires: int, rounds: int
) -> None:
    """In the first round whose set takes it no more: the word's, or that of what it is for."""
    desk = Desk(RollRules(Admission.VOUCHED, per_voucher=1))
    first, second = await desk.token(), await desk.token()
    assert await desk.hand_in(first, COMERS[0], enrolled(COMERS[0], expires=expires)) == WELCOME
    desk.round += rounds - 1
    assert await desk.bring(second, COMERS[1]) is Refusal.OVER_QUOTA
    desk.round += 1
    assert await desk.bring(second, COMERS[1]) == replace(WELCOME, next_round=desk.round)


async def test_who_came_is_vouched_for_again_each_time_that_the_last_word_has_lapsed(
    autojump_clock: object,
) -> None:
    desk, said = Desk(), []
    assert await desk.bring(await desk.token(), COMERS[0]) == WELCOME
    for rounds in (WORD_ROUNDS, WORD_ROUNDS - 1, 1, WORD_ROUNDS):
        desk.round += rounds
        with trio.move_on_after(3 * LOOK_S):
            await desk.made.run()
        said.append(len(desk.vouched))
    assert said == [1, 1, 2, 3]


@pytest.mark.parametrize("uses", [None, True, 1.0, "1", USES_MAX + 1])
def test_an_invite_for_what_is_no_number_of_nodes_is_refused_in_words(uses: object) -> None:
    with pytest.raises(UserError, match=f"--uses {uses}: 1 to {USES_MAX} nodes"):
        check_terms(uses, EXPIRES_S_MIN)
    check_terms(USES_MAX, EXPIRES_S_MIN)


async def test_a_place_that_is_promised_is_counted_once_and_is_its_holders() -> None:
    desk = Desk(RollRules(Admission.VOUCHED, per_voucher=2))
    token, other = await desk.token(), await desk.token()
    assert await desk.bring(token, COMERS[0]) == WELCOME
    desk.enter(COMERS[0])  # what was promised is kept
    assert isinstance(await desk.bring(other, COMERS[1]), Prospect)
    assert isinstance(await desk.bring(other, COMERS[1]), Prospect)  # all are taken, one by itself


async def test_who_cannot_be_let_in_is_told_why() -> None:
    desk = Desk()
    token = await desk.token()
    desk.roll = Roll(RollRules(Admission.CLOSED))
    assert await desk.bring(token, COMERS[0]) is Refusal.CLOSED
    desk.roll = Roll(RollRules(Admission.OPEN, roll_max=0))
    assert await desk.bring(token, COMERS[0]) is Refusal.FULL
    desk.roll = Roll(desk.rules)
    assert await desk.bring(token, KEYS[1]) is Refusal.MEMBER
    desk.enter(COMERS[0], until=12)
    assert await desk.bring(token, COMERS[0]) is Refusal.GOING
    assert not desk.offered


async def test_the_invite_of_who_votes_no_more_lets_in_nobody_and_is_not_used_up() -> None:
    desk = Desk()
    token = await desk.token()
    desk.keys = COMERS[3]  # as after it has left
    desk.made = desk.started()
    await desk.made.load()
    assert await desk.bring(token) is Refusal.NO_MEMBER
    assert await desk.bring(token, COMERS[0]) is Refusal.NO_MEMBER
    assert not desk.offered
    assert (await desk.made.listing({}))["invites"][0]["used_by"] == []


async def test_where_nothing_can_be_passed_on_the_use_is_kept_for_who_came() -> None:
    desk = Desk()
    token = await desk.token()
    desk.full = True
    assert await desk.bring(token, COMERS[0]) is Refusal.NOT_NOW
    desk.full = False
    assert await desk.bring(token, COMERS[1]) is Refusal.USED_UP
    assert await desk.bring(token, COMERS[0]) == WELCOME


@pytest.mark.parametrize(
    ("enrolment", "reason"),
    [
        (enrolled(COMERS[1]), "handed in by the peer that it names"),
        (enrolled(COMERS[0], ChainId(b"d" * 32)), "did not sign"),
        (enrolled(COMERS[0], signed_by=COMERS[1]), "did not sign"),
        (
            Enrolment(TrainerRequest(Vouch(ME.node_id, Digest(b"r" * 32)), 9), b"s"),
            "with an Enroll",
        ),
    ],
)
async def test_an_enrolment_of_somebody_else_uses_nothing_up(
    enrolment: Enrolment, reason: str
) -> None:
    desk = Desk()
    token = await desk.token()
    with pytest.raises(PeerFault, match=reason):
        await desk.hand_in(token, COMERS[0], enrolment)
    assert not desk.offered
    assert await desk.bring(token, COMERS[2]) == WELCOME


async def test_only_a_validator_that_can_be_dialled_and_has_room_invites() -> None:
    with pytest.raises(UserError, match="this node is no validator"):
        await Desk(keys=COMERS[0]).token()
    with pytest.raises(UserError, match="takes no more trainers"):
        await Desk(RollRules()).token()
    with pytest.raises(UserError, match="nobody can dial this node"):
        await Desk(addresses=[]).token()
    with pytest.raises(UserError, match="has room for 2 more"):
        await Desk().token(uses=3)
    with pytest.raises(UserError, match="--uses 0"):
        await Desk().token(uses=0)
    for expires_s in (EXPIRES_S_MIN - 1, EXPIRES_S_MAX + 1):
        with pytest.raises(UserError, match="--expires: a minute to 366 days"):
            await Desk().token(expires_s=expires_s)
    assert await Desk().token(expires_s=EXPIRES_S_MAX)


async def test_the_book_is_bounded_and_what_is_over_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(invite_book, "INVITES_MAX", 3)
    desk = Desk()
    first, *_ = [await desk.token() for _ in range(3)]
    with pytest.raises(UserError, match="open already"):
        await desk.token()
    used = await desk.bring(first, COMERS[0])
    assert used == WELCOME
    await desk.token()
    assert await desk.bring(first, COMERS[0]) is Refusal.UNKNOWN
    assert len((await desk.made.listing({}))["invites"]) == 3


async def test_a_damaged_book_is_told_of_and_nothing_of_it_is_believed() -> None:
    desk = Desk()
    token = await desk.token()
    kept = await desk.disk.work.get_record("invites", "book")
    assert kept is not None
    await desk.disk.work.put_record("invites", "book", kept[:-1])
    desk.made = desk.started()
    await desk.made.load()
    assert await desk.bring(token, COMERS[0]) is Refusal.UNKNOWN


async def test_members_take_places_of_trainers_where_a_network_is_large() -> None:
    """A welcome that no set keeps would use up the invite."""
    desk = Desk(RollRules(Admission.OPEN, listed_max=5))
    token = await desk.token(uses=2)
    assert await desk.bring(token, COMERS[0]) == WELCOME
    desk.enter(COMERS[0])
    assert await desk.bring(token, COMERS[1]) is Refusal.FULL


@pytest.mark.parametrize("body", [b"", encode_request(b"t" * 16, None)[:-1], b"\x80"])
async def test_what_is_no_request_is_its_askers_fault(body: bytes) -> None:
    desk = Desk()
    with pytest.raises(PeerFault, match="malformed"):
        await desk.handlers["invite"](COMERS[0].peer_id, body)
