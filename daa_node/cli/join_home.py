"""The directory of a node that joins: one that is there, or one that is made.

    nothing there      -> keys, settings, genesis: the whole of a node, or nothing
    a node of this or of no network -> its keys stay, its settings enroll and dial the inviter
    anything else      -> refused, and left as it is

Settings that a person wrote stay as they are written, but for two: `enroll`, and whom to dial.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from daa_dag.ids import VertexId
from daa_node import config as node_config
from daa_node.adapters.host_looks import held_bytes
from daa_node.cli import identity, local, report
from daa_node.cli.data_directory import DataDirectory, read_text, rewrite, write_durably
from daa_node.cli.settings_edit import edited, with_items
from daa_node.cli.trusted import keep_trusted, trusted_text
from daa_node.config import NodeConfig
from daa_node.config_file import Loaded
from daa_node.errors import StorageFailed, UserError
from daa_node.genesis import Genesis
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import Role
from daa_node.network.config import BOOTSTRAP_MAX
from daa_node.network.invite_text import Invite
from daa_node.network.typed_addresses import multiaddr_of

ENROLL, BOOTSTRAP = ("enroll",), ("network", "bootstrap")


@dataclass(frozen=True, slots=True)
class Home:
    """The node's directory, as `keep` leaves it."""

    directory: DataDirectory
    keys: NodeKeys
    config: NodeConfig
    invite: Invite
    settings: str | None  # of one that is not there yet

    @classmethod
    def at(cls, root: Path, role: str, invite: Invite) -> "Home":
        """Raises UserError for a directory that cannot be this node's."""
        directory = DataDirectory(root)
        if not directory.is_free():
            return cls._of_node(directory, invite)
        if role not in (Role.CLOUD, Role.EDGE):
            raise UserError(f"--role {role}: cloud or edge")
        settings = local.settings_of(Role(role), bootstrap=invite.addresses, enrolls=True)
        loaded = node_config.load("config.yaml", settings, os.environ)
        _check_enrolls(loaded)
        return cls(directory, NodeKeys.generate(), loaded.value, invite, settings)

    @property
    def held_bytes(self) -> int:
        """What of the network has come before, and what was made of the data."""
        directory = self.directory
        return held_bytes([directory.chain, directory.work, directory.trainer])

    @classmethod
    def _of_node(cls, directory: DataDirectory, invite: Invite) -> "Home":
        root = directory.root
        begun = any(map(os.path.lexists, (directory.version, directory.begun)))
        if not begun and os.access(root, os.X_OK):
            raise UserError(
                f"{root} is not empty and holds no node. Give a --dir that is empty or not there: "
                "join makes it, with its config.yaml, and says then what else belongs there"
            )
        node = identity.open_node(root)
        if directory.genesis.exists():
            known = local.read_genesis(directory.genesis)
            if known.chain_id != invite.chain_id:
                raise UserError(
                    f"{root} is of a node of the network {known.job.name} (chain "
                    f"{known.chain_id.hex()[:16]}), and this invite is of another chain, "
                    f"{invite.chain_id.hex()[:16]}: give another --dir for it"
                )
        with directory.locked():
            pass  # no daemon runs here
        home = cls(directory, node.keys, node.config.value, invite, None)
        home._settings_now()  # refused before anybody is asked
        return home

    def keep(self, made: Genesis, anchor: VertexId | None) -> None:
        """Make it, if it is not there; each later start trusts the same.

        Raises StorageFailed, and UserError for settings that only their owner can change.
        """
        if self.settings is not None:
            trusted = None if anchor is None else trusted_text({made.chain_id: anchor})
            text = made.as_text()
            identity.create_node(self.directory.root, self.settings, self.keys, text, trusted)
            return
        before, after = self._settings_now()
        if anchor is not None:
            keep_trusted(self.directory.trusted, made.chain_id, anchor)
        if not self.directory.genesis.exists():
            try:
                write_durably(self.directory.genesis, made.as_text().encode())
            except OSError as failure:
                raise StorageFailed(
                    f"cannot write {self.directory.genesis}: {failure.strerror}"
                ) from failure
        if before != after:  # last: a node that enrolls has all that the same line gave it
            rewrite(self.directory.config, after)
            report.note(f"{self.directory.config} enrolls now, and dials whom the invite names")

    def _settings_now(self) -> tuple[str, str]:
        path = self.directory.config
        text = read_text(path, "configuration", identity.SETTINGS_REMEDY)
        return text, with_invite(str(path), text, self.invite.addresses)


def with_invite(name: str, text: str, addresses: Sequence[str]) -> str:
    """The settings in the file called `name`, once they enroll and dial these addresses, too.

    Raises UserError with the lines to write where they cannot be changed so.
    """
    loaded = node_config.load(name, text, os.environ)
    _check_enrolls(loaded)
    known = loaded.value.network.bootstrap
    new = [typed for typed in addresses if multiaddr_of(typed) not in known]
    new = new[: max(0, BOOTSTRAP_MAX - len(known))]
    if loaded.origin_of(BOOTSTRAP).startswith("environment"):
        new = []  # what the file says of it is not read
    changed = text
    try:
        if not loaded.value.enroll or loaded.origin_of(ENROLL).startswith("environment"):
            changed = edited(changed, "enroll", True, identity.ENROLLS_WHY)
        if new:
            changed = with_items(changed, ".".join(BOOTSTRAP), new, identity.BOOTSTRAP_WHY)
        found = node_config.load(name, changed, os.environ).value
    except UserError:
        found = loaded.value
    bootstrap = (*map(multiaddr_of, new), *known)
    network = loaded.value.network.model_copy(update={"bootstrap": bootstrap})
    if found != loaded.value.model_copy(update={"enroll": True, "network": network}):
        wanted = {"enroll": True, "network": {"bootstrap": [*new, *known]}}
        raise UserError(
            f"{name} is written in a way that is not known here. Write these settings there "
            f"yourself, and give the same line again:\n{_as_yaml(wanted)}"
        )
    return changed


def _as_yaml(wanted: dict[str, object]) -> str:
    return yaml.safe_dump(wanted, sort_keys=False).rstrip()


def _check_enrolls(loaded: Loaded[NodeConfig]) -> None:
    origin = loaded.origin_of(ENROLL)
    if not loaded.value.enroll and origin.startswith("environment"):
        raise UserError(f"{origin} says false, and who joins enrolls: take that variable out")
