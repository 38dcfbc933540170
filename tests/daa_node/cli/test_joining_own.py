"""Real daemons: whoever does what `join` says joins a network of somebody's own code and file."""

import json
import re
import signal
import time
from pathlib import Path

import pytest

from daa_node.cli import identity
from daa_node.cli.cluster import settings
from daa_node.cli.free_ports import free_ports
from tests.daa_node.cli.test_daemon import running, until
from tests.daa_node.cli.test_joining_daemon import daa_node, until_counted

pytestmark = pytest.mark.usefixtures("warm")

ENDED_S = 120.0  # a start of Python on a machine that computes other things
SOURCE = """
import torch.nn.functional as F
from torch import nn


class Bigrams(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding, self.head = nn.Embedding(256, width), nn.Linear(width, 256)

    def forward(self, inputs, targets):
        return F.cross_entropy(self.head(self.embedding(inputs)).flatten(0, 1), targets.flatten())


def build(width):
    return Bigrams(width)
"""
CORPUS = b"To be, or not to be, that is the question\n" * 4000
JOB = """
name: ours
model: {kind: module, path: "my_model:build", arguments: {width: 4}, context: 16}
data: {kind: text, path: corpus.txt}
inner: {batch_size: 8, warmup_steps: 0}
evaluation: {windows: 16}
updates: {rule: mean, f_agg: 0}
rounds: {inner_steps_max: 2, window_ms: 2000}
trainers: {admission: vouched, per_voucher: 1, max: 4}
end: {rounds: 100000}
"""
ALLOWED = "trainer:\n  allow_modules: [my_model]\n  module_path: ../code\n"


def told(*words: str) -> str:
    done = daa_node(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def founder(root: Path) -> Path:
    """Whose network it is: its own module, and its own file."""
    alice, (port,) = root / "alice", free_ports(1)
    identity.create_node(alice, f"{settings(port, [])}\n{ALLOWED}")
    (root / "code").mkdir()
    (root / "code" / "my_model.py").write_text(SOURCE)
    for place in (root, alice):
        (place / "corpus.txt").write_bytes(CORPUS)
    (root / "job.yaml").write_text(JOB)
    record = root / "alice.record"
    record.write_text(told("id", "--record", "--dir", str(alice)))
    words = ("--validator", str(record), "--dir", str(alice), "--out", str(alice / "genesis.json"))
    told("genesis", "create", str(root / "job.yaml"), *words)
    return alice


def until_told(path: Path, words: str, since: int = 0) -> None:
    deadline_s = time.monotonic() + ENDED_S
    while words not in path.read_text()[since:]:
        assert time.monotonic() < deadline_s, path.read_text()[since:]
        time.sleep(0.1)


def do_as_told(said: str, given: Path) -> None:
    """Every place in it is one that the message names; `given`: what the founder has sent."""
    (allowed,) = re.findall(r"set trainer\.(allow_modules: \[\w+\]) in config\.yaml", said)
    assert re.search(r"set trainer\.module_path in config\.yaml to the directory that has it", said)
    (config,) = re.findall(r"its settings in (\S+)\. ", said)
    (corpus,) = re.findall(r"(\S+):1: cannot read the file: .*; put it there", said)
    text = Path(config).read_text()
    assert "\ntrainer:\n" in text
    section = f"\ntrainer:\n  {allowed}\n  module_path: {given / 'code'}\n"
    Path(config).write_text(text.replace("\ntrainer:\n", section, 1))
    Path(corpus).write_bytes((given / "corpus.txt").read_bytes())


@pytest.mark.long
def test_what_join_says_is_all_that_a_network_of_ones_own_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, room = founder(tmp_path), tmp_path / "room"
    room.mkdir()
    finn = room / "finn"
    with running(alice):
        until(alice, "rounds", lambda said: said["height"] >= 1)
        invite = told("invite", "--dir", str(alice)).strip()
        monkeypatch.setenv("DAA_NETWORK__LISTEN", "[/ip4/127.0.0.1/tcp/0]")
        line = ("join", invite, "--yes", "--dir", str(finn))
        refused = daa_node(*line)
        assert refused.returncode == 2, refused.stderr
        assert refused.stderr.rstrip().endswith("and give the same line again")
        assert "used by" not in told("invite", "--list", "--dir", str(alice))
        do_as_told(refused.stderr, tmp_path)
        with running(room, "-m", "daa_node", *line, "--with-parent") as joiner:
            counted = until_counted(finn, joiner)
            joiner.send_signal(signal.SIGKILL)
            joiner.wait()
        before = len((room / "told").read_text())
        with running(room, "-m", "daa_node", "run", "--with-parent", "--dir", str(finn)) as again:
            until_counted(finn, again, since=counted)
        until_told(room / "told", "the one by whose invite it came does so by itself", before)
        listed = json.loads(told("invite", "--list", "--json", "--dir", str(alice)))
        assert [len(row["used_by"]) for row in listed["invites"]] == [1]
