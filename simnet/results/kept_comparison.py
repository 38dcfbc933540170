"""What `simnet compare --out` leaves beside its runs: which had which value of the factor."""

import json
import re
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from daa_node.errors import UserError
from simnet.checks.outcome import OUTCOME_FILE, SCHEMA_VERSION
from simnet.world.scenario import STRICT

COMPARISON_FILE = "comparison.json"
NAME_CHARACTERS_MAX = 40  # of a value, in the name of its folder


class KeptRuns(BaseModel):
    """The runs with one value of the factor: a folder a seed, below that of the comparison."""

    model_config = STRICT

    value: str
    seeds: tuple[int, ...] = Field(min_length=1)
    folders: tuple[str, ...] = Field(min_length=1)


class KeptComparison(BaseModel):
    """What `simnet compare --out` leaves beside the runs."""

    model_config = STRICT

    schema_version: int = SCHEMA_VERSION
    factor: str
    columns: tuple[KeptRuns, ...] = Field(min_length=2)


def open_comparison(folder: Path) -> KeptComparison | None:
    """None where none was kept. Raises UserError for what is none, or was ended."""
    path = folder / COMPARISON_FILE
    try:
        return KeptComparison.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        _check_no_part(folder)
        return None
    except OSError as failure:
        raise UserError(f"{path} cannot be read: {failure.strerror}") from None
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(map(str, first["loc"]))
        why = f"{where}: {first['msg']}" if where else first["msg"]
        raise UserError(
            f"{path}: this is no comparison of runs ({why}): make it anew with `simnet compare "
            f"... --out {folder}`"
        ) from None


def _check_no_part(folder: Path) -> None:
    run = min(folder.glob(f"*-*/seed-*/{OUTCOME_FILE}"), default=None)
    if run is not None and not (folder / OUTCOME_FILE).exists():
        raise UserError(
            f"{folder} holds some runs of a comparison that did not end: make it anew with `simnet "
            f"compare ... --out {folder}`, or name one of its runs, like {run.parent}"
        )


def forget_comparison(folder: Path) -> None:
    """Before other runs take the place of its own. Raises UserError."""
    try:
        (folder / COMPARISON_FILE).unlink(missing_ok=True)
    except OSError as failure:
        raise UserError(f"--out {folder}: {failure.strerror}") from None


def write_comparison(folder: Path, kept: KeptComparison) -> None:
    """Raises UserError."""
    path = folder / COMPARISON_FILE
    text = json.dumps(kept.model_dump(mode="json"), indent=1)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as failure:
        raise UserError(f"{path} cannot be written: {failure.strerror}") from None


def run_folder(place: int, value: str, seed: int) -> str:
    """Of one run, below the comparison's folder; `place` of the value among them, from 1."""
    named = re.sub(r"[^A-Za-z0-9.-]+", "_", value)[:NAME_CHARACTERS_MAX]
    return f"{place}-{named}/seed-{seed}"
