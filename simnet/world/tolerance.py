"""Whether a scenario stays within what the network promises to survive.

Who lies, and whose disk makes it forget what it signed, weigh f at most together, in every
committee that the scenario's changes can lead to. Beyond that anything may break, and rightly. A
core that must make progress by itself is a quorum without any of them. Where rounds must be
certified, those who are sound are also enough, by number, for a merge.
"""

from daa_consensus.committee import FAULT_TOLERANT_MIN
from simnet.world.determinism import Streams
from simnet.world.faults import placed
from simnet.world.random_changes import committees, shortfall, too_few_to_merge
from simnet.world.scenario import Scenario

FORGETFUL = ("lost_fsync", "bit_rot", "wiped", "rolled_back")
BEYOND = (
    "{place}: nodes {nodes} lie or may forget what they signed, with {weight} of a stake of "
    "{total}; {most} at most is survived. Let it befall fewer, or say `checks: {{beyond_f: "
    "true}}` if you mean it"
)
SHORT = (
    "checks.core: its honest nodes {nodes} weigh {weight} of a stake of {total}, and {quorum} is a "
    "quorum: nothing can be final by them alone. Name more"
)

FEW = (
    "checks.vertices_after_heal: {count} of {members} members are sure to contribute, of "
    "nodes {nodes}, and a merge takes {needed}: every round may be aborted. Let fewer be faulty"
)


def beyond_f(scenario: Scenario) -> str | None:
    """What is wrong with it, at its place; None if nothing is, or if it is meant."""
    if scenario.checks.beyond_f or scenario.work.kind != "training":
        return None
    faulty = _faulty(scenario)
    for stakes in committees(scenario):
        total = sum(stake for _, stake in stakes)
        most = (total - 1) // 3 if len(stakes) >= FAULT_TOLERANT_MIN else 0
        nodes = sorted(node for node, _ in stakes if node in faulty)
        weight = sum(stake for node, stake in stakes if node in faulty)
        if weight > most:
            return BEYOND.format(
                place=faulty[nodes[-1]], nodes=nodes, weight=weight, total=total, most=most
            )
    wanted = scenario.checks.core or range(scenario.node_count)
    sound = [node for node in wanted if node not in faulty]
    short = shortfall(scenario, sound) if scenario.checks.core else None
    if short is not None:
        return SHORT.format(nodes=sound, weight=short[0], total=short[1], quorum=short[2])
    few = too_few_to_merge(scenario, sound) if scenario.checks.vertices_after_heal else None
    if few is not None:
        return FEW.format(nodes=sound, count=few[0], members=few[1], needed=few[2])
    return None


def _faulty(scenario: Scenario) -> dict[int, str]:
    """Who lies or may forget, and the place in the scenario that says so."""
    faulty = {node: "adversaries" for node in scenario.liars()}
    for place, fault in placed(scenario, Streams(scenario.seed)):
        if fault.kind == "disk" and fault.disk in FORGETFUL:
            for node in fault.nodes:
                faulty.setdefault(node, f"faults.{place}")
    return faulty
