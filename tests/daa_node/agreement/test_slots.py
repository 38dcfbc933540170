"""What may be signed after what was signed: each rule, then random sessions against a twin."""

import random
from dataclasses import replace

import pytest

from daa_consensus.bft.messages import OfferBody
from daa_consensus.committee import Domain
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.ids import BlobRoot, ChainId, NodeId, ValidatorSetRoot, VertexId
from daa_node.agreement.slots import ROUNDS_KEPT, VIEWS_KEPT, SlotEntry, Slots
from daa_node.errors import Refused

DOMAIN = Domain(ChainId(b"\x01" * 32), 0, ValidatorSetRoot(b"\x02" * 32))
A, B = b"\xaa" * 32, b"\xbb" * 32


def vote(kind: Kind, view: int, block: bytes = A, epoch: int = 0) -> Statement:
    domain = replace(DOMAIN, epoch=epoch)
    if kind is Kind.NULLIFY:
        return Statement(domain, kind, view, 0, None)
    return Statement(domain, kind, view, 1, block)


def of_round(kind: Kind, height: int, root: bytes = A, epoch: int = 0) -> Statement:
    value: canonical.Value = [A, root]
    if kind is Kind.OFFER:
        names = NodeId(B), VertexId(A), BlobRoot(root)
        value = OfferBody(height, *names, 9, "int8", 8, 7, 6, 5, 4, ()).as_value()
    return Statement(replace(DOMAIN, epoch=epoch), kind, 0, height, value)


def say(slots: Slots, statement: Statement, abort_round: int | None = None) -> SlotEntry:
    """Judge and note, as the signer does."""
    word = slots.judge(statement, abort_round)
    if word is None:
        word = SlotEntry(Signed(statement, NodeId(bytes(32)), bytes(3309)))
        slots.note(word)
    return word


def refused(slots: Slots, statement: Statement, abort_round: int | None = None) -> str:
    with pytest.raises(Refused) as refusal:
        slots.judge(statement, abort_round)
    return refusal.value.reason


SLOTTED = [
    *(vote(kind, 5) for kind in (Kind.PROPOSAL, Kind.NOTARIZE, Kind.NULLIFY, Kind.FINALIZE)),
    of_round(Kind.OFFER, 5),
    of_round(Kind.EXEC, 5),
]


@pytest.mark.parametrize("statement", SLOTTED, ids=lambda s: str(s.kind))
def test_the_same_bytes_are_the_same_word_and_other_bytes_are_refused(statement: Statement) -> None:
    slots = Slots()
    word = say(slots, statement)
    assert slots.judge(statement, None) is word
    other = replace(statement, domain=replace(DOMAIN, validator_set_root=ValidatorSetRoot(B)))
    assert refused(slots, other) == "slot-taken"
    if statement.kind is not Kind.NULLIFY:
        value = B if isinstance(statement.value, bytes) else [A, B]
        assert refused(slots, replace(statement, value=value)) == "slot-taken"
        assert slots.judge(statement, None) is word


def test_no_new_vote_below_the_view_but_the_old_one_again() -> None:
    slots = Slots()
    notarize = say(slots, vote(Kind.NOTARIZE, 4))
    say(slots, vote(Kind.NULLIFY, 5))
    for kind in (Kind.PROPOSAL, Kind.NULLIFY, Kind.FINALIZE):
        assert refused(slots, vote(kind, 4)) == "below-view"
    assert refused(slots, vote(Kind.NOTARIZE, 3)) == "below-view"
    assert slots.judge(vote(Kind.NOTARIZE, 4), None) is notarize
    say(slots, vote(Kind.NOTARIZE, 0, epoch=1))
    assert refused(slots, vote(Kind.NOTARIZE, 6)) == "below-view"


def test_one_view_is_finalized_or_nullified_never_both() -> None:
    slots = Slots()
    say(slots, vote(Kind.FINALIZE, 5))
    assert refused(slots, vote(Kind.NULLIFY, 5)) == "finalized-view"
    slots = Slots()
    say(slots, vote(Kind.NULLIFY, 5))
    assert refused(slots, vote(Kind.FINALIZE, 5)) == "nullified-view"


def test_one_view_may_be_notarized_and_then_nullified() -> None:
    slots = Slots()
    say(slots, vote(Kind.NOTARIZE, 5))
    say(slots, vote(Kind.NULLIFY, 5))


def test_finalize_and_notarize_name_the_same_block() -> None:
    slots = Slots()
    say(slots, vote(Kind.NOTARIZE, 5, A))
    assert refused(slots, vote(Kind.FINALIZE, 5, B)) == "other-block"
    say(slots, vote(Kind.FINALIZE, 5, A))
    slots = Slots()
    say(slots, vote(Kind.FINALIZE, 5, A))
    assert refused(slots, vote(Kind.NOTARIZE, 5, B)) == "other-block"
    say(slots, vote(Kind.NOTARIZE, 5, A))


