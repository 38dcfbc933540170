"""Limits grow with the number of validators: nothing overflows at a hundred."""

from daa_node.identity.record import RECORD_BYTES_MAX as SIGNED_RECORD_BYTES_MAX
from daa_node.wire import limits, protocols


def test_a_certificate_with_every_signature_fits() -> None:
    for n in (1, 4, 100, 1000):
        assert limits.certificate_bytes_max(n) > n * (limits.SIGNATURE_BYTES + 32 + 8)


def test_a_vote_carries_its_block_and_the_certificates_that_justify_it() -> None:
    for n in (4, 100):
        block = limits.block_bytes_max(n, n)
        assert limits.vote_bytes_max(n, n) >= block + 3 * limits.certificate_bytes_max(n)
        assert limits.response_bytes_max(n, n) >= block + limits.certificate_bytes_max(n)


def test_four_validators_stay_well_below_a_mebibyte() -> None:
    assert limits.vote_bytes_max(4, 4) < limits.MIB // 4


def test_a_signed_record_fits_where_it_travels() -> None:
    assert SIGNED_RECORD_BYTES_MAX <= limits.RECORD_BYTES_MAX
    assert limits.RECORD_BYTES_MAX + 200 <= limits.HELLO_BYTES_MAX
    assert limits.RECORD_BYTES_MAX <= limits.GOSSIP_BYTES_MAX


def test_versions_agree_when_their_ranges_meet() -> None:
    ours, least = protocols.PROTOCOL_VERSION, protocols.PROTOCOL_VERSION_MIN
    assert protocols.versions_agree(ours, least)
    assert protocols.versions_agree(ours + 5, ours)
    assert not protocols.versions_agree(ours + 5, ours + 1)
    assert not protocols.versions_agree(least - 1, 0)
