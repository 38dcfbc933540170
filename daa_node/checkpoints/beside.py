"""Room beside what is to be written, so that nothing has its name before it is whole.

It is on the disk of what is written, which has to have the place anyway, and it has a name that
nobody has: no file of anybody's is touched. A process that is killed leaves it there.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from daa_node.errors import UserError

PREFIX = ".daa-export-"


@contextmanager
def room_beside(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, gone afterwards. Raises UserError, for OSErrors inside too."""
    if not target.parent.is_dir():
        raise UserError(
            f"{target}: {target.parent} is no directory: make it, or choose another --out"
        )
    try:
        with TemporaryDirectory(prefix=PREFIX, dir=target.parent) as room:
            yield Path(room)
    except OSError as fault:
        raise UserError(f"cannot write {target}: {fault.strerror or fault}", exit_code=1) from None


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Where to make a file or a folder that gets the name `target` in the end. Raises UserError."""
    with room_beside(target) as room:
        yield room / target.name
        os.replace(room / target.name, target)
