"""Limits fit into each other, and versions meet."""

from daa_node.identity.record import RECORD_BYTES_MAX as SIGNED_RECORD_BYTES_MAX
from daa_node.wire import limits, protocols


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
