"""Changes of the validator set for a random cluster, within what consensus promises to survive.

Which of them takes effect before which, and in which epoch, no draw can know. So whatever is drawn
keeps the faulty nodes at f or below in *every* committee that any of the changes can lead to, in
any order, some of them never: by their stake, which agreement counts, and by their number, which
the merge rule counts.
"""

from collections.abc import Collection, Sequence
from random import Random

from daa_consensus.committee import FAULT_TOLERANT_MIN
from daa_node.updates.config import UpdatesConfig
from simnet.world.scenario import ChangeConfig, Scenario

DRAWS_MAX = 12  # most are refused where nobody may go
KINDS = ("join", "join", "join", "leave", "leave", "rotate", "rotate", "stake", "stake", "return")
STAKES = (1, 2, 3)

Stakes = frozenset[tuple[int, int]]  # (node, stake)


def random_changes(
    chance: Random,
    count: int,
    faulty: Collection[int],
    until_s: float,
    outside_max: int,
    changes_max: int,
) -> tuple[int, tuple[ChangeConfig, ...]]:
    """How many nodes stand by, and what `count` validators of stake 1 and they ask for.

    A leaver that comes back is two changes.
    """
    outside = chance.randint(1, outside_max)
    free = list(range(count + outside))
    wanted = chance.randint(1, changes_max)
    found: list[ChangeConfig] = []
    for _ in range(DRAWS_MAX):
        more = _drawn(chance, chance.choice(KINDS), count, free, until_s)
        if len(found) + len(more) > wanted or not keeps_promise(count, [*found, *more], faulty):
            continue
        found += more
        for change in more:  # each node has one wish, so that none makes another impossible
            free = [node for node in free if node not in change.nodes]
    return outside, tuple(sorted(found, key=lambda change: change.at_s))


def _drawn(
    chance: Random, kind: str, count: int, free: Sequence[int], until_s: float
) -> list[ChangeConfig]:
    members = [node for node in free if node < count]
    strangers = [node for node in free if node >= count]
    at_s = round(chance.uniform(0, until_s), 3)
    match kind:
        case "join" if strangers:
            node, stake = chance.choice(strangers), chance.choice(STAKES)
            return [ChangeConfig(kind="join", at_s=at_s, node=node, stake=stake)]
        case "leave" if members:
            return [ChangeConfig(kind="leave", at_s=at_s, node=chance.choice(members))]
        case "rotate" if members and strangers:
            node, heir = chance.choice(members), chance.choice(strangers)
            return [ChangeConfig(kind="rotate", at_s=at_s, node=node, successor=heir)]
        case "stake" if members:
            node, stake = chance.choice(members), chance.choice(STAKES[1:])
            return [ChangeConfig(kind="stake", at_s=at_s, node=node, stake=stake)]
        case "return" if members:
            node = chance.choice(members)
            return [
                ChangeConfig(kind="leave", at_s=at_s, node=node),
                ChangeConfig(kind="join", at_s=at_s, node=node, stake=1),
            ]
        case _:
            return []


def keeps_promise(count: int, changes: Sequence[ChangeConfig], faulty: Collection[int]) -> bool:
    """Whether the faulty are at most f in every committee that the changes can lead to."""
    for stakes in in_reach(frozenset((node, 1) for node in range(count)), changes):
        total = sum(stake for _, stake in stakes)
        most = (total - 1) // 3 if len(stakes) >= FAULT_TOLERANT_MIN else 0
        if sum(stake for node, stake in stakes if node in faulty) > most:
            return False
        if sum(node in faulty for node, _ in stakes) > UpdatesConfig().f_agg_among(len(stakes)):
            return False
    return True


def committees(scenario: Scenario) -> set[Stakes]:
    """Every one that there may come to be."""
    groups = [scenario.group_of(node) for node in range(scenario.node_count)]
    first = {node: g.stake for node, g in enumerate(groups) if g.role == "validator"}
    return in_reach(frozenset(first.items()), scenario.changes)


def shortfall(scenario: Scenario, nodes: Collection[int]) -> tuple[int, int, int] | None:
    """Weight, total stake and quorum where these are no quorum; None if they are everywhere."""
    for stakes in committees(scenario):
        total = sum(stake for _, stake in stakes)
        quorum = 2 * total // 3 + 1 if len(stakes) >= FAULT_TOLERANT_MIN else total
        weight = sum(stake for node, stake in stakes if node in nodes)
        if weight < quorum:
            return weight, total, quorum
    return None


def too_few_to_merge(scenario: Scenario, nodes: Collection[int]) -> tuple[int, int, int] | None:
    """How many members train, of how many, and how many contributions a merge takes; None: enough.

    A few that are heavy can be a quorum, and then make blocks and no checkpoints.
    """
    updates = scenario.work.updates
    for stakes in committees(scenario):
        needed = 2 * updates.f_agg_among(len(stakes)) + 1
        training = [node for node in nodes if scenario.group_of(node).trainer.contribute]
        count = sum(node in training for node, _ in stakes)
        if count < needed:
            return count, len(stakes), needed
    return None


def in_reach(first: Stakes, changes: Sequence[ChangeConfig]) -> set[Stakes]:
    """Every committee that the changes can lead to, in any order, none or all of them."""
    found, new = {first}, [first]
    while new:
        before = new.pop()
        for change in changes:
            after = _after(dict(before), change)
            if after is not None and after not in found:
                found.add(after)
                new.append(after)
    return found


def _after(stakes: dict[int, int], change: ChangeConfig) -> Stakes | None:
    """What a change makes of a committee; None if it is none of that committee's."""
    node, stake, heir = change.node, change.stake, change.successor
    if not change.is_possible(stakes) or (change.kind == "leave" and len(stakes) == 1):
        return None
    if heir is not None:
        stakes[heir] = stakes.pop(node)
    elif stake is not None:
        stakes[node] = stake
    else:
        del stakes[node]
    return frozenset(stakes.items())
