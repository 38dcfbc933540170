"""Commands without a daemon: what they make, what they say, and what they refuse."""

import json
import os
import re
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daa_node.cli.conftest import Command, make_node

pytestmark = pytest.mark.usefixtures("warm_programs")


def test_init_makes_keys_that_only_the_owner_reads_and_a_commented_config(
    command: Command, tmp_path: Path
) -> None:
    done = command("init", "--dir", tmp_path / "n", "--role", "edge", "--json")
    said = json.loads(done.out)
    assert (done.code, said["schema_version"], said["role"]) == (0, 1, "edge")
    assert stat.S_IMODE((tmp_path / "n").stat().st_mode) == 0o700
    for name in ("ml_dsa.key", "ml_kem.key", "libp2p.key"):
        assert stat.S_IMODE((tmp_path / "n" / "keys" / name).stat().st_mode) == 0o600
    text = (tmp_path / "n" / "config.yaml").read_text()
    assert "role: edge" in text
    assert "# network:" in text
    shown = json.loads(command("id", "--dir", tmp_path / "n", "--json").out)
    assert shown["node_id"] == said["node_id"]


def test_init_never_overwrites(command: Command, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    done = command("init", "--dir", tmp_path)
    assert done.code == 2
    assert f"{tmp_path} is not empty" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize("role", ["cloud", "edge"])
def test_a_worker_gets_no_more_threads_than_the_host_has_cores(
    command: Command, tmp_path: Path, role: str
) -> None:
    assert command("init", "--role", role, "--dir", tmp_path / "n").code == 0
    said = command("config", "show", "--json", "--dir", tmp_path / "n")
    threads = json.loads(said.out)["config"]["trainer"]["threads"]
    assert 1 <= threads <= max(1, len(os.sched_getaffinity(0)) - 1)


@pytest.mark.parametrize("room_bytes", [0, 64, 160, 1000])
def test_an_init_that_runs_out_of_disk_leaves_nothing_in_its_way(
    command: Command, tmp_path: Path, room_bytes: int
) -> None:
    """No room for VERSION, for the keys but the first file, for the keys, for the settings."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, hard))
    done = command("init", "--dir", tmp_path / "n")
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (done.code, "File too large" in done.err) == (1, True)
    assert not (tmp_path / "n").exists()
    assert command("init", "--dir", tmp_path / "n").code == 0


KILLED_INIT = """
import os, sys
from pathlib import Path
from daa_node.cli import local

left = int(sys.argv[2])

def watch(event, args):
    global left
    if event in ("os.mkdir", "os.rename") or (event == "open" and "x" in str(args[1])):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)

