"""Records as plain files in one directory: whole or absent after any crash.

    root/<kind>/<name>     a record
    root.tmp/              whatever is not finished; `root` itself holds only whole files

A write goes to `root.tmp` first, is synced when it must last, and is renamed into place; then the
directory is synced. Names are checked before they become paths: lower case, digits, `.`, `_`, `-`,
no leading dot.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from daa_node.adapters.durable_files import move_durably, open_file, storage, sync
from daa_node.adapters.tally import DirectoryTally
from daa_node.errors import PeerFault, StorageFailed

_KIND = re.compile(r"[a-z][a-z0-9-]{0,31}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")


READ_BYTES_MAX = 2**30  # a thousand times what any record needs: no memory for a disk's mistake


class RecordDirectory:
    """Every method raises StorageFailed when the disk fails."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scratch = root.with_name(root.name + ".tmp")
        self.tally = DirectoryTally(root)
        self._named: set[Path] = set()  # directories whose names are durable

    def record_path(self, kind: str, name: str) -> Path:
        """Where the record lies, there or not. Raises PeerFault unless both are plain names."""
        if not _KIND.fullmatch(kind) or not _NAME.fullmatch(name):
            raise PeerFault("bad_name", f"{kind!r}/{name!r} cannot name a stored thing")
        return self.root / kind / name

    def scratch_file(self, label: str) -> Path:
        """A new empty file on the store's file system, to be filled and then adopted."""
        with storage(f"create a file in {self.scratch}"):
            self.scratch.mkdir(parents=True, exist_ok=True)
            handle, path = tempfile.mkstemp(dir=self.scratch, prefix=label + ".", suffix=".tmp")
            os.close(handle)
        return Path(path)

    def put_record(self, kind: str, name: str, payload: bytes, durable: bool = True) -> None:
        """Atomic: readers see the old bytes or the new ones, and so does a restart if `durable`."""
        target = self.record_path(kind, name)
        temporary = self.scratch_file(kind)
        try:
            with storage(f"write {target}"):
                with open(temporary, "wb") as file:
                    file.write(payload)
                self.move_in(temporary, target, durable)
        finally:
            temporary.unlink(missing_ok=True)

    def get_record(self, kind: str, name: str) -> bytes | None:
        path = self.record_path(kind, name)
        with storage(f"read {path}"):
            try:
                with open_file(path) as file:
                    size_bytes = os.fstat(file.fileno()).st_size
                    if size_bytes > READ_BYTES_MAX:
                        raise StorageFailed(
                            f"{path} has {size_bytes} bytes, and no record has so many: it is "
                            "damaged"
                        )
                    return file.readall()
            except FileNotFoundError:
                return None

    def record_names(self, kind: str) -> list[str]:
        """Sorted; empty for a kind that was never written."""
        directory = self.record_path(kind, "x").parent
        with storage(f"list {directory}"):
            try:
                return sorted(name for name in os.listdir(directory) if _NAME.fullmatch(name))
            except FileNotFoundError:
                return []

    def delete_record(self, kind: str, name: str) -> None:
        path = self.record_path(kind, name)
        with storage(f"remove {path}"), self.tally.changes(path):
            path.unlink(missing_ok=True)

    def settle(self, kinds: Sequence[str]) -> None:
        """What was deleted of these kinds stays so over a power cut."""
        for kind in kinds:
            directory = self.record_path(kind, "x").parent
            with storage(f"sync {directory}"):
                if directory.is_dir():
                    sync(directory)

    def move_in(self, source: Path, target: Path, durable: bool) -> None:
        """Rename a finished file of `scratch` into place."""
        directory = target.parent
        directory.mkdir(parents=True, exist_ok=True)
        with self.tally.changes(target):
            if not durable:
                os.replace(source, target)
                return
            if directory not in self._named:
                sync(directory.parent)
                self._named.add(directory)
            move_durably(source, target)
