"""Faults that all heal, drawn one by one, in rhythm, or at whoever leads just then.

Who may forget what it signed is drawn by the caller, `fragile`; all else may befall anybody.
"""

from collections.abc import Iterator
from random import Random

from simnet.world.scenario import AdversaryKind, FaultConfig

FAULTS_MAX = 8  # of one rhythm
FIRST_S = 0.5  # before, hardly anybody has started
LIARS: tuple[AdversaryKind, ...] = (
    *("equivocator", "forger") * 4,  # which try the voting rules hardest
    *("twin", "twin", "conflicter", "withholder", "babbler", "false_executor", "staller", "sybil"),
    *("false_acker", "double_offerer"),
)
SHORT_S = (0.05, 0.5)  # of every second fault: restarts amid votes rather than long outages
RHYTHMS = ("kill", "kill", "disk", "disk", "disk", "hold", "pause", "partition", "partition")
BEATS_S = (0.25, 0.5, 1.0)  # that it lasts, and stays away, on average: a view, or a round
AT_LEADERS: tuple[dict[str, str], ...] = (
    *({"kind": "kill"}, {"kind": "kill"}, {"kind": "pause"}, {"kind": "hold"}, {"kind": "slow"}),
    *({"kind": "partition", "shape": shape} for shape in ("isolate", "one_way")),
)
# What only nodes may suffer that f allows for.
FRAGILE = (*("lost_fsync",) * 3, *("bit_rot",) * 6, *("wiped",) * 3)
ALL_KILLED_SHARE = 0.6  # of kills: then only what is on the disks is known


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


def at_leaders(chance: Random, trouble_s: float) -> list[FaultConfig]:
    """One kind in rhythm, at whoever leads as each begins."""
    what, beat_s = chance.choice(AT_LEADERS), chance.choice(BEATS_S)
    return [
        FaultConfig.model_validate({**what, "aim": "leader", "at_s": at_s, "for_s": for_s})
        for at_s, for_s in _beats(chance, beat_s, trouble_s)
    ]


def rhythm(chance: Random, count: int, fragile: list[int], trouble_s: float) -> list[FaultConfig]:
    """The same again and again, a view or a round apart, on the same nodes or on others."""
    kind, beat_s, same = chance.choice(RHYTHMS), chance.choice(BEATS_S), chance.random() < 0.5
    found: list[FaultConfig] = []
    fault = random_fault(chance, kind, count, fragile, trouble_s)
    for at_s, for_s in _beats(chance, beat_s, trouble_s):
        fault = fault if same else random_fault(chance, kind, count, fragile, trouble_s)
        found.append(fault.model_copy(update={"at_s": at_s, "for_s": for_s}))
    return found


def _beats(chance: Random, beat_s: float, trouble_s: float) -> Iterator[tuple[float, float]]:
    """When something begins that keeps coming back, and how long it lasts."""
    at_s = for_s = chance.uniform(0.2, 1.8) * beat_s
    for _ in range(FAULTS_MAX):
        if at_s + for_s >= trouble_s:
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
    chance: Random, kind: str, count: int, fragile: list[int], trouble_s: float
) -> FaultConfig:
    """One that begins and ends within `trouble_s`."""
    disk = chance.choice(["torn_write", "torn_write", "full", *(FRAGILE if fragile else ())])
    # At first there is nothing that could rot.
    from_s = trouble_s / 2 if (kind, disk) == ("disk", "bit_rot") else FIRST_S
    at_s = chance.uniform(from_s, trouble_s * 0.9)
    longest_s = trouble_s - at_s
    for_s = chance.uniform(*SHORT_S) if chance.random() < 0.5 else chance.uniform(0, longest_s)
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
