"""Three figures of the field in simulation, by whole daemons in virtual time (fidelity `light`).

Goodput: the shipped scenario `goodput`, each node killed every 10 to 50 minutes, and once more with
nodes that take every step that the plan allows. Decoupled DiLoCo reports 88 % under aggressive
failures; their failures are theirs, so ours are printed with the result. With it, where the rest
went: nodes that are down, and steps that were taken and never certified, as shares of all time.

Utilisation: the model and the trainers' links of the shipped scenario `bandwidth`, 72 billion
parameters on 500/110 Mbit/s. Covenant-72B reports 94.5 %, with 20 minutes of training and 70 s of
synchronisation a round. Here every codec is run in short rounds, among 4 validators and among 20,
who do not train on: what a round takes besides is the same for longer ones, and so their
utilisation follows. The scenario itself tells what training on brings. An update that is uploaded
once goes through a store with a fast uplink; the daemon has none, and the rows tell what it would
bring.

Adaptive against naive: the shipped scenario `straggler`, and the last row of goodput.

    python benchmarks/simnet_goodput.py [goodput utilisation straggler] [--seeds 5] [--rounds 16]
        [--jobs 2] [--json]
"""

import argparse
import json
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import Any

from daa_node.config_file import Override
from simnet.checks.outcome import Outcome
from simnet.results import pool
from simnet.results.run import run
from simnet.world.scenario_file import open_scenario

CITED_GOODPUT = 0.88  # Decoupled DiLoCo
CITED_UTILISATION = 0.945  # Covenant-72B
KILLED_EVERY_MIN = (10, 20, 30, 50)  # each node, on average; the shipped file has 20
CONDITIONS = (*((minutes, True) for minutes in KILLED_EVERY_MIN), (20, False))
CASES = (  # codec, nodes, how often an author uploads its update
    ("int8", 4, 3),
    ("int4", 4, 3),
    ("top_k", 4, 3),
    ("top_k", 4, 1),
    ("top_k", 20, 19),  # nineteen uploads of the others do not fit the longest window, a day
    ("top_k", 20, 1),
)
TRAINED_STEPS = 10  # in the rounds that are run: what they take besides does not depend on it
HOURS = (1 / 3, 2.0, 2.5, 50 / 3)  # of training a round; a genesis allows no longer ones
UTILISATION_ROUNDS = 2  # the plan of the first asks for half of the steps: nobody's speed is known
PARTS = ("goodput", "utilisation", "straggler")


@dataclass(frozen=True)
class Goodput:
    killed_every_min: int
    adaptive: bool
    mean: float
    least: float
    greatest: float
    tokens_per_s: float
    tokens_per_s_without_faults: float
    participation: float
    crashes_a_round: float
    down: float  # of all time, as is the next
    lost_steps: float


@dataclass(frozen=True)
class Utilisation:
    codec: str
    nodes: int
    uploads: int  # of one update, by its author
    synchronisation_s: float
    utilisation: tuple[float, ...]  # for HOURS
    needed_h: float  # of training a round, for the cited utilisation


@dataclass(frozen=True)
class Straggler:
    adaptive: bool
    pictures_per_s: float
    virtual_s: float
    slow_participation: float


def simulated(name: str, seed: int | None = None, **changes: object) -> Outcome:
    """A shipped scenario with other keys, dots between their parts; what must hold has held."""
    overrides = []
    for key, value in changes.items():
        path = tuple(int(part) if part.isdigit() else part for part in key.split("."))
        overrides.append(Override(path, json.dumps(value), "benchmark"))
    outcome = run(open_scenario(name, seed=seed, overrides=overrides))
    broken = [invariant for invariant in outcome.invariants if not invariant.ok]
    assert not broken, broken
    return outcome


def goodputs_of(rounds: int, seed: int) -> list[dict[str, Any]]:
    """The facts of each condition with that seed; runs without faults are shared."""
    found = []
    for minutes, adaptive in CONDITIONS:
        changes = {
            "work.rounds": rounds,
            "work.adaptive": adaptive,
            "faults.0.percent": 100 / minutes,
        }
        found.append(simulated("goodput", seed, **changes).facts)
    return found


def goodput(condition: tuple[int, bool], facts: list[dict[str, Any]]) -> Goodput:
    minutes, adaptive = condition
    figures = [fact["goodput"] for fact in facts]
    return Goodput(
        minutes,
        adaptive,
        fmean(figures),
        min(figures),
        max(figures),
        fmean(fact["tokens_per_s"] for fact in facts),
        fmean(fact["tokens_per_s_without_faults"] for fact in facts),
        fmean(fact["participation"] for fact in facts),
        fmean(fact["crashes"] / fact["rounds"] for fact in facts),
        fmean(_share(fact, "down") for fact in facts),
        fmean(fact["compute_utilisation"] - fact["useful_utilisation"] for fact in facts),
    )


