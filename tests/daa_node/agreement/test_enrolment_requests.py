"""Enrolments: made, told, kept with their connection, and vouched for by whoever may."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from daa_consensus.enrolment import (
    PAIRS_A_SET_MAX,
    Enroll,
    Enrolment,
    Retire,
    Vouch,
    decode_enrolment,
    encode_enrolment,
)
from daa_consensus.membership import Membership
from daa_consensus.roll import EXPIRY_ROUNDS_MAX, Admission, Roll, RollRules
from daa_consensus.votes import Signed, Statement
from daa_node.agreement.doorstep import Doorstep
from daa_node.agreement.enrolment_requests import (
    LOOK_S,
    RENEWED_AT,
    REQUEST,
    RESEND_S,
    WORD_ROUNDS,
    EnrolmentRequests,
)
from daa_node.agreement.invitations import desk_of
from daa_node.agreement.roll_requests import RollRequests
from daa_node.agreement.signer import Signer
from daa_node.agreement.wan_bft import WanBft
from daa_node.agreement.withdrawal import KIND, Withdrawal
from daa_node.errors import PeerFault, StorageFailed, Unavailable, UserError
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import Validators
from daa_node.network.requests import Requests
from daa_node.seams import BlobStore, PeerId
from tests.daa_node.agreement.memory_disk import Disk
from tests.daa_node.agreement.test_carried import CHAIN, COMMITTEE, MEMBERS, NAMES
from tests.daa_node.agreement.test_roll_cargo import NEW, decided

TRAINER = NEW[0]


class Desk:
    """One node's; what it puts before everybody lies in `held`, what it tells members in `told`."""

    def __init__(
        self,
        keys: NodeKeys,
        admission: Admission = Admission.VOUCHED,
        per_voucher: int = 1,
        disk: Disk | None = None,
    ) -> None:
        self.has_room = True
        self.answers: dict[str, Any] = {}
        self.told: list[bytes] = []
        self.held = RollRequests()
        self.connected: list[PeerId] = [k.peer_id for k in (*MEMBERS, *NEW)]
        self.members_connected = [k.peer_id for k in MEMBERS]
        self.validators = Validators(
            CHAIN,
            4,
            Membership(COMMITTEE, roll=Roll(RollRules(admission, per_voucher))),
            {k.node_id: k.ml_dsa_public_key for k in MEMBERS},
            {k.node_id: k.peer_id for k in MEMBERS},
            NAMES[:4],
        )

        async def sign(statement: Statement) -> Signed:
            return envelope.sign(statement, keys)

        def ask(enrolment: Enrolment) -> bool:
            if not self.has_room:
                return False
            self.held.note(enrolment, self.validators.now, keys.node_id)
            return self.held.holds(enrolment.request.id)

        async def tell(_peer: PeerId, _word: str, body: bytes, _bytes_max: int) -> bytes:
            self.told.append(body)
            return b""

        self.withdrawal = Withdrawal(cast(BlobStore, (disk or Disk()).work))
        self.requests = EnrolmentRequests(
            keys,
            self.validators,
            cast(Signer, SimpleNamespace(sign=sign)),
            cast(WanBft, SimpleNamespace(ask=ask, facts=SimpleNamespace(of_roll=self.held))),
            Doorstep(
                cast(Requests, SimpleNamespace(register=self.answers.__setitem__, ask=tell)),
                lambda: self.members_connected,
                lambda: self.connected,
            ),
            self.withdrawal,
        )


async def enrolled(admission: Admission = Admission.VOUCHED) -> Enrolment:
    return await Desk(TRAINER, admission).requests.enroll()


async def test_who_enrolls_tells_members_and_one_of_them_vouches() -> None:
    trainer, member, heard = Desk(TRAINER), Desk(MEMBERS[0]), list[Enrolment]()
    made = await trainer.requests.enroll()
    assert trainer.told == [encode_enrolment(made)] * 4
    assert await trainer.requests.enroll() == made  # as long as it is good for others
    member.requests.on_asked = heard.append
    member.requests.offer(made, TRAINER.peer_id)
    member.requests.offer(made, TRAINER.peer_id)
    assert heard == [made]
    assert not member.held.brought_by(NAMES[0])  # nobody's room is taken before the word
    assert [row["node_id"] for row in member.requests.listing()["asked"]] == [TRAINER.node_id.hex()]
    word = await member.requests.vouch(TRAINER.node_id)
    assert member.held.brought_by(NAMES[0]) == [made, word]
    assert isinstance(word.request.action, Vouch)


