"""One start of a machine: what its disk is reached through, and the steps of a write, in time."""

from collections.abc import Iterator

import trio

from daa_node.errors import StorageFailed
from simnet.nodes.virtual.disk import Disk, File, folder_of
from simnet.nodes.virtual.scheduling import elapse


class Mount:
    """One start of the machine: its store or journal works until the next crash."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._number = disk.mounts

    @property
    def has_power(self) -> bool:
        """Whether it is this start of the machine still."""
        return self._disk.mounts == self._number

    async def read(self, size_bytes: int = 0) -> Disk:
        """The disk, to look at. Raises StorageFailed when power is off."""
        if self._disk.drive.is_slow:
            await elapse(self._disk.drive.spend(size_bytes, syncs=False))
        else:
            await trio.lowlevel.checkpoint_if_cancelled()  # memory answers at once
        return self.now()

    async def written(self, size_bytes: int, syncs: bool) -> Disk:
        """The disk, after the time that writing takes. Raises StorageFailed when power is off.

        Power may have gone meanwhile, and with it what was written before the wait.
        """
        await elapse(self._disk.drive.spend(size_bytes, syncs))
        return self.now()

    def now(self) -> Disk:
        if not self.has_power:
            raise StorageFailed("the machine is down")
        return self._disk

    def discard(self, path: str) -> None:
        """Not the node but the world takes it away, whether there is power or not."""
        self._disk.remove(path)

    async def put(self, path: str, payload: bytes, durable: bool) -> None:
        """Atomically, as durable_files does. Raises StorageFailed."""
        await elapse(self.putting(path, payload, durable))

    def putting(self, path: str, payload: bytes, durable: bool) -> Iterator[float]:
        return self.moving(self.now().create(payload), path, durable, len(payload))

    def moving(self, file: File, path: str, durable: bool, dirty_bytes: int = 0) -> Iterator[float]:
        """Give a file this name, of which so much was written just now. Raises StorageFailed."""
        disk = self.now()
        if durable or dirty_bytes:
            yield from disk.drive.spend(dirty_bytes, syncs=durable)
            self.now()
        if durable:
            try:
                disk.sync(file)
            except StorageFailed:
                if disk.inodes.get(file.path) is file:
                    disk.remove(file.path)
                raise
        is_new, old = path not in disk.files, file.path
        disk.rename(file, path)
        if old and old != path:
            disk.remove(old)
        if durable:
            yield from disk.drive.spend(0, syncs=True)
            self.now()
            try:
                disk.sync_names(folder_of(path))
            except StorageFailed:
                if is_new and disk.inodes.get(path) is file:
                    disk.remove(path)
                raise
