"""What the daemon makes of a job and of this host's settings, before anything runs."""

from pathlib import Path

import pytest
from blake3 import blake3

from daa_node.cli.compose import examples_for_volunteers, training_job
from daa_node.cli.data_directory import DataDirectory
from daa_node.config import NodeConfig, load
from daa_node.errors import UserError
from daa_node.genesis import NONCE_BYTES, Genesis, Job, create
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import NodeRecord, Role, encode_record, sign_record
from daa_node.seams import Address

CONFIG = """
data:
  path: /mnt/heldout.txt
  own: {path: notes.txt}
"""


def network(**job: object) -> Genesis:
    """Of one validator."""
    keys = NodeKeys.from_seed(b"1")
    said = NodeRecord(
        ml_dsa_public_key=keys.ml_dsa_public_key,
        ml_kem_public_key=keys.ml_kem_public_key,
        peer_id=keys.peer_id,
        addresses=(Address(f"/ip4/127.0.0.1/tcp/4001/p2p/{keys.peer_id}"),),
        role=Role.CLOUD,
        capabilities=(),
        sequence=1,
        issued_ns=10**18,
        expiry_ns=10**18 + 10**9,
    )
    records = [("alice.record", encode_record(sign_record(said, keys)))]
    made = Job.model_validate({"name": "t", "end": {"rounds": 1}, **job})
    return create(made, records, bytes(NONCE_BYTES))


def test_the_worker_is_told_where_this_hosts_files_lie(tmp_path: Path) -> None:
    data = {"kind": "local", "format": "text", "path": "heldout.txt", "digest": "ab" * 32}
    genesis = network(data=data, spot_checks={"share": [0, 1]})
    node = DataDirectory(tmp_path / "node")
    config = load("config.yaml", CONFIG).value
    job = training_job(genesis, node, config)
    assert job.data.path == Path("/mnt/heldout.txt")
    assert job.own.path == tmp_path / "node/notes.txt"
    unset = training_job(genesis, node, NodeConfig())
    assert (unset.data.path, unset.own.path) == (tmp_path / "node/heldout.txt", None)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("data: {own: {path: notes.txt}}", r"data\.own\.path: .* kind text, .* not be read"),
        ("data: {labels: a, tokenizer: b}", r"data\.labels, data\.tokenizer: "),
    ],
)
def test_a_place_of_a_file_that_the_network_does_not_have_is_refused(
    tmp_path: Path, config: str, words: str
) -> None:
    genesis = network(data={"kind": "text", "path": "a.txt", "digest": "ab" * 32})
    with pytest.raises(UserError, match=words):
        training_job(genesis, DataDirectory(tmp_path), load("config.yaml", config).value)


@pytest.mark.parametrize("is_local", [False, True])
def test_volunteers_see_nothing_of_what_a_host_alone_has(tmp_path: Path, is_local: bool) -> None:
    (tmp_path / "own.txt").write_bytes(b"mine " * 200)
    data: dict[str, object] = {"path": "own.txt", "digest": blake3(b"mine " * 200).hexdigest()}
    kind = {"kind": "local", "format": "text"} if is_local else {"kind": "text"}
    data |= {**kind, "heldout_block": 100}
    genesis = network(data=data, spot_checks={"share": [0, 1]})
    directory = DataDirectory(tmp_path)
    config = load("config.yaml", "data: {own: {path: own.txt}}" if is_local else "").value
    opens = examples_for_volunteers(training_job(genesis, directory, config), directory)
    assert (opens is None) == is_local
    if opens is not None:
        assert opens().train_count > 0


def test_volunteers_get_no_pieces_with_data_that_are_code(tmp_path: Path) -> None:
    data = {"kind": "dataset", "path": "own.data:build", "digest": "ab" * 32}
    directory = DataDirectory(tmp_path)
    job = training_job(network(data=data), directory, NodeConfig())
    assert examples_for_volunteers(job, directory) is None


def test_a_place_of_a_base_that_the_network_does_not_have_is_refused(tmp_path: Path) -> None:
    config = load("config.yaml", "model: {base: /mnt/tiny}").value
    with pytest.raises(UserError, match=r"model\.base: this network's model has no base"):
        training_job(network(), DataDirectory(tmp_path), config)
