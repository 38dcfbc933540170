"""Who did what for how long: the books of a training run, a node and a class of nodes each.

A node is in one stage at any moment, so the times of its stages add up to the whole run. Invariants
are what books must show: no time is lost, every byte received was sent, and the tokens that classes
claim are those that the chain counts.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from simnet.links import NS
from simnet.outcome import Invariant
from simnet.scenario import Scenario


class Stage(StrEnum):
    """What a node's time goes into; waiting is for others, for links and for votes."""

    TRAINING = "training"  # inner steps, whatever becomes of them
    SEALING = "sealing"
    WAITING = "waiting"
    MERGING = "merging"
    CATCHING_UP = "catching_up"
    PAUSED = "paused"
    DOWN = "down"


@dataclass(slots=True)
class Account:
    """One node's."""

    stage: Stage = Stage.WAITING
    since_ns: int = 0
    spent_ns: dict[Stage, int] = field(default_factory=lambda: dict.fromkeys(Stage, 0))
    rounds: int = 0  # certified, with a contribution of this node
    rounds_late: int = 0  # offered, and left out
    steps: int = 0  # sealed
    steps_certified: int = 0
    tokens_certified: int = 0
    useful_ns: int = 0  # of training, as far as its steps were certified
    sent_bytes: int = 0
    received_bytes: int = 0
    crashes: int = 0

    def enter(self, stage: Stage, now_ns: int) -> None:
        assert now_ns >= self.since_ns, "time runs forwards"
        self.spent_ns[self.stage] += now_ns - self.since_ns
        self.stage, self.since_ns = stage, now_ns


@dataclass(slots=True)
class Books:
    """Of all nodes, by number, and of the rounds."""

    accounts: list[Account]
    tokens_total: int = 0
    sets: list[int] = field(default_factory=list)  # contributions of each certified round
    round_ns: list[int] = field(default_factory=list)  # how long each of them took
    certified_ns: list[int] = field(default_factory=list)  # and when it was there
    losses: list[tuple[float, float]] = field(default_factory=list)  # (virtual s, nats)
    aborted: int = 0
    hits: Counter[str] = field(default_factory=Counter)  # of situations that a sweep looks for

    def hit(self, name: str) -> None:
        self.hits[name] += 1

    def invariants(self, end_ns: int) -> list[Invariant]:
        """What must hold of any run, once all accounts were closed at `end_ns`."""
        lost = [
            f"node {node}: {sum(account.spent_ns.values())} of {end_ns} ns"
            for node, account in enumerate(self.accounts)
            if sum(account.spent_ns.values()) != end_ns or min(account.spent_ns.values()) < 0
        ]
        sent = sum(account.sent_bytes for account in self.accounts)
        received = sum(account.received_bytes for account in self.accounts)
        tokens = sum(account.tokens_certified for account in self.accounts)
        rounds = sum(account.rounds for account in self.accounts)
        return [
            Invariant("no_time_is_lost", not lost, "; ".join(lost[:3])),
            Invariant("bytes_balance", sent == received, f"{sent} sent, {received} received"),
            Invariant(
                "tokens_balance",
                tokens == self.tokens_total,
                f"{tokens} claimed, the chain counts {self.tokens_total}",
            ),
            Invariant(
                "participation_balances",
                rounds == sum(self.sets),
                f"{rounds} claimed, the sets hold {sum(self.sets)}",
            ),
        ]


def facts(books: Books, scenario: Scenario, end_ns: int) -> dict[str, Any]:
    """What a report always shows; shares are of 1, rounded to a hundredth of a percent."""
    rounds, count = len(books.sets), scenario.node_count
    total_ns = max(1, end_ns * count)
    training_ns = sum(account.spent_ns[Stage.TRAINING] for account in books.accounts)
    useful_ns = sum(account.useful_ns for account in books.accounts)
    seconds = [ns / NS for ns in books.round_ns]
    return {
        "rounds": rounds,
        "aborted": books.aborted,
        "participation": _share(sum(books.sets), rounds * count),
        "compute_utilisation": _share(training_ns, total_ns),
        "useful_utilisation": _share(useful_ns, total_ns),
        "tokens_certified": books.tokens_total,
        "tokens_per_s": round(books.tokens_total / max(end_ns / NS, 1e-9), 3),
        "round_s_mean": round(sum(seconds) / rounds, 3) if rounds else None,
        "round_s_max": round(max(seconds), 3) if rounds else None,
        "left_out": sum(account.rounds_late for account in books.accounts),
        "crashes": sum(account.crashes for account in books.accounts),
        "loss_nats": round(books.losses[-1][1], 4) if books.losses else None,
        "loss_over_time": [(round(at_s, 3), round(loss, 4)) for at_s, loss in books.losses],
        "classes": _by_class(books, scenario, end_ns, rounds),
    }


def _by_class(books: Books, scenario: Scenario, end_ns: int, rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    first = 0
    for group in scenario.nodes:
        accounts = books.accounts[first : first + group.count]
        first += group.count
        name = group.name if group.name not in found else f"{group.name}-{first}"
        found[name] = _class(accounts, rounds, max(1, end_ns))
    return found


def _class(accounts: Sequence[Account], rounds: int, end_ns: int) -> dict[str, Any]:
    total_ns = end_ns * len(accounts)
    up_ns = total_ns - sum(account.spent_ns[Stage.DOWN] for account in accounts)
    training_ns = sum(account.spent_ns[Stage.TRAINING] for account in accounts)

    def total(name: str) -> int:
        return sum(getattr(account, name) for account in accounts)

    return {
        "nodes": len(accounts),
        "participation": _share(total("rounds"), rounds * len(accounts)),
        "left_out": total("rounds_late"),
        "crashes": total("crashes"),
        "steps": total("steps"),
        "steps_certified": total("steps_certified"),
        "tokens_certified": total("tokens_certified"),
        "tokens_per_s": round(total("tokens_certified") * NS / end_ns, 3),
        "compute_utilisation": _share(training_ns, total_ns),
        "useful_utilisation": _share(total("useful_ns"), total_ns),
        "compute_utilisation_while_up": _share(training_ns, up_ns),
        "share_of_time": {
            stage.value: _share(sum(a.spent_ns[stage] for a in accounts), total_ns)
            for stage in Stage
        },
        "sent_bytes": total("sent_bytes"),
        "received_bytes": total("received_bytes"),
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