@pytest.mark.parametrize("admission", [Admission.VOUCHED, Admission.OPEN])
async def test_what_no_set_takes_for_long_lies_nowhere_and_holds_nobodys_word(
    admission: Admission,
) -> None:
    member = Desk(MEMBERS[0], admission)
    own = await enrolled(admission)

    def expiring(expires_round: int) -> Enrolment:
        request = replace(own.request, expires_round=expires_round)
        return Enrolment(request, envelope.sign(request.statement(CHAIN), TRAINER).signature)

    with pytest.raises(Unavailable, match=f"expires with round {EXPIRY_ROUNDS_MAX + 1}"):
        member.requests.offer(expiring(EXPIRY_ROUNDS_MAX + 1), TRAINER.peer_id)
    assert not member.requests.listing()["asked"]
    assert not member.held.brought_by(NAMES[0])
    member.requests.offer(expiring(EXPIRY_ROUNDS_MAX), TRAINER.peer_id)
    assert member.requests.listing()["asked"] or member.held.brought_by(NAMES[0])


async def test_an_enrolment_lies_with_its_connection_and_goes_with_it() -> None:
    member = Desk(MEMBERS[0])
    made = await enrolled()
    with pytest.raises(PeerFault, match="handed in by the peer that it names"):
        member.requests.offer(made, NEW[1].peer_id)
    member.requests.offer(made, TRAINER.peer_id)
    member.connected.remove(TRAINER.peer_id)
    with pytest.raises(UserError, match="has not enrolled here"):
        await member.requests.vouch(TRAINER.node_id)


async def test_a_voucher_over_its_quota_and_who_is_no_validator_are_told_why() -> None:
    member, made = Desk(MEMBERS[0]), await enrolled()
    member.requests.offer(made, TRAINER.peer_id)
    word = await member.requests.vouch(TRAINER.node_id)
    decided(member.validators, 1, made, word)
    row = member.requests.listing()["trainers"][0]
    assert (row["voucher"], row["since"], row["drawn"]) == (NAMES[0].hex(), 3, False)
    assert member.validators.now.roll.entries
    with pytest.raises(UserError, match="vouches for 1 of 1 trainers already"):
        await member.requests.vouch(NEW[1].node_id)
    with pytest.raises(UserError, match="on the roll already"):
        await member.requests.vouch(TRAINER.node_id)
    with pytest.raises(UserError, match="only a validator vouches"):
        await Desk(NEW[2]).requests.vouch(TRAINER.node_id)
    with pytest.raises(UserError, match="its admission is open"):
        await Desk(MEMBERS[0], Admission.OPEN).requests.vouch(TRAINER.node_id)


async def test_more_newcomers_at_once_than_a_set_takes_push_nobody_out() -> None:
    """A word that was said is not said again for many rounds: its place must not be another's."""
    member, words = Desk(MEMBERS[0], per_voucher=12), []
    for keys in NEW:
        member.requests.offer(await Desk(keys).requests.enroll(), keys.peer_id)
    for keys in NEW[:PAIRS_A_SET_MAX]:
        words.append(await member.requests.vouch(keys.node_id))
    with pytest.raises(UserError, match="wait for the next set"):
        await member.requests.vouch(NEW[PAIRS_A_SET_MAX].node_id)
    pairs = member.held.brought_by(NAMES[0])
    assert [each for each in pairs if each in words] == words
    assert len(pairs) == 2 * PAIRS_A_SET_MAX
    decided(member.validators, 1, *pairs)
    member.held.follow(member.validators.now)
    await member.requests.vouch(NEW[PAIRS_A_SET_MAX].node_id)


async def test_a_voucher_retires_its_trainer_and_no_other_does() -> None:
    member, other, made = Desk(MEMBERS[0]), Desk(MEMBERS[1]), await enrolled()
    member.requests.offer(made, TRAINER.peer_id)
    word = await member.requests.vouch(TRAINER.node_id)
    for desk in (member, other):
        decided(desk.validators, 1, made, word)
        desk.held.follow(desk.validators.now)
    with pytest.raises(UserError, match="another's trainer"):
        await other.requests.retire(TRAINER.node_id)
    gone = await member.requests.retire(TRAINER.node_id)
    assert gone.request.action == Retire(TRAINER.node_id, NAMES[0])
    assert member.held.brought_by(NAMES[0]) == [gone]


async def started(disk: Disk) -> Desk:
    """A trainer that enrolls by itself, right after a start; no roll has it."""
    trainer = Desk(TRAINER, Admission.OPEN, disk=disk)
    trainer.requests.wants = True
    await trainer.withdrawal.load()
    return trainer


