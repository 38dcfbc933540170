"""The built files of the two pages, as a source tree or an installed package has them."""

from pathlib import Path

from daa_node import api, gateway
from daa_node.wire.limits import MIB

SITE = Path(gateway.__file__).parent / "site"  # where `make page` puts what it builds
DASHBOARD = Path(api.__file__).parent / "dashboard"  # and `make dashboard`
FILES_MAX = 1_000
BYTES_MAX = 64 * MIB  # they stay in memory: a page of 20 MB, and its compressed twins


def read_site(directory: Path) -> dict[str, bytes]:
    """Every file below `directory` by its path there; none where the page was not built.

    Raises OSError, also when there is more than a page can be. Links are not followed: what is
    served lies in the site.
    """
    files: dict[str, bytes] = {}
    size_bytes = 0
    for path in sorted(directory.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        size_bytes += path.stat().st_size
        if len(files) >= FILES_MAX or size_bytes > BYTES_MAX:
            raise OSError(f"{directory} has more files or bytes than a page")
        files[path.relative_to(directory).as_posix()] = path.read_bytes()
    return files
