"""The boundaries of our newest update, from its training until the store has them.

They outlive the daemon that ordered them and the worker that wrote them: whoever dies between its
Offer and the moment they are kept could show its work to nobody.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from daa_dag.chunking import decode_manifest
from daa_dag.ids import BlobRoot, Digest
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.training.boundaries import BOUNDARIES
from daa_node.training.boundary_files import file_of


class UnkeptBoundaries:
    """A room for each training that left some, on the store's file system."""

    def __init__(self, directory: Path, store: DiskBlobStore) -> None:
        self.directory = directory
        self._store = store

    def rooms(self) -> list[Path]:
        """One at most, but for a disk that would not let another go."""
        return sorted(self.directory.iterdir())

    def drop(self) -> None:
        for room in self.rooms():
            shutil.rmtree(room, ignore_errors=True)

    async def lacks(self, roots: Sequence[Digest]) -> int:
        """How many of these the store does not have."""
        kept = [await self._store.blob_manifest(BOUNDARIES, BlobRoot(root)) for root in roots]
        return kept.count(None)

    async def keep(self, room: Path, roots: Sequence[Digest], manifests: Sequence[bytes]) -> None:
        """Of that room's files those that are what we want. `manifests`: one of each, or empty."""
        for index, (root, encoded) in enumerate(zip(roots, manifests, strict=False)):
            path = file_of(room, index)
            if not encoded or not path.exists():
                continue
            manifest = decode_manifest(encoded)
            if Digest(manifest.root) == root:
                await self._store.adopt_file(BOUNDARIES, path, manifest)
