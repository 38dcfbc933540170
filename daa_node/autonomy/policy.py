"""What a node may change about its own behaviour, inside hard bounds; only `adapt` moves it.

A policy is local: it never changes what is agreed, only how much of the plan's ceilings a node uses
and how long it waits for others.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest a setting may become."""

    low: float
    high: float

    def clip(self, value: float) -> float:
        return min(self.high, max(self.low, value))


# Under a tenth the window would be wasted; over nine tenths one slow disk makes us late.
TRAIN_SHARE = Bounds(0.1, 0.9)
TRAIN_SHARE_USUAL = 0.7  # nobody tries more: a round that is missed costs more than it could win
# How long after most updates are held we wait for a peer that is connected but silent; never
# longer than it is worth (see reason). The longest window of a round is a day.
PATIENCE_S = Bounds(0.5, 86_400.0)


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings that lessons move."""

    train_share: float = TRAIN_SHARE_USUAL  # part of the window that training may take
    rounds_in_time: int = 0  # of our own updates, in a row, since that was changed
    patience_s: float = PATIENCE_S.high  # until lessons tell: as long as it is worth
    upload_share: float = 0.8  # part of the measured bandwidth that a forecast counts on
