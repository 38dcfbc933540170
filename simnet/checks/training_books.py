"""Who did what for how long: the books of a run that trains, a node and a class of nodes each.

A node is in one stage at any moment, so the times of its stages add up to the whole run. The books
are closed with each certified round: a run goes on after the last one, until everybody has it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean
from typing import Any

from daa_dag.checkpoint import Contributor
from daa_node.autonomy.reason import Action
from daa_node.observability import events as names
from simnet.checks.invariants import NO_TIME_LOST
from simnet.checks.outcome import Invariant
from simnet.world.links import NS
from simnet.world.scenario import Scenario

ACTIONS = frozenset(map(str, Action))


class Stage(StrEnum):
    """What a node's time goes into; waiting is for others, for links and for votes."""

    TRAINING = "training"  # inner steps, whatever becomes of them
    SEALING = "sealing"
    WAITING = "waiting"
    MERGING = "merging"
    CHECKING = "checking"  # steps of others, taken again
    CATCHING_UP = "catching_up"
    PAUSED = "paused"
    DOWN = "down"


class Account:
    """One node's. `now_ns` tells the run's time."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._since_ns = now_ns()
        self._work: Stage | None = None  # what it computes
        self._is_down = self._is_paused = self._follows = False
        self.spent_ns = dict.fromkeys(Stage, 0)
        self.crashes = 0
        self._sealed_ns = 0  # of training, when it sealed its newest update
        self._trains_until_ns = 0  # for want of other work, see `trains_on`
        self._trained_on_ns = 0

    @property
    def stage(self) -> Stage:
        if self._is_down:
            return Stage.DOWN
        if self._is_paused:
            return Stage.PAUSED
        return self._work or (Stage.CATCHING_UP if self._follows else Stage.WAITING)

    def settle(self) -> None:
        """Enter the time up to now."""
        now_ns, stage = self._now_ns(), self.stage
        if stage in (Stage.WAITING, Stage.CATCHING_UP) and self._work is None:
            trained_ns = max(0, min(now_ns, self._trains_until_ns) - self._since_ns)
            self.spent_ns[Stage.TRAINING] += trained_ns
            self._trained_on_ns += trained_ns
            self._since_ns += trained_ns
        self.spent_ns[stage] += now_ns - self._since_ns
        self._since_ns = now_ns

    def trains_on(self, for_ns: int) -> None:
        """From now on it trains while it waits, for so long at most."""
        self.settle()
        self._trains_until_ns, self._trained_on_ns = self._now_ns() + for_ns, 0

    def stops_training_on(self) -> int:
        """For how long it has, in ns."""
        self.settle()
        trained_ns, self._trains_until_ns, self._trained_on_ns = self._trained_on_ns, 0, 0
        return trained_ns

    @contextmanager
    def at_work(self, stage: Stage) -> Iterator[None]:
        self.settle()
        self._work = stage
        try:
            yield
        finally:
            self.settle()
            self._work = None

    def sealed(self) -> int:
        """How long it has trained since it sealed an update before, in ns."""
        self.settle()
        before, self._sealed_ns = self._sealed_ns, self.spent_ns[Stage.TRAINING]
        return self._sealed_ns - before

    def goes_down(self) -> None:
        self.stops_training_on()
        self._is_down, self._follows = True, False
        self.crashes += 1

    def comes_up(self) -> None:
        self.settle()
        self._is_down = False

    def pauses(self, is_paused: bool) -> None:
        self.settle()
        self._is_paused = is_paused

    def follows(self, it_does: bool) -> None:
        """Whether it does nothing but catch up."""
        self.settle()
        self._follows = it_does


@dataclass(frozen=True, slots=True)
class Set:
    """What a certified vertex says: who contributed, by node, and all tokens so far."""

    round: int
    contributions: tuple[tuple[int, Contributor], ...]
    tokens_total: int


@dataclass(slots=True)
class Books:
    """Of all nodes, by number, and of the rounds as the first node told of them."""

    accounts: Sequence[Account]
    rounds: dict[int, dict[str, Any]] = field(default_factory=dict)  # by height
    aborted: set[int] = field(default_factory=set)
    sealed: Counter[int] = field(default_factory=Counter)  # updates, by node
    steps: Counter[int] = field(default_factory=Counter)  # in them
    trained_ns: dict[tuple[int, int], int] = field(default_factory=dict)  # by node and round
    end_ns: int = 0  # when the newest round was certified
    spent_ns: list[dict[Stage, int]] = field(default_factory=list)  # up to then, by node

    def on_event(self, node: int, event: Mapping[str, Any], now_ns: int) -> None:
        """An honest daemon says so."""
        match event["name"]:
            case names.DECISION if event["decision"] in ACTIONS:
                self.accounts[node].follows(event["decision"] == Action.CATCH_UP)
            case names.UPDATE_SEALED:
                self.sealed[node] += 1
                self.steps[node] += event["steps"]
                self.trained_ns[node, event["round"]] = self.accounts[node].sealed()
            case names.ROUND_ABORTED:
                self.aborted.add(event["round"])
            case names.ROUND_FINALIZED if event["height"] not in self.rounds:
                self.rounds[event["height"]] = {**event, "at_s": now_ns / NS}
                self.close(now_ns)
            case names.ROUND_FINALIZED if self.rounds[event["height"]]["loss_nats"] is None:
                self.rounds[event["height"]]["loss_nats"] = event["loss_nats"]  # who trains has it
            case _:
                pass

    def close(self, now_ns: int) -> None:
        for account in self.accounts:
            account.settle()
        self.end_ns = now_ns
        self.spent_ns = [dict(account.spent_ns) for account in self.accounts]

    def invariant(self) -> Invariant:
        """What honest books show; of tokens, the verifier of each chain says as much."""
        lost = [
            f"node {node}: {sum(spent_ns.values())} of {self.end_ns} ns"
            for node, spent_ns in enumerate(self.spent_ns)
            if sum(spent_ns.values()) != self.end_ns or min(spent_ns.values()) < 0
        ]
        return Invariant(NO_TIME_LOST, not lost, "; ".join(lost[:3]))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes by node."""

    sent: Mapping[int, int]
    received: Mapping[int, int]


