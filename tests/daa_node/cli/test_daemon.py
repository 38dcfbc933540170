"""A real daemon and what goes wrong around it: each trouble has one clear message."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from daa_node import genesis
from daa_node.adapters import control_socket
from daa_node.adapters.sqlite_history import SqliteHistory
from daa_node.cli import identity
from daa_node.cli.cluster import settings
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.free_ports import free_ports
from daa_node.errors import UserError
from daa_node.genesis import Job
from daa_node.rounds.config import EndConfig, RoundsConfig
from daa_node.training.config import EvaluationConfig, InnerConfig
from daa_node.training.data_config import DataConfig
from daa_node.training.model_config import ModelConfig
from daa_node.updates.config import UpdatesConfig
from tests.daa_node.cli.conftest import Command
from tests.warm import ANEW

pytestmark = pytest.mark.usefixtures("warm")

STARTED_S = 180.0  # what a machine does in seconds that computes nothing else
TINY = Job(
    name="tiny",
    model=ModelConfig(kind="mlp", depth=1, width=16),
    data=DataConfig(kind="digits"),
    inner=InnerConfig(batch_size=8, warmup_steps=0),
    evaluation=EvaluationConfig(windows=64),
    updates=UpdatesConfig(rule="mean", f_agg=0),
    rounds=RoundsConfig(inner_steps_max=5, window_ms=2_000),
    end=EndConfig(rounds=2),
)


def network(root: Path, count: int, job: Job = TINY) -> list[Path]:
    """`count` nodes that know each other, not running."""
    nodes, records = [root / f"n{index}" for index in range(count)], []
    ports = free_ports(count)
    for node, port in zip(nodes, ports, strict=True):
        identity.create_node(node, settings(port, []))
        records.append((str(node), identity.make_record(identity.open_node(node))))
    made = genesis.create(job, records, bytes(genesis.NONCE_BYTES))
    for node in nodes:
        (node / "genesis.json").write_text(made.as_text())
    return nodes


def status(node: Path) -> dict[str, Any] | None:
    try:
        return control_socket.ask(node / "control.sock", "status")
    except UserError:
        return None


def until(node: Path, what: str, holds: Any) -> dict[str, Any]:
    """The first status for which `holds(status)`."""
    deadline_s = time.monotonic() + STARTED_S
    while time.monotonic() < deadline_s:
        said = status(node)
        if said is not None and holds(said):
            return said
        time.sleep(0.1)
    told = (node / "told").read_text()
    raise AssertionError(f"{node} never: {what}; last: {status(node)}; told: {told}")


@contextmanager
def running(node: Path, *words: str, anew: bool = False) -> Iterator["subprocess.Popen[bytes]"]:
    """The daemon in `node`, or what else Python makes of `words`; it tells to the file `told`."""
    usual = ("-m", "daa_node", "run", "--with-parent", "--dir", str(node))
    start = ANEW if anew else subprocess.Popen
    with (node / "told").open("ab") as told:
        daemon = start([sys.executable, *(words or usual)], stdin=subprocess.PIPE, stderr=told)
    try:
        yield daemon
    finally:
        daemon.kill()
        daemon.wait()
        assert daemon.stdin is not None
        daemon.stdin.close()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a network of one, whose job is done and whose daemon still runs."""
    (node,) = network(tmp_path_factory.mktemp("alone"), 1)
    with running(node, anew=True):  # what it loads is looked at
        until(node, "job done", lambda said: said["done"])
        yield node


def daa_node(*words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "daa_node", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=STARTED_S,
    )


def test_a_second_run_on_one_directory_names_the_first_ones_pid(alone: Path) -> None:
    pid = (status(alone) or {})["pid"]
    done = daa_node("run", "--dir", alone)
    assert done.returncode == 1
    assert f"a daemon is already running in {alone} (pid {pid})" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert status(alone) is not None