def test_who_executed_a_round_never_notarizes_its_abort() -> None:
    slots = Slots()
    say(slots, of_round(Kind.EXEC, 3))
    assert refused(slots, vote(Kind.NOTARIZE, 7), 3) == "executed"
    say(slots, vote(Kind.NOTARIZE, 7), 4)


def test_who_notarized_an_abort_may_still_execute_and_says_only_the_old_notarize_again() -> None:
    slots = Slots()
    notarize = say(slots, vote(Kind.NOTARIZE, 7), 3)
    say(slots, of_round(Kind.EXEC, 3))
    assert slots.judge(vote(Kind.NOTARIZE, 7), 3) is notarize
    assert refused(slots, vote(Kind.NOTARIZE, 8), 3) == "executed"


def test_an_exec_forbids_the_abort_longer_than_any_view_is_remembered() -> None:
    slots = Slots()
    say(slots, of_round(Kind.EXEC, 3))
    views = 2 * VIEWS_KEPT
    for view in range(views):
        say(slots, vote(Kind.NULLIFY, view))
    assert refused(slots, vote(Kind.NOTARIZE, views), 3) == "executed"
    restarted = Slots.of_value(slots.as_value())
    assert refused(restarted, vote(Kind.NOTARIZE, views), 3) == "executed"


def test_behind_the_finalized_block_nothing_is_remembered_and_nothing_is_signed() -> None:
    slots = Slots()
    for view in range(5):
        say(slots, vote(Kind.NOTARIZE, view))
        say(slots, of_round(Kind.OFFER, view))
        say(slots, of_round(Kind.EXEC, view))
    slots.raise_floors((0, 4), (0, 4), (0, 4))
    assert len(slots.entries()) == 3
    assert refused(slots, vote(Kind.NOTARIZE, 3)) == "behind-floor"
    assert refused(slots, of_round(Kind.OFFER, 3)) == "behind-floor"
    assert refused(slots, of_round(Kind.EXEC, 3)) == "behind-floor"
    assert refused(slots, vote(Kind.NOTARIZE, 9), 3) == "behind-floor"


def test_memory_stays_bounded_when_nothing_is_ever_final() -> None:
    slots = Slots()
    for number in range(500):
        for kind in (Kind.PROPOSAL, Kind.NOTARIZE, Kind.NULLIFY):
            say(slots, vote(kind, number))
        say(slots, of_round(Kind.OFFER, number))
        say(slots, of_round(Kind.EXEC, number))
    assert len(slots.entries()) <= 4 * VIEWS_KEPT + 2 * ROUNDS_KEPT
    assert refused(slots, vote(Kind.NULLIFY, 500 - VIEWS_KEPT - 1)) == "behind-floor"
    assert refused(slots, vote(Kind.NOTARIZE, 500), 500 - ROUNDS_KEPT - 1) == "behind-floor"


class PlainTwin:
    """The same rules, told as facts about the whole history, and no memory limit."""

    def __init__(self) -> None:
        self.said: list[Statement] = []

    def allows(self, new: Statement, abort_round: int | None) -> bool:
        if new in self.said:
            return True
        return not any(self._clash(new, abort_round, old) for old in self.said)

    def _clash(self, new: Statement, abort_round: int | None, old: Statement) -> bool:
        views = (Kind.PROPOSAL, Kind.NOTARIZE, Kind.NULLIFY, Kind.FINALIZE)
        if new.kind in views and old.kind in views:
            if new.view < old.view or (new.view == old.view and new.kind == old.kind):
                return True
            pair = {new.kind, old.kind}
            if new.view == old.view and pair == {Kind.FINALIZE, Kind.NULLIFY}:
                return True
            if new.view == old.view and pair == {Kind.FINALIZE, Kind.NOTARIZE}:
                return new.value != old.value
        if new.kind not in views and new.kind == old.kind and new.height == old.height:
            return True
        return old.kind is Kind.EXEC and abort_round == old.height


def test_random_sessions_with_restarts_agree_with_the_plain_twin() -> None:
    allowed = denied = 0
    for seed in range(150):
        rng, slots, twin = random.Random(seed), Slots(), PlainTwin()
        aborts = {block: rng.choice([None, rng.randrange(6)]) for block in (A, B)}
        for _ in range(60):
            kind = rng.choice([s.kind for s in SLOTTED])
            number, block = rng.randrange(6), rng.choice([A, B])
            abort_round = None
            if kind in (Kind.OFFER, Kind.EXEC):
                statement = of_round(kind, number, block)
            else:
                statement = vote(kind, 1 + number // 2, block)
                if kind is Kind.NOTARIZE:
                    abort_round = aborts[block]
            try:
                say(slots, statement, abort_round)
                assert twin.allows(statement, abort_round), f"seed {seed}: {statement}"
                twin.said.append(statement)
                allowed += 1
            except Refused:
                assert not twin.allows(statement, abort_round), f"seed {seed}: {statement}"
                denied += 1
            if rng.random() < 0.1:  # a restart: through bytes and back
                stored = canonical.encode(slots.as_value())
                slots = Slots.of_value(canonical.decode(stored, 2**20))
    assert min(allowed, denied) > 500
