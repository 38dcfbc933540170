"""A scenario file: who takes part, over which links, what goes wrong when, and what must hold.

One file serves all fidelities; what a fidelity cannot do it refuses by name. Files hold
differences from the defaults. Times are in seconds from the start of the run.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from daa_dag.chunking import CHUNK_BYTES_MAX
from daa_node.rounds.trainers import TrainersConfig
from daa_node.spot_checks.config import SpotChecksConfig
from daa_node.updates.config import UpdatesConfig
from simnet.world.determinism import Streams
from simnet.world.node_classes import NODES_MAX, Nat, NodesConfig, misplaced
from simnet.world.trainer_crowds import CrowdConfig
from simnet.world.volunteers import VolunteersConfig

Fidelity = Literal["heap", "light", "trio", "process"]
VIRTUAL: tuple[Fidelity, ...] = ("light", "trio")  # whole daemons in virtual time
Preset = Literal["local", "regional", "wan", "mobile", "datacenter", "three_tier"]
FaultKind = Literal[
    "partition",
    "hold",
    "slow",
    "loss",
    "reorder",  # streams overtake each other
    "duplicate",  # a message is sent again, over another stream
    "kill",
    "drain",  # its operator ends it after the round, and starts it again when that heals
    "pause",
    "attrition",
    "disk",
    "clock",
]
DiskFault = Literal[
    "torn_write",
    "lost_fsync",
    "bit_rot",
    "full",
    "wiped",
    "rolled_back",
    "failed_sync",
    "failed_rename",
    "slow",
    "cleared",  # its operator makes room: killed, and cached states are gone
]
# What befalls the files and streams that whole daemons in virtual time have.
VIRTUAL_FAULTS: tuple[FaultKind, ...] = ("reorder", "duplicate", "drain")
VIRTUAL_DISK_FAULTS: tuple[DiskFault, ...] = ("failed_sync", "failed_rename", "slow", "cleared")
AdversaryKind = Literal[
    "equivocator",  # as leader proposes two blocks; one key, two machines
    "twin",  # the same without further lies: honest code twice under one key
    "conflicter",  # votes for everything
    "withholder",  # keeps certificates and blobs to itself
    "false_acker",  # acknowledges what it does not hold
    "double_offerer",  # two contributions to one round
    "false_executor",  # signs Exec of a root that it made up
    "poisoner",  # offers bad updates, see `poison`
    "free_rider",  # offers what it has not trained
    "cheat",  # trains otherwise than it shows, see `cheat`
    "framer",  # finds everybody else's training to be false, and accuses
    "late_accuser",  # the same, when it is too late
    "staller",  # says everything as late as it may
    "sybil",  # many names, no stake
    "babbler",  # garbage on every protocol
    "puppet",  # anything that its key can sign, in any order, to anybody
    "forger",  # proposes out of turn and on what is not notarized; certificates of too few
]
Poison = Literal[
    "sign_flip", "little", "inner_product", "noise", "label_flip", "nan", "zeros", "huge"
]
Cheat = Literal[  # see simnet/world/adversaries/cheating_core.py
    "stale_base",
    "skips_steps",
    "rounds_weights",
    "doubles_gradients",
    "wrong_batches",
    "copies_update",
    "skips_in_the_middle",
    "skips_one_step",
    "rounds_once",
    "stretches_one_step",
    "moments_only",
    "doubles_update",
    "drops_what_it_owes",
    "knows_the_lot",
]
AIMED_KINDS = ("kill", "pause", "hold", "slow", "loss")  # what may befall whoever leads then
AIMED_SHAPES = ("isolate", "one_way", "flapping")  # of a partition around one node
KINDS_OF: dict[str, tuple[FaultKind, ...]] = {  # a key of a fault: those that it says more of
    "shape": ("partition",),
    "period_s": ("partition",),
    "factor": ("slow", "disk"),
    "percent": ("loss", "reorder", "duplicate", "attrition"),
    "away_s": ("attrition",),
    "disk": ("disk",),
    "skew_ms": ("clock",),
    "drift_ppm": ("clock",),
}
FAULTS_MAX = 256
CHANGES_MAX = 64
FOREVER_S = 1e9

STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

Place = tuple[str | int, ...]  # of a value in the file, by keys and indices
Mistake = tuple[Place, str]  # what is wrong there
Model = TypeVar("Model", bound=BaseModel)


def _ascending(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError("the least comes first, then the most")
    return pair


Part = Annotated[float, Field(ge=0, le=1e6)]
LeastMost = Annotated[tuple[Part, Part], AfterValidator(_ascending)]


class TopologyConfig(BaseModel):
    """Links by a preset, and what differs from it."""

    model_config = STRICT

    preset: Preset = Field("local", description="what latencies and rates begin with")
    latency_ms: LeastMost | None = Field(None, description="one way, least and most")
    jitter_ms: float | None = Field(None, ge=0, le=10_000, description="added by chance, at most")
    mbit_s: float | None = Field(None, gt=0, le=1e6, description="of each node's access link")
    loss_percent: float | None = Field(None, ge=0, le=100, description="of packets, or messages")
    reorder_percent: float | None = Field(None, ge=0, le=100, description="that come out of turn")
    degree: int = Field(8, ge=2, le=64, description="of the gossip mesh")


class FaultConfig(BaseModel):
    """One thing that goes wrong from `at_s` on, and heals `for_s` later."""

    model_config = STRICT

    kind: FaultKind = Field(description="what goes wrong")
    at_s: float = Field(ge=0, le=FOREVER_S, description="when it begins")
    for_s: float = Field(FOREVER_S, gt=0, le=FOREVER_S, description="until it heals")
    nodes: tuple[int, ...] = Field((), description="whom it befalls; none: chosen by the seed")
    aim: Literal["leader"] | None = Field(None, description="who leads then, instead of nodes")
    shape: Literal["halves", "bridge", "one_way", "isolate", "flapping"] = Field(
        "halves", description="of a partition"
    )
    factor: float = Field(10.0, gt=1, le=1000, description="of slow: how many times slower")
    percent: float = Field(
        10.0,
        gt=0,
        le=100,
        description="of loss, reorder and duplicate; of attrition: nodes a minute",
    )
    away_s: LeastMost = Field(
        (5.0, 30.0), description="of attrition: how long each victim is gone, least and most"
    )
    disk: DiskFault = Field(
        "torn_write", description="of disk: what happens, a crash included where it takes one"
    )
    skew_ms: float = Field(0.0, ge=-3_600_000, le=3_600_000, description="of clock")
    drift_ppm: float = Field(0.0, ge=-100_000, le=100_000, description="of clock")
    period_s: float = Field(2.0, ge=0.001, description="of a flapping partition")

    @property
    def heals_s(self) -> float:
        return min(self.at_s + self.for_s, FOREVER_S)

    @property
    def virtual_key(self) -> str | None:
        """Which of its keys only whole daemons in virtual time can meet."""
        if self.kind in VIRTUAL_FAULTS:
            return "kind"
        return "disk" if self.kind == "disk" and self.disk in VIRTUAL_DISK_FAULTS else None

    def parts_nobody(self, count: int) -> bool:
        """Whether this is a partition that keeps no two of `count` nodes apart."""
        if self.kind != "partition" or self.shape == "isolate":
            return False
        inside = 1 if self.aim is not None else len(set(self.nodes)) or count // 2
        return not (2 if self.shape == "bridge" else 1) <= inside < count

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        return _checked(self, self._mistakes())

    def _mistakes(self) -> Iterator[Mistake]:
        fields = type(self).model_fields.items()
        told = {key for key, field in fields if getattr(self, key) != field.default}
        for key, kinds in KINDS_OF.items():
            if key in told and self.kind not in kinds:
                named = _listed(kinds, "and")
                yield (key,), f"`{key}` says more of {named}, not of {self.kind}: leave it out"
        if "period_s" in told and self.shape != "flapping":
            yield ("period_s",), "`period_s` is of `shape: flapping` alone: leave it out"
        if "factor" in told and self.kind == "disk" and self.disk != "slow":
            yield ("factor",), "`factor` is of `disk: slow` alone: leave it out"
        if self.kind == "clock" and not self.skew_ms and not self.drift_ppm:
            yield (), "a clock goes wrong by `skew_ms`, by `drift_ppm`, or by both"
        if self.aim is None:
            return
        if self.nodes:
            yield (), "`aim` says whom it befalls in place of `nodes`"
        shaped = self.kind == "partition" and self.shape in AIMED_SHAPES
        if not shaped and self.kind not in AIMED_KINDS:
            struck, shapes = ", ".join(AIMED_KINDS), _listed(AIMED_SHAPES, "or")
            yield (), f"`aim` goes with {struck}, and with a partition of the shape {shapes}"


class AdversaryConfig(BaseModel):
    """Nodes that lie, by their number, or so many of the seed's choosing."""

    model_config = STRICT

    kind: AdversaryKind = Field(description="how they lie")
    nodes: tuple[int, ...] = Field((), description="which, by number")
    count: int = Field(1, ge=1, le=NODES_MAX, description="if `nodes` names none")
    poison: Poison = Field("sign_flip", description="of a poisoner")
    cheat: Cheat = Field("skips_steps", description="of a cheat")


