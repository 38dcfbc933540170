"""Another run to hold beside this one: what it took in time to come to which loss.

Either the answer of `daa-node rounds --json`, or that of `simnet run --json`, of a run whose nodes
do not adapt, say (`work.adaptive: false`). It is the operator's own file, read as it is: what it
says is shown, and nothing is decided by it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from daa_node.errors import UserError

FILE_BYTES_MAX = 16 * 1024 * 1024  # 1,024 rounds of a hundred members are 14 MB
ROUNDS_TOLD_MAX = 1_024  # of more, every second, third and so on
NAME_CHARACTERS_MAX = 80
ROUND_S_MAX = 1e9  # thirty years: what is longer is no time, and sums of it would be no numbers
HOW = "it is neither the answer of `daa-node rounds --json` nor that of `simnet run --json`"


@dataclass(frozen=True, slots=True)
class BaselineRound:
    """`at_s`: how long all rounds took up to its end, from the first on."""

    height: int
    at_s: float
    wall_s: float
    loss_nats: float | None


@dataclass(frozen=True, slots=True)
class Baseline:
    """One run, with the lowest height first."""

    name: str
    rounds: tuple[BaselineRound, ...]
    useful_share: float | None  # of its nodes' time, in steps that counted; None: not told

    def as_told(self) -> dict[str, Any]:
        step = -(-len(self.rounds) // ROUNDS_TOLD_MAX)
        kept = [one for at, one in enumerate(reversed(self.rounds)) if at % step == 0]
        return {
            "name": self.name,
            "useful_share": self.useful_share,
            "rounds": [
                {
                    "height": one.height,
                    "at_s": round(one.at_s, 3),
                    "wall_s": round(one.wall_s, 3),
                    "loss_nats": one.loss_nats,
                }
                for one in reversed(kept)
            ],
        }


def baseline_in(text: bytes, file_name: str) -> Baseline:
    """Raises UserError, with the name of the file, for what is neither of the two answers."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"{file_name}: {HOW}: it is no JSON") from None
    match answer:
        case {"rounds": list(rows)}:
            rounds = _rounds(
                [
                    (row.get("height"), row.get("wall_s"), row.get("loss_nats"))
                    for row in rows
                    if isinstance(row, dict)
                ]
            )
            name, share = file_name, None
        case {"scenario": str(scenario), "seed": int(seed), "facts": dict(facts)}:
            rounds = _rounds(_of_facts(facts))
            name, share = f"{scenario}, seed {seed}", _number(facts.get("useful_utilisation"))
        case _:
            raise UserError(f"{file_name}: {HOW}")
    if not any(one.loss_nats is not None for one in rounds):
        raise UserError(
            f"{file_name}: none of its rounds has a time and a loss. Of a daemon, take one that "
            "has walked them; of simnet, a run of work that trains, and of fidelity light "
            "or trio"
        )
    return Baseline(name[:NAME_CHARACTERS_MAX], rounds, share)


def _of_facts(facts: Mapping[str, Any]) -> list[tuple[Any, Any, Any]]:
    times, losses = facts.get("round_s"), facts.get("losses")
    if not isinstance(times, list) or not isinstance(losses, list):
        return []
    return [
        (height, wall_s, loss)
        for height, (wall_s, loss) in enumerate(zip(times, losses, strict=False), 1)
    ]


def _rounds(rows: Sequence[tuple[Any, Any, Any]]) -> tuple[BaselineRound, ...]:
    """Those from the last one on whose time nobody knows: before it there is no telling when."""
    found: list[BaselineRound] = []
    for height, wall_s, loss in rows:
        seconds = _number(wall_s)
        if not isinstance(height, int) or isinstance(height, bool) or seconds is None:
            continue
        is_time = 0 < seconds <= ROUND_S_MAX
        if not is_time or (found and height != found[-1].height + 1):
            found.clear()
        if is_time:
            at_s = seconds + (found[-1].at_s if found else 0.0)
            found.append(BaselineRound(height, at_s, seconds, _number(loss)))
    return tuple(found)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
