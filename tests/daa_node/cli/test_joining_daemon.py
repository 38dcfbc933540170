"""Real daemons: one line joins a network with a past, and the newcomer's work counts."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from daa_consensus.roll import Admission
from daa_node.adapters import control_socket
from daa_node.checkpoints.config import CheckpointsConfig
from daa_node.rounds.config import EndConfig, RoundsConfig
from daa_node.rounds.trainers import TrainersConfig
from tests.daa_node.cli.test_daemon import TINY, network, running

pytestmark = pytest.mark.usefixtures("warm")

PAST = 9  # rounds before anybody joins: more than two snapshots
JOB = TINY.model_copy(
    update={
        "rounds": RoundsConfig(inner_steps_max=2, window_ms=1_500),
        "checkpoints": CheckpointsConfig(snapshot_every=2),
        "trainers": TrainersConfig(admission=Admission.VOUCHED, per_voucher=1, max=4),
        "end": EndConfig(rounds=100_000),
    }
)
JOINED_S = 600.0  # many processes on few cores; some twenty seconds where nobody else computes


def events_of(node: Path) -> list[dict[str, Any]]:
    log = node / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def until_past(node: Path) -> None:
    """The node has certified `PAST` rounds."""
    deadline_s = time.monotonic() + JOINED_S
    while sum(event["name"] == "round_finalized" for event in events_of(node)) < PAST:
        assert time.monotonic() < deadline_s, (node / "told").read_text()
        time.sleep(0.2)


def until_counted(node: Path, daemon: "subprocess.Popen[bytes]", since: int = 0) -> int:
    """The first round after `since` whose set has this node's update."""
    deadline_s = time.monotonic() + JOINED_S
    while time.monotonic() < deadline_s:
        for event in events_of(node):
            if event["name"] == "set_decided" and event["ours"] and event["round"] > since:
                return int(event["round"])
        assert daemon.poll() is None, (node.parent / "told").read_text()
        time.sleep(0.2)
    raise AssertionError((node.parent / "told").read_text())


def daa_node(*words: str) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, "-m", "daa_node", *words)
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


@pytest.mark.long
def test_one_line_joins_a_network_with_a_past_and_a_killed_joiner_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (alice,) = network(tmp_path, 1, JOB)
    dave, erin = tmp_path / "room" / "dave", tmp_path / "room" / "erin"
    (tmp_path / "room").mkdir()
    with running(alice):
        until_past(alice)
        told = daa_node("invite", "--dir", str(alice))
        assert told.returncode == 0, told.stderr
        trusted = json.loads(
            daa_node("checkpoint", "show", "3", "--dir", str(alice), "--json").stdout
        )["vertex_id"]
        monkeypatch.setenv("DAA_NETWORK__LISTEN", "[/ip4/127.0.0.1/tcp/0]")
        text = "\n".join(told.stdout.strip()[at : at + 60] for at in range(0, 300, 60))
        line = ("-m", "daa_node", "join", text, "--yes", "--trust", trusted, "--with-parent")
        # where `running` writes what it tells
        with running(tmp_path / "room", *line, "--dir", str(dave)) as joiner:
            counted = until_counted(dave, joiner)
            joiner.send_signal(signal.SIGKILL)
            joiner.wait()
        names = [event["name"] for event in events_of(dave)]
        assert "gap_crossed" in names
        assert "state_coming" in names
        refused = daa_node("join", text, "--yes", "--dir", str(erin))
        assert refused.returncode == 1
        assert "this invite is used up" in refused.stderr
        assert not erin.exists()
        with running(tmp_path / "room", *line, "--dir", str(dave)) as joiner:
            until_counted(dave, joiner, since=counted)
            listing = control_socket.ask(alice / "control.sock", "invites")
            assert [len(row["used_by"]) for row in listing["invites"]] == [1]
        wrong = ("--trust", "ab" * 32)
        with running(tmp_path / "room", *line[:4], "--yes", *wrong, "--dir", str(dave)) as joiner:
            assert joiner.wait(JOINED_S) == 1
        assert "does not hold the vertex abab" in (tmp_path / "room" / "told").read_text()
    proved = daa_node("checkpoint", "verify", "--dir", str(dave))
    assert "everything holds" in proved.stdout, proved.stdout + proved.stderr
    assert os.path.exists(dave / "genesis.json")
