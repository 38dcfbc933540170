"""Commands without a daemon: what they make, what they say, and what they refuse."""

import gzip
import json
import os
import re
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from blake3 import blake3
from safetensors.numpy import save_file

from daa_dag.chunking import manifest_of
from daa_node.cli import identity
from daa_node.errors import UserError
from daa_node.genesis import Job, create
from tests.daa_node.cli.conftest import Command

JOB = "name: test\nend: {rounds: 3}\n"


def make_node(command: Command, directory: Path, port: int = 4001) -> Path:
    """A node with a fixed loopback address; returns the file of its record."""
    assert command("init", "--dir", directory).code == 0
    config = directory / "config.yaml"
    config.write_text(f"network:\n  listen: [/ip4/127.0.0.1/tcp/{port}]\n" + config.read_text())
    record = directory.with_suffix(".record")
    record.write_text(command("id", "--record", "--dir", directory).out)
    return record


@pytest.fixture
def no_large_files() -> Iterator[None]:
    """As on a full disk: room for a record's 13 kB, not for a genesis of 21."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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


def test_a_genesis_that_does_not_fit_the_disk_leaves_none(
    command: Command, tmp_path: Path, no_large_files: None
) -> None:
    job, out = tmp_path / "job.yaml", tmp_path / "genesis.json"
    job.write_text(JOB)
    done = command(
        "genesis", "create", job, "--validator", make_node(command, tmp_path / "n"), "--out", out
    )
    assert (done.code, done.err) == (1, f"error: cannot write {out}: File too large\n")
    assert not list(tmp_path.glob("genesis*"))


def test_records_of_several_nodes_become_one_genesis(command: Command, tmp_path: Path) -> None:
    job, out = tmp_path / "job.yaml", tmp_path / "genesis.json"
    job.write_text(JOB)
    flags: list[object] = []
    for index in range(4):
        flags += ["--validator", make_node(command, tmp_path / f"n{index}", 4100 + index)]
    done = command("genesis", "create", job, *flags, "--out", out, "--json")
    assert done.code == 0, done.err
    shown = json.loads(command("genesis", "show", "--file", out, "--json").out)
    assert shown["chain_id"] == json.loads(done.out)["chain_id"]
    assert (len(shown["validators"]), shown["quorum"]) == (4, 3)
    assert [a.split("/")[4] for a in sorted(shown["bootstrap"])] == ["4100", "4101", "4102", "4103"]
    text = command("genesis", "show", "--file", out).out
    assert "validators 4, a quorum weighs 3 of 4" in text
    again = command("genesis", "create", job, *flags, "--out", out)
    assert (again.code, "never overwritten" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("name: t\nend: {rounds: 3}\nmodle: {}\n", "job.yaml:3:1", "did you mean 'model'?"),
        ("name: t\nend: {rounds: 0}\n", "job.yaml:2:15", "greater than or equal to 1"),
        ("name: t\nend: {}\n", "job.yaml:2:", "set at least one"),
        ("end: {rounds: 1}\n", "job.yaml:", "name: this key is required"),
        ("name: t\nend: {rounds: 1}\ninner: {lr: .nan}\n", "job.yaml:3:13", "inner.lr"),
    ],
)
def test_a_wrong_job_names_file_line_and_column(
    command: Command, tmp_path: Path, text: str, place: str, what: str
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(text)
    record = make_node(command, tmp_path / "n")
    done = command("genesis", "create", job, "--validator", record, "--out", tmp_path / "g")
    assert done.code == 2
    assert place in done.err
    assert what in done.err
    assert not (tmp_path / "g").exists()


def test_a_genesis_with_trainers_says_who_trains_beside_the_validators(
    command: Command, tmp_path: Path
) -> None:
    job, made = tmp_path / "job.yaml", tmp_path / "g"
    job.write_text(JOB)
    records = [make_node(command, tmp_path / f"n{i}") for i in range(5)]
    flags = [word for record in records[:4] for word in ("--validator", record)]
    beside = ("--trainer", records[4])
    done = command("genesis", "create", job, *flags, *beside, "--out", made)
    assert done.code == 0, done.err
    assert "agreement survives" not in done.err
    shown = json.loads(command("genesis", "show", "--file", made, "--json").out)
    trainer = json.loads(command("id", "--dir", tmp_path / "n4", "--json").out)["node_id"]
    assert [entry["node_id"] for entry in shown["trainers"]] == [trainer]
    assert (len(shown["validators"]), shown["quorum"]) == (4, 3)
    assert (
        "trainers   1, which contribute and do not vote"
        in command("genesis", "show", "--file", made).out
    )
    twice = command("genesis", "create", job, *flags, "--trainer", records[0], "--out", "x")
    assert twice.code == 2
    assert "the same node as" in twice.err


def test_a_genesis_names_files_by_the_digest_of_what_lies_beside_the_job(
    command: Command, tmp_path: Path
) -> None:
    job, out, record = tmp_path / "job.yaml", tmp_path / "g", make_node(command, tmp_path / "n")
    job.write_text(JOB + "data: {kind: text, path: corpus.txt}\n")
    create = ("genesis", "create", job, "--validator", record, "--out", out)
    done = command(*create)
    assert done.code == 2
    assert f"cannot read {tmp_path / 'corpus.txt'} (No such file or directory)" in done.err
    assert not out.exists()
    content = b"all the world's a stage " * 500
    (tmp_path / "corpus.txt").write_bytes(content)
    (tmp_path / "corpus.gz").write_bytes(gzip.compress(content))
    digests = {command("genesis", "digest", tmp_path / f"corpus.{e}").out for e in ("txt", "gz")}
    assert digests == {blake3(content).hexdigest() + "\n"}
    assert command(*create).code == 0
    data = json.loads(out.read_text())["body"]["job"]["data"]
    assert (data["digest"], data["path"]) == (blake3(content).hexdigest(), "corpus.txt")


@pytest.mark.parametrize(
    ("updates", "f_agg"), [("", None), ("updates: {f_agg: 0}", 0), ("updates: {rule: mean}", 0)]
)
def test_a_rule_that_tolerates_fewer_liars_than_agreement_is_warned_of(
    command: Command, tmp_path: Path, updates: str, f_agg: int | None
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB + updates + "\n")
    flags = [
        word for i in range(4) for word in ("--validator", make_node(command, tmp_path / f"n{i}"))
    ]
    done = command("genesis", "create", job, *flags, "--out", tmp_path / "g")
    assert done.code == 0, done.err
    said = f"agreement survives 1 of 4 members that lie, rule .* with f_agg {f_agg} only {f_agg}"
    assert bool(re.search(said, done.err)) == (f_agg is not None), done.err


@pytest.mark.parametrize(("count", "warned"), [(1, True), (3, True), (4, False)])
def test_validators_that_can_never_be_missing_are_warned_of(
    command: Command, tmp_path: Path, count: int, warned: bool
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    flags = [
        word
        for i in range(count)
        for word in ("--validator", make_node(command, tmp_path / f"n{i}"))
    ]
    done = command("genesis", "create", job, *flags, "--out", tmp_path / "g")
    assert done.code == 0, done.err
    said = f"{count} of these {count} validators can never be missing"
    assert (said in done.err) is warned
    assert ("loses its directory `agreement`" in done.err) is warned


@pytest.mark.parametrize(("window_ms", "warned"), [(2999, True), (3000, False)])
def test_a_window_in_which_nothing_can_be_fetched_over_slow_links_is_warned_of(
    command: Command, tmp_path: Path, window_ms: int, warned: bool
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(f"{JOB}rounds: {{window_ms: {window_ms}}}\nagreement: {{delta_ms: 500}}\n")
    record = make_node(command, tmp_path / "n")
    done = command("genesis", "create", job, "--validator", record, "--out", tmp_path / "g")
    assert done.code == 0, done.err
    assert ("is less than 6 times agreement.delta_ms 500" in done.err) is warned


def test_a_file_that_is_no_record_is_named(command: Command, tmp_path: Path) -> None:
    job, wrong = tmp_path / "job.yaml", tmp_path / "wrong"
    job.write_text(JOB)
    wrong.write_text("hello")
    done = command("genesis", "create", job, "--validator", wrong)
    assert (done.code, f"{wrong} is no record" in done.err) == (2, True)


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
    assert (done.code, "daa-node init" in done.err) == (2, True)
    done = command(*words, "--dir", tmp_path)
    assert (done.code, "holds no node" in done.err) == (2, True)


@pytest.mark.parametrize("words", [("id",), ("run",), ("checkpoint", "verify")])
def test_a_store_of_a_newer_version_is_refused_with_both_numbers(
    command: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    command("init", "--dir", tmp_path / "n")
    (tmp_path / "n" / "VERSION").write_text("2\n")
    done = command(*words, "--dir", tmp_path / "n")
    assert done.code == 2
    assert "version 2" in done.err
    assert "reads up to 1" in done.err


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


OWN_MODEL = """
from torch import nn
import torch.nn.functional as F

