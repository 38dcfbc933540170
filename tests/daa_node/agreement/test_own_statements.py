"""What others would call malformed is not signed, whoever of us asks for it."""

import pytest

from daa_consensus.votes import Kind, Statement
from daa_node.errors import Refused
from tests.daa_node.agreement.test_signer import DOMAIN, A, B, FakeJournal, started

MALFORMED = [
    Statement(DOMAIN, Kind.NOTARIZE, True, 1, A),
    Statement(DOMAIN, Kind.NOTARIZE, 2**63, 1, A),
    Statement(DOMAIN, Kind.NOTARIZE, 1, 1, A[:31]),
    Statement(DOMAIN, Kind.NULLIFY, 1, 1, None),
    Statement(DOMAIN, Kind.ACK, 0, 1, [B, A]),
    Statement(DOMAIN, Kind.EXEC, 0, 10**80, [A, B]),
    Statement(DOMAIN, Kind.OFFER, 0, 1, [1.5]),  # type: ignore[list-item]
    Statement(DOMAIN, Kind.MEMBERSHIP, 0, 0, ["stake", A, True]),
    Statement(DOMAIN, Kind.MEMBERSHIP, 1, 0, ["stake", A, 1]),
]


@pytest.mark.parametrize("statement", MALFORMED, ids=lambda s: f"{s.kind} {s.value!r:.20}")
async def test_what_others_call_malformed_is_not_signed(statement: Statement) -> None:
    signer = await started(journal := FakeJournal())
    journal.calls.clear()
    with pytest.raises(Refused, match="^malformed: "):
        await signer.sign(statement)
    assert journal.calls == []
