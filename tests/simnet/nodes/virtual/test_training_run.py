"""Whole daemons that train a model of which only the size counts, and what links allow them."""

from typing import Any

import pytest

from daa_node.errors import UserError
from daa_node.training.config import TrainingJob
from daa_node.updates.compression.codec import sizes_of
from simnet.checks.outcome import Outcome
from simnet.results.run import run
from simnet.world.job import job_of
from simnet.world.nominal_models import Nominal, beyond_limits
from simnet.world.scenario import Scenario
from simnet.world.scenario_file import open_scenario

UP_MBIT_S, MERGED_A_S = 110, 1e8


def scenario(large: int = 1, faults: Any = (), **work: Any) -> Scenario:
    """Four nodes, two rounds of twenty steps; `large` times a model, its links and its cores."""
    model = {
        "kind": "training",
        "model": "virtual",
        "parameters": 100_000_000 * large,
        "parameters_per_s": MERGED_A_S * large,
        "rounds": 2,
        "inner_steps_max": 20,
        "step_s": 0.5,
        "window_s": 100,
    }
    rates = {"up_mbit_s": UP_MBIT_S * large, "down_mbit_s": 500 * large}
    return Scenario.model_validate(
        {
            "name": "trial",
            "fidelity": "light",
            "duration_s": 1000,
            "nodes": [{"count": 4, **rates}],
            "topology": {"preset": "regional", "mbit_s": 1000 * large},
            "work": {**model, **work},
            "faults": faults,
            "checks": {"finalizations_after_heal": 1},
        }
    )


def broken(outcome: Outcome) -> list[str]:
    return [f"{i.name}: {i.detail}" for i in outcome.invariants if not i.ok]


def test_the_large_model_weighs_what_its_codecs_say() -> None:
    job = job_of(scenario())
    training = TrainingJob(
        model=job.model, data=job.data, inner=job.inner, updates=job.updates, seed=job.seed
    )
    nominal = Nominal.of(training, 72 * 10**9)
    small = sizes_of(("int8", "int4"), training.model.parameter_count())
    large = sizes_of(("int8", "int4"), 72 * 10**9)
    assert {codec: nominal.weigh(size) for codec, size in small.items()} == large
    assert nominal.weigh(training.model.parameter_count()) == 72 * 10**9  # of a state: its share


def test_of_a_sparse_delta_a_block_weighs_as_much_as_a_small_one() -> None:
    job = job_of(scenario(codec="top_k"))
    training = TrainingJob(model=job.model, data=job.data, updates=job.updates)
    nominal = Nominal.of(training, 4096 * 1000)
    assert training.model.parameter_count() < 4096
    assert nominal.weigh(333) == 333_000
    assert nominal.weigh(4 * training.model.parameter_count()) == 4 * 4096 * 1000  # a state


def training_on(mbit_s: int, rounds: int) -> Scenario:
    """Members and two trainers on links of so much each way; a round has twenty steps of 0.5 s."""
    work: dict[str, Any] = {"codec": "top_k", "train_on": True, "rounds": rounds}
    fields = scenario(**work, parameters=10**9, parameters_per_s=1e10).model_dump()
    site = fields["nodes"][0] | {"up_mbit_s": mbit_s, "down_mbit_s": mbit_s}
    trainers = site | {"name": "trainer", "count": 2, "role": "trainer"}
    return Scenario.model_validate(fields | {"nodes": [site, trainers]})


def test_who_trains_on_waits_for_no_link_and_trainers_fetch_the_delta_alone() -> None:
    """Trainers come into a round seconds late, with the steps that they have taken meanwhile."""
    outcome = run(training_on(250, rounds=4))
    assert not broken(outcome)
    facts, trained_s = outcome.facts, 20 * 0.5
    assert facts["participation"] == 1.0
    update = sizes_of(("top_k",), 10**9)["top_k"]
    exchange_s = 5 * update * 8 / 250e6  # from each member to all others
    assert exchange_s > 0.3 * trained_s
    assert max(facts["round_s"][2:]) < 1.1 * trained_s
    trainer = facts["classes"]["trainer"]
    assert trainer["steps_certified"] > 0.9 * 2 * (10 + 3 * 20)
    # A union of six has 4.4 updates' bytes: it is fetched once, and not five updates beside it. By
    # the seed one chunk in twenty comes twice.
    assert trainer["received_bytes"] < 0.95 * 2 * 4 * 5 * update


def test_who_trains_on_lacks_no_step_after_the_first_round_which_is_half_as_long() -> None:
    """Its updates and its delta take longer than ten steps, and not as long as the next twenty."""
    outcome = run(training_on(140, rounds=2))
    assert not broken(outcome)
    assert outcome.facts["round_s"][0] > 1.5 * 10 * 0.5
    assert outcome.facts["classes"]["trainer"]["steps_certified"] == 2 * (10 + 20)


@pytest.mark.long
def test_utilisation_on_thin_links_is_what_the_links_allow() -> None:
    """Three uploads over 110 Mbit/s, sealing and merging keep nodes from training, and no K does.

    K is how many times larger than the real numbers the model is. With ten times the model, the
    links and the cores everything takes as long as before.
    """
    outcomes = [run(scenario(large)) for large in (1, 10)]
    for outcome in outcomes:
        assert not broken(outcome)
    facts, of_ten = (outcome.facts for outcome in outcomes)
    upload_s = 3 * 8 * 101_562_500 / (UP_MBIT_S * 1e6)
    synchronisation_s = facts["round_s"][1] - 20 * 0.5
    assert synchronisation_s == pytest.approx(upload_s + 2 * 1e8 / MERGED_A_S, rel=0.05)
    # A round's length is that of the node that ends it first, and into the first round each node
    # comes at a moment of its own start. When that round ended shows in when the whole run did.
    assert of_ten["round_s"][1:] == pytest.approx(facts["round_s"][1:], rel=0.01)
    assert outcomes[1].virtual_s == pytest.approx(outcomes[0].virtual_s, rel=0.01)
    assert of_ten["compute_utilisation"] == pytest.approx(facts["compute_utilisation"], rel=0.01)
    assert facts["participation"] == facts["goodput"] == 1.0
    sent = facts["classes"]["node"]["sent_bytes"]
    assert sent == pytest.approx(2 * 12 * 101_562_500, rel=0.01)


@pytest.mark.long
def test_a_crash_costs_its_nodes_round_and_not_the_others() -> None:
    """It dies in the middle of its second round, and fetches what it missed."""
    kill = {"kind": "kill", "at_s": 50.0, "for_s": 20.0, "nodes": [3]}
    outcome = run(scenario(faults=[kill], rounds=3))
    assert not broken(outcome)
    assert outcome.facts["crashes"] == 1
    assert outcome.facts["rounds"] == 3
    assert 0.5 < outcome.facts["goodput"] < 1.0
    shares = outcome.facts["classes"]["node"]["share_of_time"]
    assert shares["down"] > 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"adversaries": [{"kind": "poisoner"}]}, "cannot be poisoned"),
    ],
)
def test_what_this_world_cannot_do_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    fields = {**scenario().model_dump(exclude_defaults=True), **changes}
    with pytest.raises(UserError, match=said):
        run(Scenario.model_validate(fields))


def test_what_is_beyond_todays_limits_is_said() -> None:
    assert beyond_limits(open_scenario("bandwidth"))
    assert not beyond_limits(open_scenario("goodput"))
