"""What a quorum certified and the rules forbid is named: the verifier takes nobody's word."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from daa_consensus.bft.evidence import conflict, contradiction, encode_evidence
from daa_consensus.bft.messages import encode_signed
from daa_consensus.operations import (
    Action,
    Approve,
    Join,
    Operation,
    Request,
    Withdraw,
    encode_operation,
)
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, digest_of
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys
from tests.daa_node.checkpoints.little_chain import (
    CHAIN_ID,
    FACTS,
    KEYS,
    STRANGERS,
    ChainMaker,
    certificate_of,
    publish,
)
from tests.daa_node.checkpoints.verified import made, verify


def test_a_certified_root_that_the_replay_does_not_reach_is_named(tmp_path: Path) -> None:
    wrong = BlobRoot(bytes(digest_of(b"another model")))

    async def play(maker: ChainMaker) -> None:
        await maker.publish(await maker.make_round())
        lie = await maker.make_round(change=lambda v: replace(v, model_root=wrong))
        await publish(maker.chain, lie.headers, lie.certified, snapshot_every=100)

    chain = made(tmp_path, play)
    report = verify(chain)
    said = "; ".join(problem.what for problem in report.problems)
    assert "the replay does not reach" in said
    assert {p.where.partition("/")[0] for p in report.problems} == {"vertices"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: replace(v, tokens_total=v.tokens_total + 1), "its final set make"),
        (lambda v: replace(v, contributors=v.contributors[:2]), "its final set make"),
        (lambda v: replace(v, excluded=(v.contributors[0].author,)), "its final set make"),
        (lambda v: replace(v, training_round=7), "its final set make"),
        (lambda v: replace(v, roll_root=v.model_root), "its final set make"),
    ],
)
def test_a_certified_vertex_that_does_not_follow_from_its_set_is_named(
    tmp_path: Path, change: Callable[[Vertex], Vertex], words: str
) -> None:
    async def play(maker: ChainMaker) -> None:
        await maker.publish(await maker.make_round(change=change))

    report = verify(made(tmp_path, play))
    assert [p.where.partition("/")[0] for p in report.problems] == ["vertices"], report.problems
    assert words in report.problems[0].what


VICTIM, LIAR = KEYS[3], KEYS[0]


def said(kind: Kind, value: canonical.Value, signer: NodeKeys) -> Signed:
    """In the victim's name."""
    statement = Statement(FACTS.domain(0), kind, 0, 1 if kind is Kind.EXEC else 0, value)
    signature = signer.sign(statement.sign_bytes(), statement.context)
    return Signed(statement, VICTIM.node_id, signature)


def execution(number: int) -> canonical.Value:
    return [bytes([number]) * 32, bytes(32)]


def pair(first: NodeKeys, second: NodeKeys) -> bytes:
    found = conflict(*(said(Kind.EXEC, execution(n), k) for n, k in ((1, first), (2, second))))
    assert found is not None
    return encode_evidence(found)


def against_all(is_forged: bool) -> bytes:
    """The victim's execution against that of three others."""
    mine = said(Kind.EXEC, execution(1), VICTIM)
    theirs = certificate_of(replace(mine.statement, value=execution(2)), KEYS[:3])
    if is_forged:
        (_, one), *_ = theirs.signatures
        theirs = replace(theirs, signatures=tuple((name, one) for name, _ in theirs.signatures))
    found = contradiction(mine, theirs)
    assert found is not None
    return encode_evidence(found)


def rejoin(signer: NodeKeys) -> bytes:
    return encode_signed(said(Kind.REJOIN, b"n" * 32, signer))


@pytest.mark.parametrize(
    ("evidence", "operations", "is_forged"),
    [
        ([pair(VICTIM, VICTIM)], [], False),
        ([pair(LIAR, VICTIM)], [], True),
        ([pair(VICTIM, LIAR)], [], True),
        ([against_all(is_forged=False)], [], False),
        ([against_all(is_forged=True)], [], True),
        ([], [rejoin(VICTIM)], False),
        ([], [rejoin(LIAR)], True),
    ],
)
def test_words_in_a_final_set_that_nobody_signed_are_named(
    tmp_path: Path, evidence: list[bytes], operations: list[bytes], is_forged: bool
) -> None:
    """A dishonest quorum frames the fourth validator, or invents a rejoin in its name."""

    async def play(maker: ChainMaker) -> None:
        maker.evidence, maker.operations = tuple(evidence), tuple(operations)
        await maker.publish(await maker.make_round())

    report = verify(made(tmp_path, play))
    assert report.ok is not is_forged, report.problems
    words = "".join(problem.what for problem in report.problems)
    assert ("a statement that nobody signed" in words) is is_forged


def operation(keys: NodeKeys, action: Action) -> Operation:
    request = Request(action, expires_epoch=9)
    said = request.statement(CHAIN_ID)
    return Operation(request, ((keys.node_id, keys.sign(said.sign_bytes(), said.context)),))


@pytest.mark.parametrize("aborted", [False, True])
def test_requests_of_newcomers_that_came_to_nothing_were_signed_all_the_same(
    tmp_path: Path, aborted: bool
) -> None:
    """Their keys are forgotten when nothing waits in their name, and peer ids are free again."""
    first, second = STRANGERS[:2]
    join = operation(first, Join(first.node_id, 1, MemberKeys.of(first).encode()))
    approve = operation(KEYS[0], Approve(KEYS[0].node_id, join.request.id))
    withdraw = operation(first, Withdraw(first.node_id, join.request.id))
    keys = MemberKeys.of(second, transport=first).encode()
    again = operation(second, Join(second.node_id, 1, keys))
    approve_again = operation(KEYS[0], Approve(KEYS[0].node_id, again.request.id))
    not_hers = operation(second, Withdraw(first.node_id, join.request.id)).signatures[0][1]
    forged = replace(withdraw, signatures=((first.node_id, not_hers),))

    async def play(maker: ChainMaker, *others: Operation) -> None:
        for carried in ([join, approve], [withdraw, *others], [again, approve_again]):
            maker.operations = tuple(map(encode_operation, carried))
            await maker.publish(await maker.make_round(abort=aborted and join in carried))

    report = verify(made(tmp_path / "true", play))
    assert report.ok, report.problems
    report = verify(made(tmp_path / "forged", lambda maker: play(maker, forged)))
    assert "a statement that nobody signed" in "".join(problem.what for problem in report.problems)


def test_a_set_with_other_weights_than_planned_is_named(tmp_path: Path) -> None:
    async def play(maker: ChainMaker) -> None:
        maker.weights = (1000, 1000, 999_000)
        await maker.publish(await maker.make_round())

    report = verify(made(tmp_path, play))
    assert "does not follow from the plan: weights" in report.problems[0].what
