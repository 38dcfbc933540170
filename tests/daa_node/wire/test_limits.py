"""Limits fit into each other, and versions meet."""

from daa_consensus.committee import VERSION_MAX
from daa_node.identity.record import RECORD_BYTES_MAX as SIGNED_RECORD_BYTES_MAX
from daa_node.wire import limits, protocols
from daa_node.wire.protocols import Versions


def test_a_signed_record_fits_where_it_travels() -> None:
    assert SIGNED_RECORD_BYTES_MAX <= limits.RECORD_BYTES_MAX
    assert limits.RECORD_BYTES_MAX + 200 <= limits.HELLO_BYTES_MAX
    assert limits.RECORD_BYTES_MAX <= limits.GOSSIP_BYTES_MAX


def test_versions_meet_where_both_speak_one() -> None:
    ours = Versions(2, 4)
    for theirs in (Versions(1, 2), Versions(3, 3), Versions(4, 9), Versions(1, 9)):
        assert ours.meet(theirs)
        assert theirs.meet(ours)
    for theirs in (Versions(0, 1), Versions(5, 9)):
        assert not ours.meet(theirs)
        assert not theirs.meet(ours)
    assert str(ours) == "2 to 4"
    assert protocols.OURS.is_range
    assert not Versions(3, 2).is_range
    assert not Versions(0, VERSION_MAX + 1).is_range
