"""A cluster in trouble for each seed: some nodes, some liars, and faults that all heal.

What is drawn stays within what consensus promises to survive: liars, each of a kind of its own, and
nodes whose disk may make them forget, weigh at most f together, in every committee that there may
come to be. Everything else may befall anybody, liars as well, and everybody at once.
"""

from collections.abc import Iterator
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
    Preset,
    Scenario,
    TopologyConfig,
    WorkConfig,
)

TROUBLE_S = 5.0  # 20 delta, in which faults begin and end
FAULTS_MAX = 8  # more only hide each other
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
LIARS: tuple[AdversaryKind, ...] = (
    *("equivocator", "forger") * 4,  # which try the voting rules hardest
    *("twin", "twin", "conflicter", "withholder", "babbler", "false_executor", "staller", "sybil"),
    *("false_acker", "double_offerer"),
)
PUPPETS_SHARE = 0.5  # of runs in which somebody says anything that its key can sign
SHORT_S = (0.05, 0.5)  # of every second fault: restarts amid votes rather than long outages
RHYTHM_SHARE = 0.3  # of runs: one kind of fault that keeps coming back
RHYTHMS = ("kill", "kill", "disk", "disk", "disk", "hold", "pause", "partition", "partition")
BEATS_S = (0.25, 0.5, 1.0)  # that it lasts, and stays away, on average: a view, or a round
LEADERS_SHARE = 0.25  # of runs: one kind of fault in rhythm, at whoever leads just then
AT_LEADERS: tuple[dict[str, str], ...] = (
    *({"kind": "kill"}, {"kind": "kill"}, {"kind": "pause"}, {"kind": "hold"}, {"kind": "slow"}),
    *({"kind": "partition", "shape": shape} for shape in ("isolate", "one_way")),
)
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
FRAGILE = ("lost_fsync", "bit_rot", "wiped")  # what only nodes may suffer that f allows for
HEAL_DELTAS = 240  # for the blocks after the last fault: a minute, two on wide-area links
ALL_KILLED_SHARE = 0.6  # of kills: then only what is on the disks is known


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
    aimed = _at_leaders(Streams(seed).random("leaders"))
    return scenario.model_copy(update={"faults": (*scenario.faults, *aimed)})


def _at_leaders(chance: Random) -> list[FaultConfig]:
    """In some runs, besides all else; of a stream of its own, so that nothing else moves."""
    if chance.random() >= LEADERS_SHARE:
        return []
    what, beat_s = chance.choice(AT_LEADERS), chance.choice(BEATS_S)
    return [
        FaultConfig.model_validate({**what, "aim": "leader", "at_s": at_s, "for_s": for_s})
        for at_s, for_s in _beats(chance, beat_s)
    ]


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


def weak_nodes(chance: Random, stakes: list[int]) -> list[int]:
    """Nodes that may lie or forget: all that is not theirs is a quorum."""
    total = sum(stakes)
    room = total - (2 * total // 3 + 1)
    weak = []
    for node in chance.sample(range(len(stakes)), len(stakes)):
        if stakes[node] <= room:
            room -= stakes[node]
            weak.append(node)
    return weak


def _faults(chance: Random, count: int, fragile: list[int]) -> tuple[FaultConfig, ...]:
    kinds, weights = zip(*KINDS, strict=True)
    if chance.random() < RHYTHM_SHARE:
        found = _rhythm(chance, count, fragile)
    else:
        drawn = chance.choices(kinds, weights, k=chance.randint(1, FAULTS_MAX))
        found = [random_fault(chance, kind, count, fragile) for kind in drawn]
    found = [parting(fault, count) for fault in found]
    return tuple(sorted(found, key=lambda fault: fault.at_s))


def _rhythm(chance: Random, count: int, fragile: list[int]) -> list[FaultConfig]:
    """The same again and again, a view or a round apart, on the same nodes or on others."""
    kind, beat_s, same = chance.choice(RHYTHMS), chance.choice(BEATS_S), chance.random() < 0.5
    found: list[FaultConfig] = []
    fault = random_fault(chance, kind, count, fragile)
    for at_s, for_s in _beats(chance, beat_s):
        fault = fault if same else random_fault(chance, kind, count, fragile)
        found.append(fault.model_copy(update={"at_s": at_s, "for_s": for_s}))
    return found


def _beats(chance: Random, beat_s: float) -> Iterator[tuple[float, float]]:
    """When something begins that keeps coming back, and how long it lasts."""
    at_s = for_s = chance.uniform(0.2, 1.8) * beat_s
    for _ in range(FAULTS_MAX):
        if at_s + for_s >= TROUBLE_S:
            return
        yield round(at_s, 3), round(for_s, 3)
        at_s += for_s + chance.uniform(0.2, 1.8) * beat_s
        for_s = chance.uniform(0.2, 1.8) * beat_s


def parting(fault: FaultConfig, count: int) -> FaultConfig:
    """A partition that would part nobody has one victim fewer, or a bridge of one node another."""
    if not fault.parts_nobody(count):
        return fault
    nodes = fault.nodes
    nodes = nodes[:-1] if len(nodes) == count else (*nodes, (nodes[0] + 1) % count)
    return fault.model_copy(update={"nodes": nodes})


def random_fault(
    chance: Random, kind: str, count: int, fragile: list[int], trouble_s: float = TROUBLE_S
) -> FaultConfig:
    """One that begins and ends within `trouble_s`."""
    at_s = chance.uniform(0, trouble_s * 0.9)
    longest_s = trouble_s - at_s
    for_s = chance.uniform(*SHORT_S) if chance.random() < 0.5 else chance.uniform(0, longest_s)
    disk = chance.choice(["torn_write", "torn_write", "full", *(3 * FRAGILE if fragile else ())])
    whom = fragile if kind == "disk" and disk in FRAGILE else range(count)
    everybody = kind == "kill" and chance.random() < ALL_KILLED_SHARE
    victims = chance.sample(list(whom), len(whom) if everybody else chance.randint(1, len(whom)))
    shape = chance.choice(["halves", "bridge", "one_way", "isolate", "flapping"])
    fields: dict[str, dict[str, object]] = {
        "partition": {"shape": shape, **({"period_s": 0.5} if shape == "flapping" else {})},
        "loss": {"percent": chance.choice([5.0, 20.0, 50.0])},
        "slow": {"factor": chance.choice([10.0, 100.0])},
        "disk": {"disk": disk},
        "clock": {"skew_ms": float(chance.randint(-2000, 2000)), "drift_ppm": 50_000.0},
    }
    return FaultConfig.model_validate(
        {
            "kind": kind,
            "at_s": round(at_s, 3),
            "for_s": round(min(max(for_s, SHORT_S[0]), trouble_s - at_s), 3),
            "nodes": tuple(sorted(victims)),
            **fields.get(kind, {}),
        }
    )