def facts(
    books: Books, scenario: Scenario, sets: Sequence[Set], traffic: Traffic
) -> dict[str, Any]:
    """What a report always shows; shares are of 1, rounded to a hundredth of a percent."""
    told = [books.rounds[height] for height in sorted(books.rounds)]
    seconds = [event["wall_s"] for event in told]
    losses = [_loss(event, scenario) for event in told]
    contributors = sum(
        group.count
        for group in scenario.nodes
        if group.role != "observer" and group.trainer.contribute
    )
    tokens = sets[-1].tokens_total if sets else 0
    whole = _of_nodes(books, sets, range(scenario.node_count), traffic)
    contributed = sum(len(each.contributions) for each in sets)
    same = ("compute_utilisation", "useful_utilisation", "left_out", "crashes")
    return {
        "rounds": len(sets),
        "aborted": len(books.aborted),
        **{key: whole[key] for key in same},
        "participation": _share(contributed, len(sets) * contributors),
        "tokens_certified": tokens,
        "tokens_per_s": round(tokens * NS / max(1, books.end_ns), 3),
        "round_s": seconds,
        "round_s_mean": round(fmean(seconds), 3) if seconds else None,
        "round_s_max": round(max(seconds), 3) if seconds else None,
        "losses": losses,
        "loss_nats": losses[-1] if losses else None,
        "loss_over_time": [
            (round(event["at_s"], 3), loss)
            for event, loss in zip(told, losses, strict=True)
            if loss is not None
        ],
        "classes": _by_class(books, scenario, sets, traffic),
    }


def _loss(event: Mapping[str, Any], scenario: Scenario) -> float | None:
    loss_nats = event["loss_nats"]
    return None if loss_nats is None or scenario.is_nominal else round(loss_nats, 4)


def _by_class(
    books: Books, scenario: Scenario, sets: Sequence[Set], traffic: Traffic
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    first = 0
    for group in scenario.nodes:
        nodes = range(first, first + group.count)
        first += group.count
        name = group.name if group.name not in found else f"{group.name}-{first}"
        found[name] = _of_nodes(books, sets, nodes, traffic)
    return found


def _of_nodes(books: Books, sets: Sequence[Set], nodes: range, traffic: Traffic) -> dict[str, Any]:
    """Sums over some nodes."""
    places = [
        (node, each.round, made)
        for each in sets
        for node, made in each.contributions
        if node in nodes
    ]
    spent = [books.spent_ns[node] for node in nodes] if books.spent_ns else []
    spent_ns = {stage: sum(each[stage] for each in spent) for stage in Stage}
    end_ns, training_ns = max(1, books.end_ns), spent_ns[Stage.TRAINING]
    total_ns = end_ns * len(nodes)
    useful_ns = sum(books.trained_ns.get((node, at), 0) for node, at, _ in places)
    tokens = sum(made.tokens for _, _, made in places)
    return {
        "nodes": len(nodes),
        "participation": _share(len(places), len(sets) * len(nodes)),
        "left_out": max(0, sum(books.sealed[node] for node in nodes) - len(places)),
        "crashes": sum(books.accounts[node].crashes for node in nodes),
        "steps": sum(books.steps[node] for node in nodes),
        "steps_certified": sum(made.steps for _, _, made in places),
        "tokens_certified": tokens,
        "tokens_per_s": round(tokens * NS / end_ns, 3),
        "compute_utilisation": _share(training_ns, total_ns),
        "useful_utilisation": _share(useful_ns, total_ns),
        "compute_utilisation_while_up": _share(training_ns, total_ns - spent_ns[Stage.DOWN]),
        "share_of_time": {stage.value: _share(spent_ns[stage], total_ns) for stage in Stage},
        "sent_bytes": sum(traffic.sent.get(node, 0) for node in nodes),
        "received_bytes": sum(traffic.received.get(node, 0) for node in nodes),
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
