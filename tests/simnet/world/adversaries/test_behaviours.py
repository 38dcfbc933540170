"""Every kind of lie to consensus: f liars stop nothing, and what they did shows where it can."""

import pytest

from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.world import run_script
from simnet.world.adversaries.liars import BEHAVIOURS
from simnet.world.determinism import Trace
from simnet.world.scenario import AdversaryConfig, AdversaryKind, Scenario

# What a run must tell of whom lies so; the others break no rule that anybody could see.
SHOWS: dict[AdversaryKind, str] = {
    "equivocator": "evidence found",
    "conflicter": "evidence found",
    "double_offerer": "liar blamed for equivocation",
    "false_executor": "liar blamed for equivocation",
    "false_acker": "liar blamed for too_many_acks",
    "withholder": "view given up",
    "staller": "view given up",
    "sybil": "liar blamed for unknown-signer",
    "babbler": "liar blamed for malformed",
    "forger": "liar blamed for no-quorum",
}
BLOCKS = 12
WITHIN_S = 60.0


def run(kinds: list[AdversaryKind], nodes: int, seed: int = 0) -> Outcome:
    """Until so many blocks are final; the last nodes lie."""
    first = nodes - len(kinds)
    liars = [AdversaryConfig(kind=kind, nodes=(first + i,)) for i, kind in enumerate(kinds)]
    fields = {
        "name": "liars",
        "fidelity": "light",
        "seed": seed,
        "duration_s": 600,
        "nodes": [{"count": nodes}],
        "work": {"kind": "training", "rounds": 1000, "inner_steps_max": 1, "window_s": 4},
        "adversaries": liars,
    }

    async def until_blocks(cluster: Cluster) -> None:
        cluster.start()
        chain = cluster.sightings.watch.chain
        await cluster.until(lambda: len(chain) > BLOCKS, WITHIN_S)

    return run_script(Scenario.model_validate(fields), Trace(), until_blocks)


def broken(outcome: Outcome) -> list[str]:
    return [f"{i.name}: {i.detail}" for i in outcome.invariants if not i.ok]


@pytest.mark.long
@pytest.mark.parametrize("kind", BEHAVIOURS)
def test_one_liar_of_four_is_survived_and_shows(kind: AdversaryKind) -> None:
    outcome = run([kind], 4)
    assert broken(outcome) == []
    assert outcome.facts["blocks"] >= BLOCKS
    assert kind not in SHOWS or SHOWS[kind] in {m.name for m in outcome.sometimes if m.hits}


@pytest.mark.long
@pytest.mark.parametrize("kind", BEHAVIOURS)
def test_it_is_survived_beside_an_equivocator_among_seven(kind: AdversaryKind) -> None:
    outcome = run([kind, "equivocator"], 7)
    assert broken(outcome) == []
    assert outcome.facts["blocks"] >= BLOCKS


@pytest.mark.long
def test_of_honest_nodes_alone_nothing_of_that_is_told() -> None:
    """Else what the liars show would show nothing."""
    outcome = run([], 4)
    assert broken(outcome) == []
    told = {m.name for m in outcome.sometimes if m.hits}
    assert not told & set(SHOWS.values())


@pytest.mark.long
def test_two_withholders_of_four_stop_progress() -> None:
    """Else the tests above would show nothing about them."""
    assert run(["withholder"] * 2, 4).facts["blocks"] < BLOCKS


@pytest.mark.long
def test_two_stallers_of_four_delay_everybody() -> None:
    assert run(["staller"] * 2, 4).virtual_s > 2 * run([], 4).virtual_s
