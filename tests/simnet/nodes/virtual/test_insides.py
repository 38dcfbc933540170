"""What only a look into honest daemons shows of what they say to each other, and make of it."""

from typing import Any

import pytest
import trio

from daa_consensus.votes import Kind, Signed, Statement
from daa_node.agreement import questions
from daa_node.agreement.carried import Cargo
from daa_node.agreement.signer import Signer
from daa_node.agreement.writer import Writer
from daa_node.errors import PeerFault, StorageFailed
from simnet.checks.invariants import ACCEPTED, ADMITTED, READ
from simnet.nodes.virtual import operators
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.scheduling import NODE
from simnet.pytest_plugin import RunCluster
from tests.simnet.results.mutants.troubles import TROUBLES, broken

pytestmark = pytest.mark.long


def half_a_message(patch: pytest.MonkeyPatch) -> None:
    message = Writer._message
    patch.setattr(Writer, "_message", lambda self, body: message(self, body)[:-1])


def no_operations(patch: pytest.MonkeyPatch) -> None:
    """Who judges a set holds against it what who makes it may put there."""
    add_operation = Cargo.add_operation

    def refuse(self: Cargo, encoded: bytes) -> None:
        raise PeerFault("idle_operation", "none are wanted")

    def load(self: Cargo, *encoded: bytes) -> None:
        for each in encoded:
            add_operation(self, each)

    patch.setattr(Cargo, "add_operation", refuse)
    patch.setattr(Cargo, "try_operations", load)


def nobody_sponsors(patch: pytest.MonkeyPatch) -> None:
    """Requests are heard and approved of, and no set carries them."""
    patch.setattr(questions, "loaded", lambda chosen, facts, inbound: chosen)


def test_what_honest_nodes_say_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    half_a_message(monkeypatch)
    assert broken("a leader dies", 3) == {READ}


def test_what_honest_leaders_carry_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    no_operations(monkeypatch)
    assert broken("a joiner", 3) == {ACCEPTED}


def test_a_vote_that_is_signed_when_its_view_is_final_is_nobodys_fault(
    monkeypatch: pytest.MonkeyPatch, simnet_cluster: RunCluster
) -> None:
    """Its disk takes each vote at the second try, and the others need no vote of its."""
    sign, tried, late = Signer.sign, set[Statement](), set[int]()

    async def sign_late(self: Signer, statement: Statement, *more: Any) -> Signed:
        if NODE.get() == 3 and statement.kind is Kind.NOTARIZE:
            if statement not in tried:
                tried.add(statement)
                raise StorageFailed("not yet")
            late.add(statement.view)
        return await sign(self, statement, *more)

    async def script(cluster: Cluster) -> None:
        cluster.start()
        for height in range(1, 5):
            assert await cluster.until_height(height, 60)
            if cluster.leader() != 3:
                break
        cluster.kill(cluster.leader())  # the next view waits for its timer, with nothing to sign
        await trio.sleep(20)

    monkeypatch.setattr(Signer, "sign", sign_late)
    simnet_cluster(script, work={"kind": "training", "rounds": 9, "delta_ms": 100})
    assert late


def test_what_is_approved_of_takes_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs count in which the joiner gets further, and it looks for news every few seconds."""
    nobody_sponsors(monkeypatch)
    monkeypatch.setattr(operators, "EPOCHS_MAX", 2)
    joiner = TROUBLES["a joiner"]
    assert isinstance(joiner, dict)
    monkeypatch.setitem(TROUBLES, "a joiner", {**joiner, "duration_s": 14})
    assert broken("a joiner", 3) == {ADMITTED}
