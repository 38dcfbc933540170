"""What a quorum certified and the rules forbid is named: the verifier takes nobody's word."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from daa_consensus.bft.evidence import conflict, encode_evidence
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


def test_words_in_a_final_set_that_nobody_signed_are_named(tmp_path: Path) -> None:
    """A dishonest quorum frames the fourth validator, or invents a rejoin in its name."""
    victim = KEYS[3]

    def said(value: list[canonical.Value], kind: Kind, signer: NodeKeys) -> Signed:
        statement = Statement(FACTS.domain(0), kind, 0, 1, value)
        signature = signer.sign(statement.sign_bytes(), statement.context)
        return Signed(statement, victim.node_id, signature)

    def framed(signer: NodeKeys) -> bytes:
        execs: list[list[canonical.Value]] = [[bytes([i]) * 32, bytes(32)] for i in (1, 2)]
        found = conflict(*(said(value, Kind.EXEC, signer) for value in execs))
        assert found is not None
        return encode_evidence(found)

    for name, signer, words in (
        ("forged", KEYS[0], "a statement that nobody signed"),
        ("true", victim, ""),
    ):

        async def play(maker: ChainMaker, evidence: bytes = framed(signer)) -> None:
            maker.evidence = (evidence,)
            await maker.publish(await maker.make_round())

        report = verify(made(tmp_path / name, play))
        assert (words == "") == report.ok, report.problems
        assert words in "".join(problem.what for problem in report.problems)


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
