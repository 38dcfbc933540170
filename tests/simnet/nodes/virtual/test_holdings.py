"""A daemon that keeps what no round needs any more is found when all has healed."""

import gc
import random
from typing import Any, cast
from weakref import ref

import pytest

from daa_consensus.bft.messages import Block
from daa_consensus.bft.proofs import Proofs
from daa_consensus.committee import Committee, Validator
from daa_consensus.votes import Certificate
from daa_dag.ids import ContributionRoot, NodeId, digest_of
from daa_node.agreement.parts import OpenRound
from daa_node.agreement.round_talk import RoundTalk
from daa_node.network.mailbox import Mailbox
from daa_node.network.pace import Paces
from daa_node.rounds.collect import Acks
from daa_node.seams import PeerId, Transport
from simnet.checks.invariants import BOUNDED
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual import holdings
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.disk import Disk
from simnet.nodes.virtual.world import run_script, run_virtual
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

MEMBERS = 30
ROUNDS = 16  # each leaves an Offer, an Exec and some Acks of each of four members behind


def run() -> Outcome:
    fields: dict[str, Any] = {
        "name": "holdings",
        "fidelity": "light",
        "duration_s": 30,
        "work": {"kind": "training", "rounds": ROUNDS, "inner_steps_max": 1, "window_s": 4},
        "checks": {"vertices_after_heal": ROUNDS, "finalizations_after_heal": 0},
    }
    return run_virtual(Scenario.model_validate(fields), Trace())


def broken(outcome: Outcome) -> list[str]:
    return [each.name for each in outcome.invariants if not each.ok]


def test_a_run_looks_for_dead_cycles_once_it_is_dead_and_others_as_before() -> None:
    before, alive, found = gc.get_threshold(), list[bool](), list[object]()
    ended = ref(Disk(random.Random(0)))  # of nobody

    async def script(cluster: Cluster) -> None:
        nonlocal ended
        ended = ref(cluster.machines[0].disk)
        found.append(gc.get_threshold()[0] > 10 * before[0])
        gc.callbacks.append(look)

    def look(phase: str, _info: dict[str, int]) -> None:
        if phase == "stop":
            alive.append(ended() is not None)

    try:
        run_script(Scenario(name="holdings", fidelity="light"), Trace(), script)
        gc.collect()
    finally:
        gc.callbacks.remove(look)
    assert (found, gc.get_threshold()) == ([True], before)
    assert not any(alive)


@pytest.mark.long
def test_words_that_are_kept_beyond_their_round_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken(run()) == []
    opened = RoundTalk.open

    def hoarding(self: RoundTalk, round_number: int, listener: OpenRound) -> None:
        heard = dict(self._heard)
        opened(self, round_number, listener)
        self._heard.update(heard)

    monkeypatch.setattr(RoundTalk, "open", hoarding)
    assert broken(run()) == [BOUNDED]


async def test_what_a_mailbox_keeps_of_who_has_gone_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = (NodeId(bytes([number]) * 32) for number in (1, 2))
    peers: dict[NodeId, PeerId] = {}
    nodes: dict[PeerId, NodeId] = {}
    mailbox = Mailbox(
        cast(Transport, None), peers.get, nodes.get, [one, two], lambda: 1, lambda *_: None, 1.0
    )
    for member in (one, two):
        mailbox._paces.of(member)
    gc.collect()
    mailbox.follow([one])
    assert holdings.excess(MEMBERS, 0) is None
    monkeypatch.setattr(Paces, "forget", lambda *_: None)
    mailbox.follow([])
    assert holdings.excess(MEMBERS, 0) == "1 in Mailbox._paces of who has gone"


def test_acks_of_everybody_for_everybody_are_one_round() -> None:
    members = sorted(NodeId(digest_of(b"%d" % number)) for number in range(MEMBERS))
    acks = Acks(Committee(tuple(Validator(member, 1) for member in members)))
    acks._ackers = {ContributionRoot(root): set(members) for root in members}
    gc.collect()
    assert holdings.excess(MEMBERS, 0) is None
    acks._ackers.update({ContributionRoot(digest_of(root)): set(members) for root in members})
    assert "Acks._ackers" in str(holdings.excess(MEMBERS, 0))


def test_acks_of_those_who_vote_for_a_crowd_of_trainers_are_one_round() -> None:
    voters, trainers = 10, 50
    names = sorted(NodeId(digest_of(b"%d" % number)) for number in range(voters + trainers))
    acks = Acks(Committee(tuple(Validator(name, 1) for name in names[:voters])))
    acks._ackers = {ContributionRoot(root): set(names[:voters]) for root in names}
    gc.collect()
    assert holdings.excess(voters, trainers) is None
    acks._ackers.update({ContributionRoot(digest_of(root)): set(names[:voters]) for root in names})
    assert "Acks._ackers" in str(holdings.excess(voters, trainers))


def test_what_is_of_those_who_vote_does_not_grow_with_a_crowd_of_trainers() -> None:
    proofs = Proofs(None)
    proofs.closings = dict.fromkeys(range(300), cast(tuple[Certificate, Block], ()))
    gc.collect()
    assert "Proofs.closings" in str(holdings.excess(10, 50))
    assert holdings.excess(60, 0) is None