def test_every_question_to_the_daemon_is_answered_in_words_and_in_json(alone: Path) -> None:
    for word in ("status", "peers", "rounds", "logs"):
        assert daa_node(word, "--dir", alone).returncode == 0
        said = json.loads(daa_node(word, "--dir", alone, "--json").stdout)
        assert said["schema_version"] == 1
    rounds = json.loads(daa_node("rounds", "--dir", alone, "--json").stdout)["rounds"]
    assert [line["height"] for line in rounds] == [0, 1, 2]
    said = status(alone) or {}
    assert said["ended_because"]
    assert said["validators"] == {**said["validators"], "reachable": 1, "total": 1, "quorum": 1}
    events = json.loads(daa_node("logs", "-n", "500", "--json", "--dir", alone).stdout)["events"]
    assert all(event.get("reason") for event in events if event["name"] == "decision")
    assert {"node_started", "decision", "round_finalized", "job_ended"} <= {
        event["name"] for event in events
    }


def test_the_daemon_never_loads_torch(alone: Path) -> None:
    pid = (status(alone) or {})["pid"]
    mapped = Path(f"/proc/{pid}/maps").read_text()
    assert "libcrypto" in mapped or "_rust" in mapped  # the file does list what is loaded
    assert "libtorch" not in mapped


def test_sighup_takes_over_safe_settings_and_names_the_others(alone: Path) -> None:
    pid = (status(alone) or {})["pid"]
    config = alone / "config.yaml"
    text = config.read_text()
    bound = "storage: {bytes_max: 987654321}\n"
    config.write_text(text + bound + "log: {files_max: 9}\ntrainer: {threads: 2}\n")
    os.kill(pid, signal.SIGHUP)
    event = reloaded(alone)
    assert event["changed"] == ["storage.bytes_max", "log.files_max"]
    assert event["needs_restart"] == ["trainer.threads"]
    assert (status(alone) or {})["storage"]["bytes_max"] == 987654321
    config.write_text(text + "log: {files: 9}\n")
    os.kill(pid, signal.SIGHUP)
    assert "did you mean 'files_max'?" in reloaded(alone, known=1)["error"]
    config.write_text(text)


def test_pause_and_resume_are_told_by_the_status_and_by_themselves(
    alone: Path, command: Command
) -> None:
    done = command("pause", "--dir", alone)
    assert (done.code, done.out.split(":")[0]) == (0, "paused")
    assert f"daa-node resume --dir {alone}" in " ".join(done.out.split())
    assert (status(alone) or {})["paused"] is True
    assert "paused      by its operator" in command("status", "--dir", alone).out
    said = json.loads(command("resume", "--json", "--dir", alone).out)
    assert said["paused"] is False
    assert "paused" not in command("status", "--dir", alone).out
    assert command("pause", "--dir", alone.parent).code != 0


def reloaded(node: Path, known: int = 0) -> dict[str, Any]:
    deadline_s = time.monotonic() + STARTED_S
    while time.monotonic() < deadline_s:
        events = control_socket.follow(node / "control.sock", 500, keep_on=False)
        found = [event for event in events if event["name"] == "config_reloaded"]
        if len(found) > known:
            return found[-1]
        time.sleep(0.05)
    raise AssertionError("SIGHUP was not heard")


def test_a_taken_port_is_named_with_the_remedy(tmp_path: Path) -> None:
    (node,) = network(tmp_path, 1)
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        port = squatter.getsockname()[1]
        (node / "config.yaml").write_text(settings(port, []))
        done = daa_node("run", "--dir", node)
    assert done.returncode == 1  # 2 would have a supervisor leave it
    assert f"cannot listen on /ip4/127.0.0.1/tcp/{port}" in done.stderr
    assert "network.listen" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_that_this_host_does_not_allow_ends_it_before_it_starts(tmp_path: Path) -> None:
    tensors = [{"name": "weight", "shape": [10, 64]}]
    model = ModelConfig.model_validate(
        {
            "kind": "module",
            "path": "own_package.model:build",
            "built": {"source_digest": "ab" * 32, "tensors": tensors},
        }
    )
    (node,) = network(tmp_path, 1, TINY.model_copy(update={"model": model}))
    done = daa_node("run", "--dir", node)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the model of this job is code that this host does not")
    assert "set trainer.allow_modules: [own_package] in config.yaml" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (node / "chain").exists()


