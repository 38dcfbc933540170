"""How much of a committee may go and come at one boundary; why is told in `membership`."""

from collections.abc import Mapping

from daa_consensus.committee import FAULT_TOLERANT_MIN, Committee, Validator, count_next_max
from daa_dag.ids import NodeId


def may_shrink(committee: Committee, after: Mapping[NodeId, int]) -> bool:
    """Whether those who are left are enough to go on, all that may be faulty being the expelled."""
    if not after or len(after) >= FAULT_TOLERANT_MIN:
        return bool(after)
    faulty_max = committee.total - committee.quorum
    gone = committee.total - sum(after.values())
    tolerant = len(committee.validators) >= FAULT_TOLERANT_MIN
    return not tolerant or faulty_max - gone < min(after.values())


def may_follow(old: Committee, new: Committee, changes: int) -> bool:
    """Whether `new` may be the committee after `old`, `changes` requests apart."""
    gone, came = moved(old, new)
    if len(old.validators) < FAULT_TOLERANT_MIN:
        return changes <= 1 and came <= old.total
    in_number = len(new.validators) <= count_next_max(len(old.validators))
    return 3 * gone < old.total and 3 * came < old.total and in_number


def moves_max(committee: Committee) -> int:
    """The weight that may come at one boundary; of four validators or more, also that may go."""
    if len(committee.validators) < FAULT_TOLERANT_MIN:
        return committee.total
    return (committee.total - 1) // 3


def moved(old: Committee, new: Committee) -> tuple[int, int]:
    """The weight that goes and the weight that comes; a new key's is both."""
    names = old.stake_of.keys() | new.stake_of.keys()
    steps = [new.stake_of.get(name, 0) - old.stake_of.get(name, 0) for name in names]
    return -sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)


def committee_from(stakes: Mapping[NodeId, int]) -> Committee:
    return Committee(tuple(Validator(name, stakes[name]) for name in sorted(stakes)))
