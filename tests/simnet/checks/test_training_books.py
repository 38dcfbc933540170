"""Books of a run that trains: no time is lost, classes beside means."""

from collections.abc import Callable, Mapping
from typing import Any

from daa_dag.checkpoint import Contributor
from daa_dag.ids import ContributionRoot, NodeId
from simnet.checks.training_books import Account, Books, Set, Stage, Traffic, facts
from simnet.world.links import NS
from simnet.world.node_classes import WorkersConfig
from simnet.world.scenario import Scenario

SCENARIO = Scenario.model_validate(
    {
        "name": "pair",
        "nodes": [{"name": "quick", "count": 1}, {"name": "slow", "count": 1, "speed": 0.5}],
        "work": {"kind": "training"},
    }
)


class Time:
    """Stands where it is put."""

    def __init__(self) -> None:
        self.s = 0.0

    def now_ns(self) -> int:
        return round(self.s * NS)


def event(name: str, **fields: Any) -> Mapping[str, Any]:
    return {"name": name, **fields}


def finalized(height: int, loss_nats: float | None = 0.5) -> Mapping[str, Any]:
    return event("round_finalized", height=height, wall_s=10.0, loss_nats=loss_nats)


def contributed(node: int, steps: int) -> tuple[int, Contributor]:
    root = ContributionRoot(bytes(32))
    return node, Contributor(NodeId(bytes([node]) * 32), root, 1, steps, 32 * steps, 10**6, 0, 0)


def test_a_node_that_trains_on_does_so_only_while_it_has_nothing_else_to_do() -> None:
    time = Time()
    account = Account(time.now_ns)
    account.trains_on(6 * NS)
    time.s = 2
    account.pauses(True)
    time.s = 3
    account.pauses(False)
    time.s = 5
    assert account.stops_training_on() == 4 * NS  # not while it stood still
    with account.at_work(Stage.MERGING):
        time.s = 6
    account.trains_on(2 * NS)
    time.s = 9
    assert account.stops_training_on() == 2 * NS  # there was no more to do
    time.s = 10
    account.settle()
    spent_s = {stage: spent_ns / NS for stage, spent_ns in account.spent_ns.items() if spent_ns}
    assert spent_s == {
        Stage.TRAINING: 6.0,
        Stage.PAUSED: 1.0,
        Stage.MERGING: 1.0,
        Stage.WAITING: 2.0,
    }


def test_a_node_is_in_one_stage_at_any_moment() -> None:
    time = Time()
    account = Account(time.now_ns)
    changes: tuple[tuple[int, Callable[[], None]], ...] = (
        (4, lambda: account.follows(True)),
        (5, lambda: account.pauses(True)),
        (7, lambda: account.pauses(False)),
        (8, account.goes_down),  # whatever it did is over
        (11, account.comes_up),
    )
    for at_s, change in changes:
        time.s = at_s
        change()
    time.s = 12
    with account.at_work(Stage.TRAINING):
        time.s = 20
    account.settle()
    spent_s = {stage.value: ns / NS for stage, ns in account.spent_ns.items() if ns}
    assert spent_s == {"waiting": 5, "catching_up": 2, "paused": 2, "down": 3, "training": 8}
    assert account.crashes == 1


def test_what_dies_at_its_work_does_not_go_on_with_it() -> None:
    time = Time()
    account = Account(time.now_ns)
    with account.at_work(Stage.TRAINING):
        time.s = 2
        account.goes_down()
        time.s = 5
    account.settle()
    assert account.stage is Stage.DOWN
    assert account.spent_ns[Stage.TRAINING] == 2 * NS


def test_facts_are_those_of_the_time_up_to_the_newest_certified_round() -> None:
    time = Time()
    books = Books([Account(time.now_ns) for _ in range(2)])
    with books.accounts[0].at_work(Stage.TRAINING):
        time.s = 6
    for node in (0, 1):
        books.on_event(node, event("update_sealed", round=1, steps=6 - 3 * node), time.now_ns())
    time.s = 10
    for node in (0, 1):
        books.on_event(node, finalized(1), time.now_ns())
        time.s = 17  # the second has it later, and the run goes on
    books.accounts[1].goes_down()
    sets = [Set(1, (contributed(0, 6),), 192)]
    assert books.invariant().ok
    found = facts(books, SCENARIO, sets, Traffic({0: 5}, {1: 4}))
    assert found["tokens_per_s"] == 19.2
    assert found["participation"] == 0.5
    assert found["compute_utilisation"] == found["useful_utilisation"] == 0.3
    assert found["left_out"] == found["classes"]["slow"]["left_out"] == 1
    assert found["loss_over_time"] == [(10.0, 0.5)]
    assert found["classes"]["quick"]["share_of_time"]["training"] == 0.6
    assert found["classes"]["quick"]["sent_bytes"] == 5
    assert found["classes"]["slow"]["tokens_certified"] == 0


def test_a_loss_is_of_the_first_who_measured_it_and_who_never_trains_is_not_missed() -> None:
    books = Books([Account(Time().now_ns) for _ in range(2)])
    for node, loss_nats in ((0, None), (1, 0.25)):
        books.on_event(node, finalized(1, loss_nats), (node + 1) * NS)
    quick, slow = SCENARIO.nodes
    light = quick.model_copy(update={"trainer": WorkersConfig(contribute=False)})
    scenario = SCENARIO.model_copy(update={"nodes": (light, slow)})
    found = facts(books, scenario, [Set(1, (contributed(1, 6),), 192)], Traffic({}, {}))
    assert found["loss_over_time"] == [(1.0, 0.25)]
    assert found["participation"] == 1.0


def test_a_model_of_which_only_the_size_counts_has_no_loss() -> None:
    books = Books([Account(Time().now_ns) for _ in range(2)])
    books.on_event(0, finalized(1, 0.0), NS)
    work = SCENARIO.work.model_copy(update={"model": "virtual"})
    nominal = SCENARIO.model_copy(update={"work": work})
    found = facts(books, nominal, [Set(1, (), 0)], Traffic({}, {}))
    assert found["loss_nats"] is None
    assert not found["loss_over_time"]


def test_books_that_lose_time_are_found_out() -> None:
    time = Time()
    books = Books([Account(time.now_ns) for _ in range(2)])
    time.s = 10
    books.close(10 * NS)
    assert books.invariant().ok
    books.close(11 * NS)
    assert not books.invariant().ok
    assert "node 0" in books.invariant().detail
