"""What whole rounds come to, and an audit of the roll that does not ask the roll's own rules.

Everything is counted in a space that does not grow with the rounds: counters of waits by their
length, and entries of whoever is on the roll now.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from daa_consensus.roll import IDLE_ROUNDS, Roll
from daa_dag.ids import NodeId
from daa_node.rounds.plan import Plan
from simnet.checks.outcome import Invariant, nothing
from simnet.nodes.heap.round_chain import Decided
from simnet.world.links import NS

IDLES = "who idles has missed rounds"
WAITS, QUOTAS, BOUNDED = "who is ready is drawn in time", "quotas hold", "liars are held off"
PROGRESS, AGREED, MEMORY = "rounds go on", "one set a round", "what is kept is bounded"
# Who waits for two turns comes before every lot. Those who are due at one time are one turn's.
TURNS_MAX = 3


@dataclass(slots=True)
class Newcomer:
    """Who has come after the start: when it first asked, and in which round that was."""

    asked_ns: int
    round: int


@dataclass(slots=True)
class Books:
    """Of one run."""

    per_voucher: int
    members: frozenset[NodeId]
    room: int
    rounds: int = 0
    aborted: int = 0
    forks: int = 0
    longest_round_ns: int = 0
    turn_max: int = 1
    waited_max: int = 0
    drawn: int = 0
    drawn_up: int = 0  # of these, whose machine was up when the round began
    in_set: int = 0
    counted: int = 0  # of trainers in sets
    uploads: Counter[int] = field(default_factory=Counter)  # per cent of the size that was sent
    first_rounds: Counter[int] = field(default_factory=Counter)  # from asking to the first set
    first_s: Counter[int] = field(default_factory=Counter)
    idled: int = 0  # by rule
    enrolled: int = 0
    retired: int = 0
    bad_most: int = 0  # of one set that counted
    kept_most: int = 0
    newcomers: dict[NodeId, Newcomer] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)  # invariant -> where it broke first
    _waited: dict[NodeId, int] = field(default_factory=dict)
    _missed: dict[NodeId, int] = field(default_factory=dict)  # of those on the roll
    _drawn: frozenset[NodeId] = frozenset()
    _ready: frozenset[NodeId] = frozenset()
    _began_ns: int = 0

    def begins(self, roll: Roll, plan: Plan, up: Collection[NodeId], now_ns: int) -> None:
        """A round is drawn."""
        ready = {entry.name for entry in roll.entries if entry.is_ready(plan.round)}
        drawn = plan.trainers
        self.turn_max = max(self.turn_max, -(-len(ready) // max(1, self.room)))
        self._judge_idle(roll, ready, plan.round)
        waited: dict[NodeId, int] = {}
        for entry in roll.entries:
            name = entry.name
            if name not in up:
                continue  # who is away waits for nothing
            before = self._waited.get(name, 0)
            waited[name] = 0 if name in drawn else before + (name in ready)
        self._waited, self._ready, self._drawn = waited, frozenset(ready), drawn
        longest = max(waited.values(), default=0)
        self.waited_max = max(self.waited_max, longest)
        if longest > self.waited_bound:
            self._broke(WAITS, f"{longest} rounds until round {plan.round}")
        self.drawn += len(drawn)
        self.drawn_up += len(drawn.intersection(up))
        self._judge_quotas(roll, plan.round)
        self._began_ns = now_ns

    @property
    def waited_bound(self) -> int:
        """Rounds that a ready trainer waits at most."""
        return TURNS_MAX * self.turn_max + 1

    def certified(
        self, decided: Decided, vouchers: Mapping[NodeId, NodeId | None], now_ns: int
    ) -> None:
        """A round is over. `vouchers` are those of everybody on its roll."""
        self.longest_round_ns = max(self.longest_round_ns, now_ns - self._began_ns)
        authors = {offer.author for offer in decided.offers}
        if not authors:
            self.aborted += 1
            return  # nobody has missed it
        for name in self._drawn:
            self._missed[name] = 0 if name in authors else self._missed.get(name, 0) + 1
        self.rounds += 1
        trainers = authors - self.members
        self.in_set += len(trainers)
        self.counted += len(trainers - decided.idle)
        self._judge_bound(decided, authors, vouchers)
        for name in trainers & self.newcomers.keys():
            newcomer = self.newcomers.pop(name)
            self.first_rounds[decided.round - newcomer.round] += 1
            self.first_s[(now_ns - newcomer.asked_ns) // NS] += 1

    def uploaded(self, sent_bytes: int, size_bytes: int) -> None:
        """So much of its contribution an author has sent."""
        self.uploads[100 * sent_bytes // size_bytes] += 1

    def keeps(self, entries: int, limit: int) -> None:
        """So much is kept at present, by everybody."""
        self.kept_most = max(self.kept_most, entries)
        if entries > limit:
            self._broke(MEMORY, f"{entries} entries, {limit} at most")

    def forked(self, round_number: int) -> None:
        self.forks += 1
        self._broke(AGREED, f"two in round {round_number}")

    def verdicts(self, open_ns: int, limit_ns: int) -> tuple[Invariant, ...]:
        """`open_ns`: when the run ended. No round may take longer than `limit_ns`."""
        longest_ns = max(self.longest_round_ns, open_ns - self._began_ns)
        if longest_ns > limit_ns or not self.rounds:
            self._broke(PROGRESS, f"{self.rounds} rounds, one of {longest_ns / NS:.1f} s")
        names = (PROGRESS, AGREED, WAITS, IDLES, QUOTAS, BOUNDED, MEMORY)
        return tuple(
            nothing(name, [self.wrong[name]] if name in self.wrong else []) for name in names
        )

    def _judge_idle(self, roll: Roll, ready: Collection[NodeId], round_number: int) -> None:
        """Whoever was ready, does not go, and is ready no more, was drawn and did not come."""
        here = {entry.name for entry in roll.entries}
        self._missed = {name: count for name, count in self._missed.items() if name in here}
        stays = {entry.name for entry in roll.entries if entry.until is None}
        for name in (self._ready & stays) - {*ready}:
            self.idled += 1
            missed = self._missed.get(name, 0)
            if missed < IDLE_ROUNDS:
                told = f"{name.hex()[:8]} after {missed} of {IDLE_ROUNDS}"
                self._broke(IDLES, f"{told} in round {round_number}")

    def _judge_quotas(self, roll: Roll, round_number: int) -> None:
        for voucher, places in Counter(entry.voucher for entry in roll.entries).items():
            if places > self.per_voucher or (voucher is not None and voucher not in self.members):
                told = "nobody" if voucher is None else voucher.hex()[:8]
                self._broke(QUOTAS, f"{told} vouches for {places} in round {round_number}")

    def _judge_bound(
        self,
        decided: Decided,
        authors: Collection[NodeId],
        vouchers: Mapping[NodeId, NodeId | None],
    ) -> None:
        """Of what counts, f members may be bad, and all trainers of the f largest vouchers."""
        lying = (len(self.members) - 1) // 3
        counting = {name for name in authors if name not in decided.idle}
        by_voucher = Counter(vouchers[name] for name in counting if name not in self.members)
        bad = lying + sum(count for _, count in by_voucher.most_common(lying))
        self.bad_most = max(self.bad_most, bad)
        if bad > decided.f_agg or 2 * decided.f_agg >= len(counting):
            said = f"{bad} of {len(counting)} may be bad, f_agg is {decided.f_agg}"
            self._broke(BOUNDED, f"round {decided.round}: {said}")

    def _broke(self, name: str, where: str) -> None:
        self.wrong.setdefault(name, where)


def middle(counts: Counter[int], percent: int) -> int | None:
    """The smallest value that `percent` of what was counted do not exceed; None of nothing."""
    place = (counts.total() * percent + 99) // 100
    for value in sorted(counts):
        place -= counts[value]
        if place <= 0 and counts.total():
            return value
    return None
