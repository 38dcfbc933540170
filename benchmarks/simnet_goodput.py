"""Two figures of the field in simulation: goodput under failures, and utilisation on thin links.

Goodput: the shipped scenario `goodput`, adaptive and naive, several seeds. Decoupled DiLoCo reports
88 % under aggressive failures; their failures are theirs, so ours are printed with the result.

Utilisation: the shipped scenario `bandwidth`, 72 billion parameters on 500/110 Mbit/s. Covenant-72B
reports 94.5 %, with 20 minutes of training and 70 s of synchronisation a round. Here every codec is
run in short rounds, among 4 nodes and among 20. Nothing overlaps training, because nothing does in
the daemon: what a round takes besides is the same for longer ones, and so their utilisation
follows. An update that is uploaded once goes through a store with a fast uplink; the daemon has
none, and the rows tell what it would bring.

    python benchmarks/simnet_goodput.py [--seeds 5] [--json]
"""

import argparse
import json
from dataclasses import asdict, dataclass
from statistics import fmean

from daa_node.config_file import Override
from simnet.checks.outcome import Outcome
from simnet.results.run import run
from simnet.world.scenario_file import open_scenario

CITED_GOODPUT = 0.88  # Decoupled DiLoCo
CITED_UTILISATION = 0.945  # Covenant-72B
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
ROUNDS = 2  # the plan of the first asks for half of the steps: nobody's speed is known


@dataclass(frozen=True)
class Goodput:
    behaviour: str
    mean: float
    least: float
    greatest: float
    tokens_per_s: float
    participation: float
    crashes_a_round: float


@dataclass(frozen=True)
class Utilisation:
    codec: str
    nodes: int
    uploads: int  # of one update, by its author
    synchronisation_s: float
    utilisation: tuple[float, ...]  # for HOURS
    needed_h: float  # of training a round, for the cited utilisation


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


def goodput(adaptive: bool, seeds: int) -> Goodput:
    changes = {"work.adaptive": adaptive}
    facts = [simulated("goodput", seed, **changes).facts for seed in range(seeds)]
    figures = [fact["goodput"] for fact in facts]
    return Goodput(
        "adaptive" if adaptive else "naive",
        fmean(figures),
        min(figures),
        max(figures),
        fmean(fact["tokens_per_s"] for fact in facts),
        fmean(fact["participation"] for fact in facts),
        fmean(fact["crashes"] / fact["rounds"] for fact in facts),
    )


def utilisation(codec: str, nodes: int, uploads: int) -> Utilisation:
    shipped = open_scenario("bandwidth")
    step_s, up_mbit_s = shipped.work.step_s, shipped.nodes[0].up_mbit_s
    assert up_mbit_s is not None, "the scenario is about it"
    steps = TRAINED_STEPS
    changes = {
        "nodes.0.count": nodes,
        # to each of the others at the rate of one upload: the store's uplink does the rest
        "nodes.0.up_mbit_s": up_mbit_s * (nodes - 1) / uploads,
        "work.codec": codec,
        "work.inner_steps_max": steps,
        "work.rounds": ROUNDS,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    goodputs = [goodput(adaptive, arguments.seeds) for adaptive in (True, False)]
    utilisations = [utilisation(*case) for case in CASES]
    if arguments.json:
        found = {"goodput": goodputs, "utilisation": utilisations}
        print(json.dumps({name: [asdict(each) for each in all_] for name, all_ in found.items()}))
        return
    print(f"goodput under failures (Decoupled DiLoCo: {CITED_GOODPUT:.0%})")
    for each in goodputs:
        print(
            f"  {each.behaviour:9} {each.mean:6.1%} ({each.least:.1%} to {each.greatest:.1%})"
            f"  {each.tokens_per_s:8.0f} useful tokens/s, participation {each.participation:.1%},"
            f" {each.crashes_a_round:.1f} crashes a round"
        )
    print(f"compute utilisation, 72B on 500/110 Mbit/s (Covenant-72B: {CITED_UTILISATION:.1%})")
    for line in utilisations:
        shares = zip(HOURS, line.utilisation, strict=True)
        print(
            f"  {line.codec:5} {line.nodes:2} nodes, uploaded {line.uploads:2} times,"
            f" synchronisation {line.synchronisation_s:7.0f} s: "
            + ", ".join(f"{share:.1%} at {hours:.1f} h" for hours, share in shares)
            + f"; {CITED_UTILISATION:.1%} takes rounds of {line.needed_h:.1f} h"
        )


if __name__ == "__main__":
    main()
