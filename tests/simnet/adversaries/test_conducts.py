"""Every kind of lie to consensus: f liars stop nothing, and what they did shows where it can."""

import pytest

from simnet.adversaries.kinds import CONDUCTS
from simnet.determinism import Trace
from simnet.heap import consensus
from simnet.outcome import Outcome
from simnet.scenario import AdversaryConfig, AdversaryKind, NodesConfig, Scenario, WorkConfig

# What a run must tell of whom lies so; the others break no rule that anybody could see.
SHOWS: dict[AdversaryKind, str] = {
    "equivocator": "evidence found",
    "twin": "leader twin seen",
    "conflicter": "evidence found",
    "double_offerer": "blamed for equivocation",
    "false_executor": "blamed for equivocation",
    "withholder": "view nullified",
    "staller": "view nullified",
    "sybil": "blamed for unknown-signer",
    "babbler": "blamed for malformed",
    "forger": "blamed for no-quorum",
}


def run(kinds: list[AdversaryKind], nodes: int, seed: int) -> Outcome:
    liars = tuple(AdversaryConfig(kind=kind, nodes=(i,)) for i, kind in enumerate(kinds))
    return consensus.run(
        Scenario(
            name="liars",
            seed=seed,
            nodes=(NodesConfig(count=nodes),),
            work=WorkConfig(epoch_rounds=3),
            adversaries=liars,
        ),
        Trace(),
    )


def broken(outcome: Outcome) -> list[str]:
    return [f"{i.name}: {i.detail}" for i in outcome.invariants if not i.ok]


@pytest.mark.parametrize("kind", CONDUCTS)
def test_one_liar_of_four_is_survived_and_shows(kind: AdversaryKind) -> None:
    outcomes = [run([kind], 4, seed) for seed in range(3)]
    assert [broken(outcome) for outcome in outcomes] == [[], [], []]
    met = {mark.name for outcome in outcomes for mark in outcome.sometimes if mark.hits}
    assert kind not in SHOWS or SHOWS[kind] in met


@pytest.mark.parametrize("kind", CONDUCTS)
def test_it_is_survived_beside_an_equivocator_among_seven(kind: AdversaryKind) -> None:
    assert broken(run([kind, "equivocator"], 7, 1)) == []


def test_two_withholders_of_four_stop_progress() -> None:
    """Else the tests above would show nothing about them."""
    assert any("become final" in text for text in broken(run(["withholder"] * 2, 4, 0)))


def test_two_stallers_of_four_delay_everybody() -> None:
    assert run(["staller"] * 2, 4, 0).virtual_s > 2 * run([], 4, 0).virtual_s
