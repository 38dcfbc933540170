"""Which nodes of a scenario lie: those that it names, and the seed's choice for the rest."""

from simnet.world.determinism import Streams
from simnet.world.scenario import AdversaryConfig, Scenario


def chosen_liars(scenario: Scenario, streams: Streams) -> dict[int, AdversaryConfig]:
    """The liars by their number; the same ones at every fidelity."""
    chance = streams.random("adversaries")
    found: dict[int, AdversaryConfig] = {}
    for adversary in scenario.adversaries:
        free = [node for node in range(scenario.node_count) if node not in found]
        few = min(adversary.count, len(free))
        found |= dict.fromkeys(adversary.nodes or sorted(chance.sample(free, few)), adversary)
    return found
