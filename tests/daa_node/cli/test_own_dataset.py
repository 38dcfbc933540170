"""A network whose data are code: made where that is allowed, and run only where it is."""

import json
from pathlib import Path

import pytest
import yaml
from blake3 import blake3

from daa_node.cli import identity
from daa_node.errors import UserError
from daa_node.genesis import Job, create
from tests.daa_node.cli.conftest import Command, make_node

SOURCE = """
class Windows:
    train_count, heldout_count = 1000, 10

    def __init__(self, context):
        self.context = context

    def train(self, indices):
        rows = [[(index + at) % 256 for at in range(self.context + 1)] for index in indices]
        return [row[:-1] for row in rows], [row[1:] for row in rows]

    heldout = train


def build(context):
    return Windows(context)
"""
JOB = """name: test
end: {rounds: 3}
data: {kind: dataset, path: "own_package.data:build", arguments: {context: 64}}
"""
ALLOWED = "trainer:\n  allow_modules: [own_package]\n  module_path: code\n"


def test_a_data_set_of_ones_own_is_named_by_its_digest_and_runs_only_where_it_may(
    command: Command, tmp_path: Path
) -> None:
    node, job, out = tmp_path / "n", tmp_path / "job.yaml", tmp_path / "n" / "genesis.json"
    record = make_node(command, node)
    job.write_text(JOB)
    words = ("genesis", "create", job, "--validator", record, "--dir", node, "--out", out)
    refused = command(*words)
    assert (refused.code, refused.out, out.exists()) == (2, "", False)
    assert "the dataset of this job is code that this host does not run" in refused.err
    config, package = node / "config.yaml", node / "code" / "own_package"
    settings = config.read_text()
    config.write_text(settings.replace("trainer:\n", ALLOWED, 1))
    package.mkdir(parents=True)
    (package / "data.py").write_text(SOURCE)
    made = command(*words)
    assert made.code == 0, made.err
    shown = json.loads(command("genesis", "show", "--file", out, "--json").out)["job"]["data"]
    assert shown["digest"] == blake3(SOURCE.encode()).hexdigest()
    assert shown["arguments"] == {"context": 64}
    config.write_text(settings)
    stopped = command("run", "--dir", node)
    assert (stopped.code, (node / "chain").exists()) == (2, False)
    assert "set trainer.allow_modules: [own_package] in config.yaml" in stopped.err


def test_a_genesis_whose_data_set_has_no_digest_is_refused(
    command: Command, tmp_path: Path
) -> None:
    record = make_node(command, tmp_path / "n")
    payload = identity.record_from_file(record)
    with pytest.raises(UserError, match="job.data: its source: no digest"):
        create(Job.model_validate(yaml.safe_load(JOB)), [("n", payload)], bytes(32))
