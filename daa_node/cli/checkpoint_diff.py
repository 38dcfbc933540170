"""What changed between two certified vertices, for people. Needs no daemon."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from daa_dag.checkpoint import Vertex
from daa_node.checkpoints.beside import temporary_room
from daa_node.checkpoints.certified import Past
from daa_node.checkpoints.difference import (
    BILLION,
    TensorChange,
    relative_ppb,
    rules,
    shares,
    tensor_changes,
)
from daa_node.checkpoints.export import Room, replayed_state
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.history import abbreviations, loss_below
from daa_node.checkpoints.own_chain import own_chain
from daa_node.checkpoints.replay import StateRules
from daa_node.cli import report
from daa_node.cli.checkpoint import open_chain, tags_of
from daa_node.errors import UserError
from daa_node.genesis import chain_facts
from daa_node.updates.grid import GRID_EXPONENT

MICRO = 1_000_000


def diff(root: Path, one: str, other: str, as_json: bool) -> None:
    """From `one` to `other`. Raises UserError unless both are certified and their states kept."""
    directory, made = open_chain(root)
    tags, facts = tags_of(directory, made), chain_facts(made)
    files = ChainFiles(directory.chain)
    past = own_chain(files, facts)
    base, later = (past.find(tags.spelled_out(text)) for text in (one, other))
    low, high = sorted((base.height, later.height))
    answer = {
        "from": _vertex(past, base),
        "to": _vertex(past, later),
        **_between([past.at(height) for height in range(low + 1, high + 1)]),
        **_changes(past, files, (base, later), facts.states),
    }
    if as_json:
        report.put_json(answer)
    else:
        _put(answer)


def _vertex(past: Past, vertex: Vertex) -> dict[str, Any]:
    above = None
    with suppress(UserError):  # damaged: nobody tells the loss
        above = past.at(vertex.height + 1) if vertex.height < past.height else None
    return {
        "vertex_id": vertex.vertex_id.hex(),
        "height": vertex.height,
        "training_round": vertex.training_round,
        "tokens_total": vertex.tokens_total,
        "loss_micronats": None if above is None else loss_below(above),
    }


def _between(steps: list[Vertex]) -> dict[str, Any]:
    """What happened on the way, whichever of the two is the later one."""
    return {
        "rounds": len(steps),
        "rules": [
            {"rule": rule.name, "f_agg": rule.f_agg, "rounds": rule.rounds} for rule in rules(steps)
        ],
        "contributors": [
            {
                "author": share.author.hex(),
                "rounds": share.rounds,
                "tokens": share.tokens,
                "steps": share.steps,
            }
            for share in shares(steps)
        ],
    }


def _changes(
    past: Past, files: ChainFiles, ends: tuple[Vertex, Vertex], states: StateRules
) -> dict[str, Any]:
    """From the first of the two to the second. Neither is whole in memory."""
    base, later = ends
    with temporary_room() as one, temporary_room() as other:
        base_D = replayed_state(past, base, states, Room(one, files)).weights_D
        later_D = replayed_state(past, later, states, Room(other, files)).weights_D
        changes = tensor_changes(states.tensors, base_D, later_D)
    change = sum(each.squared_change for each in changes)
    norm = sum(each.squared_base for each in changes)
    return {
        "grid_exponent": GRID_EXPONENT,
        "squared_change": change,
        "squared_base": norm,
        "relative_l2_ppb": relative_ppb(change, norm),
        "tensors": [_tensor(each) for each in changes],
    }


def _tensor(change: TensorChange) -> dict[str, Any]:
    return {
        "name": change.name,
        "parameters": change.parameters,
        "squared_change": change.squared_change,
        "squared_base": change.squared_base,
        "relative_l2_ppb": change.relative_ppb,
        "largest_change": change.largest,
        "largest_at": change.at,
    }


def _put(answer: dict[str, Any]) -> None:
    for word in ("from", "to"):
        end = answer[word]
        loss = end["loss_micronats"]
        told = "" if loss is None else f", loss {loss / MICRO:.4f} as contributors say"
        report.put(
            f"{word:<4} {end['vertex_id'][:16]}  height {end['height']}, "
            f"{end['tokens_total']} tokens{told}"
        )
    for rule in answer["rules"]:
        report.put(f"rule {rule['rule']}, f_agg {rule['f_agg']}: {rule['rounds']} rounds")
    short = abbreviations([bytes.fromhex(each["author"]) for each in answer["contributors"]])
    report.put()
    report.put_table(
        ("CONTRIBUTOR", "ROUNDS", "TOKENS", "STEPS"),
        [
            [short[bytes.fromhex(each["author"])], each["rounds"], each["tokens"], each["steps"]]
            for each in answer["contributors"]
        ],
    )
    report.put()
    whole = {"name": "all of it", "parameters": "", **answer}
    report.put_table(
        ("TENSOR", "PARAMETERS", "CHANGE / NORM", "LARGEST CHANGE", "AT"),
        [
            [
                each["name"],
                each["parameters"],
                _ratio(each["relative_l2_ppb"]),
                _weight(each.get("largest_change")),
                each.get("largest_at", ""),
            ]
            for each in (*answer["tensors"], whole)
        ],
    )


def _ratio(ppb: int | None) -> str:
    """None: it was all zeros."""
    return "from zero" if ppb is None else f"{ppb / BILLION:.3e}"


def _weight(grid: int | None) -> str:
    return "" if grid is None else f"{grid * 2.0**GRID_EXPONENT:+.3e}"
