"""The directories of real nodes: keys from the scenario's seed, one genesis, settings of each."""

import json
from pathlib import Path
from typing import Protocol

from daa_node import genesis
from daa_node.agreement.config import AgreementConfig
from daa_node.checkpoints.config import CheckpointsConfig
from daa_node.cli import identity, local
from daa_node.cli.data_directory import DataDirectory
from daa_node.errors import UserError
from daa_node.genesis import EndConfig, Genesis, Job
from daa_node.identity.keys import NodeKeys
from daa_node.rounds.config import RoundsConfig
from daa_node.training.config import DataConfig, EvaluationConfig, InnerConfig, ModelConfig
from simnet.determinism import Streams
from simnet.processes.namespaces import NODES_MAX
from simnet.scenario import Scenario
from simnet.training.payloads import updates_of

MS_PER_S = 1000
LOG_BYTES_MAX = 10**9  # one file, never rotated: the tool follows it by its length
CAN_FAIL = ("partition", "hold", "slow", "loss", "kill", "pause", "attrition")


class Places(Protocol):
    """Where nodes are, as multiaddrs without a peer's name."""

    def listen(self, node: int) -> str: ...

    def announce(self, node: int) -> str | None: ...

    def dial(self, node: int, other: int) -> str: ...


def check_scenario(scenario: Scenario) -> None:
    """Raise UserError, by name, for what real processes cannot do."""
    refused = [
        (scenario.work.kind != "training", f"work.kind {scenario.work.kind}: daemons train"),
        (scenario.work.model != "mlp", f"work.model {scenario.work.model}: daemons train the mlp"),
        (
            scenario.node_count > NODES_MAX,
            f"{scenario.node_count} nodes, at most {NODES_MAX} real processes",
        ),
        (bool(scenario.adversaries), "adversaries: every process is the real daemon"),
    ]
    for group in scenario.nodes:
        name = f"nodes of class {group.name}"
        refused += [
            (group.role != "validator", f"{name} as {group.role}: every daemon is a validator"),
            (group.speed != 1.0, f"{name} of speed {group.speed}: they train on this machine"),
            (group.stake != scenario.nodes[0].stake, f"{name} of another stake"),
        ]
    for index, fault in enumerate(scenario.faults):
        if fault.kind not in CAN_FAIL:
            refused.append((True, f"faults[{index}] {fault.kind}: disks and clocks are real"))
    found = [why for wrong, why in refused if wrong]
    if found:
        raise UserError(f"the fidelity process cannot do {'; '.join(found)}")


def job_of(scenario: Scenario) -> Job:
    """A perceptron on the digits that come with the package, at the scenario's pace."""
    work = scenario.work
    return Job(
        name=scenario.name,
        seed=scenario.seed,
        model=ModelConfig(kind="mlp", depth=1, width=32),
        data=DataConfig(kind="digits"),
        inner=InnerConfig(
            batch_size=16, warmup_steps=0, total_steps=work.rounds * work.inner_steps_max
        ),
        evaluation=EvaluationConfig(windows=64),
        updates=updates_of(scenario),
        rounds=RoundsConfig(
            inner_steps_max=work.inner_steps_max,
            window_ms=int(work.window_s * MS_PER_S),
            exec_ms=int(work.window_s * MS_PER_S),
        ),
        agreement=AgreementConfig(
            delta_ms=work.delta_ms,
            view_timeout_cap_ms=max(12_000, 12 * work.delta_ms),  # two doublings at the least
            epoch_rounds=work.epoch_rounds,
        ),
        checkpoints=CheckpointsConfig(snapshot_every=4),
        end=EndConfig(rounds=work.rounds),
    )


def make_nodes(scenario: Scenario, root: Path, places: Places) -> list[Path]:
    """A directory for each node below `root`, ready for `daa-node run`. Raises UserError."""
    count = scenario.node_count
    directories = [root / f"node-{index}" for index in range(count)]
    streams = Streams(scenario.seed).below("keys")
    keys = [NodeKeys.from_seed(streams.bytes(f"node {index}")) for index in range(count)]
    records = []
    for index, directory in enumerate(directories):
        dials = [
            f"{places.dial(index, other)}/p2p/{keys[other].peer_id}"
            for other in range(count)
            if other != index
        ]
        settings = _settings(places.listen(index), places.announce(index), dials)
        identity.create_node(directory, settings, keys[index])
        records.append((str(directory), identity.make_record(identity.open_node(directory))))
    made = genesis.create(job_of(scenario), records, scenario.nodes[0].stake)
    for directory in directories:
        local.write_genesis(DataDirectory(directory).genesis, made)
    return directories


def genesis_of(directory: Path) -> Genesis:
    return local.read_genesis(DataDirectory(directory).genesis)


def _settings(listen: str, announce: str | None, dials: list[str]) -> str:
    return (
        "# Written by simnet for one run.\n"
        "network:\n"
        f"  listen: [{listen}]\n"
        f"  announce: {json.dumps([announce] if announce else [])}\n"
        f"  bootstrap: {json.dumps(dials)}\n"
        "trainer: {device: cpu}\n"
        f"log: {{file_bytes_max: {LOG_BYTES_MAX}}}\n"
    )