sys.addaudithook(watch)
local.init(Path(sys.argv[1]), local.Wanted(), True)
"""


@pytest.mark.long
def test_an_init_that_is_killed_anywhere_leaves_nothing_or_says_what_to_do(
    command: Command, tmp_path: Path
) -> None:
    """Killed at each directory, file and name that it makes, one after another."""
    refused = 0
    for steps in range(20):
        home = tmp_path / f"n{steps}"
        done = subprocess.run(
            [sys.executable, "-c", KILLED_INIT, home, str(steps)], capture_output=True, check=False
        )
        if done.returncode == 0:
            break
        again = command("init", "--dir", home)
        if again.code:
            for words in (again, command("id", "--dir", home), command("run", "--dir", home)):
                assert words.code == 2
                assert f"remove {home}, and make the node again" in words.err
            refused += 1
        else:
            assert command("id", "--dir", home).code == 0
    assert done.returncode == 0, done.stderr
    assert command("id", "--dir", home).code == 0
    assert refused >= 3


def test_an_unknown_role_is_refused(command: Command, tmp_path: Path) -> None:
    done = command("init", "--dir", tmp_path / "n", "--role", "moon")
    assert (done.code, "cloud or edge" in done.err) == (2, True)
    assert not (tmp_path / "n").exists()


def test_the_next_command_can_be_pasted_whatever_the_directory_is_called(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = command("init", "--dir", tmp_path / "two words").out.splitlines()[-1]
    assert said.endswith(f"--dir '{tmp_path / 'two words'}' > 'two words.record'")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert command("init", "--dir", ".").out.splitlines()[-1].endswith("--dir . > here.record")


def test_a_record_needs_a_port_that_others_can_dial(command: Command, tmp_path: Path) -> None:
    command("init", "--dir", tmp_path / "n")
    (tmp_path / "n" / "config.yaml").write_text("network: {listen: [/ip4/127.0.0.1/tcp/0]}\n")
    done = command("id", "--record", "--dir", tmp_path / "n")
    assert (done.code, "fixed port" in done.err) == (2, True)


def test_config_show_tells_where_every_value_is_from(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("init", "--dir", tmp_path / "n")
    path = tmp_path / "n" / "config.yaml"
    path.write_text("trainer:\n  threads: 2\n")
    monkeypatch.setenv("DAA_NETWORK__PEERS_MAX", "16")
    said = json.loads(command("config", "show", "--origin", "--json", "--dir", path.parent).out)
    assert said["config"]["network"]["peers_max"] == 16
    assert said["origins"]["trainer.threads"] == f"{path}:2"
    assert said["origins"]["network.peers_max"] == "environment DAA_NETWORK__PEERS_MAX"
    assert said["origins"]["log.files_max"] == "default"
    lines = command("config", "show", "--origin", "--dir", path.parent).out.splitlines()
    assert any(line.split() == ["trainer.threads:", "2", "#", f"{path}:2"] for line in lines)


def test_a_path_below_home_is_read_as_a_shell_reads_it(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "c.yaml"
    own = "gateway: {hosts: [h], tls_key: ~/k.pem, tls_certificate: ~/c.pem}\n"
    settings.write_text("data: {path: ~/corpus.txt, labels: ~root/labels}\n" + own)
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setenv("DAA_TRAINER__MODULE_PATH", "~/code")
    said = command("config", "show", "-c", settings).out
    for row in (
        'data.path: "/home/alice/corpus.txt"',
        'data.labels: "~root/labels"',  # of others, and of a name that begins so, nothing is known
        'gateway.tls_certificate: "/home/alice/c.pem"',
        'trainer.module_path: "/home/alice/code"',
    ):
        assert row in said


def test_every_shipped_configuration_is_valid(command: Command, tmp_path: Path) -> None:
    command("init", "--dir", tmp_path / "n")
    configs = Path(__file__).parents[3] / "configs"
    for name in ("cloud.yaml", "edge.yaml", "gateway.yaml"):
        done = command("config", "show", "-c", configs / name, "--dir", tmp_path / "n")
        assert done.code == 0, done.err
    record = make_node(command, tmp_path / "m")
    three = [record, make_node(command, tmp_path / "k"), make_node(command, tmp_path / "l")]
    flags = [word for path in three for word in ("--validator", path)]
    done = command("genesis", "create", configs / "demo.yaml", *flags, "--out", tmp_path / "g")
    assert done.code == 0, done.err


def test_the_commented_reference_in_a_new_config_is_itself_valid(
    command: Command, tmp_path: Path
) -> None:
    command("init", "--dir", tmp_path / "n")
    path = tmp_path / "n" / "config.yaml"
    _, _, reference = path.read_text().partition("# Every setting")
    lines = [line.removeprefix("# ") for line in reference.splitlines()[2:]]
    path.write_text("\n".join(lines))
    done = command("config", "show", "--dir", path.parent)
    assert done.code == 0, done.err


@pytest.mark.parametrize("words", [("id",), ("config", "show"), ("status",), ("run",)])
def test_a_directory_without_a_node_says_how_to_make_one(
    command: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = command(*words, "--dir", tmp_path / "nowhere")
    assert (done.code, f"`daa-node init --dir {tmp_path / 'nowhere'}`" in done.err) == (2, True)
    done = command(*words, "--dir", tmp_path)
    assert (done.code, "holds no node" in done.err) == (2, True)


@pytest.mark.parametrize("words", [("id",), ("run",), ("checkpoint", "verify")])
def test_a_store_of_a_newer_version_is_refused_with_both_numbers(
    command: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    command("init", "--dir", tmp_path / "n")
    (tmp_path / "n" / "VERSION").write_text("3\n")
    done = command(*words, "--dir", tmp_path / "n")
    assert done.code == 2
    assert "version 3" in done.err
    assert "reads up to 2" in done.err


def test_a_key_that_others_may_read_stops_the_node(command: Command, tmp_path: Path) -> None:
    make_node(command, tmp_path / "n")
    key = tmp_path / "n" / "keys" / "ml_dsa.key"
    key.chmod(0o640)
    done = command("run", "--dir", tmp_path / "n")
    assert done.code == 2
    assert f"{key} has mode 0640" in done.err
    assert "chmod 600" in done.err


def test_run_without_a_genesis_says_where_to_put_it(command: Command, tmp_path: Path) -> None:
    make_node(command, tmp_path / "n")
    done = command("run", "--dir", tmp_path / "n")
    assert done.code == 2
    assert f"there is no genesis at {tmp_path / 'n' / 'genesis.json'}" in done.err


def test_status_without_a_daemon_says_how_to_start_one(command: Command, tmp_path: Path) -> None:
    command("init", "--dir", tmp_path / "n")
    for word in ("status", "peers", "rounds", "logs", "drain"):
        done = command(word, "--dir", tmp_path / "n")
        assert (done.code, "no daemon is running" in done.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rotate"], "`propose rotate` needs --consent FILE.*validators consent NODE_ID"),
        (["withdraw"], "`propose withdraw` needs --request ID.*daa-node validators"),
        (["stake"], "`propose stake` needs --stake N"),
        (["leave", "--stake", "2"], "`propose leave` takes no --stake"),
        (["join", "--request", "ab"], "`propose join` takes no --request"),
        (["crown"], "'crown' is none of join, leave, stake, rotate, withdraw"),
    ],
)
def test_a_proposal_names_the_flag_that_it_lacks_or_does_not_take(
    command: Command, tmp_path: Path, words: list[str], said: str
) -> None:
    command("init", "--dir", tmp_path / "n")
    done = command("validators", "propose", *words, "--dir", tmp_path / "n")
    assert done.code == 2
    assert re.search(said, done.err), done.err


def test_every_command_is_told_whole_in_the_list_of_commands(command: Command) -> None:
    for group in ([], ["genesis"], ["validators"], ["checkpoint"], ["config"]):
        done = command(*group, "--help")
        assert done.code == 0
        assert "..." not in done.out.replace("[ARGS]...", ""), done.out


def test_usage_errors_exit_with_two(command: Command) -> None:
    assert command("dance").code == 2
    assert command("demo", "--nodes", "none").code == 2
