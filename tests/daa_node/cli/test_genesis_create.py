"""What `daa-node genesis create` makes of a job and records, what it warns of and refuses."""

import gzip
import json
import re
import resource
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from blake3 import blake3
from safetensors.numpy import save_file

from daa_dag.chunking import manifest_of
from daa_node.cli import identity
from daa_node.cli.genesis_notes import notes_on
from daa_node.errors import UserError
from daa_node.genesis import Job, create
from tests.daa_node.cli.conftest import JOB, Command, make_node


@pytest.fixture
def no_large_files() -> Iterator[None]:
    """As on a full disk: room for a record's 13 kB, not for a genesis of 21."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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
    content = b"all the world's a stage " * 5000
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


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", None),
        ("updates: {rule: mean}", None),
        ("trainers: {admission: vouched}", None),
        ("trainers: {admission: open}\nupdates: {rule: mean}", "is open (whoever asks)"),
        (
            "trainers: {admission: vouched, per_voucher: 3}\nupdates: {rule: mean, codec: top_k}",
            "is vouched (3 of each validator), and updates.rule mean, which codec top_k needs, "
            "bounds nobody's trainers",
        ),
    ],
)
def test_a_mean_with_trainers_is_said_to_bound_nobody(
    command: Command, tmp_path: Path, lines: str, said: str | None
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(f"{JOB}{lines}\n")
    record = make_node(command, tmp_path / "n")
    done = command("genesis", "create", job, "--validator", record, "--out", tmp_path / "g")
    assert done.code == 0, done.err
    assert (said or "") in done.err
    assert ("bounds nobody's trainers" in done.err) is (said is not None)


def test_trainers_are_not_let_in_by_more_liars_than_a_merge_reckons_with(
    command: Command, tmp_path: Path
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(f"{JOB}trainers: {{admission: vouched}}\nupdates: {{f_agg: 0}}\n")
    flags = [
        word for i in range(4) for word in ("--validator", make_node(command, tmp_path / f"n{i}"))
    ]
    done = command("genesis", "create", job, *flags, "--out", tmp_path / "g")
    assert done.code == 2
    assert "survives 1 of 4 validators that lie, while updates.rule" in done.err
    assert "leave updates.f_agg out" in done.err
    assert not (tmp_path / "g").exists()


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
    who = "the only validator" if count == 1 else f"{count} of these {count} validators"
    assert (f"{who} can never be missing" in done.err) is warned
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


@pytest.mark.parametrize(("epoch_rounds", "warned"), [(600, True), (500, False)])
def test_epochs_that_may_be_too_long_are_warned_of(
    command: Command, tmp_path: Path, epoch_rounds: int, warned: bool
) -> None:
    job = tmp_path / "job.yaml"
    trainers = "trainers: {admission: open, max: 127, contributors_max: 128}\n"
    job.write_text(f"{JOB}{trainers}agreement: {{epoch_rounds: {epoch_rounds}}}\n")
    record = make_node(command, tmp_path / "n")
    done = command("genesis", "create", job, "--validator", record, "--out", tmp_path / "g")
    assert done.code == 0, done.err
    said = f"an epoch of {epoch_rounds} rounds with 128 contributors may come to"
    assert (said in done.err) is warned


def test_a_file_that_is_no_record_is_named(command: Command, tmp_path: Path) -> None:
    job, wrong = tmp_path / "job.yaml", tmp_path / "wrong"
    job.write_text(JOB)
    wrong.write_text("hello")
    done = command("genesis", "create", job, "--validator", wrong)
    assert (done.code, f"{wrong} is no record" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("data", "content", "says"),
    [
        ("kind: text", b"", ":1: the file is empty"),
        ("kind: text", b"hello", "has 5 items: too few"),
        ("kind: text", b"\xe9" + bytes(90_000), ":1:1: not UTF-8 text"),
        ("kind: jsonl", b'{"txt": "a"}\n' * 9000, ':1: no "text" field'),
        ("kind: jsonl", b"\n", ":1: no documents"),
        ("kind: tokens", b"hello" * 20_000, ":1: not a token file"),
        ("kind: cifar10", b"hello", "CIFAR"),
        ("kind: local, format: text", b"hello", "too few for a single window"),
    ],
)
def test_data_that_no_host_could_train_on_make_no_network(
    command: Command, tmp_path: Path, data: str, content: bytes, says: str
) -> None:
    job = tmp_path / "job.yaml"
    (tmp_path / "my data").write_bytes(content)
    model = "model: {kind: mlp, picture_channels: 3, picture_side: 32}\n" if "cifar" in data else ""
    checks = "spot_checks: {share: [0, 1]}\n" if "local" in data else ""
    job.write_text(f"{JOB}{model}{checks}data: {{{data}, path: my data}}\n")
    record = make_node(command, tmp_path / "n")
    done = command("genesis", "create", job, "--validator", record, "--out", tmp_path / "g")
    assert (done.code, says in done.err, "my data" in done.err) == (2, True, True), done.err
    assert not (tmp_path / "g").exists()


PICTURES = "model: {kind: mlp, picture_channels: 1, picture_side: 28}\n"


@pytest.mark.parametrize(
    ("model", "data", "content"),
    [
        ("", "kind: text, path: data.gz", gzip.compress(b"hello")),
        ("", "kind: parquet, path: data, tokenizer: {path: data}", b"hello"),
        ("", "kind: text, path: data, tokenizer: {path: data}", b"hello" * 20_000),
        (PICTURES, f"kind: idx, path: away, digest: {'ab' * 32}, labels: {{path: data}}", b"hello"),
    ],
    ids=["packed", "parquet", "tokenizer", "half is elsewhere"],
)
def test_data_that_only_a_host_can_judge_make_a_network(
    command: Command, tmp_path: Path, model: str, data: str, content: bytes
) -> None:
    job = tmp_path / "job.yaml"
    (tmp_path / ("data.gz" if "gz" in data else "data")).write_bytes(content)
    job.write_text(f"{JOB}{model}data: {{{data}}}\n")
    record = make_node(command, tmp_path / "n")
    done = command("genesis", "create", job, "--validator", record, "--out", tmp_path / "g")
    assert done.code == 0, done.err


def test_of_validators_of_unequal_stake_those_that_can_never_be_missing_are_counted(
    command: Command, tmp_path: Path
) -> None:
    paths = [make_node(command, tmp_path / name) for name in ("alice", "bob", "carol", "dave")]
    records = [(path.name, identity.record_from_file(path)) for path in paths]
    notes = "".join(notes_on(create(Job(**yaml.safe_load(JOB)), records, bytes(32), (3, 1, 1, 1))))
    assert (
        "1 of these 4 validators can never be missing, as the others' stake is no quorum" in notes
    )
    assert "Equal stakes survive the loss of one" in notes
    assert "If one of them loses its directory" in notes


def test_an_empty_record_is_none(command: Command, tmp_path: Path) -> None:
    job, sent = tmp_path / "job.yaml", tmp_path / "sent"
    job.write_text(JOB)
    sent.write_text("\n")
    done = command("genesis", "create", job, "--validator", sent, "--out", tmp_path / "g")
    assert (done.code, f"{sent} is no record: write one with" in done.err) == (2, True)


def test_a_record_survives_what_mail_puts_in_and_one_that_was_cut_is_told(
    command: Command, tmp_path: Path
) -> None:
    job, sent = tmp_path / "job.yaml", tmp_path / "sent"
    job.write_text(JOB)
    text = make_node(command, tmp_path / "n").read_text()
    lines = textwrap.fill(text, 75, break_long_words=True)
    sent.write_bytes(b"\xef\xbb\xbf" + lines.replace("\n", "\r\n").encode())
    done = command("genesis", "create", job, "--validator", sent, "--out", tmp_path / "g")
    assert done.code == 0, done.err
    word, digits = text.split()
    other = f"{int(digits[200:202], 16) ^ 1:02x}"
    for spoilt in (digits[:-1], digits[:-2], digits[:2], digits[:200] + other + digits[202:]):
        sent.write_text(f"{word} {spoilt}")
        done = command("genesis", "create", job, "--validator", sent, "--out", tmp_path / "h")
        assert (done.code, f"{sent} is a record that was cut" in done.err) == (2, True), done.err
    sent.write_text(f"{word} {digits[:2]}63{digits[4:]}")  # its first field, after the list's head
    done = command("genesis", "create", job, "--validator", sent, "--out", tmp_path / "h")
    assert "was written by another version (record version 99" in done.err


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
