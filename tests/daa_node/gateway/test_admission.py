"""Places, names and faults: what one address does costs itself, and nothing grows."""

import pytest

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.gateway.admission import (
    ADDRESSES_KEPT,
    FAULTS_A_PLACE,
    HOUR_S,
    NEW_NAMES_A_PLACE,
    Admission,
)

PLACES = 8  # of an address
FAULTS_MAX, NEW_NAMES_MAX = FAULTS_A_PLACE * PLACES, NEW_NAMES_A_PLACE * PLACES


def reason_of(admission: Admission, address: str, now_s: float = 0.0) -> str | None:
    try:
        admission.enter(address, now_s)
    except PeerFault as fault:
        return fault.reason
    return None


def name(number: int) -> NodeId:
    return NodeId(number.to_bytes(32))


def test_an_address_has_its_places_and_leaves_the_others_theirs() -> None:
    admission = Admission(4, 2)
    assert [reason_of(admission, "a") for _ in range(3)] == [None, None, "address-full"]
    assert [reason_of(admission, "b") for _ in range(2)] == [None, None]
    assert reason_of(admission, "c") == "full"
    admission.leave("a")
    assert reason_of(admission, "c") is None


def test_a_gateway_without_places_is_closed() -> None:
    assert reason_of(Admission(0, 8), "a") == "closed"


def test_a_thousand_names_from_one_address_are_refused_and_known_ones_are_not() -> None:
    admission = Admission(256, PLACES)
    for number in range(NEW_NAMES_MAX):
        admission.meet("a", name(number), False, number / 1000)
    for number in range(NEW_NAMES_MAX, 1000):
        with pytest.raises(PeerFault, match="new-names"):
            admission.meet("a", name(number), False, number / 1000)
    admission.meet("a", name(3), False, 1.0)  # one of those that came before
    admission.meet("a", name(5000), True, 1.0)  # whom we know from elsewhere
    admission.meet("b", name(5001), False, 1.0)
    admission.meet("a", name(5002), False, HOUR_S + 2)


def test_an_address_that_does_wrong_is_shown_out_for_an_hour() -> None:
    admission = Admission(256, PLACES)
    for _ in range(FAULTS_MAX):
        assert reason_of(admission, "a") is None
        admission.leave("a")
        admission.refuse("a", "malformed", 1.0)
    assert reason_of(admission, "a", 2.0) == "address-faults"
    assert reason_of(admission, "b", 2.0) is None
    assert reason_of(admission, "a", HOUR_S + 2) is None
    assert admission.refused["malformed"] == FAULTS_MAX


@pytest.mark.parametrize("reason", ["clock", "version", "full", "late", "silent"])
def test_what_an_honest_page_may_meet_with_is_held_against_nobody(reason: str) -> None:
    admission = Admission(256, PLACES)
    for _ in range(2 * FAULTS_MAX):
        admission.refuse("a", reason, 1.0)
    assert reason_of(admission, "a", 2.0) is None


def test_addresses_without_a_session_are_forgotten_and_others_are_not() -> None:
    admission = Admission(256, 1)
    admission.enter("there", 0.0)
    for number in range(2 * ADDRESSES_KEPT):
        admission.refuse(f"a{number}", "malformed", 0.0)
    assert len(admission._addresses) == ADDRESSES_KEPT
    assert reason_of(admission, "there") == "address-full"
