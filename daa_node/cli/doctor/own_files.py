"""Checks of a node's own directory: what it holds, whether it fits together, and who has it."""

import os
from collections.abc import Iterator

from daa_node.cli.compose import training_job
from daa_node.cli.data_directory import STORE_VERSION
from daa_node.cli.doctor.findings import Finding, amiss, well, wrong
from daa_node.cli.doctor.scene import Scene
from daa_node.cli.starting import RETIRED, check_start, has_retired
from daa_node.cli.store_formats import check_formats
from daa_node.errors import NodeError, UserError
from daa_node.observability import events as names

STAYS_RETIRED = "Nothing, if it is to stay so; take `enroll` out of config.yaml, and nobody wonders"
DIGITS = 16  # of an id, as far as a person compares them


async def look_at_directory(scene: Scene) -> list[Finding]:
    """Whether it is a node's, of which format, and whether we may write in it."""
    root = scene.directory.root
    fault = scene.faults.get("directory")
    if fault is not None:
        return [wrong("directory", fault)]
    if os.statvfs(root).f_flag & os.ST_RDONLY:
        return [
            wrong(
                "directory",
                f"cannot write in {root}: its file system is mounted read-only",
                "Mount it to be written to, and look why it is not: a failing disk is mounted so "
                "(`dmesg`)",
            )
        ]
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        owner = root.stat().st_uid
        return [
            wrong(
                "directory",
                f"cannot write in {root}: it belongs to user {owner}, and this process runs as "
                f"user {os.geteuid()}",
                "Run daa-node as the owner of the directory, or chown the whole of it",
            )
        ]
    try:
        check_formats(scene.directory)
    except NodeError as fault:
        return [wrong("directory", str(fault))]
    version = int(scene.directory.version.read_text())
    older = "" if version == STORE_VERSION else f"; the next run makes it {STORE_VERSION}"
    return [well("directory", f"{root} has format version {version}{older}")]


async def look_at_config(scene: Scene) -> list[Finding]:
    """Whether config.yaml and the environment are settings of a node."""
    if "config" in scene.faults:
        return [wrong("config", scene.faults["config"])]
    return [well("config", "every setting is known and in its range")]


async def look_at_keys(scene: Scene) -> list[Finding]:
    """Whether the three keys are there, whole, and nobody else's to read."""
    if scene.keys is None:
        return [wrong("keys", scene.faults["keys"])]
    return [well("keys", f"node {scene.keys.node_id.hex()[:DIGITS]}")]


async def look_at_genesis(scene: Scene) -> list[Finding]:
    """Whether genesis.json is whole, and all that lies here is of its chain."""
    if scene.made is None:
        return [wrong("genesis", scene.faults["genesis"])]
    chain = scene.made.chain_id.hex()
    found = []
    running = scene.status.get("chain_id", chain)
    if running != chain:
        found.append(
            wrong(
                "genesis",
                f"the daemon that runs here is in chain {str(running)[:DIGITS]}, and "
                f"{scene.directory.genesis} is of chain {chain[:DIGITS]}",
            )
        )
    held = _held_chain(scene)
    if held not in (None, chain) and running == chain:
        found.append(
            amiss(
                "genesis",
                f"what lies in {scene.directory.root} is of chain {str(held)[:DIGITS]}, and "
                f"{scene.directory.genesis} is of chain {chain[:DIGITS]}",
            )
        )
    name = scene.made.job.name
    return found or [well("genesis", f"network {name}, chain {chain[:DIGITS]}")]


def _held_chain(scene: Scene) -> str | None:
    try:
        return scene.directory.network.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None  # it has been in none yet


async def look_at_settings(scene: Scene) -> list[Finding]:
    """Whether this node's settings are such that this network can be trained with them."""
    assert scene.config is not None
    assert scene.made is not None
    try:
        check_start(scene.made, scene.directory, scene.config)
        training_job(scene.made, scene.directory, scene.config)
    except UserError as fault:
        return [wrong("settings", str(fault))]
    if scene.config.enroll and has_retired(scene.directory, scene.made.chain_id):
        return [amiss("settings", f"enroll is true, and {RETIRED}", STAYS_RETIRED)]
    return [well("settings", "this network can be trained with them")]


async def look_at_identity(scene: Scene) -> list[Finding]:
    """Whether a daemon runs with these keys, here or elsewhere."""
    return list(_identities(scene))


def _identities(scene: Scene) -> Iterator[Finding]:
    if "identity" in scene.faults:
        yield wrong("identity", scene.faults["identity"])
        return
    if scene.runs is None:
        yield well("identity", "no daemon runs in this directory")
    elif scene.status:
        yield well(
            "identity",
            f"the daemon of this directory runs, pid {scene.runs}, and answers. A second one would "
            f"be told: {scene.directory.in_use(scene.runs)}",
        )
    else:
        yield amiss(
            "identity",
            f"{scene.directory.in_use(scene.runs)}. It does not answer: "
            f"{scene.faults.get('status', 'it says nothing')}",
        )
    for event in scene.log:
        if event.get("name") == str(names.KEY_ELSEWHERE):
            yield wrong(
                "identity",
                f"the keys of this node are in use elsewhere, too: {event.get('why')}",
            )
            return
