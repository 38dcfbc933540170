"""The example of docs/simnet.md runs as it stands there."""

import re
from pathlib import Path
from typing import Any

import simnet
from simnet.pytest_plugin import RunCluster

DOCUMENT = Path(simnet.__file__).parents[1] / "docs" / "simnet.md"


def test_the_documented_example_passes(simnet_cluster: RunCluster) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (example,) = [block for block in examples if "simnet_cluster" in block]
    names: dict[str, Any] = {}
    exec(example, names)  # a document of our own
    names["test_my_network_survives_a_crash"](simnet_cluster)
