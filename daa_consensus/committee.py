"""Who may vote in an epoch, what weighs a quorum, and who leads a view.

Stake is frozen for the epoch. With total stake W a quorum weighs `floor(2W/3) + 1`; any two quorums
then share more than a third of the stake. One to three validators tolerate no fault, whatever their
stakes: a quorum is all of them.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from blake3 import blake3

from daa_dag import canonical
from daa_dag.ids import ChainId, NodeId, ValidatorSetRoot, tagged_digest

FAULT_TOLERANT_MIN = 4  # 3f + 1 with f = 1
VALIDATORS_MAX = 128  # every limit on messages grows with n; beyond this nothing was ever measured
STAKE_MAX = 2**40  # of one validator: sums of all stay far from 64 bits
ORDERS_MAX = 4  # cycles whose shuffle is remembered: a window of views spans at most a few


@dataclass(frozen=True, slots=True, order=True)
class Validator:
    node_id: NodeId
    stake: int  # > 0

    def as_value(self) -> canonical.Value:
        return [self.node_id, self.stake]


@dataclass(frozen=True, slots=True)
class Domain:
    """What every signature of one epoch of one network is bound to."""

    chain_id: ChainId
    epoch: int
    validator_set_root: ValidatorSetRoot


@dataclass(frozen=True)
class Committee:
    """The validators of one epoch, sorted by node id."""

    validators: tuple[Validator, ...]
    _orders: dict[tuple[Domain, int], list[NodeId]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        ids = [v.node_id for v in self.validators]
        assert ids, "a committee has at least one validator"
        assert ids == sorted(set(ids)), "validators are distinct and sorted by node id"
        assert all(v.stake > 0 for v in self.validators)

    @cached_property
    def stake_of(self) -> dict[NodeId, int]:
        return {v.node_id: v.stake for v in self.validators}

    @cached_property
    def total(self) -> int:
        return sum(v.stake for v in self.validators)

    @cached_property
    def quorum(self) -> int:
        """The least weight of a quorum: floor(2W/3) + 1, or all of one to three validators."""
        if len(self.validators) < FAULT_TOLERANT_MIN:
            return self.total
        return 2 * self.total // 3 + 1

    @cached_property
    def blocking(self) -> int:
        """The least weight that surely contains an honest validator: W - quorum + 1."""
        return self.total - self.quorum + 1

    @cached_property
    def liars_max(self) -> int:
        """How many validators may lie at most while the others still are a quorum."""
        room, count = self.total - self.quorum, 0
        for stake in sorted(v.stake for v in self.validators):
            room -= stake
            if room < 0:
                break
            count += 1
        return count

    @cached_property
    def root(self) -> ValidatorSetRoot:
        return ValidatorSetRoot(
            tagged_digest("validator-set", [v.as_value() for v in self.validators])
        )

    def weight(self, node_ids: AbstractSet[NodeId]) -> int:
        """The stake of the distinct validators among `node_ids`; strangers weigh nothing."""
        stake_of = self.stake_of
        return sum([stake_of.get(node_id, 0) for node_id in node_ids])

    def leader(self, domain: Domain, view: int) -> NodeId:
        """The leader of `view`: each cycle of views is one stake-weighted shuffle of everybody."""
        cycle, turn = divmod(view, len(self.validators))
        if (domain, cycle) not in self._orders:
            if len(self._orders) >= ORDERS_MAX:
                self._orders.clear()
            self._orders[domain, cycle] = self._order(domain, cycle)
        return self._orders[domain, cycle][turn]

    def _order(self, domain: Domain, cycle: int) -> list[NodeId]:
        # Successive weighted draws without replacement: every cycle each validator leads once, and
        # the heavier ones tend to lead earlier. Integers only.
        left, order, draw = list(self.validators), [], 0
        while left:
            seed = canonical.encode([domain.chain_id, domain.epoch, cycle, draw])
            point = int.from_bytes(blake3(b"daa/v1/leader" + seed).digest()) % sum(
                v.stake for v in left
            )
            index = 0
            while point >= left[index].stake:
                point -= left[index].stake
                index += 1
            order.append(left.pop(index).node_id)
            draw += 1
        return order