def test_first_weights_that_the_network_does_not_begin_with_are_not_ignored(
    tmp_path: Path,
) -> None:
    (node,) = network(tmp_path, 1)
    (node / "weights.safetensors").write_bytes(b"")
    done = daa_node("run", "--dir", node)
    assert (done.returncode, done.stdout) == (2, "")
    assert "weights.safetensors would be ignored: this network begins with weights" in done.stderr
    assert not (node / "chain").exists()


@contextmanager
def heard_by_systemd(name: Path) -> Iterator[list[str]]:
    """What daemons that start meanwhile send to the socket `name`; a thread listens there."""
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(name))

        def listen() -> None:
            while message := ear.recv(4096):
                heard.append(message.decode())

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            yield heard
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", str(name))
            listener.join(STARTED_S)


def test_sigterm_drains_and_a_restart_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"a relative path starts at the node's directory\n" * 500
    digest, path = blake3(text).hexdigest(), Path("corpus.txt")
    changes = {
        "model": ModelConfig(depth=1, width=16, heads=2, context=16),
        "data": DataConfig(kind="text", path=path, digest=digest, heldout_block=64),
        "end": EndConfig(rounds=30),
    }
    (node,) = network(tmp_path, 1, TINY.model_copy(update=changes))
    (node / "corpus.txt").write_bytes(text)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("DAA_HISTORY__ENABLED", "true")
    with heard_by_systemd(tmp_path / "notify") as heard, running(node) as daemon:
        until(node, "one round", lambda said: said["height"] >= 1)
        daemon.send_signal(signal.SIGTERM)
        code = daemon.wait(STARTED_S)
        told = (node / "told").read_text()
        assert code == 0, told
        assert "draining" in told
        assert not (node / "control.sock").exists()
    assert [word for word in heard if not word.startswith("STATUS=")] == ["READY=1", "STOPPING=1"]
    assert "STATUS=round 1 is certified" in heard
    monkeypatch.delenv("NOTIFY_SOCKET")
    listed = json.loads(daa_node("checkpoint", "list", "--dir", node, "--json").stdout)
    height = listed["vertices"][-1]["height"]
    assert 1 <= height < 30
    history = SqliteHistory(DataDirectory(node).history)
    assert history.newest_height() >= height - 1  # a drain may end between a vertex and its event
    assert history.decisions(0, 1)
    with running(node):
        until(node, "a round more", lambda said: said["height"] > height)
    assert daa_node("checkpoint", "verify", "--dir", node).returncode == 0


def other_of(node: Path) -> dict[str, Any]:
    """What the only other validator is to this one."""
    (peer,) = json.loads(daa_node("peers", "--dir", node, "--json").stdout)["peers"]
    return dict(peer)


def test_what_a_node_thinks_of_another_is_shown_and_outlives_a_restart(tmp_path: Path) -> None:
    nodes = network(tmp_path, 2, TINY.model_copy(update={"end": EndConfig(rounds=10**6)}))
    with running(nodes[1]):
        with running(nodes[0]) as daemon:
            until(nodes[0], "three rounds", lambda said: said["height"] >= 3)
            health = other_of(nodes[0])["health"]
            assert {"compute", "network", "update_quality", "uptime"} == set(health["components"])
            lines = daa_node("peers", "--dir", nodes[0]).stdout.splitlines()
            assert {"LEVEL", "HEALTH", "WEAKEST", "SEES"} <= set(lines[0].split())
            assert any(level in lines[1].split() for level in ("priority", "normal"))
            assert other_of(nodes[0])["sees_us"]["level"] in ("priority", "normal")
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(STARTED_S) == 0
        with running(nodes[0]):
            until(nodes[0], "it has met it", lambda said: said["validators"]["reachable"] == 2)
            after = other_of(nodes[0])["health"]
    was, now = (
        said["components"]["compute"]["measures"]["contributed"]["history"]
        for said in (health, after)
    )
    assert was
    assert now[: len(was)] == was


