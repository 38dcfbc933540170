"""A node's beginning: directory, keys, settings, and the record that a genesis is made from."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from daa_node import config as node_config
from daa_node.adapters.key_files import create_keys, load_keys, mark_unused
from daa_node.adapters.own_addresses import hosts_for
from daa_node.adapters.system_clock import SystemClock
from daa_node.cli.data_directory import DataDirectory, read_text
from daa_node.cli.store_formats import check_formats
from daa_node.config import NodeConfig
from daa_node.config_file import Loaded, Override
from daa_node.errors import PeerFault, StorageFailed, UserError
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import (
    RECORD_LIFETIME_NS,
    NodeRecord,
    Role,
    decode_record,
    encode_record,
    sign_record,
)
from daa_node.seams import Address, PeerId
from daa_node.system_calls import cores
from daa_node.training.config import TrainerConfig

THREADS = re.compile(r"\bthreads: (\d+)")
SETTINGS_REMEDY = "restore it, or make an empty file, as every setting has a default"
# Behind what we write into config.yaml.
ENROLLS_WHY = "it trains, and says so again whenever it was away"
BOOTSTRAP_WHY = "told us of the network"
RECORD_WORD = "daa-record-1"  # the first word of a record's one line of text


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node's directory, opened: keys and settings are loaded and checked."""

    directory: DataDirectory
    keys: NodeKeys
    config: Loaded[NodeConfig]


def create_node(
    root: Path,
    settings: str,
    keys: NodeKeys | None = None,
    genesis_text: str | None = None,
    trusted_text: str | None = None,
) -> NodeKeys:
    """Make directory, keys and a commented config.yaml that begins with `settings`.

    The keys are fresh ones, unless the caller gives them. `genesis_text`: of the node's network, if
    that is there already; `trusted_text`: what its chain must hold, if something must.

    Raises UserError if anything is there already, StorageFailed if the disk refuses.
    """
    directory = DataDirectory(root)
    directory.create()
    keys = keys or NodeKeys.generate()
    try:
        mark_unused(directory.agreement, keys.node_id)
        create_keys(directory.keys, keys)
        _write_settings(directory.config, settings)
        if genesis_text is not None:
            _write_text(directory.genesis, genesis_text)
        if trusted_text is not None:
            _write_text(directory.trusted, trusted_text)
        directory.complete()
    except BaseException:  # told to stop, too: half a node would stand in the way of the next try
        directory.clear()
        raise
    return keys


def _write_settings(path: Path, settings: str) -> None:
    reference = "\n".join(["# Every setting, its default and its meaning:", "#"])
    reference += "\n" + "\n".join(node_config.reference())
    _write_text(path, f"{settings.rstrip()}\n\n{reference}\n")


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as failure:
        raise StorageFailed(f"cannot write {path}: {failure.strerror}") from failure


def role_settings(role: Role) -> str:
    """The settings that suit a role, each with its reason: a file of this project's configs/.

    The worker gets no more threads than this host has cores beside the daemon's own.
    """
    spare = max(1, cores() - 1)
    text = packaged_config(f"{role}.yaml")
    return THREADS.sub(lambda found: f"threads: {min(int(found[1]), spare)}", text)


def packaged_config(name: str) -> str:
    """The text of a file of configs/, from a checkout or from where pip installed it."""
    import sys

    places = [
        Path(__file__).parents[2] / "configs" / name,
        Path(sys.prefix) / "share" / "daa-compute" / "configs" / name,
    ]
    for place in places:
        if place.is_file():
            return place.read_text()
    raise UserError(f"{name} is missing from this installation; looked at {places[0]}")


def open_node(
    root: Path, config_path: Path | None = None, flags: tuple[Override, ...] = ()
) -> LocalNode:
    """Load what lies in a node's directory. Raises UserError for whatever is wrong with it."""
    directory = DataDirectory(root)
    directory.check()
    check_formats(directory)
    config = open_config(directory, config_path, flags)
    return LocalNode(directory, load_keys(directory.keys), config)


def open_config(
    directory: DataDirectory, config_path: Path | None = None, flags: tuple[Override, ...] = ()
) -> Loaded[NodeConfig]:
    path = config_path or directory.config
    text = read_text(path, "configuration", SETTINGS_REMEDY)
    return node_config.load(str(path), text, os.environ, flags)


def trainer_settings(config: NodeConfig, directory: DataDirectory) -> TrainerConfig:
    """Those of the worker; relative paths start at this node's own directory."""
    path = config.trainer.module_path
    if path is None:
        return config.trainer
    return config.trainer.model_copy(update={"module_path": directory.root.resolve() / path})


def addresses_of(config: NodeConfig, peer_id: PeerId) -> tuple[Address, ...]:
    """What others can dial, with the peer id at the end. Raises UserError without a fixed port."""
    network = config.network
    plain = list(network.announce)
    for address in () if plain else network.listen:
        _, kind, host, tcp, port = address.split("/")[:5]
        if port == "0":
            raise UserError(
                f"network.listen has {address}, so nobody knows which port to dial: give it a "
                "fixed port, or set network.announce"
            )
        plain += [f"/{kind}/{own}/{tcp}/{port}" for own in hosts_for(kind, host)]
    return tuple(Address(f"{address}/p2p/{peer_id}") for address in plain)


def make_record(node: LocalNode) -> bytes:
    """This node's signed record as of now, for a genesis."""
    config, keys = node.config.value, node.keys
    return sign_own_record(keys, config, addresses_of(config, keys.peer_id))


def sign_own_record(keys: NodeKeys, config: NodeConfig, addresses: tuple[Address, ...]) -> bytes:
    """The record of a node with these keys, as of now."""
    now_ns = SystemClock().wall_ns()
    record = NodeRecord(
        ml_dsa_public_key=keys.ml_dsa_public_key,
        ml_kem_public_key=keys.ml_kem_public_key,
        peer_id=keys.peer_id,
        addresses=addresses,
        role=config.role,
        capabilities=(),
        sequence=now_ns // 1_000_000_000,  # seconds: later records replace earlier ones
        issued_ns=now_ns,
        expiry_ns=now_ns + RECORD_LIFETIME_NS,
    )
    return encode_record(sign_record(record, keys))


def record_as_text(payload: bytes) -> str:
    return f"{RECORD_WORD} {payload.hex()}"


def record_from_file(path: Path) -> bytes:
    """The bytes in a file that `daa-node id --record` wrote. Raises UserError.

    Line breaks and a byte order mark, which mail and editors put in, mean nothing.
    """
    text = read_text(path, "record", "write one with `daa-node id --record > FILE`")
    word, *pieces = text.removeprefix("\ufeff").split() or [""]
    if word != RECORD_WORD:
        raise UserError(f"{path} is no record: write one with `daa-node id --record > FILE`")
    try:
        payload = bytes.fromhex("".join(pieces))
        decode_record(payload)
    except (ValueError, PeerFault) as fault:
        if isinstance(fault, PeerFault) and fault.reason == "record-version":
            raise UserError(
                f"{path} was written by another version ({fault.detail}): write it anew with "
                "`daa-node id --record > FILE`"
            ) from None
        raise UserError(
            f"{path} is a record that was cut or changed on its way: copy it again, or write it "
            "anew with `daa-node id --record > FILE`"
        ) from None
    return payload
