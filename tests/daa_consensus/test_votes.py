"""What is signed, and what a certificate is worth."""

from dataclasses import replace

import pytest

from daa_consensus.errors import NoQuorum
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.ids import ChainId, ValidatorSetRoot
from tests.daa_consensus.bft.simulation import committee_of, domain_of, node_id

COMMITTEE = committee_of([1] * 4)
STATEMENT = Statement(domain_of(COMMITTEE), Kind.NOTARIZE, 7, 3, b"b" * 32)


def test_sign_bytes_cover_every_field_and_the_context_the_kind() -> None:
    domain = STATEMENT.domain
    others = [
        replace(STATEMENT, domain=replace(domain, chain_id=ChainId(b"x" * 32))),
        replace(STATEMENT, domain=replace(domain, epoch=1)),
        replace(STATEMENT, domain=replace(domain, validator_set_root=ValidatorSetRoot(b"r" * 32))),
        replace(STATEMENT, kind=Kind.FINALIZE),
        replace(STATEMENT, view=8),
        replace(STATEMENT, height=4),
        replace(STATEMENT, value=b"c" * 32),
    ]
    assert len({s.sign_bytes() for s in [STATEMENT, *others]}) == 8
    fields = canonical.decode(STATEMENT.sign_bytes(), 1_000)
    assert fields == [domain.chain_id, 0, domain.validator_set_root, "notarize", 7, 3, b"b" * 32]
    assert STATEMENT.context == b"daa/v1/notarize"


def test_an_id_covers_signer_and_words_but_no_signature() -> None:
    one = Signed(STATEMENT, node_id(0), b"one")
    assert one.id == Signed(STATEMENT, node_id(0), b"other").id
    assert one.id != Signed(STATEMENT, node_id(1), b"one").id
    assert one.id != Signed(replace(STATEMENT, view=8), node_id(0), b"one").id


def test_a_certificate_needs_a_quorum_of_distinct_validators() -> None:
    def certificate(*indices: int) -> Certificate:
        return Certificate(STATEMENT, tuple((node_id(i), b"s") for i in indices))

    certificate(0, 1, 2).check_weight(COMMITTEE)
    for too_few in [(0, 1), (0, 0, 1, 1), (0, 1, 50), ()]:
        with pytest.raises(NoQuorum):
            certificate(*too_few).check_weight(COMMITTEE)
