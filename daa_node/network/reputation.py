"""What one peer is held for: its faults, the score that follows, and for how long it is banned.

    known --faults--> score sinks --below BAN_SCORE--> banned --ban ends--> known, on probation

A score recovers by half every SCORE_HALF_LIFE_S. Each further ban doubles the last one's time, up
to BAN_S_MAX. Times are of a monotonic clock in seconds.
"""

from collections import Counter

REASONS_MAX = 16  # different fault words remembered of one peer
SCORE_HALF_LIFE_S = 600.0
BAN_SCORE = -100.0
BAN_S_FIRST = 60.0
BAN_S_MAX = 3600.0
FAULT_COST = 10.0  # ten faults in ten minutes are no accident
# A slow machine or link, or one just restarted, is no danger: only a flood of these is.
# Whoever asks for one answer after another, reads a tenth of a megabit and is given up for others
# every five seconds is not banned for it.
MILD_COSTS = {"late_offer": 1.0, "unread": 0.25}
# Faults that no honest program commits: three are enough.
GRAVE_COST = 40.0
GRAVE_REASONS = frozenset({"record-signature", "peer-id", "bad-signature", "oversize"})


class Reputation:
    """Of one peer; 0 for a stranger."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.ban_s = 0.0  # length of the last ban
        self._score = 0.0
        self._scored_at_s = 0.0
        self._banned_until_s = 0.0

    def score(self, now_s: float) -> float:
        """Less for faults, halved every SCORE_HALF_LIFE_S."""
        halvings = (now_s - self._scored_at_s) / SCORE_HALF_LIFE_S
        return float(self._score * 0.5**halvings)

    def count(self, reason: str, now_s: float) -> None:
        """A fault."""
        known = reason in self.faults or len(self.faults) < REASONS_MAX
        self.faults[reason if known else "other"] += 1
        self._score, self._scored_at_s = self.score(now_s) - _cost(reason), now_s

    def ban_if_due(self, now_s: float) -> bool:
        """Whether it is banned from now on, and was not before."""
        if self.score(now_s) > BAN_SCORE or self._banned_until_s > now_s:
            return False
        self.ban_s = min(max(BAN_S_FIRST, 2 * self.ban_s), BAN_S_MAX)
        self._banned_until_s = now_s + self.ban_s
        # half way back: what follows the ban counts sooner than a first offence
        self._score, self._scored_at_s = BAN_SCORE / 2, now_s
        return True

    def banned_for_s(self, now_s: float) -> float:
        """Seconds that are left of a ban; 0 when there is none."""
        return max(0.0, self._banned_until_s - now_s)

    def inherit(self, old: "Reputation", now_s: float) -> None:
        """The node had another transport key until now."""
        self._score, self._scored_at_s = min(old.score(now_s), self.score(now_s)), now_s
        self.ban_s = max(old.ban_s, self.ban_s)
        self._banned_until_s = max(old._banned_until_s, self._banned_until_s)


def _cost(reason: str) -> float:
    if reason in MILD_COSTS:
        return MILD_COSTS[reason]
    if reason in GRAVE_REASONS:
        return GRAVE_COST
    return FAULT_COST