def test_too_few_peers_wait_and_say_how_many_are_missing(tmp_path: Path) -> None:
    nodes = network(tmp_path, 4)
    with running(nodes[0]), running(nodes[1]):
        words = "2 of 4 reachable, waiting"
        said = until(nodes[0], words, lambda s: (s["waiting"] or "").startswith(words))
        assert (said["validators"]["reachable"], said["validators"]["quorum"]) == (2, 3)
        assert said["height"] == 0
        assert words in daa_node("status", "--dir", nodes[0]).stdout


def test_keys_that_were_copied_before_their_first_use_vote_nowhere_else(
    tmp_path: Path,
) -> None:
    (node,) = network(tmp_path, 1)
    copy = tmp_path / "another host"
    shutil.copytree(node / "keys", copy / "keys")
    for name in ("VERSION", "config.yaml", "genesis.json"):
        shutil.copy(node / name, copy)
    with running(copy):
        said = until(copy, "a decision", lambda s: s["decisions"])
        assert "came here without it" in said["decisions"][-1]["reason"]
        assert "the network stands for good" in said["decisions"][-1]["reason"]
        events = (copy / "events.jsonl").read_text()
        assert '"quarantined"' in events
        assert '"statement_sent"' not in events
    assert not list((copy / "agreement").glob("guard"))


@pytest.mark.long
def test_who_is_quarantined_does_not_halt_a_network_of_one_by_joining_it(tmp_path: Path) -> None:
    (node,) = network(tmp_path, 1, TINY.model_copy(update={"end": EndConfig(rounds=10**6)}))
    guest = tmp_path / "guest"
    identity.create_node(guest, settings(free_ports(1)[0], []))
    shutil.copy(node / "genesis.json", guest)
    shutil.rmtree(guest / "agreement")
    with running(node), running(guest):
        until(guest, "follows", lambda said: said["height"] > 0)
        asked = daa_node("validators", "propose", "join", "--dir", guest)
        assert (asked.returncode, "stand for good" in asked.stderr) == (1, True)
        height = until(node, "answers", lambda said: True)["height"]
        until(node, "two rounds more", lambda said: said["height"] > height + 1)


@pytest.mark.long
def test_a_first_start_with_the_wrong_genesis_costs_two_validators_nothing(tmp_path: Path) -> None:
    nodes = network(tmp_path, 2)
    right = (nodes[1] / "genesis.json").read_text()
    records = [(str(n), identity.make_record(identity.open_node(n))) for n in nodes]
    wrong = genesis.create(TINY, records, b"w" * genesis.NONCE_BYTES)
    (nodes[1] / "genesis.json").write_text(wrong.as_text())
    with running(nodes[0]):
        with running(nodes[1]):
            until(nodes[1], "a decision", lambda s: s["decisions"])
        (nodes[1] / "genesis.json").write_text(right)
        with running(nodes[1]):
            for node in nodes:
                until(node, "job done", lambda said: said["done"])
    assert "was in another network" in (nodes[1] / "told").read_text()
    assert '"quarantined"' not in (nodes[1] / "events.jsonl").read_text()
    assert daa_node("checkpoint", "verify", "--dir", nodes[1]).returncode == 0


def test_a_daemon_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    (node,) = network(tmp_path, 1, TINY.model_copy(update={"end": EndConfig(rounds=10**6)}))
    with running(node) as daemon:
        said = until(node, "started", lambda s: s["trainer_pid"])
        assert daemon.stdin is not None
        daemon.stdin.close()
        daemon.wait(STARTED_S)
        deadline_s = time.monotonic() + STARTED_S
        while Path(f"/proc/{said['trainer_pid']}").exists():
            assert time.monotonic() < deadline_s, "the trainer outlived its daemon"
            time.sleep(0.1)


def test_python_without_asserts_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-m", "daa_node", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "python -O" in done.stderr) == (2, True)
