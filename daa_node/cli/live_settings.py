"""The settings of a running daemon: what each is, where it comes from, and a change of some.

    asked --(of the settings as they are?)--> the file with the change --(it says just that?)-->
        the difference --(confirmed?)--> written --> read again, as SIGHUP does

Only what a running daemon takes over can be changed so. The file stays what a person wrote, but for
these numbers.
"""

import os
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import trio

from daa_node import config as node_config
from daa_node.cli import identity
from daa_node.cli.data_directory import DataDirectory, read_text, rewrite
from daa_node.cli.remarks import remark
from daa_node.cli.settings_edit import Number, edited
from daa_node.config import SAFE_KEYS, NodeConfig
from daa_node.config_file import Loaded
from daa_node.errors import NodeError, UserError
from daa_node.observability.events import CONFIG_RELOADED, EventLog
from daa_node.seams import Offload


class LiveSettings:
    """Of one daemon; `now` is what it goes by."""

    def __init__(
        self,
        directory: DataDirectory,
        config_path: Path | None,
        loaded: Loaded[NodeConfig],
        events: EventLog,
        offload: Offload,
    ) -> None:
        """`loaded`: as the daemon has started with it."""
        self.now = loaded.value
        self._origins = loaded
        self._directory = directory
        self._given_path = config_path
        self._path = (config_path or directory.config).resolve()
        self._events = events
        self._offload = offload
        self._turn = trio.Lock()  # between a digest that is right and the file that is written

    def reload(self) -> None:
        """Take over what may change; the rest waits for a restart. A file that is wrong is told."""
        try:
            loaded = identity.open_config(self._directory, self._given_path)
        except NodeError as refused:
            self._events.emit(CONFIG_RELOADED, error=str(refused))
            remark(f"settings not reloaded: {refused}")
            return
        taken, waiting = node_config.changed(self.now, loaded.value)
        self.now, self._origins = node_config.taken_over(self.now, loaded.value), loaded
        self._events.emit(CONFIG_RELOADED, changed=taken, needs_restart=waiting)

    async def told(self) -> Mapping[str, Any]:
        """Each setting as the daemon goes by it. Raises UserError if the file cannot be read."""
        text = await self._offload.run(self._text)
        return {
            "file": str(self._path),
            "digest": _digest(text),
            "settings": [
                {
                    "key": ".".join(keys),
                    "value": value,
                    "origin": self._origins.origin_of(keys),
                    "reloads": ".".join(keys) in SAFE_KEYS,
                }
                for keys, value in node_config.values(self.now)
            ],
        }

    async def change(
        self, changes: Mapping[str, Number], digest: str, confirm: bool
    ) -> Mapping[str, Any]:
        """What these changes come to and, if it is confirmed, that.

        `digest` is that of the settings which the change was thought of for. Raises UserError for
        what cannot be, and StorageFailed.
        """
        async with self._turn:
            return await self._change(changes, digest, confirm)

    async def _change(
        self, changes: Mapping[str, Number], digest: str, confirm: bool
    ) -> Mapping[str, Any]:
        text = await self._offload.run(self._text)
        if digest != _digest(text):
            raise UserError(f"{self._path} has changed since you read the settings: read them anew")
        changed_text, loaded = self._with(text, changes)
        taken, waiting = node_config.changed(self.now, loaded.value)
        before, after = _by_key(self.now), _by_key(loaded.value)
        if confirm:
            await self._offload.run(partial(rewrite, self._path, changed_text))
            self.reload()
        return {
            "confirmed": confirm,
            "digest": _digest(changed_text) if confirm else digest,
            "diff": [{"key": key, "before": before[key], "after": after[key]} for key in taken],
            "needs_restart": waiting,
        }

    def _with(self, text: str, changes: Mapping[str, Number]) -> tuple[str, Loaded[NodeConfig]]:
        """The file's text then, and what it says."""
        fixed = [key for key in changes if key not in SAFE_KEYS]
        if fixed:
            raise UserError(
                f"{', '.join(fixed)} cannot change while the daemon runs; these can: "
                f"{', '.join(SAFE_KEYS)}"
            )
        changed_text = text
        for key, value in changes.items():
            changed_text = edited(changed_text, key, value)
        name = str(self._path)
        loaded = node_config.load(name, changed_text, os.environ)
        said, asked = _by_key(loaded.value), dict(changes)
        for key, value in asked.items():
            if said[key] != value:
                origin = loaded.origin_of(tuple(key.split(".")))
                raise UserError(f"{key} stays {said[key]}: {origin} says so, above the file")
        as_it_was = _by_key(node_config.load(name, text, os.environ).value)
        if {**as_it_was, **asked} != said:
            raise UserError(f"{self._path} is written in a way that is not known here: edit it")
        return changed_text, loaded

    def _text(self) -> str:
        return read_text(self._path, "configuration", identity.SETTINGS_REMEDY)


def _by_key(config: NodeConfig) -> dict[str, Any]:
    return {".".join(keys): value for keys, value in node_config.values(config)}


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
