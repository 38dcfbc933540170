"""What needs torch and finds none says so in one line, with the command, and does nothing."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from daa_node.adapters.asked_process import probe_device
from daa_node.cli import main as daa_node_cli
from daa_node.errors import UserError
from daa_node.training import torch_there
from daa_node.training.config import TrainerConfig
from simnet import cli as simnet_cli

COMMANDS = {
    "demo": ("demo", "--rounds", "1", "--dir", "d"),
    "join": ("join", "daa-invite", "--yes", "--dir", "d"),
    "sample": ("sample", "--prompt", "x", "--dir", "d"),
}
SIMULATIONS = {
    "run": ("run", "partition", "--out", "d"),
    "sweep": ("sweep", "--seeds", "1"),
    "twins": ("twins", "--n", "4"),
    "compare": ("compare", "partition", "--factor", "work.adaptive=true,false"),
}
RUNNER = CliRunner()


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the command is typed."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_here_it_is() -> None:
    assert torch_there.is_there()
    torch_there.need_torch("nothing")
    torch_there.check_trains(TrainerConfig())


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_command_that_trains_ends_at_once(no_torch: Path, words: tuple[str, ...]) -> None:
    refused = RUNNER.invoke(daa_node_cli.app, words).exception
    check(refused, no_torch)


@pytest.mark.parametrize("words", SIMULATIONS.values(), ids=SIMULATIONS)
def test_a_simulation_of_nodes_that_train_ends_at_once(
    no_torch: Path, words: tuple[str, ...]
) -> None:
    refused = RUNNER.invoke(simnet_cli.app, words).exception
    check(refused, no_torch)


def check(refused: BaseException | None, place: Path) -> None:
    assert isinstance(refused, UserError)
    assert refused.exit_code == 2
    assert str(refused).endswith(
        'needs PyTorch, and it is not installed here: pip install "daa-compute[train]"'
    )
    assert "\n" not in str(refused)
    assert not list(place.iterdir())


def test_nothing_is_asked_of_a_model(no_torch: Path) -> None:
    with pytest.raises(UserError, match="a process for the model needs PyTorch"):
        probe_device(TrainerConfig())


def test_a_node_that_never_trains_needs_none(no_torch: Path) -> None:
    torch_there.check_trains(TrainerConfig(contribute=False))
    with pytest.raises(UserError, match=r"pip install .*trainer\.contribute: false"):
        torch_there.check_trains(TrainerConfig())