print("it speaks while it is built")


class Model(nn.Linear):
    def forward(self, inputs, targets):
        return F.cross_entropy(super().forward(inputs), targets)


def build(classes):
    return Model(64, classes)
"""
OWN_JOB = """name: test
end: {rounds: 3}
data: {kind: digits}
model: {kind: module, path: "own_package.model:build", arguments: {classes: 10}}
"""


def test_a_model_of_ones_own_is_built_once_where_the_settings_allow_it(
    command: Command, tmp_path: Path
) -> None:
    node, job, out = tmp_path / "n", tmp_path / "job.yaml", tmp_path / "genesis.json"
    record = make_node(command, node)
    job.write_text(OWN_JOB)
    words = ("genesis", "create", job, "--validator", record, "--dir", node, "--out", out)
    refused = command(*words)
    assert (refused.code, refused.out, out.exists()) == (2, "", False)
    assert "set trainer.allow_modules: [own_package] in config.yaml" in refused.err
    config = node / "config.yaml"
    allowed = "trainer:\n  allow_modules: [own_package]\n  module_path: code\n"
    config.write_text(config.read_text().replace("trainer:\n", allowed, 1))
    absent = command(*words)
    assert absent.code == 2
    assert f"there is no own_package here: it is not installed, nor in {node}/code" in absent.err
    package = node / "code" / "own_package"
    package.mkdir(parents=True)
    (package / "model.py").write_text(OWN_MODEL)
    made = command(*words)
    assert made.code == 0, made.err
    shown = json.loads(command("genesis", "show", "--file", out, "--json").out)
    built = shown["job"]["model"]["built"]
    assert built["source_digest"] == blake3((package / "model.py").read_bytes()).hexdigest()
    assert [(t["name"], t["shape"]) for t in built["tensors"]] == [
        ("weight", [10, 64]),
        ("bias", [10]),
    ]
    assert shown["parameters"] == 650
    text = command("genesis", "show", "--file", out).out
    assert f"source     blake3 {built['source_digest']}, 2 tensors" in text
    job.write_text(OWN_JOB.replace("classes: 10", "classes: 9"))
    wrong = command(*words[:-1], tmp_path / "other.json")
    assert wrong.code == 2
    assert "cannot be trained on data of kind digits" in wrong.err


def test_a_genesis_with_a_module_that_was_not_built_is_refused(
    command: Command, tmp_path: Path
) -> None:
    record = make_node(command, tmp_path / "n")
    job = Job.model_validate(yaml.safe_load(OWN_JOB))
    payload = identity.record_from_file(record)
    with pytest.raises(UserError, match="job.model.built: this key is required"):
        create(job, [("n", payload)], bytes(32))


def test_first_weights_come_from_a_file_that_fits_the_model(
    command: Command, tmp_path: Path
) -> None:
    job, out, node = tmp_path / "job.yaml", tmp_path / "genesis.json", tmp_path / "n"
    job.write_text(JOB + "model: {kind: mlp, depth: 1, width: 8}\ndata: {kind: digits}\n")
    file, words = tmp_path / "first.safetensors", ("--validator", make_node(command, node))
    tensors = {
        "layers.0.weight": np.full((64, 8), 0.25, np.float32),
        "layers.0.bias": np.zeros(8, np.float32),
        "head.weight": np.zeros((8, 10), np.float32),
    }
    save_file(tensors, file)
    short = command("genesis", "create", job, *words, "--weights", file, "--out", out)
    assert short.code == 2
    assert f"{file} has not the weights of this model: it lacks head.bias" in short.err
    save_file({**tensors, "head.bias": np.ones(10, np.float32)}, file)
    done = command("genesis", "create", job, *words, "--weights", file, "--out", out)
    assert done.code == 0, done.err
    assert f"needs {file} as D/weights.safetensors" in done.out
    model = json.loads(command("genesis", "show", "--file", out, "--json").out)["job"]["model"]
    weights_D = np.repeat([2**22, 0, 0, 2**24], [512, 8, 80, 10]).astype("<i4")
    root = manifest_of(weights_D.data, [2048, 32, 320, 40]).root
    assert model["weights_root"] == root.hex()
    job.write_text(job.read_text().replace("width: 8", f'width: 8, weights_root: "{"a" * 64}"'))
    by_hand = command("genesis", "create", job, *words, "--out", tmp_path / "other.json")
    assert (by_hand.code, "what this command finds out" in by_hand.err) == (2, True)