async def enrolled_there(disk: Disk) -> Desk:
    """The same one, once a set has let it in."""
    trainer = await started(disk)
    decided(trainer.validators, 1, await enrolled(Admission.OPEN))
    return trainer


async def test_who_retires_itself_stays_off_over_a_restart_until_it_enrolls() -> None:
    disk = Disk()
    assert (await started(disk)).requests.is_to_enroll()
    gone = await (await enrolled_there(disk)).requests.retire(TRAINER.node_id)
    assert isinstance(gone.request.action, Retire)
    again = await started(disk)
    assert not again.requests.is_to_enroll()
    await again.requests.enroll()
    assert again.requests.is_to_enroll()  # until it is in
    assert (await started(disk)).requests.is_to_enroll()


async def test_who_could_not_retire_has_not() -> None:
    disk = Disk()
    trainer = await enrolled_there(disk)
    trainer.has_room = False
    with pytest.raises(UserError, match="cannot be asked for at present"):
        await trainer.requests.retire(TRAINER.node_id)
    assert not trainer.withdrawal.is_kept
    assert (await started(disk)).requests.is_to_enroll()


async def test_nobody_hears_of_a_retirement_before_the_disk_has_it() -> None:
    disk = Disk()
    trainer = await enrolled_there(disk)
    disk.refuses.add(KIND)
    with pytest.raises(StorageFailed):
        await trainer.requests.retire(TRAINER.node_id)
    assert not trainer.held.brought_by(TRAINER.node_id)
    assert not trainer.told


async def test_the_word_for_who_was_made_to_go_is_soon_no_good_to_who_brings_it_again() -> None:
    """Whoever leads may: it stood in a set once, and the roll does not remember it."""
    member, made = Desk(MEMBERS[0]), await enrolled()
    member.requests.offer(made, TRAINER.peer_id)
    word = await member.requests.vouch(TRAINER.node_id)
    decided(member.validators, 1, made, word)
    decided(member.validators, 2, await member.requests.retire(TRAINER.node_id))
    for round_number in range(3, WORD_ROUNDS + 1):
        decided(member.validators, round_number)
    assert made.request.expires_round > word.request.expires_round
    decided(member.validators, WORD_ROUNDS + 1, made, word)
    assert member.validators.now.roll.entry_of(TRAINER.node_id) is None


async def test_the_word_by_which_one_went_is_soon_no_good_against_one_that_is_back() -> None:
    member, made = Desk(MEMBERS[0]), await enrolled()
    member.requests.offer(made, TRAINER.peer_id)
    decided(member.validators, 1, made, await member.requests.vouch(TRAINER.node_id))
    retired = await member.requests.retire(TRAINER.node_id)
    for round_number in range(2, 5):
        decided(member.validators, round_number, *([retired] if round_number == 2 else []))
    decided(member.validators, 5, made, await member.requests.vouch(TRAINER.node_id))
    for round_number in range(6, WORD_ROUNDS + 2):
        decided(member.validators, round_number)
    decided(member.validators, WORD_ROUNDS + 2, retired)
    entry = member.validators.now.roll.entry_of(TRAINER.node_id)
    assert entry is not None
    assert entry.until is None


async def test_in_an_open_network_a_member_brings_whoever_asks() -> None:
    member, made = Desk(MEMBERS[0], Admission.OPEN), await enrolled(Admission.OPEN)
    member.requests.offer(made, TRAINER.peer_id)
    assert member.held.brought_by(NAMES[0]) == [made]
    closed = Desk(MEMBERS[0], Admission.CLOSED)
    with pytest.raises(Unavailable, match="the network is closed"):
        closed.requests.offer(made, TRAINER.peer_id)


async def test_what_is_false_is_a_fault_and_what_is_late_is_none() -> None:
    member, made = Desk(MEMBERS[0]), await enrolled()
    member.requests.serve()
    with pytest.raises(PeerFault, match="enrolment"):
        await member.answers[REQUEST](TRAINER.peer_id, b"nonsense")
    with pytest.raises(PeerFault, match="in the name of"):
        member.requests.offer(Enrolment(made.request, b"forged"), TRAINER.peer_id)
    for round_number in range(1, made.request.expires_round + 1):
        decided(member.validators, round_number)
    with pytest.raises(Unavailable, match="expires with round"):
        member.requests.offer(made, TRAINER.peer_id)


