"""A cluster in trouble for each seed: some nodes, some liars, and faults that all heal.

What is drawn stays within what consensus promises to survive: liars, and nodes whose disk may make
them forget, weigh at most f together, in every committee that there may come to be. Everything else
may befall anybody, everybody at once, too.
"""

from random import Random

from daa_consensus.committee import FAULT_TOLERANT_MIN
from simnet.determinism import Streams
from simnet.random_changes import random_changes
from simnet.scenario import (
    AdversaryConfig,
    AdversaryKind,
    ChecksConfig,
    FaultConfig,
    NodesConfig,
    Scenario,
    TopologyConfig,
    WorkConfig,
)

TROUBLE_S = 5.0  # 20 delta, in which faults begin and end
FAULTS_MAX = 8  # more only hide each other
EPOCH_ROUNDS_MAX = 4
CHANGES_SHARE = 0.4  # of runs in which members come and go
CHANGES_UNTIL_S = 1.0  # first asked for: so that they take effect amid the faults
CHANGING_EPOCH_ROUNDS = (1, 1, 2)  # and boundaries come amid them, too
BLOCKS_AFTER_HEAL = 6  # three rounds, each of a set and its closing
NODES_MIN, NODES_MAX = FAULT_TOLERANT_MIN, 7
LIARS_SHARE = 0.3  # of runs that may have liars
LIARS: tuple[AdversaryKind, ...] = (
    *("equivocator",) * 4,  # which tries the voting rules hardest
    *("twin", "conflicter", "withholder", "false_executor", "staller", "sybil", "babbler"),
)
SHORT_S = (0.05, 0.5)  # of every second fault: restarts amid votes rather than long outages
KINDS = (
    ("partition", 5),
    ("kill", 5),
    ("disk", 5),
    ("hold", 2),
    ("loss", 2),
    ("pause", 2),
    ("slow", 1),
    ("clock", 1),
)
FRAGILE = ("lost_fsync", "bit_rot", "wiped")  # what only nodes may suffer that f allows for
ALL_KILLED_SHARE = 0.3  # of kills: then only what is on the disks is known


def random_scenario(seed: int) -> Scenario:
    """Of heap consensus, with four to seven validators at first."""
    chance = Streams(seed).random("scenario")
    count = chance.randint(NODES_MIN, NODES_MAX)
    faulty = (count - 1) // 3
    liars = chance.randint(1, faulty) if chance.random() < LIARS_SHARE else 0
    named = sorted(chance.sample(range(count), faulty))
    preset = chance.choice(["local", "local", "regional"])
    kind = Streams(seed).random("liars").choice(LIARS)
    scenario = Scenario(
        name="random",
        seed=seed,
        nodes=(NodesConfig(name="node", count=count),),
        topology=TopologyConfig(preset=preset),
        work=WorkConfig(epoch_rounds=chance.randint(1, EPOCH_ROUNDS_MAX)),
        faults=_faults(chance, count, named[liars:]),
        adversaries=((AdversaryConfig(kind=kind, nodes=tuple(named[:liars])),) if liars else ()),
        checks=ChecksConfig(heal_s=60.0, finalizations_after_heal=BLOCKS_AFTER_HEAL),
    )
    changing = Streams(seed).random("changes")
    return _changing(scenario, changing, named) if changing.random() < CHANGES_SHARE else scenario


def _changing(scenario: Scenario, chance: Random, faulty: list[int]) -> Scenario:
    """The same trouble while members come and go, for those who stand by as well."""
    count = scenario.node_count
    outside, changes = random_changes(chance, count, faulty, CHANGES_UNTIL_S)
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
        "work": WorkConfig(epoch_rounds=chance.choice(CHANGING_EPOCH_ROUNDS)),
    }
    return scenario.model_copy(update=changed)


def _faults(chance: Random, count: int, fragile: list[int]) -> tuple[FaultConfig, ...]:
    kinds, weights = zip(*KINDS, strict=True)
    drawn = chance.choices(kinds, weights, k=chance.randint(1, FAULTS_MAX))
    found = [_fault(chance, kind, count, fragile) for kind in drawn]
    return tuple(sorted(found, key=lambda fault: fault.at_s))


def _fault(chance: Random, kind: str, count: int, fragile: list[int]) -> FaultConfig:
    at_s = chance.uniform(0, TROUBLE_S * 0.9)
    longest_s = TROUBLE_S - at_s
    for_s = chance.uniform(*SHORT_S) if chance.random() < 0.5 else chance.uniform(0, longest_s)
    disk = chance.choice(["torn_write", "torn_write", "full", *(2 * FRAGILE if fragile else ())])
    whom = fragile if kind == "disk" and disk in FRAGILE else range(count)
    everybody = kind == "kill" and chance.random() < ALL_KILLED_SHARE
    victims = chance.sample(list(whom), len(whom) if everybody else chance.randint(1, len(whom)))
    fields: dict[str, dict[str, object]] = {
        "partition": {
            "shape": chance.choice(["halves", "bridge", "one_way", "isolate", "flapping"]),
            "period_s": 0.5,
        },
        "loss": {"percent": chance.choice([5.0, 20.0, 50.0])},
        "slow": {"factor": chance.choice([10.0, 100.0])},
        "disk": {"disk": disk},
        "clock": {"skew_ms": float(chance.randint(-2000, 2000)), "drift_ppm": 50_000.0},
    }
    return FaultConfig.model_validate(
        {
            "kind": kind,
            "at_s": round(at_s, 3),
            "for_s": round(min(max(for_s, SHORT_S[0]), TROUBLE_S - at_s), 3),
            "nodes": tuple(sorted(victims)),
            **fields.get(kind, {}),
        }
    )
