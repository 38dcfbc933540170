"""Measure: everything that a decision may rest on, as one frozen Snapshot.

Speeds are exponentially weighted means: on real mobile traces they forecast as well as learned
models did, and a single slow round does not swing them.
"""

from dataclasses import dataclass, field

EWMA_WEIGHT = 0.3  # of the newest value: three rounds make up two thirds of the mean


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a node knows of itself and its round at one moment. Times in seconds, sizes in bytes."""

    round: int
    is_contributor: bool
    is_written_to: bool  # by members: else we look on, and follow what they have certified
    draining: bool
    quarantine: str | None  # why our votes are not to be trusted yet
    job_ended: str | None
    rounds_behind: int  # certified rounds that peers hold and we do not
    reachable_weight: int  # of validators, ourselves included
    heard_weight: int  # of those, who have said how far they are
    quorum_weight: int
    total_weight: int
    trainer_ready: bool
    state_held: bool  # the base state of the round is here
    steps_max: int  # the plan's ceilings for us
    codec: str
    window_s: float
    train_s: float  # when all stop training, by the plan
    round_age_s: float  # for how long others have been in the round; 0.0 if it only begins
    update_bytes_by_codec: dict[str, int]
    us_per_step: float | None  # None: never measured
    upload_bytes_per_s: float | None
    receivers: int  # how many peers fetch our update


@dataclass(slots=True)
class Ewma:
    """An exponentially weighted mean of what was measured; None before the first value."""

    value: float | None = None

    def add(self, sample: float) -> None:
        before = sample if self.value is None else self.value
        self.value = before + EWMA_WEIGHT * (sample - before)


@dataclass(slots=True)
class Meters:
    """A node's running measurements, fed by what happened in each round."""

    us_per_step: Ewma = field(default_factory=Ewma)
    upload_bytes_per_s: Ewma = field(default_factory=Ewma)