def _share(fact: dict[str, Any], stage: str) -> float:
    classes = fact["classes"].values()
    nodes = sum(each["nodes"] for each in classes)
    return float(sum(each["share_of_time"][stage] * each["nodes"] for each in classes) / nodes)


def utilisation(case: tuple[str, int, int]) -> Utilisation:
    codec, nodes, uploads = case
    shipped = open_scenario("bandwidth")
    step_s, trainers = shipped.work.step_s, shipped.nodes[-1]
    assert trainers.up_mbit_s is not None, "the scenario is about it"
    site = {
        "name": "site",
        "count": nodes,
        # to each of the others at the rate of one upload: the store's uplink does the rest
        "up_mbit_s": trainers.up_mbit_s * (nodes - 1) / uploads,
        "down_mbit_s": trainers.down_mbit_s,
    }
    steps = TRAINED_STEPS
    changes = {
        "nodes": [site],
        "work.train_on": False,
        "work.codec": codec,
        "work.inner_steps_max": steps,
        "work.rounds": UTILISATION_ROUNDS,
    }
    facts = simulated("bandwidth", **changes).facts
    synchronisation_s = facts["round_s"][-1] - steps * step_s
    share = CITED_UTILISATION / (1 - CITED_UTILISATION)
    return Utilisation(
        codec,
        nodes,
        uploads,
        synchronisation_s,
        tuple(hours * 3600 / (hours * 3600 + synchronisation_s) for hours in HOURS),
        synchronisation_s * share / 3600,
    )


def stragglers_of(seed: int) -> list[dict[str, Any]]:
    outcomes = [simulated("straggler", seed, **{"work.adaptive": a}) for a in (True, False)]
    return [{**outcome.facts, "virtual_s": outcome.virtual_s} for outcome in outcomes]


def straggler(adaptive: bool, facts: list[dict[str, Any]]) -> Straggler:
    return Straggler(
        adaptive,
        fmean(fact["tokens_per_s"] for fact in facts),
        fmean(fact["virtual_s"] for fact in facts),
        fmean(fact["classes"]["slow"]["participation"] for fact in facts),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=PARTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=16, help="of goodput")
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seeds, jobs, found = range(arguments.seeds), arguments.jobs, dict[str, list[Any]]()
    if "goodput" in arguments.parts:
        by_seed = list(pool.each(partial(goodputs_of, arguments.rounds), seeds, jobs))
        found["goodput"] = [
            goodput(condition, [each[place] for each in by_seed])
            for place, condition in enumerate(CONDITIONS)
        ]
    if "utilisation" in arguments.parts:
        found["utilisation"] = list(pool.each(utilisation, CASES, jobs))
    if "straggler" in arguments.parts:
        by_seed = list(pool.each(stragglers_of, seeds, jobs))
        found["straggler"] = [
            straggler(adaptive, [each[place] for each in by_seed])
            for place, adaptive in enumerate((True, False))
        ]
    if arguments.json:
        print(json.dumps({name: [asdict(each) for each in all_] for name, all_ in found.items()}))
    else:
        print_tables(found, arguments.rounds)


def print_tables(found: dict[str, list[Any]], rounds: int) -> None:
    if "goodput" in found:
        print(f"goodput over {rounds} rounds (Decoupled DiLoCo: {CITED_GOODPUT:.0%})")
    for each in found.get("goodput", ()):
        print(
            f"  killed every {each.killed_every_min} min, {_behaviour(each)}: {each.mean:6.1%}"
            f" ({each.least:.1%} to {each.greatest:.1%}), {each.tokens_per_s:.0f} useful tokens/s"
            f" of {each.tokens_per_s_without_faults:.0f}, participation {each.participation:.1%},"
            f" {each.crashes_a_round:.1f} crashes a round, down {each.down:.1%},"
            f" lost steps {each.lost_steps:.1%}"
        )
    if "utilisation" in found:
        print(f"compute utilisation, 72B on 500/110 Mbit/s (Covenant-72B: {CITED_UTILISATION:.1%})")
    for line in found.get("utilisation", ()):
        shares = zip(HOURS, line.utilisation, strict=True)
        print(
            f"  {line.codec:5} {line.nodes:2} nodes, uploaded {line.uploads:2} times,"
            f" synchronisation {line.synchronisation_s:7.0f} s: "
            + ", ".join(f"{share:.1%} at {hours:.1f} h" for hours, share in shares)
            + f"; {CITED_UTILISATION:.1%} takes rounds of {line.needed_h:.1f} h"
        )
    if "straggler" in found:
        print("two of eight nodes ten times slower")
    for each in found.get("straggler", ()):
        print(
            f"  {_behaviour(each)}: {each.pictures_per_s:.0f} pictures/s, eight rounds in"
            f" {each.virtual_s:.0f} s, the slow take part in {each.slow_participation:.0%}"
        )


def _behaviour(each: Goodput | Straggler) -> str:
    return "adaptive" if each.adaptive else "naive"


if __name__ == "__main__":
    main()