ChangeKind = Literal["join", "leave", "rotate", "stake"]


class ChangeConfig(BaseModel):
    """A change of the validator set: a node's operator asks for it until it is settled.

    The other validators' operators approve of it. It takes effect where an epoch ends.
    """

    model_config = STRICT

    kind: ChangeKind = Field(description="what is asked for")
    at_s: float = Field(ge=0, le=FOREVER_S, description="when it is first asked for")
    node: int = Field(description="whom it is about")
    stake: int | None = Field(None, ge=1, le=2**40, description="of join and stake: from then on")
    successor: int | None = Field(None, description="of rotate: the node that takes over the seat")

    @property
    def nodes(self) -> tuple[int, ...]:
        return (self.node,) if self.successor is None else (self.node, self.successor)

    def is_possible(self, members: Collection[int]) -> bool:
        """Whether it can be asked for in a committee of these."""
        return (self.node in members) is (self.kind != "join") and self.successor not in members

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.stake is not None) != (self.kind in ("join", "stake")):
            raise ValueError("join and stake name a `stake`, leave and rotate do not")
        if (self.successor is not None) != (self.kind == "rotate"):
            raise ValueError("rotate names a `successor`, nothing else does")
        if self.successor == self.node:
            raise ValueError("a seat is handed to another node")
        return self


