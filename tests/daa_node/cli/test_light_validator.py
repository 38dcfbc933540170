"""A base install: no torch comes with it, and a validator that never trains runs on it.

One cluster of four daemons for all: three train, and one is in an environment without torch.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from daa_node.autonomy.reason import NEVER_TRAINS
from daa_node.cli import identity
from daa_node.rounds.config import EndConfig
from tests.daa_node.cli.bare_environment import ROOT, bare_environment, base_distributions
from tests.daa_node.cli.test_daemon import STARTED_S, TINY, network, until

pytestmark = pytest.mark.usefixtures("warm")  # not whoever has no torch

ROUNDS = 3
TRAINS = {"torch", "nvidia-cublas", "triton", "sympy", "transformers", "peft", "accelerate"}


@dataclass(frozen=True)
class Mixed:
    """A network whose job is done: `nodes[0]` never trained. Its daemons still run."""

    nodes: list[Path]
    python: Path  # of the environment without torch
    status: list[dict[str, Any]]

    def light(self, *words: object) -> "subprocess.CompletedProcess[str]":
        """`daa-node` there."""
        command = [str(self.python), "-m", "daa_node", *map(str, words)]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=STARTED_S
        )

    def events(self, number: int) -> list[dict[str, Any]]:
        lines = (self.nodes[number] / "events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@contextmanager
def daemon(node: Path, python: Path) -> Iterator[None]:
    words = [str(python), "-m", "daa_node", "run", "--with-parent", "--dir", str(node)]
    with (node / "told").open("ab") as told:
        running = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stderr=told)
    try:
        yield
    finally:
        running.kill()
        running.wait()
        assert running.stdin is not None
        running.stdin.close()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    place = tmp_path_factory.mktemp("mixed")
    python = bare_environment(place / "bare") / "python"
    nodes = network(place, 4, TINY.model_copy(update={"end": EndConfig(rounds=ROUNDS)}))
    with (nodes[0] / "config.yaml").open("a") as config:
        config.write("trainer: {contribute: false}\n")
    with ExitStack() as stack:
        stack.enter_context(daemon(nodes[0], python))
        until(nodes[0], "the light one answers", lambda said: True)  # the others start at once
        for node in nodes[1:]:
            stack.enter_context(daemon(node, Path(sys.executable)))
        status = [until(node, "job done", lambda said: said["done"]) for node in nodes]
        yield Mixed(nodes, python, status)


def test_a_base_install_brings_nothing_that_trains() -> None:
    assert TRAINS.isdisjoint(base_distributions())
    assert {"numpy", "libp2p", "trio"} <= base_distributions().keys()


def test_one_that_never_trains_merges_to_what_the_others_have(mixed: Mixed) -> None:
    assert {said["model_root"] for said in mixed.status} == {mixed.status[0]["model_root"]}
    assert {said["height"] for said in mixed.status} == {ROUNDS}
    names = [event["name"] for event in mixed.events(0)]
    assert "set_executed" in names
    assert "trainer_lost" not in names
    assert not {"update_sealed", "trainer_refused"} & {*names}
    reasons = [event["reason"] for event in mixed.events(0) if event["name"] == "decision"]
    assert NEVER_TRAINS in reasons


def test_nobody_expects_a_contribution_of_it(mixed: Mixed) -> None:
    told = "\n".join((node / "events.jsonl").read_text() for node in mixed.nodes[1:])
    assert re.search(r"all 3 contributions|of 3 contributions", told)


def test_it_shows_the_losses_that_others_tell_and_none_of_its_own(mixed: Mixed) -> None:
    assert mixed.status[0]["loss_nats"] is None
    assert mixed.status[1]["loss_nats"] > 0
    said = mixed.light("rounds", "--json", "--dir", mixed.nodes[0])
    lines = json.loads(said.stdout)["rounds"]
    me = mixed.status[0]["node_id"]
    assert [line["height"] for line in lines] == list(range(ROUNDS + 1))
    assert not any(me in line["contributors"] for line in lines)
    assert all(line["loss_nats"] > 0 for line in lines[:-1])
    assert lines[-1]["loss_nats"] is None
    assert mixed.light("rounds", "--dir", mixed.nodes[0]).returncode == 0
    told = mixed.light("status", "--dir", mixed.nodes[0])
    assert "not measured: this node never trains" in told.stdout, told.stderr
    peers = json.loads(mixed.light("peers", "--json", "--dir", mixed.nodes[1]).stdout)["peers"]
    assert [peer["node_id"] for peer in peers if peer["never_trains"]] == [me]


def test_without_torch_a_chain_is_verified_and_a_host_looked_at(mixed: Mixed) -> None:
    gone = subprocess.run([mixed.python, "-c", "import torch"], check=False, capture_output=True)
    assert gone.returncode == 1
    done = mixed.light("checkpoint", "verify", "--dir", mixed.nodes[1])
    assert "everything holds" in done.stdout, done.stderr
    looked = json.loads(mixed.light("doctor", "--json", "--dir", mixed.nodes[0]).stdout)
    (device,) = [found for found in looked["findings"] if found["check"] == "device"]
    assert device["level"] == "ok"


def test_without_torch_a_node_that_is_to_train_names_both_ways_out(
    mixed: Mixed, tmp_path: Path
) -> None:
    identity.create_node(tmp_path / "n", "network: {listen: []}\n")
    (tmp_path / "n" / "genesis.json").write_bytes((mixed.nodes[0] / "genesis.json").read_bytes())
    done = mixed.light("run", "--dir", tmp_path / "n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: this node is to train, and PyTorch is not installed here. Install it: pip install "
        '"daa-compute[train]". Or have it vote, merge and serve without training: set '
        "trainer.contribute: false in config.yaml\n"
    )
    assert not (tmp_path / "n" / "chain").exists()
