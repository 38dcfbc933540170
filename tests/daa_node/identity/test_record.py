"""Node records: bound by both keys, replaced by higher sequence numbers only, and dated."""

import random
from dataclasses import replace
from typing import Any

import pytest

from daa_dag import canonical
from daa_node.errors import PeerFault
from daa_node.identity import record as records
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import (
    CLOCK_SKEW_MAX_NS,
    NS_PER_S,
    RECORD_BYTES_MAX,
    RECORD_LIFETIME_NS,
    NodeRecord,
    Role,
    SignedRecord,
    check_clocks,
    check_dates,
    decode_record,
    encode_record,
    sign_record,
    supersedes,
)
from daa_node.seams import Address

KEYS, OTHER = NodeKeys.from_seed(b"alice"), NodeKeys.from_seed(b"bob")
NOW_NS = 1_800_000_000 * NS_PER_S
RECORD = NodeRecord(
    KEYS.ml_dsa_public_key,
    KEYS.ml_kem_public_key,
    KEYS.peer_id,
    (Address(f"/ip4/127.0.0.1/tcp/4001/p2p/{KEYS.peer_id}"),),
    Role.CLOUD,
    ("int4", "int8"),
    7,
    NOW_NS,
    NOW_NS + RECORD_LIFETIME_NS,
)
SIGNED = sign_record(RECORD, KEYS)


def test_a_record_survives_the_wire() -> None:
    assert decode_record(encode_record(SIGNED)) == SIGNED


def test_a_record_needs_both_signatures() -> None:
    payload = RECORD.sign_bytes()
    for spoiled in (
        replace(SIGNED, ml_dsa_signature=OTHER.sign(payload, records.RECORD_CONTEXT)),
        replace(SIGNED, ed25519_signature=OTHER.sign_ed25519(payload)),
        replace(SIGNED, ml_dsa_signature=KEYS.sign(payload, b"daa/v1/notarize")),
    ):
        with pytest.raises(PeerFault, match="record-signature"):
            decode_record(encode_record(spoiled))


def test_nobody_binds_anothers_transport_key_to_its_own_node_id() -> None:
    stolen = replace(RECORD, peer_id=OTHER.peer_id)
    payload = stolen.sign_bytes()
    claimed = SignedRecord(
        stolen, KEYS.sign(payload, records.RECORD_CONTEXT), KEYS.sign_ed25519(payload)
    )
    with pytest.raises(PeerFault, match="Ed25519"):
        decode_record(encode_record(claimed))


def test_nobody_binds_anothers_node_id_to_its_own_transport_key() -> None:
    stolen = replace(RECORD, ml_dsa_public_key=OTHER.ml_dsa_public_key)
    payload = stolen.sign_bytes()
    claimed = SignedRecord(
        stolen, KEYS.sign(payload, records.RECORD_CONTEXT), KEYS.sign_ed25519(payload)
    )
    with pytest.raises(PeerFault, match="ML-DSA"):
        decode_record(encode_record(claimed))


CHANGES: list[tuple[int, Any]] = [
    (1, OTHER.ml_dsa_public_key),
    (2, OTHER.ml_kem_public_key),
    (3, OTHER.peer_id),
    (4, []),
    (5, "edge"),
    (6, ["int4"]),
    (7, 8),
    (8, NOW_NS + 1),
    (9, NOW_NS + 2),
]


@pytest.mark.parametrize(("index", "value"), CHANGES)
def test_any_changed_field_breaks_the_signatures(index: int, value: Any) -> None:
    fields = canonical.decode(encode_record(SIGNED), RECORD_BYTES_MAX)
    fields[index] = value
    with pytest.raises(PeerFault, match="record-signature"):
        decode_record(canonical.encode(fields))


BAD_FIELDS: list[tuple[int, Any]] = [
    (1, b"short"),
    (2, None),
    (3, b"bytes"),
    (4, "not a list"),
    (4, ["/ip4/127.0.0.1"] * 17),
    (4, [""]),
    (4, ["x" * 257]),
    (4, ["/dns/\x1b[31m"]),
    (4, ["/dns/\u00e9"]),
    (4, [7]),
    (5, "king"),
    (5, ["cloud"]),
    (6, ["int8", "int4"]),
    (6, ["int8", "int8"]),
    (6, [f"{i:02}" for i in range(33)]),
    (7, -1),
    (7, True),
    (7, 2**63),
    (8, NOW_NS + RECORD_LIFETIME_NS + 1),
    (9, NOW_NS + RECORD_LIFETIME_NS + 1),
    (9, "soon"),
    (10, b""),
    (11, bytes(63)),
]


