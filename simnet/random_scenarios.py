"""A cluster in trouble for each seed: some nodes, some liars, and faults that all heal.

What is drawn stays within what consensus promises to survive: liars, each of a kind of its own, and
nodes whose disk may make them forget, weigh at most f together, in every committee that there may
come to be. Everything else may befall anybody, liars as well, and everybody at once.
"""

from random import Random

from daa_consensus.committee import FAULT_TOLERANT_MIN
from simnet.determinism import Streams
from simnet.random_changes import random_changes
from simnet.random_faults import (
    FAULTS_MAX,
    FRAGILE,
    LIARS,
    at_leaders,
    parting,
    random_fault,
    rhythm,
    weak_nodes,
)
from simnet.scenario import (
    AdversaryConfig,
    ChecksConfig,
    FaultConfig,
    NodesConfig,
    Preset,
    Scenario,
    TopologyConfig,
    WorkConfig,
)

TROUBLE_S = 5.0  # 20 delta, in which faults begin and end
EPOCH_ROUNDS = (1, 1, 2, 4)  # short, for what lies between epochs
CHANGES_SHARE = 0.4  # of runs in which members come and go
CHANGES_UNTIL_S = 1.0  # first asked for: so that they take effect amid the faults
CHANGING_EPOCH_ROUNDS = (1, 1, 2)  # and boundaries come amid them, too
BLOCKS_AFTER_HEAL = 6  # three rounds, each of a set and its closing
BLOCKS_WITH_PUPPET = 16  # it leads some of the sets in them
NODES_MIN, NODES_MAX = FAULT_TOLERANT_MIN, 7
PRESETS: tuple[Preset, ...] = ("local", "local", "local", "regional", "wan")
WAN_DELTA_MS = 500  # which some of its links take longer than
UNEQUAL_SHARE = 0.25  # of runs whose nodes have stakes of their own
STAKES = (1, 1, 2, 3)
LIARS_SHARE = 0.5  # of runs that may have liars
PUPPETS_SHARE = 0.5  # of runs in which somebody says anything that its key can sign
RHYTHM_SHARE = 0.3  # of runs: one kind of fault that keeps coming back
LEADERS_SHARE = 0.25  # of runs: one kind of fault in rhythm, at whoever leads just then
KINDS = (
    ("partition", 7),
    ("kill", 5),
    ("disk", 7),
    ("hold", 2),
    ("loss", 2),
    ("pause", 2),
    ("clock", 2),
    ("slow", 1),
)
HEAL_DELTAS = 240  # for the blocks after the last fault: a minute, two on wide-area links


def random_scenario(seed: int, puppets: float = PUPPETS_SHARE) -> Scenario:
    """Of heap consensus, with four to seven validators at first; `puppets`: their share."""
    chance = Streams(seed).random("scenario")
    count = chance.randint(NODES_MIN, NODES_MAX)
    changing = Streams(seed).random("changes")
    changes = changing.random() < CHANGES_SHARE
    unequal = not changes and chance.random() < UNEQUAL_SHARE
    stakes = [chance.choice(STAKES) if unequal else 1 for _ in range(count)]
    weak = weak_nodes(chance, stakes)
    liars = chance.randint(1, len(weak)) if weak and chance.random() < LIARS_SHARE else 0
    puppet = bool(weak) and Streams(seed).random("puppet").random() < puppets
    if puppet:
        # It may leave whenever it likes: three that stay tolerate nobody.
        liars = 1 if count == FAULT_TOLERANT_MIN else max(1, liars)
    fragile = [] if puppet else weak[liars:]
    preset = chance.choice(PRESETS)
    work = WorkConfig(epoch_rounds=chance.choice(EPOCH_ROUNDS))
    if preset == "wan":
        work = work.model_copy(update={"delta_ms": WAN_DELTA_MS})
    scenario = Scenario(
        name="random",
        seed=seed,
        nodes=tuple(
            NodesConfig(name=f"node-{node}", count=1, stake=stake)
            for node, stake in enumerate(stakes)
        ),
        topology=TopologyConfig(preset=preset),
        work=work,
        faults=_faults(chance, count, fragile),
        adversaries=tuple(
            AdversaryConfig(kind=chance.choice(LIARS), nodes=(node,))
            if place or not puppet
            else AdversaryConfig(kind="puppet", nodes=(node,))
            for place, node in enumerate(weak[:liars])
        ),
        checks=ChecksConfig(
            heal_s=HEAL_DELTAS * work.delta_ms / 1e3,
            finalizations_after_heal=BLOCKS_WITH_PUPPET if puppet else BLOCKS_AFTER_HEAL,
        ),
    )
    if changes:
        faulty, until_s = (weak[:liars], TROUBLE_S / 2) if puppet else (weak, CHANGES_UNTIL_S)
        scenario = _changing(scenario, changing, sorted(faulty), until_s)
    leaders = Streams(seed).random("leaders")
    aimed = at_leaders(leaders, TROUBLE_S) if leaders.random() < LEADERS_SHARE else []
    return scenario.model_copy(update={"faults": (*scenario.faults, *aimed)})


def _changing(scenario: Scenario, chance: Random, faulty: list[int], until_s: float) -> Scenario:
    """The same trouble while members come and go, for those who stand by as well."""
    count = scenario.node_count
    outside, changes = random_changes(chance, count, faulty, until_s)
    standing_by = NodesConfig(name="outside", count=outside, role="observer")
    faults = []
    for fault in scenario.faults:
        befalls = fault.kind != "disk" or fault.disk not in FRAGILE
        more = [n for n in range(count, count + outside) if befalls and chance.random() < 0.5]
        faults.append(fault.model_copy(update={"nodes": (*fault.nodes, *more)}))
    changed = {
        "nodes": (*scenario.nodes, standing_by),
        "changes": changes,
        "faults": tuple(faults),
        "work": scenario.work.model_copy(
            update={"epoch_rounds": chance.choice(CHANGING_EPOCH_ROUNDS)}
        ),
    }
    return scenario.model_copy(update=changed)


def _faults(chance: Random, count: int, fragile: list[int]) -> tuple[FaultConfig, ...]:
    kinds, weights = zip(*KINDS, strict=True)
    if chance.random() < RHYTHM_SHARE:
        found = rhythm(chance, count, fragile, TROUBLE_S)
    else:
        drawn = chance.choices(kinds, weights, k=chance.randint(1, FAULTS_MAX))
        found = [random_fault(chance, kind, count, fragile, TROUBLE_S) for kind in drawn]
    found = [parting(fault, count) for fault in found]
    return tuple(sorted(found, key=lambda fault: fault.at_s))
