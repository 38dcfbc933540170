"""Measure: everything that a decision may rest on, as one frozen Snapshot.

Speeds are exponentially weighted means: on real mobile traces they forecast as well as learned
models did, and a single slow round does not swing them.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

import trio

from daa_dag.ids import NodeId
from daa_node.agreement.wan_bft import WanBft
from daa_node.network.contacts import Contacts
from daa_node.network.upload_meter import UploadMeter
from daa_node.rounds.job_runner import JobRunner

EWMA_WEIGHT = 0.3  # of the newest value: three rounds make up two thirds of the mean


@dataclass(frozen=True, slots=True)
class Reach:
    """What validators weigh: those within reach, ourselves included; a quorum; all of them."""

    weight: int
    quorum: int
    total: int


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
    reach: Reach
    heard_weight: int  # of who is within reach and has said how far it is, and of ourselves
    trainer_ready: bool
    state_held: bool  # the base state of the round is here
    steps_max: int  # the plan's ceilings for us
    codec: str
    window_s: float
    train_s: float  # when all stop training, by the plan
    round_age_s: float  # for how long others have been in the round; 0.0 if it only begins
    update_bytes_by_codec: Mapping[str, int]
    us_per_step: float | None  # None: never measured
    upload_bytes_per_s: float | None
    receivers: int  # how many others fetch our update
    paused: bool = False  # by the operator
    data_spent: bool = False  # the day's budget is: nobody could have our contribution
    ahead_s: float = 0.0  # for how long we have trained on, towards this round
    trains: bool = True  # False: this node never does, by its settings


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


class Monitor:
    """One node's."""

    def __init__(
        self,
        runner: JobRunner,
        agreement: WanBft,
        contacts: Contacts,
        upload: UploadMeter,
        trainer_ready: Callable[[], bool],
        drain: trio.Event,
        is_last: Callable[[NodeId], bool] = lambda _node_id: False,
    ) -> None:
        self.is_last = is_last  # whoever stands so low with us that nobody waits for it
        self.data_spent: Callable[[], bool] = lambda: False  # the day's budget of bytes
        self.trains = True  # what this node's settings say
        self.meters = Meters()
        self._runner = runner
        self._agreement = agreement
        self._contacts = contacts
        self._upload = upload
        self._trainer_ready = trainer_ready
        self._drain = drain

    def reachable(self) -> set[NodeId]:
        """Members that we have a connection with, and ourselves."""
        return self._contacts.members_and_us()

    def who_never_train(self, nodes: Set[NodeId]) -> set[NodeId]:
        """Of these, those who say so themselves; and we, if it is so."""
        never = self._contacts.who_never_train(nodes)
        return never if self.trains else never | (nodes & {self._agreement.me})

    async def contacts_changed(self) -> None:
        """Return when `reachable` or who votes may be another than at the call."""
        await self._contacts.changed()

    def reach(self) -> Reach:
        """Whether a quorum is here, as things stand now."""
        committee = self._agreement.validators.now.committee
        return Reach(committee.weight(self.reachable()), committee.quorum, committee.total)

    def measure(self) -> Snapshot:
        """As things stand now."""
        runner, agreement, me = self._runner, self._agreement, self._agreement.me
        validators, rules, plan = agreement.validators, runner.rules, runner.plan()
        committee, share = validators.now.committee, plan.share_of(me)
        heard = {n for n in self._contacts.members() if agreement.position_of(n) is not None}
        uploaded = self._upload.bytes_per_s
        if uploaded is not None:
            self.meters.upload_bytes_per_s.value = uploaded
            runner.upload_bytes_per_s = int(uploaded)
        return Snapshot(
            round=plan.round,
            is_contributor=share is not None,
            is_written_to=me in validators.listeners,
            draining=self._drain.is_set(),
            data_spent=self.data_spent(),
            trains=self.trains,
            quarantine=agreement.quarantine(),
            job_ended=runner.ended(),
            rounds_behind=max(
                agreement.rounds_behind(self._contacts.heights(), runner.newest.height),
                agreement.outcomes.resolved_round - runner.round,
            ),
            reach=self.reach(),
            heard_weight=committee.weight(heard | {me}),
            trainer_ready=self._trainer_ready(),
            state_held=runner.state is not None,
            steps_max=0 if share is None else share.steps_max,
            codec=rules.codec,
            window_s=rules.rounds.window_s,
            train_s=plan.train_us / 1e6,
            round_age_s=agreement.round_age_s(plan.round),
            update_bytes_by_codec=rules.codec_sizes,
            us_per_step=self.meters.us_per_step.value,
            upload_bytes_per_s=self.meters.upload_bytes_per_s.value,
            receivers=len(rules.mergers(committee, validators.now.trainers) - {me}),
        )
