"""The audit of checks and disputes breaks at what it forbids, and at nothing else."""

from collections.abc import Sequence

import pytest

from daa_consensus.bft.evidence import conviction, encode_evidence
from daa_consensus.bft.messages import (
    Block,
    OfferBody,
    ResultPayload,
    SetPayload,
    genesis_block,
)
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag.ids import BlobRoot, ChainId, Digest, NodeId, VertexId
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS
from daa_node.observability import events as names
from daa_node.spot_checks.config import SpotChecksConfig
from simnet.checks.invariants import (
    FRAMERS_FALL,
    IN_TIME,
    NO_SLANDER,
    QUORUMS,
    SEEN_THROUGH,
    Broken,
    Watch,
)
from simnet.checks.spot_check_audit import (
    TOLD_WITHIN_ROUNDS,
    SpotCheckAudit,
    chance_of_so_few,
)
from simnet.world.links import NS
from simnet.world.scenario import AdversaryConfig

CHAIN = ChainId(b"c" * 32)
NODES = [NodeId(bytes([65 + number]) * 32) for number in range(4)]
COMMITTEE = Committee(tuple(Validator(node, 1) for node in NODES))
LIAR, ROUNDS, STEPS = 3, 40, 8
CHEAT = AdversaryConfig(kind="cheat", cheat="skips_steps")


def watch_of(rounds: int = ROUNDS, evidence: Sequence[bytes] = ()) -> Watch:
    """A chain of so many rounds, of which everybody has a part; the first set carries that."""
    block = genesis_block(CHAIN, VertexId(bytes(32)))
    watch = Watch(block, COMMITTEE, epoch_rounds=1000)
    for round_ in range(1, rounds + 1):
        offers = tuple(offer(author, round_) for author in NODES)
        carried = tuple(evidence) if round_ == 1 else ()
        decided = SetPayload(round_, offers, (1,) * 4, "mean", 0, carried, (), ())
        vertex = VertexId(round_.to_bytes(32))
        closed = ResultPayload(round_, vertex, Digest(bytes(32)))
        for payload in (decided, closed):
            block = Block(CHAIN, 0, block.view + 1, round_, block.id, block.view, payload)
            watch.chain.append(block)
    return watch


def offer(author: NodeId, round_: int) -> OfferBody:
    root = Digest(bytes(32))
    return OfferBody(
        round_, author, VertexId(root), BlobRoot(root), 9, "int8", STEPS, 1, 1, 1, 0, (root,) * 5
    )


def audit_of(liar: AdversaryConfig = CHEAT, watch: Watch | None = None) -> SpotCheckAudit:
    numbers = {name.hex(): number for number, name in enumerate(NODES)}
    rules = SpotChecksConfig(share=(1, 1))
    return SpotCheckAudit(watch or watch_of(), numbers, 4, STEPS, rules, {LIAR: liar}, set())


def found(audit: SpotCheckAudit, author: int, finding: str, round_: int, by: int = 0) -> None:
    event = {"author": NODES[author].hex(), "finding": finding, "round": round_}
    audit.on_event(by, {"name": names.SEGMENT_CHECKED, **event}, 0)


def verdict(convicted: int, signers: int) -> bytes:
    domain = Domain(CHAIN, 0, COMMITTEE.root)
    value = [NODES[convicted], bytes(32)]
    pairs = tuple((name, b"s") for name in NODES[:signers])
    said = conviction(Certificate(Statement(domain, Kind.VERDICT, 0, 1, value), pairs))
    assert said is not None
    return encode_evidence(said)


def test_a_cheat_that_is_seen_in_each_check_breaks_nothing() -> None:
    audit = audit_of()
    for round_ in range(1, ROUNDS + 1):
        found(audit, LIAR, "sound" if round_ <= 2 else "differs", round_)
    audit.at_the_end()


@pytest.mark.parametrize(("finding", "why"), [("sound", "seen 0 times"), (None, "drawn 0 times")])
def test_a_cheat_that_is_never_seen_through_is_told(finding: str | None, why: str) -> None:
    audit = audit_of()
    for round_ in range(1, ROUNDS + 1):
        if finding is not None:
            found(audit, LIAR, finding, round_)
    with pytest.raises(Broken, match=why) as broken:
        audit.at_the_end()
    assert broken.value.name == SEEN_THROUGH


def test_what_is_seen_in_one_segment_of_four_may_be_missed_a_while() -> None:
    seldom = AdversaryConfig(kind="cheat", cheat="skips_one_step")
    for rounds, is_due in ((24, False), (60, True)):
        audit = audit_of(seldom, watch_of(rounds))
        for round_ in range(1, rounds + 1):
            found(audit, LIAR, "sound", round_)
        if is_due:
            with pytest.raises(Broken, match="seen 0 times"):
                audit.at_the_end()
        else:
            audit.at_the_end()


