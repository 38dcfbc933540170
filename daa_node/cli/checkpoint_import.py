"""Certified vertices from another directory of the same chain. Needs no daemon, here or there."""

import os
from contextlib import suppress
from pathlib import Path

import trio

from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.adapters.disk_journal import open_journal
from daa_node.adapters.key_files import KeyUse, load_keys
from daa_node.adapters.offload import ThreadOffload
from daa_node.adapters.system_clock import SystemEntropy
from daa_node.agreement.signer import Signer
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.intake import Intake, carry_out, plan_intake
from daa_node.checkpoints.layout import BLOCKS
from daa_node.cli import local, report
from daa_node.cli.data_directory import NAME_CHARACTERS, DataDirectory
from daa_node.errors import StorageFailed, UserError
from daa_node.genesis import chain_facts
from daa_node.packs.format import PACKS


def take_in(root: Path, source: Path, as_json: bool) -> None:
    """Raises UserError for whatever is wrong, and then nothing was taken."""
    directory = DataDirectory(root)
    directory.check()
    made = local.read_genesis(directory.genesis)
    there = source / "chain" if os.path.isdir(source / "chain") else source
    if not os.path.isdir(there):
        raise UserError(f"{source} is no directory: name a node's, or the chain/ in one")
    if not any(os.path.isdir(there / kind) for kind in (BLOCKS, PACKS)):
        raise UserError(f"{source} holds no chain: name a node's directory, or the chain/ in one")
    _check_network(there, directory, made.chain_id.hex())
    with directory.locked():
        directory.take_up(made.chain_id.hex())
        if directory.chain.is_dir() and there.samefile(directory.chain):
            raise UserError(f"{source} is this node's own chain: name another directory")
        own = ChainFiles(directory.chain) if directory.chain.is_dir() else None
        intake = plan_intake(ChainFiles(there), own, chain_facts(made))
        if intake.coming:
            try:
                trio.run(_carry_out, intake, directory)
            except StorageFailed as failure:
                raise StorageFailed(f"nothing was taken: {failure}") from failure
    _tell(intake, as_json)


def _check_network(there: Path, directory: DataDirectory, chain: str) -> None:
    """Raises UserError where the node that has the other chain says that it is of another one.

    What says nothing is found out by its blocks.
    """
    with suppress(OSError, UnicodeDecodeError):
        other = (there.parent / directory.network.name).read_text().strip()
        if other and other != chain:
            raise UserError(
                f"nothing was taken: {there} is of chain {other[:NAME_CHARACTERS]}, and "
                f"{directory.root} of another one, {chain[:NAME_CHARACTERS]}: name a directory of "
                "the same network"
            )


async def _carry_out(intake: Intake, directory: DataDirectory) -> None:
    keys, chain_id = load_keys(directory.keys), intake.facts.chain_id
    use = KeyUse(directory.agreement, keys.node_id, chain_id)
    if not use.begun and intake.height_before == 0:
        # What a first start does. Later, beside a chain, the absence of all votes looks like their
        # loss, and the node would have to ask the others before it votes.
        async with open_journal(directory.agreement, ThreadOffload()) as journal:
            await Signer(keys, chain_id, journal, SystemEntropy()).load()
        use.begin()
    await carry_out(intake, DiskBlobStore(directory.chain), DiskBlobStore(directory.work))


def _tell(intake: Intake, as_json: bool) -> None:
    height, files = intake.newest.height, len(intake.coming)
    if as_json:
        answer = {
            "height_before": intake.height_before,
            "height": height,
            "vertex_id": intake.newest.vertex_id.hex(),
            "files": files,
            "files_gone": len(intake.going),
        }
        report.put_json(answer)
        return
    if not intake.coming:
        report.put(f"nothing new is there: height {intake.height_before} is here already")
        return
    report.put(
        f"took heights {intake.height_before + 1} to {height}: {files} files, every one proved. "
        f"The newest vertex is {intake.newest.vertex_id.hex()}"
    )
    if intake.going:
        report.put(
            f"let {len(intake.going)} files of older states go: what was taken begins above them"
        )