@pytest.mark.parametrize(("index", "value"), BAD_FIELDS)
def test_a_field_beyond_its_limit_is_malformed(index: int, value: Any) -> None:
    fields = canonical.decode(encode_record(SIGNED), RECORD_BYTES_MAX)
    fields[index] = value
    with pytest.raises(PeerFault, match="record-malformed"):
        decode_record(canonical.encode(fields))


@pytest.mark.parametrize(
    "wrong",
    [
        replace(RECORD, sequence=True),
        replace(RECORD, capabilities=("int8", "int4")),
        replace(RECORD, addresses=(Address("x" * 257),)),
        replace(RECORD, expiry_ns=RECORD.expiry_ns + 1),
    ],
)
def test_a_record_that_others_would_refuse_is_never_signed(wrong: NodeRecord) -> None:
    with pytest.raises(AssertionError, match="others refuse"):
        sign_record(wrong, KEYS)


def test_the_largest_record_fits_and_a_larger_one_does_not() -> None:
    largest = replace(
        RECORD,
        addresses=tuple(Address("x" * 256) for _ in range(records.ADDRESSES_MAX)),
        capabilities=tuple(f"{i:032}" for i in range(records.CAPABILITIES_MAX)),
    )
    payload = encode_record(sign_record(largest, KEYS))
    assert decode_record(payload).record == largest
    assert len(payload) <= RECORD_BYTES_MAX
    with pytest.raises(PeerFault, match="record-malformed"):
        decode_record(payload + bytes(RECORD_BYTES_MAX))


def test_a_record_of_another_version_says_which() -> None:
    fields = canonical.decode(encode_record(SIGNED), RECORD_BYTES_MAX)
    with pytest.raises(PeerFault, match="record version 2, this node reads 1"):
        decode_record(canonical.encode([2, *fields[1:], "a field of the future"]))


def test_no_bytes_whatever_raise_anything_but_a_peer_fault() -> None:
    payload = encode_record(SIGNED)
    refused = 0
    for seed in range(300):
        rng = random.Random(seed)
        spoiled = bytearray(payload)
        spoiled[rng.randrange(len(spoiled))] ^= 1 << rng.randrange(8)
        with pytest.raises(PeerFault):
            decode_record(bytes(spoiled))
        refused += 1
    for junk in (b"", b"\xc0", b"\x90", b"\xff" * 50, b"\xdd\xff\xff\xff\xff"):
        with pytest.raises(PeerFault):
            decode_record(junk)
    assert refused == 300


def test_only_a_higher_sequence_number_of_the_same_node_replaces() -> None:
    newer = replace(RECORD, sequence=8)
    assert supersedes(RECORD, newer)
    assert not supersedes(newer, RECORD)
    assert not supersedes(RECORD, replace(RECORD, addresses=()))
    assert not supersedes(RECORD, replace(newer, ml_dsa_public_key=OTHER.ml_dsa_public_key))


def test_dates_are_judged_with_a_tolerance() -> None:
    check_dates(RECORD, NOW_NS)
    check_dates(RECORD, NOW_NS - CLOCK_SKEW_MAX_NS)
    check_dates(RECORD, RECORD.expiry_ns + CLOCK_SKEW_MAX_NS)


def test_a_record_from_the_future_tells_both_clocks_and_the_remedy() -> None:
    with pytest.raises(PeerFault, match="clock-skew") as fault:
        check_dates(RECORD, NOW_NS - 300 * NS_PER_S)
    for words in ("300 s ahead", "2027-01-15 08:00:00 UTC", "2027-01-15 07:55:00 UTC", "NTP"):
        assert words in str(fault.value)


def test_an_expired_record_tells_by_how_much_and_doubts_the_clocks() -> None:
    with pytest.raises(PeerFault, match="record-expired") as fault:
        check_dates(RECORD, RECORD.expiry_ns + 600 * NS_PER_S)
    for words in ("600 s ago", "clocks", "NTP"):
        assert words in str(fault.value)


def test_a_date_beyond_the_calendar_is_told_and_not_stumbled_over() -> None:
    far = replace(RECORD, issued_ns=2**62, expiry_ns=2**62)
    with pytest.raises(PeerFault, match="clock-skew"):
        check_dates(far, NOW_NS)
    with pytest.raises(PeerFault, match="clock-skew"):
        check_clocks(NOW_NS, 2**62)


def test_clocks_minutes_apart_are_refused_with_the_direction() -> None:
    check_clocks(NOW_NS, NOW_NS + CLOCK_SKEW_MAX_NS)
    with pytest.raises(PeerFault, match="180 s ahead of"):
        check_clocks(NOW_NS, NOW_NS + 180 * NS_PER_S)
    with pytest.raises(PeerFault, match="180 s behind"):
        check_clocks(NOW_NS, NOW_NS - 180 * NS_PER_S)
