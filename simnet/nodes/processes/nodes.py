"""The directories of real nodes: keys from the scenario's seed, one genesis, settings of each."""

import json
from pathlib import Path

from daa_node import genesis
from daa_node.cli import identity, local
from daa_node.cli.data_directory import DataDirectory
from daa_node.errors import UserError
from daa_node.genesis import Genesis
from daa_node.identity.keys import NodeKeys
from simnet.nodes.processes import hardware
from simnet.nodes.processes.daemon import Nature
from simnet.nodes.processes.internets import Addresses
from simnet.nodes.processes.kernel import NODES_MAX
from simnet.world.adversaries.disguise import behaviour_of, liars_of
from simnet.world.determinism import Streams
from simnet.world.job import job_of
from simnet.world.node_classes import NodesConfig
from simnet.world.scenario import Scenario

LOG_BYTES_MAX = 10**9  # one file, never rotated: the tool follows it by its length


def check_scenario(scenario: Scenario) -> None:
    """Raise UserError, by name, for what real processes cannot do."""
    work, count = scenario.work, scenario.node_count
    refused = [
        (work.model != "mlp", f"work.model {work.model}: daemons train the mlp"),
        (count > NODES_MAX, f"{count} nodes, at most {NODES_MAX} real processes"),
    ]
    for index, adversary in enumerate(scenario.adversaries):
        name = f"adversaries[{index}] {adversary.kind}"
        several = behaviour_of(adversary).daemons > 1
        refused.append((several, f"{name}: two daemons under one key, and one ear for both"))
    found = [why for wrong, why in refused if wrong]
    if found:
        raise UserError(f"the fidelity process cannot do {'; '.join(found)}")


def make_nodes(
    scenario: Scenario, root: Path, addresses: Addresses, workers: Path, dialable: bool
) -> list[Nature]:
    """A directory for each node below `root`, ready for `daa-node run`. Raises UserError.

    Observers have all that validators have, but for a place in the genesis.
    """
    count, streams = scenario.node_count, Streams(scenario.seed)
    directories = [root / f"node-{index}" for index in range(count)]
    groups = [scenario.group_of(index) for index in range(count)]
    of_keys = streams.below("keys")
    keys = [NodeKeys.from_seed(of_keys.bytes(f"node {index}")) for index in range(count)]
    records, stakes, trainers = [], [], []
    for index, directory in enumerate(directories):
        dials = [
            f"{addresses.dial(index, other)}/p2p/{keys[other].peer_id}"
            for other in range(count)
            if other != index and other not in addresses.hidden
        ]
        settings = _settings(addresses.listening[index], addresses.announced, dials, groups[index])
        identity.create_node(directory, settings, keys[index])
        if groups[index].role in ("observer", "newcomer"):
            continue
        record = str(directory), identity.make_record(identity.open_node(directory))
        if groups[index].role == "trainer":
            trainers.append(record)
        else:
            records.append(record)
            stakes.append(groups[index].stake)
    nonce = streams.bytes("network", genesis.NONCE_BYTES)
    made = genesis.create(job_of(scenario), records, nonce, stakes, trainers)
    liars, fastest = liars_of(scenario, keys), max(group.speed for group in groups)
    natures = []
    for index, directory in enumerate(directories):
        local.write_genesis(DataDirectory(directory).genesis, made)
        name, slowness = keys[index].node_id.hex(), fastest / groups[index].speed
        nature = Nature(name, directory, workers, dialable, slowness, liar=liars.get(index))
        hardware.set_clock(nature.clock, 0, 0)
        natures.append(nature)
    return natures


def genesis_of(directory: Path) -> Genesis:
    return local.read_genesis(DataDirectory(directory).genesis)


def _settings(listen: str, announce: str | None, dials: list[str], group: NodesConfig) -> str:
    return (
        "# Written by simnet for one run.\n"
        "network:\n"
        f"  listen: [{listen}]\n"
        f"  announce: {json.dumps([announce] if announce else [])}\n"
        f"  bootstrap: {json.dumps(dials)}\n"
        f"  relay: {json.dumps(group.relay)}\n"
        f"{_limits(group)}"
        f"enroll: {json.dumps(group.role == 'newcomer')}\n"
        f"trainer: {{device: cpu, contribute: {json.dumps(group.trainer.contribute)}}}\n"
        f"log: {{file_bytes_max: {LOG_BYTES_MAX}}}\n"
    )


def _limits(group: NodesConfig) -> str:
    """What the class says of its bulk, as lines of the section `network`."""
    told = {} if group.limits is None else group.limits.model_dump(exclude_none=True)
    return "".join(f"  {key}: {json.dumps(value)}\n" for key, value in told.items())