def test_an_honest_node_finds_honest_work_sound() -> None:
    audit = audit_of()
    found(audit, 1, "differs", 1, by=LIAR)  # who lies may say so
    found(audit, 1, "unshown", 1)
    with pytest.raises(Broken) as broken:
        found(audit, 1, "differs", 2)
    assert broken.value.name == NO_SLANDER


def test_an_honest_node_shuns_nobody_honest() -> None:
    audit = audit_of(AdversaryConfig(kind="framer"))
    shunned = {"name": names.AUTHOR_SHUNNED, "round": 1}
    audit.on_event(0, {**shunned, "author": NODES[LIAR].hex()}, 0)
    audit.on_event(LIAR, {**shunned, "author": NODES[1].hex()}, 0)
    with pytest.raises(Broken) as broken:
        audit.on_event(0, {**shunned, "author": NODES[1].hex()}, 0)
    assert broken.value.name == NO_SLANDER


@pytest.mark.parametrize(("doubts", "is_told"), [(2, False), (8, True)])
def test_honest_work_is_doubted_seldom(doubts: int, is_told: bool) -> None:
    audit = audit_of(AdversaryConfig(kind="framer"))
    for round_ in range(1, ROUNDS + 1):
        found(audit, 1, "doubted" if round_ <= doubts else "sound", round_)
        found(audit, 1, "doubted", round_, by=LIAR)
        found(audit, LIAR, "doubted", round_)
    if is_told:
        with pytest.raises(Broken, match="8 of 40 honest segments") as broken:
            audit.at_the_end()
        assert broken.value.name == NO_SLANDER
    else:
        audit.at_the_end()


def test_what_drowns_in_a_segment_is_to_be_seen_once_devices_are_calibrated() -> None:
    drowned = AdversaryConfig(kind="cheat", cheat="stretches_one_step")
    for calibrated, last_sound, is_due in (
        *((range(4), TOLD_WITHIN_ROUNDS, False), (range(4), 80, True), (range(3), 80, False)),
    ):
        watch = watch_of(0)
        audit = audit_of(drowned, watch)
        for node in calibrated:
            audit.on_event(node, {"name": names.CALIBRATED}, 0)
        watch.chain.extend(watch_of(80).chain)
        for round_ in range(1, 81):
            found(audit, LIAR, "sound" if round_ <= last_sound else "doubted", round_)
        if is_due:
            with pytest.raises(Broken, match="seen 0 times"):
                audit.at_the_end()
        else:
            audit.at_the_end()


@pytest.mark.parametrize(
    ("convicted", "signers", "name"), [(1, 3, NO_SLANDER), (LIAR, 2, QUORUMS), (LIAR, 3, None)]
)
def test_a_set_convicts_liars_alone_and_by_a_quorum(
    convicted: int, signers: int, name: str | None
) -> None:
    audit = audit_of(AdversaryConfig(kind="framer"), watch_of(1, [verdict(convicted, signers)]))
    if name is None:
        audit.at_the_end()
        return
    with pytest.raises(Broken) as broken:
        audit.at_the_end()
    assert broken.value.name == name


@pytest.mark.parametrize(("author", "is_told"), [(1, True), (LIAR, False)])
def test_who_frames_the_honest_is_to_be_convicted(author: int, is_told: bool) -> None:
    watch = watch_of(1)
    audit = audit_of(AdversaryConfig(kind="framer"), watch)
    accused = {"author": NODES[author].hex(), "outcome": "accused", "round": 1}
    audit.on_event(LIAR, {"name": names.DOUBT_ENDED, **accused}, 0)
    audit.at_the_end()
    watch.chain[:] = watch_of().chain
    if not is_told:
        audit.at_the_end()
        return
    with pytest.raises(Broken) as broken:
        audit.at_the_end()
    assert broken.value.name == FRAMERS_FALL


def test_nobody_judges_what_is_over_its_time() -> None:
    audit = audit_of()
    for round_ in range(1, DISPUTE_ROUNDS + 10):
        decided = {"name": names.BLOCK_FINALIZED, "payload": "SetPayload", "height": round_}
        audit.on_event(0, decided, round_ * NS)
    now_ns = (DISPUTE_ROUNDS + 9) * NS
    judged = {"name": names.VERDICT_FAILED, "why": "states are missing"}
    audit.on_event(0, {**judged, "round": 9}, now_ns)
    audit.on_event(1, {**judged, "round": 1}, now_ns)  # as far as it knows it is time yet
    with pytest.raises(Broken) as broken:
        audit.on_event(0, {**judged, "round": 1}, now_ns)
    assert broken.value.name == IN_TIME


def test_so_few_of_so_many() -> None:
    assert chance_of_so_few(0, 4, 0.5) == 1 / 16
    assert chance_of_so_few(4, 4, 0.5) == 1.0
    assert chance_of_so_few(0, 0, 1.0) == 1.0
