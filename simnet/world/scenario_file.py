"""Find a scenario by path or by the name of a shipped one, and read it with every fault placed."""

import difflib
import json
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import yaml

import simnet
from daa_node import config_file
from daa_node.config_file import Override
from daa_node.errors import UserError
from simnet.world.scenario import Scenario

_BESIDE_THE_CODE = Path(simnet.__file__).parents[1] / "configs" / "scenarios"
_INSTALLED = Path(sysconfig.get_path("data")) / "share" / "daa-compute" / "configs" / "scenarios"


def shipped() -> dict[str, Path]:
    """The scenarios that come with the project, by name."""
    for folder in (_BESIDE_THE_CODE, _INSTALLED):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    return {}


def open_scenario(
    name: str,
    nodes: int | None = None,
    seed: int | None = None,
    fidelity: str | None = None,
    overrides: Sequence[Override] = (),
) -> Scenario:
    """Raises UserError: no such file, or every fault in it as file:line:col."""
    path = _find(name)
    overrides = list(overrides)
    if nodes is not None:
        overrides.append(Override(("nodes", 0, "count"), json.dumps(nodes), "flag --nodes"))
    if seed is not None:
        overrides.append(Override(("seed",), json.dumps(seed), "flag --seed"))
    if fidelity is not None:
        overrides.append(Override(("fidelity",), json.dumps(fidelity), "flag --fidelity"))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise UserError(f"{path} cannot be read: {failure}") from None
    return config_file.load(str(path), text, Scenario, overrides).value


def as_text(scenario: Scenario) -> str:
    """A file that `open_scenario` reads back to the same scenario: what differs from defaults."""
    plain = scenario.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)


def _find(name: str) -> Path:
    path = Path(name)
    if path.is_file():
        return path
    known = shipped()
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, 1, 0.5)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    raise UserError(
        f"there is no file {name}, and no shipped scenario of that name{hint}; "
        f"shipped: {', '.join(known) or 'none'}"
    )
