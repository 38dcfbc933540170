"""What a base install downloads, wheel by wheel, into packaging/base_wheels.tsv.

Run: PYTHONPATH=. python benchmarks/base_wheels.py [FOLDER], in the environment of this tree. pip
fetches or builds each wheel, in the pinned version, for the Python and the system that run this.
FOLDER keeps them. It fails if they are too large; our own wheel is not among them.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.utils import parse_wheel_filename

from tests.daa_node.cli.bare_environment import base_distributions
from tests.test_base_wheels import BASE_BYTES_MAX, TABLE


def fetch(folder: Path) -> None:
    wanted = [f"{name}=={found.version}" for name, found in base_distributions().items()]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
    subprocess.run([*pip, "-w", str(folder), *wanted], check=True)


def main() -> None:
    with TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        fetch(folder)
        rows = []
        for path in folder.glob("*.whl"):
            name, version, _, _ = parse_wheel_filename(path.name)
            rows.append((path.stat().st_size, str(name), str(version)))
    rows.sort(reverse=True)
    lines = [f"{name}\t{version}\t{size}\n" for size, name, version in rows]
    TABLE.write_text("".join(["name\tversion\tbytes\n", *lines]))
    total = sum(size for size, _, _ in rows)
    print(f"{len(rows)} wheels, {total / 1e6:.1f} MB; at most {BASE_BYTES_MAX / 1e6:.0f} with ours")
    sys.exit(total >= BASE_BYTES_MAX)


if __name__ == "__main__":
    main()
