"""What is said about rounds: whose weight certifies an execution, and what comes too early."""

from types import SimpleNamespace
from typing import cast

from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import ChainId, NodeId
from daa_node.agreement.parts import OpenRound
from daa_node.agreement.round_talk import RoundTalk
from daa_node.identity.validators import Validators

NODES = [NodeId(bytes([65 + k]) * 32) for k in range(5)]
HEAVY, LIGHT, NEWCOMER = NODES[0], NODES[1:4], NODES[4]
FIRST = Committee((Validator(HEAVY, 4), *(Validator(node, 1) for node in LIGHT)))  # quorum 5
SECOND = Committee((*(Validator(node, 1) for node in LIGHT), Validator(NEWCOMER, 4)))
EPOCHS = (FIRST, SECOND)  # of one round each


def talk(epoch: int) -> RoundTalk:
    """Of somebody who knows of `epoch`, with round 1 open."""
    validators = SimpleNamespace(
        committee=EPOCHS.__getitem__,
        epoch_of=lambda round_number: round_number - 1,
        domain=lambda number: Domain(ChainId(b"c" * 32), number, EPOCHS[number].root),
        now=SimpleNamespace(committee=EPOCHS[epoch]),
    )
    made = RoundTalk(cast(Validators, validators), lambda node, fault: None)
    made.round = 1
    return made


def execution(signer: NodeId, round_number: int = 1, root: bytes = b"r") -> Signed:
    epoch = round_number - 1
    domain = Domain(ChainId(b"c" * 32), epoch, EPOCHS[epoch].root)
    value = [b"v" * 32, root * 32]
    return Signed(Statement(domain, Kind.EXEC, 0, round_number, value), signer, b"")


def test_many_who_stake_little_certify_nothing() -> None:
    heard = talk(epoch=0)
    assert [heard.hear(execution(node)) for node in LIGHT] == [None] * 3
    certificate = heard.hear(execution(HEAVY))
    assert certificate is not None
    assert FIRST.weight({signer for signer, _ in certificate.signatures}) == 7


def test_two_with_the_weight_of_a_quorum_certify() -> None:
    heard = talk(epoch=0)
    assert heard.hear(execution(HEAVY)) is None
    assert heard.hear(execution(LIGHT[0])) is not None


def test_only_who_says_the_same_counts_for_a_certificate_and_stands_in_it() -> None:
    heard = talk(epoch=0)
    assert heard.hear(execution(HEAVY)) is None
    assert heard.hear(execution(LIGHT[0], root=b"x")) is None
    certificate = heard.hear(execution(LIGHT[1]))
    assert certificate is not None
    assert [signer for signer, _ in certificate.signatures] == [HEAVY, LIGHT[1]]


def test_a_round_is_certified_by_the_members_of_its_own_epoch() -> None:
    behind = talk(epoch=0)  # others are in the next round already
    assert behind.hear(execution(NEWCOMER, 2)) is None
    assert behind.hear(execution(LIGHT[0], 2)) is not None
    ahead = talk(epoch=1)  # a late statement of the round before
    assert ahead.hear(execution(HEAVY)) is None
    assert ahead.hear(execution(LIGHT[0])) is not None


class Listener:
    """Whoever collects a round, as far as statements reach it."""

    def __init__(self) -> None:
        self.words: list[Signed] = []

    def hear(self, signed: Signed) -> None:
        self.words.append(signed)


def test_what_was_said_before_the_round_is_open_here_reaches_it_when_it_opens() -> None:
    """It is not heard again: the same statement once more is no news."""
    behind = talk(epoch=0)
    domain = Domain(ChainId(b"c" * 32), 1, SECOND.root)
    early = Signed(Statement(domain, Kind.ACK, 0, 2, [b"r" * 32]), NEWCOMER, b"")
    behind.hear(early)
    listener = Listener()
    behind.open(2, cast(OpenRound, listener))
    behind.hear(early)
    assert listener.words == [early]


def test_what_came_early_in_the_name_of_another_committee_is_forgotten_when_the_round_opens() -> (
    None
):
    """Nobody else believes it: who counted it would demand what it can show to nobody."""
    behind, listener = talk(epoch=0), Listener()
    void = Domain(ChainId(b"c" * 32), 1, FIRST.root)
    early = Signed(Statement(void, Kind.ACK, 0, 2, [b"r" * 32]), LIGHT[0], b"")
    assert behind.hear(early) is None
    behind.open(2, cast(OpenRound, listener))
    assert listener.words == []
    assert behind.heard_statements(2) == []
    right = Signed(
        Statement(Domain(void.chain_id, 1, SECOND.root), Kind.ACK, 0, 2, []), LIGHT[0], b""
    )
    behind.hear(right)
    assert listener.words == [right]


def test_of_acks_of_one_member_latecomers_are_told_the_newest_that_says_more() -> None:
    """A smaller one takes nothing back: who comes late would not hear what counts here."""
    heard, listener = talk(epoch=0), Listener()
    heard.open(1, cast(OpenRound, listener))
    domain = Domain(ChainId(b"c" * 32), 0, FIRST.root)
    one, both, less, other = (
        Signed(Statement(domain, Kind.ACK, 0, 1, [root * 32 for root in roots]), HEAVY, b"")
        for roots in ([b"a"], [b"a", b"b"], [b"b"], [b"c"])
    )
    told = []
    for ack in (one, both, less, one, other):
        heard.hear(ack)
        told += heard.heard_statements(1)
    assert told == [one, both, both, both, other]
    assert listener.words == [one, both, other]
