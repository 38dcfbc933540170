"""Nobody is led into an epoch of a protocol version that it does not speak."""

import pytest

from daa_consensus.operations import Speak
from daa_node.errors import PeerFault
from daa_node.identity.other_protocol import OtherProtocol, standing_of
from daa_node.identity.validators import Validators, recall, record_of
from daa_node.identity.validators_record import decode_validators, encode_validators
from tests.daa_node.identity.test_validators import (
    KEYS,
    certificate,
    epoch_of_blocks,
    history,
    signed,
)

NEXT = range(1, 3)


def announced(speaks: range) -> Validators:
    """In epoch 1, with the next version from epoch 2 on."""
    validators = history()
    validators.speaks = speaks
    words = [signed(Speak(keys.node_id, 2), expires=1) for keys in KEYS[:3]]
    for word in words:
        validators.check_operation(word)
    validators.follow(epoch_of_blocks(0, words))
    return validators


def test_it_stands_where_its_own_versions_end_and_knows_nothing_of_the_epoch_above() -> None:
    validators = announced(range(1, 2))
    told = standing_of(validators).as_value()
    assert told == {"in_use": 1, "next_from_round": 3, "speaks_next": False}
    decided, closing = epoch_of_blocks(1, [])
    assert validators.follow([decided]) is False
    before, domain = validators.now, validators.domain(1)
    for blocks in ([closing], [decided, closing, *epoch_of_blocks(2, [])]):
        with pytest.raises(OtherProtocol, match="from round 3 on this network uses protocol 2"):
            validators.follow(blocks)
        assert validators.now is before
        assert validators.domain(2).validator_set_root == domain.validator_set_root
    newer = announced(NEXT).copy()
    newer.follow([decided, closing])
    assert newer.now.committee.version == 2
    with pytest.raises(OtherProtocol):
        validators.copy().follow([closing])


def test_with_the_release_that_speaks_it_the_same_record_leads_on() -> None:
    stopped = announced(range(1, 2))
    record = encode_validators(record_of(stopped))
    newer = history()
    newer.speaks = NEXT
    recall(newer, decode_validators(record))
    newer.follow(epoch_of_blocks(1, []))
    assert standing_of(newer).as_value() == {
        "in_use": 2,
        "next_from_round": None,
        "speaks_next": False,
    }
    assert newer.now.committee.version == 2
    # Words of the old committee are of no worth in the new epoch, nor the other way round.
    newer.verify(certificate(newer.domain(2), KEYS[:3]))
    assert newer.domain(2).validator_set_root != newer.domain(1).validator_set_root
    with pytest.raises(PeerFault):
        newer.verify(certificate(stopped.domain(2), KEYS[:3]))
    # Back to the older release, with what the newer one has left on the disk.
    with pytest.raises(OtherProtocol, match="install a newer release"):
        recall(history(), decode_validators(encode_validators(record_of(newer))))


def test_a_release_that_has_left_a_version_behind_wants_an_older_one() -> None:
    validators = history()
    validators.speaks = range(2, 4)
    with pytest.raises(OtherProtocol, match="speaks 2 to 3: install an older release"):
        validators.follow(epoch_of_blocks(0, []))
