"""The built files of the two pages, as a source tree or an installed package has them.

The volunteers' page is a distribution of its own: it is larger than this one, and only gateways
serve it.
"""

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from daa_node import api
from daa_node.wire.limits import MIB

PAGE = "daa_compute_page"
FILES_MAX = 1_000
BYTES_MAX = 64 * MIB  # they stay in memory: a page of 20 MB, and its compressed twins


def find_page(ours: Path) -> Path:
    """Where the page for volunteers is, or would be: nothing may be there.

    `ours`: where this package lies. In a source tree it is what `make page` has put there, else
    what is installed. A page of another version computes other bits: that is as good as none.
    """
    built = ours / "wasm_worker" / PAGE / "site"
    if built.parent.is_dir():
        return built
    found = find_spec(PAGE)
    if found is None or found.origin is None or _version(PAGE) != _version("daa_compute"):
        return built
    return Path(found.origin).parent / "site"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


_ROOT = Path(api.__file__).parents[2]
SITE = find_page(_ROOT)
DASHBOARD = _ROOT / "daa_node/api/dashboard"  # where `make dashboard` puts what it builds


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
