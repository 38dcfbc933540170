"""Two figures of the field in simulation: goodput under failures, and utilisation on thin links.

Goodput: the shipped scenario `goodput`, adaptive and naive, several seeds. Decoupled DiLoCo reports
88 % under aggressive failures; their failures are theirs, so ours are printed with the result.

Utilisation: the shipped scenario `bandwidth`, 72 billion parameters on 500/110 Mbit/s. Covenant-72B
reports 94.5 % with updates 146 times smaller than fp32, 70 s of synchronisation a round. Here every
bit width is run with rounds of three lengths. int8 and int4 are what the protocol has; the others
are virtual. Nothing overlaps training, because nothing does in the daemon.

    python benchmarks/simnet_goodput.py [--seeds 5] [--json]
"""

import argparse
import json
from dataclasses import asdict, dataclass
from statistics import fmean

from daa_node.config_file import Override
from simnet.outcome import Outcome
from simnet.run import run
from simnet.scenario_file import open_scenario

CITED_GOODPUT = 0.88  # Decoupled DiLoCo
CITED_UTILISATION = 0.945  # Covenant-72B
CODECS = {  # bits a parameter
    "int8, today": 8.125,
    "int4, today": 4.125,
    "1 bit": 1.0,
    "146x under fp32": 32 / 146,
    "146x under bf16": 16 / 146,
}
HOURS = (1 / 3, 2.0, 50 / 3)  # of training a round; the last is the longest that a genesis allows
ROUNDS = 12


@dataclass(frozen=True)
class Goodput:
    conduct: str
    mean: float
    least: float
    greatest: float
    tokens_per_s: float
    participation: float
    crashes_a_round: float


@dataclass(frozen=True)
class Utilisation:
    codec: str
    training_h: float
    synchronisation_s: float
    utilisation: float
    needed_h: float  # of training a round, for the cited utilisation


def simulated(name: str, seed: int | None = None, **work: object) -> Outcome:
    """A shipped scenario with other keys under `work`; whatever must hold has to have held."""
    changes = [
        Override(("work", key), json.dumps(value), "benchmark") for key, value in work.items()
    ]
    outcome = run(open_scenario(name, seed=seed, overrides=changes))
    broken = [invariant for invariant in outcome.invariants if not invariant.ok]
    assert not broken, broken
    return outcome


def goodput(adaptive: bool, seeds: int) -> Goodput:
    facts = [simulated("goodput", seed, adaptive=adaptive).facts for seed in range(seeds)]
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


def utilisation(codec: str, training_h: float) -> Utilisation:
    step_s = open_scenario("bandwidth").work.step_s
    steps = round(training_h * 3600 / step_s)
    facts = simulated(
        "bandwidth", bits_per_parameter=CODECS[codec], inner_steps_max=steps, rounds=ROUNDS
    ).facts
    synchronisation_s = facts["round_s_max"] - steps * step_s
    share = CITED_UTILISATION / (1 - CITED_UTILISATION)
    return Utilisation(
        codec,
        training_h,
        synchronisation_s,
        facts["compute_utilisation"],
        synchronisation_s * share / 3600,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    goodputs = [goodput(adaptive, arguments.seeds) for adaptive in (True, False)]
    utilisations = [utilisation(codec, hours) for codec in CODECS for hours in HOURS]
    if arguments.json:
        found = {"goodput": goodputs, "utilisation": utilisations}
        print(json.dumps({name: [asdict(each) for each in all_] for name, all_ in found.items()}))
        return
    print(f"goodput under failures (Decoupled DiLoCo: {CITED_GOODPUT:.0%})")
    for each in goodputs:
        print(
            f"  {each.conduct:9} {each.mean:6.1%} ({each.least:.1%} to {each.greatest:.1%})"
            f"  {each.tokens_per_s:8.0f} useful tokens/s, participation {each.participation:.1%},"
            f" {each.crashes_a_round:.1f} crashes a round"
        )
    print(f"compute utilisation, 72B on 500/110 Mbit/s (Covenant-72B: {CITED_UTILISATION:.1%})")
    for line in utilisations:
        print(
            f"  {line.codec:16} {line.training_h:5.1f} h a round  {line.utilisation:6.1%}"
            f"  synchronisation {line.synchronisation_s:7.0f} s,"
            f" {CITED_UTILISATION:.1%} takes rounds of {line.needed_h:5.1f} h"
        )


if __name__ == "__main__":
    main()