async def test_a_node_enrolls_by_itself_if_it_is_to_and_is_not_there() -> None:
    desk, made = Desk(TRAINER), await enrolled()
    assert not desk.requests.is_to_enroll()
    desk.requests.wants = True
    assert desk.requests.is_to_enroll()
    word = await _word_for(made)
    decided(desk.validators, 1, made, word)
    assert not desk.requests.is_to_enroll()
    for round_number in range(2, 22):  # it is in no set
        decided(desk.validators, round_number)
    assert desk.requests.is_to_enroll()
    back = await desk.requests.enroll()
    assert isinstance(back.request.action, Enroll)
    member = Desk(MEMBERS[1])
    decided(member.validators, 1, made, word)
    for round_number in range(2, 22):
        decided(member.validators, round_number)
    member.requests.offer(back, TRAINER.peer_id)
    assert member.held.brought_by(NAMES[1]) == [back]


async def test_one_of_the_genesis_that_idles_comes_back_whatever_its_settings_say() -> None:
    """`enroll` asks for a place, and it has one: only its own word takes it out of the plan."""
    desk, made = Desk(TRAINER), await enrolled()
    decided(desk.validators, 1, made, await _word_for(made))
    for round_number in range(2, 22):  # it is in no set
        decided(desk.validators, round_number)
    assert not desk.requests.wants
    assert desk.requests.is_to_enroll()


async def test_an_enrolment_that_waits_for_a_persons_word_is_made_anew_before_it_expires() -> None:
    trainer = Desk(TRAINER)
    made = await trainer.requests.enroll()
    last_round = made.request.expires_round - RENEWED_AT
    for round_number in range(1, last_round + 1):
        decided(trainer.validators, round_number)
    assert await trainer.requests.enroll() == made
    decided(trainer.validators, last_round + 1)
    anew = await trainer.requests.enroll()
    assert anew.request.expires_round > made.request.expires_round
    assert trainer.told[-1] == encode_enrolment(anew)


async def test_a_member_that_has_just_come_hears_at_once_and_all_again_and_again(
    autojump_clock: object,
) -> None:
    """What lay with a connection goes with it, and nobody says that it has."""
    trainer = Desk(TRAINER)
    trainer.requests.wants = True
    first, *others = trainer.members_connected
    trainer.members_connected = [first]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trainer.requests.run)
        await trio.sleep(1.5 * LOOK_S)
        assert len(trainer.told) == 1
        trainer.members_connected = [first, *others]
        await trio.sleep(LOOK_S)
        assert len(trainer.told) == 1 + 4
        await trio.sleep(RESEND_S - LOOK_S)
        assert len(trainer.told) == 1 + 4
        await trio.sleep(2 * LOOK_S)
        assert len(trainer.told) == 1 + 4 + 4
        assert len({decode_enrolment(each).request.id for each in trainer.told}) == 1
        nursery.cancel_scope.cancel()


async def test_the_listing_says_who_is_drawn_for_the_round_that_comes_next() -> None:
    member, made = Desk(MEMBERS[0]), await enrolled()
    member.requests.offer(made, TRAINER.peer_id)
    decided(member.validators, 1, made, await member.requests.vouch(TRAINER.node_id))
    shown = []
    for round_number in (2, 3):
        decided(member.validators, round_number)
        listing = member.requests.listing()
        shown.append((listing["round"], listing["trainers"][0]["drawn"]))
    assert shown == [(2, True), (3, True)]  # it may contribute from round 3 on


async def test_who_is_invited_is_vouched_for_once_and_back_once_it_idles() -> None:
    member, made = Desk(MEMBERS[0]), await enrolled()
    await desk_of(member.requests).let_in(made, TRAINER.peer_id)
    asked, word = member.held.brought_by(NAMES[0])
    assert (asked, word.request.action) == (made, Vouch(NAMES[0], made.request.id))
    decided(member.validators, 1, asked, word)
    member.held.follow(member.validators.now)
    again = await enrolled()
    await desk_of(member.requests).let_in(again, TRAINER.peer_id)  # it is in: nothing is asked
    assert not member.held.brought_by(NAMES[0])
    for round_number in range(2, 22):  # it is in no set
        decided(member.validators, round_number)
    await desk_of(member.requests).let_in(again, TRAINER.peer_id)
    assert member.held.brought_by(NAMES[0]) == [again]


async def _word_for(made: Enrolment) -> Enrolment:
    member = Desk(MEMBERS[0])
    member.requests.offer(made, TRAINER.peer_id)
    return await member.requests.vouch(TRAINER.node_id)
