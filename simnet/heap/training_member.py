"""One node of a training world: its real decisions, and what it is busy with.

Monitor, reason, reflect and adapt are the daemon's own functions on numbers of this world. A node
does one thing at a time (steps, sealing, merging); `life` counts its crashes and cancellations, so
that what was due in an earlier life is dropped.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from daa_dag.ids import NodeId
from daa_node.autonomy.adapt import LESSONS_LOOKED_AT, Lessons, adapt, reflect
from daa_node.autonomy.monitor import Meters, Snapshot
from daa_node.autonomy.policy import Policy
from daa_node.autonomy.reason import Action, Conduct, Decision, decide
from daa_node.rounds.plan import Plan
from daa_node.rounds.synchronous import Happened
from simnet.links import MS, NS
from simnet.training.tally import Account, Stage

NAIVE_STOP_S = float("inf")


@dataclass(slots=True)
class Work:
    """What a node computes at the moment, and what follows."""

    until_ns: int
    then: Callable[[], None]


@dataclass(slots=True)
class Attempt:
    """A node's way through the open round."""

    opened_ns: int
    age_ms: int  # of the round when it came in, as the others told it
    conduct: Conduct
    expected_us_per_step: float | None
    step_ns: int = 0
    steps: int = 0
    started_ns: int = 0
    trained_ns: int | None = None
    own_ready_ns: int | None = None
    makes_none: bool = False
    since_ns: int | None = None  # since when it may call others late
    closed_ns: int | None = None

    @property
    def began_ns(self) -> int:
        """When the round began, as far as it knows."""
        return self.opened_ns - self.age_ms * MS


@dataclass(slots=True)
class Member:
    """One node. `height` is that of the newest state it holds."""

    node: int
    node_id: NodeId
    account: Account
    is_up: bool = True
    paused_ns: int | None = None  # since when
    paused_stage: Stage = Stage.WAITING
    height: int = 0
    merged_round: int = -1
    life: int = 0
    disk_lost: bool = False
    is_astray: bool = False  # in no round, until others can be reached
    work: Work | None = None
    attempt: Attempt | None = None
    policy: Policy = field(default_factory=Policy)
    meters: Meters = field(default_factory=Meters)
    lessons: Lessons = field(default_factory=Lessons)
    sent_bytes: int = 0  # of own updates, and how long it took to send them: measured bandwidth
    sending_ns: int = 0
    sending_since_ns: int | None = None
    pulling_to: int = 0  # the height that a catch-up under way reaches
    pulling_bytes: int = 0

    @property
    def is_able(self) -> bool:
        """Whether it acts at all."""
        return self.is_up and self.paused_ns is None

    def forget_process(self) -> None:
        """A crash: what was in memory is gone."""
        self.life += 1
        self.work = None
        self.attempt = None
        self.is_astray = False
        self.policy, self.meters, self.lessons = Policy(), Meters(), Lessons()
        self.sent_bytes, self.sending_ns, self.sending_since_ns = 0, 0, None

    def upload_begins(self, now_ns: int) -> None:
        self.sending_since_ns = now_ns

    def sent(self, size_bytes: int, now_ns: int) -> None:
        """Some peers have our update: how fast the link is, all transfers of it together."""
        if self.sending_since_ns is not None:
            self.sent_bytes += size_bytes
            self.sending_ns += now_ns - self.sending_since_ns
            self.sending_since_ns = now_ns

    def begin(self, stage: Stage, now_ns: int, until_ns: int, then: Callable[[], None]) -> None:
        self.account.enter(stage, now_ns)
        self.work = Work(until_ns, then)

    def idle(self, stage: Stage, now_ns: int) -> None:
        """Nothing to compute; what was under way is given up."""
        self.account.enter(stage, now_ns)
        self.work = None

    def give_up(self, now_ns: int) -> None:
        """Drop what is being computed, whether it runs or is paused."""
        if self.paused_ns is None:
            self.account.enter(Stage.WAITING, now_ns)
        self.work = None

    def go_astray(self) -> None:
        """Others go on without it, and it hears nothing: what it computes comes to nothing."""
        self.is_astray = True
        self.attempt = None
        if self.work is not None:
            self.work.then = lambda: None

    def pause(self, now_ns: int) -> None:
        self.paused_stage = self.account.stage
        self.paused_ns = now_ns
        self.account.enter(Stage.PAUSED, now_ns)

    def resume(self, now_ns: int) -> None:
        """What was under way goes on where it stood."""
        assert self.paused_ns is not None, "only who was paused resumes"
        if self.work is not None:
            self.work.until_ns += now_ns - self.paused_ns
            self.account.enter(self.paused_stage, now_ns)
        else:
            self.account.enter(Stage.WAITING, now_ns)
        self.paused_ns = None

    def reflect(self, happened: Happened) -> None:
        """The last turn of the loop: what came of the round moves the policy."""
        attempt = self.attempt
        if attempt is None:
            return
        self.lessons.add(reflect(attempt.conduct, attempt.expected_us_per_step, happened))
        self.policy, _ = adapt(self.policy, self.lessons.newest(LESSONS_LOOKED_AT))


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a node's measurements rest on, besides itself."""

    plan: Plan
    window_s: float
    codec: str
    update_bytes: dict[str, int]
    reachable_weight: int
    quorum_weight: int
    total_weight: int
    receivers: int
    adaptive: bool
    round_age_ms: int


def conduct_of(member: Member, seen: Circumstances) -> Conduct:
    """What the node does in the round that opens: the daemon's own decision, or the naive one."""
    share = seen.plan.share_of(member.node_id)
    steps_max = 0 if share is None else share.steps_max
    if not seen.adaptive and seen.reachable_weight >= seen.quorum_weight:
        said = Decision("train", "every planned step, whatever the time")
        return Conduct(Action.TRAIN, steps_max, seen.codec, NAIVE_STOP_S, (said,))
    if member.sending_ns > 0:
        member.meters.upload_bytes_per_s.value = member.sent_bytes / (member.sending_ns / NS)
    snapshot = Snapshot(
        round=seen.plan.round,
        is_contributor=share is not None,
        is_written_to=True,
        draining=False,
        quarantine=None,
        job_ended=None,
        rounds_behind=0,
        reachable_weight=seen.reachable_weight,
        heard_weight=seen.reachable_weight,
        quorum_weight=seen.quorum_weight,
        total_weight=seen.total_weight,
        trainer_ready=True,
        state_held=True,
        steps_max=steps_max,
        codec=seen.codec,
        window_s=seen.window_s,
        train_s=seen.plan.train_us / 1e6,
        round_age_s=seen.round_age_ms / 1e3,
        update_bytes_by_codec=seen.update_bytes,
        us_per_step=member.meters.us_per_step.value,
        upload_bytes_per_s=member.meters.upload_bytes_per_s.value,
        receivers=seen.receivers,
    )
    return decide(snapshot, member.policy)
