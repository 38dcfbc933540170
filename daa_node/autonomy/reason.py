"""Reason: Snapshot and Policy in, Decisions out, each with its reason. Pure: no clock, no I/O.

What to do is decided first (drain, wait, catch up, only serve, train), then how much of the plan's
ceilings to use, and, while a round is being collected, when to stop waiting for others.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from enum import StrEnum

from daa_dag.ids import NodeId
from daa_node.autonomy.monitor import Reach, Snapshot
from daa_node.autonomy.policy import Policy
from daa_node.training.steps_in_time import LATE_OF_TIME, steps_in

# Enough for whoever started with us and is merely a little slower, too little to hold up a round.
GRACE_S = 1.0
# Until the first set there is nobody to be later than: all begin, and all are awaited.
FOUNDING_ROUND = 1
# Enough to dial again where a connection was cut; who is gone for good costs every round no more.
UNREACHABLE_GRACE_S = 0.25
# Some views fail where leaders are away; beyond this, a person should look.
STALLED_S, STALLED_WINDOWS = 30.0, 3.0
# Whoever is connected and silent for longer holds up nobody; who missed a round or two still does.
RECENT_ROUNDS = 4
PAUSED = "paused by the operator: this node votes and merges, and trains once it is resumed"
DATA_SPENT = "today's data (network.data_gb_a_day) are spent: until midnight UTC"
NEVER_TRAINS = "this node never trains: trainer.contribute is false"


class Action(StrEnum):
    TRAIN = "train"  # contribute, and do all that SERVE does
    SERVE = "serve"  # only ack, vote and aggregate
    CATCH_UP = "catch_up"
    WAIT = "wait"
    DRAIN = "drain"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice and why; what `daa-node status` shows."""

    choice: str
    reason: str


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What to do in the coming round. `steps` and `codec` matter only when training."""

    action: Action
    steps: int
    codec: str
    stop_after_s: float
    decisions: tuple[Decision, ...]


def decide(snapshot: Snapshot, policy: Policy) -> Behaviour:
    """What to do next, and how much of it."""
    action, reason = _action(snapshot)
    if action is not Action.TRAIN:
        return _without_training(action, reason, snapshot)
    codec, codec_reason, upload_s = _codec(snapshot, policy)
    room_s = max(0.0, snapshot.window_s - upload_s)
    # Who is slower than it was when the plan was made does less, rather than come late.
    train_s = min(snapshot.train_s, snapshot.window_s * policy.train_share, room_s)
    left_s = train_s - _late_s(snapshot, train_s)
    trained_s = left_s + min(snapshot.ahead_s, train_s)  # by when all stop
    # A step that is never taken is never measured: whoever has just begun tries one.
    is_old = snapshot.round_age_s > GRACE_S
    if is_old and trained_s < (snapshot.us_per_step or 0.0) / 1e6:
        age_s = snapshot.round_age_s
        reason = f"round is {age_s:.0f} s old, no step fits before all stop at {train_s:.1f} s"
        return _without_training(Action.SERVE, reason, snapshot)
    steps, steps_reason = _steps(snapshot, trained_s)
    return Behaviour(
        action,
        steps,
        codec,
        max(0.0, left_s),
        (
            Decision(action, reason),
            Decision(f"steps {steps}", steps_reason),
            Decision(f"codec {codec}", codec_reason),
        ),
    )


def _without_training(action: Action, reason: str, s: Snapshot) -> Behaviour:
    return Behaviour(action, 0, s.codec, 0.0, (Decision(action, reason),))


def _late_s(s: Snapshot, train_s: float) -> float:
    """How much of the round is lost to us; who is a little slower than others is not late.

    Nobody waits for who was away, and ages are told by the way of a message too small: a grace
    less. A newcomer follows the others' results, and so is always a little late; as it does not
    know its speed, nothing says that all its steps fit. Of quick rounds it has half all the same:
    they are closed a grace later where somebody is missing, and one step alone, a process's first,
    would have its speed taken for a small part of what it is, for many rounds.
    """
    late_s = s.round_age_s + GRACE_S
    if s.round_age_s > GRACE_S:
        return late_s
    return min(late_s, train_s / 2) if _is_newcomer(s) else 0.0


def _is_newcomer(s: Snapshot) -> bool:
    """Also who has been here, and has just started again."""
    return s.us_per_step is None and s.round > FOUNDING_ROUND


def quorum_lacking(reach: Reach) -> str | None:
    """How many validators are reachable and how many it takes; None if there are enough."""
    if reach.weight >= reach.quorum:
        return None
    return f"{reach.weight} of {reach.total} reachable, waiting: a quorum needs {reach.quorum}"


def round_stalled(s: Snapshot, open_s: float) -> str | None:
    """That the round has stood open for far longer than its window; None if it has not."""
    limit_s = max(STALLED_S, STALLED_WINDOWS * s.window_s)
    if open_s <= limit_s:
        return None
    return (
        f"round {s.round} has been open for more than {limit_s:.0f} s: a quorum is reachable, but "
        "does not agree; `daa-node status` of the others says who is quarantined or waits"
    )


def _action(s: Snapshot) -> tuple[Action, str]:
    if s.draining:
        return Action.DRAIN, "asked to stop"
    if s.job_ended is not None:
        return Action.FINISH, s.job_ended
    if s.data_spent and s.rounds_behind > 0:
        # It could not fetch what it asks for: it votes, and asks once there are data again.
        return Action.WAIT, f"{DATA_SPENT}; {s.rounds_behind} certified rounds are to be had then"
    if s.rounds_behind > 0:
        return Action.CATCH_UP, f"peers hold {s.rounds_behind} certified rounds that we do not"
    if not s.state_held:
        return Action.CATCH_UP, "the state of the newest checkpoint is not here"
    if not s.is_written_to:
        return Action.WAIT, "looking on until members certify more"
    lacking = quorum_lacking(s.reach)
    if lacking is not None:
        return Action.WAIT, lacking
    if s.heard_weight < s.reach.quorum:
        # Else a node that was away would begin a round that is long over.
        return Action.WAIT, "a quorum is reachable, and has yet to say how far it is"
    if s.quarantine is not None:
        return Action.SERVE, f"quarantined: {s.quarantine}"
    if not s.trains:
        return Action.SERVE, NEVER_TRAINS
    if not s.is_contributor:
        return Action.SERVE, "not a contributor of this network"
    if s.paused:
        return Action.SERVE, PAUSED
    if s.data_spent:
        return Action.SERVE, DATA_SPENT
    if not s.trainer_ready:
        return Action.TRAIN, f"round {s.round} is open; our worker is starting, perhaps in time"
    return Action.TRAIN, f"round {s.round} is open and a quorum is reachable"


def _codec(s: Snapshot, policy: Policy) -> tuple[str, str, float]:
    """The ceiling's codec, or the smallest if the ceiling's upload would eat half the window."""
    if s.upload_bytes_per_s is None:
        return s.codec, "the plan's; bandwidth not measured yet", 0.0
    rate = s.upload_bytes_per_s * policy.upload_share

    def upload_s(codec: str) -> float:
        return s.update_bytes_by_codec[codec] * s.receivers / max(rate, 1.0)

    if upload_s(s.codec) <= s.window_s / 2:
        return s.codec, f"the plan's; upload forecast {upload_s(s.codec):.2f} s", upload_s(s.codec)
    small = min(s.update_bytes_by_codec, key=lambda codec: s.update_bytes_by_codec[codec])
    reason = f"upload forecast {upload_s(s.codec):.1f} s of {s.window_s:.1f} s with {s.codec}"
    return small, reason, upload_s(small)


def _steps(s: Snapshot, train_s: float) -> tuple[int, str]:
    late = f"round is {s.round_age_s:.0f} s old, " if s.round_age_s > GRACE_S else ""
    if s.us_per_step is None:
        within = f" within {max(0.0, train_s):.1f} s" if late or _is_newcomer(s) else ""
        return s.steps_max, f"{late}the plan's {s.steps_max}{within}; speed not measured yet"
    fit = max(1, steps_in(round(train_s * 1e6), round(s.us_per_step)))
    if late and fit < s.steps_max:
        return fit, f"{late}{fit} of {s.steps_max} steps fit"
    if fit >= s.steps_max:
        return s.steps_max, f"the plan's {s.steps_max} at {s.us_per_step / 1e3:.1f} ms a step"
    return fit, f"{train_s:.1f} s at {s.us_per_step / 1e3:.1f} ms a step; the plan allows more"


class Presence:
    """Who was here without a break since a round began, and whom it pays to wait for.

    A process that dies loses the steps of its round: a connection that broke and came back may be
    another process, and is not waited for before the next round. `newest_sets` are the contributors
    of certified rounds, the newest last.
    """

    def __init__(self, reachable: Set[NodeId], newest_sets: Iterable[Set[NodeId]]) -> None:
        self._steady = set(reachable)
        self._contributed = set[NodeId]().union(*list(newest_sets)[-RECENT_ROUNDS:])

    def look(self, reachable: Set[NodeId]) -> None:
        """Who can be reached now; to be told often enough that no break is missed."""
        self._steady &= reachable

    def awaited(self, expected: Set[NodeId]) -> Set[NodeId]:
        """Who contributed lately (anybody expected, before there is a set) and was always here."""
        return (self._contributed or expected) & self._steady


def without_the_low(awaited: Set[NodeId], low: Set[NodeId], expected: Set[NodeId]) -> Set[NodeId]:
    """Whom it pays to wait for, of those awaited: `low` stand low with us for being late or away.

    Where half do it is likelier that we are cut off, and they are all waited for.
    """
    return awaited if 2 * len(low & expected) >= len(expected) else awaited - low


def who_is_expected(
    planned: Set[NodeId],
    never_train: Set[NodeId],
    eligible: Set[NodeId],
    are_enough: Callable[[Set[NodeId]], bool],
) -> Set[NodeId]:
    """Whose contributions a round may wait for: of those planned all but who never train.

    All of them if the others are too few to be merged: a round is not closed for want of what
    somebody may still bring.
    """
    expected = (planned - never_train) | (planned & eligible)
    return planned if expected != planned and not are_enough(expected) else expected


@dataclass(frozen=True, slots=True)
class Gathering:
    """How far the collection of a round has come."""

    elapsed_s: float  # since the round began, as far as we know
    waiting_s: float | None  # since others may be called late, see Closing
    window_s: float
    expected: Set[NodeId]  # planned contributors
    eligible: Set[NodeId]  # whose contribution has an Ack quorum
    reachable: Set[NodeId]
    # who contributed lately and was never gone since, see Presence, and does not stand low with us
    recent: Set[NodeId]
    are_enough: bool = True  # False: the rule cannot merge them, and their round would abort
    offered: Set[NodeId] = frozenset()  # whose update is on its way, and who do not stand low
    idle_after_s: float = 0.0  # of waiting: until then we train on, and waiting costs nothing

    def worth_s(self, awaited: int) -> float:
        """How long waiting for so many costs no more than it can bring.

        Everybody who is here stands idle, and each who comes brings the steps of one round.
        """
        waiting_s = self.waiting_s or 0.0
        return (self.elapsed_s - waiting_s) * awaited / max(1, len(self.eligible))


def stop_waiting(gathering: Gathering, policy: Policy) -> Decision | None:
    """Close the collection, with the reason; None to wait on."""
    g = gathering
    missing = g.expected - g.eligible
    count = f"{len(g.eligible)} of {len(g.expected)} contributions"
    if not missing:
        return Decision("close", f"all {len(g.expected)} contributions are acknowledged")
    if g.elapsed_s >= g.window_s:
        return Decision("close", f"the window of {g.window_s:.1f} s ended with {count}")
    if g.waiting_s is None or not g.eligible or not g.are_enough:
        return None
    if g.waiting_s < g.idle_after_s and missing & g.reachable & g.offered:
        return None
    # Who is gone, or connected but has not contributed lately, does not hold up the others.
    awaited = missing & g.reachable & g.recent
    grace_s = GRACE_S if missing & g.reachable else UNREACHABLE_GRACE_S
    if not awaited and g.waiting_s >= min(grace_s, policy.patience_s):
        return Decision("close", f"{count}; nobody else is expected in time")
    patience_s = max(grace_s, g.worth_s(len(awaited)))
    if 2 * len(g.eligible) > len(g.expected):  # lessons of stragglers tell nothing before that
        tolerated_s = (g.elapsed_s - g.waiting_s) / LATE_OF_TIME  # whose last step ends late
        patience_s = min(max(policy.patience_s, tolerated_s), patience_s)
    if g.waiting_s >= patience_s:
        return Decision("close", f"{count} after {patience_s:.1f} s of patience")
    return None