class SpeedsConfig(BaseModel):
    """How the time of an inner step varies around `step_s` over a node's `speed`."""

    model_config = STRICT

    jitter_percent: float = Field(
        0.0, ge=0, le=100, description="from round to round, a standard deviation"
    )
    straggler_percent: float = Field(
        0.0, ge=0, le=100, description="chance of a node to be slow for one round"
    )
    straggler_factor: float = Field(5.0, ge=1, le=1000, description="how slow it is then")
    day_s: float = Field(86_400.0, gt=0, description="after which the same hour comes again")
    day_slow_percent: float = Field(
        0.0, ge=0, lt=100, description="of the speed that is lost at the worst hour of each node"
    )


class WorkConfig(BaseModel):
    """What the nodes do."""

    model_config = STRICT

    kind: Literal["training", "gossip", "fetch", "upload", "rounds"] = Field(
        "training", description="training is of daemons, the others are of nodes on the heap"
    )
    rounds: int = Field(10, ge=1, le=100_000, description="outer rounds, where there are any")
    model: Literal["mlp", "virtual"] = Field("mlp", description="virtual: only its size counts")
    parameters: int = Field(72_000_000_000, ge=1, description="of a virtual model")
    codec: Literal["int8", "int4", "top_k"] = Field(
        "int8", description="of updates; top_k takes a mean instead of a trimmed one"
    )
    rule: Literal["mean", "trimmed_mean"] = Field(
        "trimmed_mean", description="that merges updates, for codecs it works with"
    )
    train_on: bool = Field(False, description="while updates travel, as a job's updates.train_on")
    inner_steps_max: int = Field(30, ge=1, le=1_000_000, description="of the fastest node, a round")
    step_s: float = Field(0.05, gt=0, description="of a node of speed 1")
    tokens_per_step: int = Field(1024, ge=1, description="of a virtual model")
    parameters_per_s: float = Field(
        1e8, gt=0, description="that a node seals, or merges and steps; a core of ours does 1e8"
    )
    speeds: SpeedsConfig = SpeedsConfig()
    delta_ms: int = Field(250, ge=1, le=600_000, description="of the agreement")
    window_s: float = Field(20.0, gt=0, description="of a round's collection")
    epoch_rounds: int = Field(64, ge=1, description="after which validators may change")
    snapshot_every: int = Field(4, ge=1, le=1024, description="vertices, of daemons")
    spot_checks: SpotChecksConfig = Field(
        SpotChecksConfig(share=(0, 1)),
        description="of daemons; nobody is checked unless it says so",
    )
    trainers: TrainersConfig = TrainersConfig()
    vertices_restorable: int | None = Field(
        None, ge=1, description="of daemons: older deltas and snapshots go; none: nothing does"
    )
    messages: int = Field(10, ge=0, le=100_000, description="of gossip: how many are published")
    message_bytes: int = Field(4096, ge=1, le=1 << 20, description="of gossip: size of each")
    chunks: int = Field(64, ge=1, le=4096, description="of a checkpoint, or a contribution")
    chunk_bytes: int = Field(CHUNK_BYTES_MAX, ge=1, le=CHUNK_BYTES_MAX, description="size of each")
    holders: int = Field(2, ge=1, le=NODES_MAX, description="that have all of it at the start")
    crowd: CrowdConfig = Field(CrowdConfig(), description="of rounds on the heap")
    adaptive: bool = Field(True, description="the loop adapts; False: everybody takes every step")

    @property
    def updates(self) -> UpdatesConfig:
        """What the job says about updates: a robust rule, where the codec lets it work."""
        if self.codec == "top_k" or self.rule == "mean":
            return UpdatesConfig(codec=self.codec, rule="mean", f_agg=0, train_on=self.train_on)
        return UpdatesConfig(codec=self.codec, rule="trimmed_mean", train_on=self.train_on)


