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
# Validators and trainers together: whoever contributes is listed in sets and Acks.
CONTRIBUTORS_MAX = VALIDATORS_MAX
FIRST_VERSION = 1  # of the protocol: every network begins with it
VERSION_MAX = 2**16 - 1  # a release a day for a century is fewer
STAKE_MAX = 2**40  # of one validator: sums of all stay far from 64 bits
ORDERS_MAX = 4  # cycles whose order is remembered: a window of views spans at most a few
# Views that somebody with an n-th of the stake leads in a cycle. Whoever has too little for one
# leads one all the same, so that all of them together lead at most a 16th more than is theirs.
TURNS_EACH = 16
DRAW_BYTES = 8


def count_next_max(count: int) -> int:
    """How many validators, or contributors, there may be at most in the epoch after one of `count`.

    Messages are bounded by the number, and those of the next epoch reach who is still in this one.
    """
    return count + count // 3 + 1


def lying_trainers_max(trainers: int) -> int:
    """How many of so many trainers are taken to lie at most: a third of them, rounded up.

    It is said of those whom nobody vouches for, and they weigh nothing in votes. So beside f
    members that lie, a merge has to hold off so many more. Of others see `roll`.
    """
    return -(-trainers // 3)


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
    """The validators of one epoch, sorted by node id, and the protocol version that they use.

    The root covers a version above 1, and all that is signed in the epoch is bound to the root.
    """

    validators: tuple[Validator, ...]
    version: int = FIRST_VERSION
    _orders: dict[tuple[Domain, int], list[NodeId]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        ids = [v.node_id for v in self.validators]
        assert ids, "a committee has at least one validator"
        assert ids == sorted(set(ids)), "validators are distinct and sorted by node id"
        assert all(v.stake > 0 for v in self.validators)
        assert FIRST_VERSION <= self.version <= VERSION_MAX

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
        value: list[canonical.Value] = [v.as_value() for v in self.validators]
        if self.version > FIRST_VERSION:
            value.insert(0, self.version)
        return ValidatorSetRoot(tagged_digest("validator-set", value))

    def weight(self, node_ids: AbstractSet[NodeId]) -> int:
        """The stake of the distinct validators among `node_ids`; strangers weigh nothing."""
        stake_of = self.stake_of
        return sum([stake_of.get(node_id, 0) for node_id in node_ids])

    @cached_property
    def turns(self) -> dict[NodeId, int]:
        """How many views of a cycle each validator leads: by stake, and one at least.

        Whole shares first; what is left goes to the largest remainders (Hamilton's method), but to
        nobody who has been given a whole turn for less.
        """
        views = TURNS_EACH * len(self.validators)
        shares = {v.node_id: divmod(views * v.stake, self.total) for v in self.validators}
        turns = {node_id: max(1, whole) for node_id, (whole, _) in shares.items()}
        left = max(0, views - sum(turns.values()))
        rest = [(-remainder, node_id) for node_id, (whole, remainder) in shares.items() if whole]
        for _, node_id in sorted(rest)[:left]:
            turns[node_id] += 1
        return turns

    def leader(self, domain: Domain, view: int) -> NodeId:
        """The leader of `view`: over a cycle of views everybody leads in proportion to stake.

        A cycle has at most 17 n views. Whoever has t turns of a cycle of l views leads again
        within 2 l / t + 4 n views, and of n equals each leads once in every n.
        """
        cycle, turn = divmod(view, self._cycle_views)
        if (domain, cycle) not in self._orders:
            if len(self._orders) >= ORDERS_MAX:
                self._orders.clear()
            self._orders[domain, cycle] = self._order(domain, cycle)
        return self._orders[domain, cycle][turn]

    @cached_property
    def _cycle_views(self) -> int:
        return sum(self.turns.values())

    def _order(self, domain: Domain, cycle: int) -> list[NodeId]:
        # With t turns, the j-th comes at a moment drawn from the j-th of t equal spans of the
        # cycle: evenly spread, so that nobody leads for long, and in an order that varies.
        seed = blake3(
            b"daa/v1/leader" + canonical.encode([domain.chain_id, domain.epoch, cycle])
        ).digest()
        moments: list[tuple[int, NodeId]] = []
        for node_id, turns in self.turns.items():
            drawn = blake3(seed + node_id).digest(length=turns * DRAW_BYTES)
            for turn in range(turns):
                within = int.from_bytes(drawn[turn * DRAW_BYTES : (turn + 1) * DRAW_BYTES])
                at = (turn << 8 * DRAW_BYTES) + within
                # Moments of different turns are compared as 128-bit fractions of the cycle.
                moments.append(((at << 64) // turns, node_id))
        return [node_id for _, node_id in sorted(moments)]
