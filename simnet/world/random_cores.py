"""Trouble that never ends: a random quorum heals among itself, and all else stays broken for good.

As in the liveness mode of TigerBeetle's simulator: whoever is not in the core stays dead, stopped,
cut off or half cut off, slow, lossy, without room or with a wrong clock, and the core must converge
without it. Its members are honest and forget nothing; in every committee that the
scenario's changes can lead to they weigh a quorum, and are enough for a merge. Liars outside of it
may go on lying, whole.
"""

from random import Random

from simnet.world.determinism import Streams
from simnet.world.random_changes import shortfall, too_few_to_merge
from simnet.world.random_faults import FRAGILE
from simnet.world.scenario import FaultConfig, Scenario

CORES_SHARE = 0.35  # of runs
LIAR_SPARED_SHARE = 0.5  # of liars outside of the core: it lives, and lies
TOGETHER_SHARE = 0.25  # of cores: the others still have each other
WRONG_CLOCK_MS = (-300_000.0, 300_000.0)  # beyond what hello forgives
SLOW_FACTOR = 20.0  # as random_daemons has it
FATES = (
    *("dead", "dead", "stopped", "alone", "mute", "deaf", "held"),
    *("lossy", "slow", "full", "late"),
)


def with_core(scenario: Scenario) -> Scenario:
    """The same scenario, in some seeds with a core and faults of all others that never heal."""
    chance = Streams(scenario.seed).random("core")
    if chance.random() >= CORES_SHARE:
        return scenario
    core = _drawn(chance, scenario)
    rest = [node for node in range(scenario.node_count) if node not in core]
    liars = {node for adversary in scenario.adversaries for node in adversary.nodes}
    until_s = max(edge.heals_s for edge in scenario.faults)
    faults = list(scenario.faults)
    if rest and chance.random() < TOGETHER_SHARE:
        at_s = round(chance.uniform(0, until_s), 3)
        faults.append(FaultConfig(kind="partition", at_s=at_s, nodes=tuple(rest)))
    else:
        for node in rest:
            if node not in liars or chance.random() >= LIAR_SPARED_SHARE:
                faults.append(_fate(chance, node, scenario.node_count, until_s))
    checks = scenario.checks.model_copy(update={"core": tuple(core)})
    ordered = tuple(sorted(faults, key=lambda fault: fault.at_s))
    return scenario.model_copy(update={"faults": ordered, "checks": checks})


def _drawn(chance: Random, scenario: Scenario) -> list[int]:
    """The first of the sound nodes, in random order, that can go on alone in every committee."""
    faulty = {node for adversary in scenario.adversaries for node in adversary.nodes}
    for fault in scenario.faults:
        faulty |= set(fault.nodes) if fault.kind == "disk" and fault.disk in FRAGILE else set()
    sound = [node for node in range(scenario.node_count) if node not in faulty]
    core: list[int] = []
    for node in chance.sample(sound, len(sound)):
        core.append(node)
        if shortfall(scenario, core) is None and too_few_to_merge(scenario, core) is None:
            break
    return sorted(core)


def _fate(chance: Random, node: int, count: int, until_s: float) -> FaultConfig:
    """What befalls it for good."""
    others = tuple(other for other in range(count) if other != node)
    fate = chance.choice(FATES)
    fields: dict[str, dict[str, object]] = {
        "dead": {"kind": "kill"},
        "stopped": {"kind": "pause"},
        "alone": {"kind": "partition", "shape": "isolate"},
        "mute": {"kind": "partition", "shape": "one_way"},
        "deaf": {"kind": "partition", "shape": "one_way", "nodes": others},
        "lossy": {"kind": "loss", "percent": chance.choice([50.0, 90.0])},
        "slow": {"kind": "slow", "factor": SLOW_FACTOR},
        "held": {"kind": "hold"},
        "full": {"kind": "disk", "disk": "full"},
        "late": {"kind": "clock", "skew_ms": chance.choice(WRONG_CLOCK_MS)},
    }
    at_s = round(chance.uniform(0, until_s), 3)
    return FaultConfig.model_validate({"at_s": at_s, "nodes": (node,), **fields[fate]})