class ChecksConfig(BaseModel):
    """What must hold besides the invariants, which always must."""

    model_config = STRICT

    finalizations_after_heal: int = Field(10, ge=0, description="blocks, once every fault healed")
    heal_s: float = Field(120.0, gt=0, le=FOREVER_S, description="for them to come, virtual")
    loss_above_twin_nats: float | None = Field(
        None,
        gt=0,
        description="held-out, of daemons: no more above the same run without poisoners; none: any",
    )
    vertices_after_heal: int = Field(
        0, ge=0, description="of daemons: rounds that must be certified, once every fault healed"
    )
    passages: bool = Field(False, description="that routers allow must be found; then it is over")
    core: tuple[int, ...] = Field(
        (), description="who must make progress, whoever else stays broken; none: all that are up"
    )
    beyond_f: bool = Field(False, description="more may lie or forget than is survived: meant so")
    sometimes: tuple[str, ...] = Field((), description="marks that this run must hit")


class Scenario(BaseModel):
    """The whole file."""

    model_config = STRICT

    name: str = Field(pattern="^[a-z0-9][a-z0-9-]{0,62}$", description="of the scenario")
    why: str = Field("", max_length=2000, description="what this scenario is to find out")
    seed: int = Field(0, ge=0, lt=2**63, description="of all chance in it")
    fidelity: Fidelity = Field("light", description="how nodes are run: see simnet.md")
    duration_s: float = Field(60.0, gt=0, le=FOREVER_S, description="virtual; at most")
    nodes: tuple[NodesConfig, ...] = Field((NodesConfig(),), min_length=1)
    topology: TopologyConfig = TopologyConfig()
    work: WorkConfig = WorkConfig()
    faults: tuple[FaultConfig, ...] = Field((), max_length=FAULTS_MAX)
    adversaries: tuple[AdversaryConfig, ...] = ()
    changes: tuple[ChangeConfig, ...] = Field((), max_length=CHANGES_MAX)
    volunteers: tuple[VolunteersConfig, ...] = ()
    checks: ChecksConfig = ChecksConfig()

    @property
    def node_count(self) -> int:
        return sum(group.count for group in self.nodes)

    @property
    def nats(self) -> tuple[Nat | None, ...]:
        """Of each node, what it is behind."""
        return tuple(group.nat for group in self.nodes for _ in range(group.count))

    @property
    def place_count(self) -> int:
        """Of nodes, and of addresses behind them from which volunteers come."""
        return self.node_count + sum(group.addresses for group in self.volunteers)

    @property
    def is_nominal(self) -> bool:
        """Whether only the size of the model counts."""
        return self.work.model == "virtual"

    def liars(self) -> dict[int, AdversaryConfig]:
        """By number: the nodes that the file names, and the seed's choice for the rest."""
        chance = Streams(self.seed).random("adversaries")
        found: dict[int, AdversaryConfig] = {}
        for adversary in self.adversaries:
            free = [node for node in range(self.node_count) if node not in found]
            few = min(adversary.count, len(free))
            found |= dict.fromkeys(adversary.nodes or sorted(chance.sample(free, few)), adversary)
        return found

    def group_of(self, index: int) -> NodesConfig:
        """The class of node `index`; classes are numbered through in the file's order."""
        for group in self.nodes:
            if index < group.count:
                return group
            index -= group.count
        raise IndexError(index)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        return _checked(self, [*self._mistakes(), *self._mistakes_in_lists()])

    def _mistakes(self) -> Iterator[Mistake]:
        """Of what does not go together."""
        count, kind = self.node_count, self.work.kind
        if kind == "training" and self.fidelity == "heap":
            yield (
                ("fidelity",),
                "daemons, which agree and train, take `fidelity: light`, `trio` or `process`; the"
                " heap has none, and takes `work: {kind: gossip}`, `fetch`, `upload` or `rounds`",
            )
        if kind != "training" and self.fidelity != "heap":
            said = f"{kind} takes `fidelity: heap`: no daemons run there, but thousands of nodes"
            yield ("work", "kind"), said
        if self.fidelity not in VIRTUAL:
            for key in ("changes", "volunteers"):
                if getattr(self, key):
                    yield (), f"`{key}` take `fidelity: light` or `trio`"
            if self.checks.core:
                yield ("checks", "core"), "`core` takes `fidelity: light` or `trio`"
        if self.checks.passages and not any(self.nats):
            yield ("checks", "passages"), "nobody is behind a router: give a class a `nat`"
        for i, key, said in misplaced(self.nodes, self.fidelity):
            yield ("nodes", i, key), said
        if count > NODES_MAX:
            yield (), f"{count} nodes, at most {NODES_MAX}"
        if not any(group.role == "validator" for group in self.nodes):
            yield (), "nobody is a validator"
        liars = {node for liar in self.adversaries for node in liar.nodes}
        lying = len(liars) + sum(liar.count for liar in self.adversaries if not liar.nodes)
        if lying >= count:
            yield (), f"{lying} of {count} nodes lie: nobody is left to watch"

    def _mistakes_in_lists(self) -> Iterator[Mistake]:
        """Of faults, adversaries and changes, and of the nodes that they name."""
        count = self.node_count
        named: list[tuple[Place, Sequence[int]]] = [(("checks", "core"), self.checks.core)]
        for i, fault in enumerate(self.faults):
            named.append((("faults", i, "nodes"), fault.nodes))
            if fault.aim is not None and self.fidelity not in VIRTUAL:
                said = "who leads is known with `fidelity: light` or `trio`"
                yield ("faults", i, "aim"), said
            if self.fidelity not in VIRTUAL and (key := fault.virtual_key) is not None:
                what = f"`{key}: {getattr(fault, key)}`"
                yield ("faults", i, key), f"{what} takes `fidelity: light` or `trio`"
            if fault.parts_nobody(count):
                said = "let `nodes` leave some out, and a bridge have two"
                where: Place = ("faults", i, "nodes") if fault.nodes else ("faults", i)
                yield where, f"this parts nobody of {count} nodes: {said}"
            if fault.at_s >= self.duration_s:
                over = f"the run is over after {self.duration_s:g} s"
                yield ("faults", i, "at_s"), f"{over}: let it begin before, or raise `duration_s`"
        seen: set[int] = set()
        for i, liar in enumerate(self.adversaries):
            named.append((("adversaries", i, "nodes"), liar.nodes))
            for at, node in enumerate(liar.nodes):
                if node in seen:
                    said = "it lies already, further up: list it under one kind"
                    yield ("adversaries", i, "nodes", at), said
            seen.update(liar.nodes)
        places = [((*place, at), node) for place, nodes in named for at, node in enumerate(nodes)]
        for i, change in enumerate(self.changes):
            keys = ("node", "successor")
            places += [(("changes", i, k), n) for k, n in zip(keys, change.nodes, strict=False)]
        places += [(("volunteers", i, "node"), v.node) for i, v in enumerate(self.volunteers)]
        for place, node in places:
            if not 0 <= node < count:
                yield place, f"there are nodes 0 to {count - 1}"


def _listed(names: Sequence[str], conjunction: str) -> str:
    *others, last = names
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def _checked(model: Model, mistakes: Iterable[Mistake]) -> Model:
    """Raises ValidationError that names each value by its place, if there are any."""
    details = []
    for place, said in mistakes:
        value: Any = model
        for key in place:
            value = getattr(value, key) if isinstance(key, str) else value[key]
        error = PydanticCustomError("makes_no_sense", "{said}", {"said": said})
        details.append(InitErrorDetails(type=error, loc=place, input=value))
    if details:
        raise ValidationError.from_exception_data(type(model).__name__, details)
    return model
