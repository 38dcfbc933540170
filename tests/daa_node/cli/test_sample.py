"""`daa-node sample`: text from a chain on disk, and what has none."""

import json
from pathlib import Path

import pytest
import trio

from daa_consensus.bft.messages import genesis_block
from daa_node import genesis
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.cli import identity
from daa_node.cli.cluster import settings
from daa_node.genesis import Genesis, Job, chain_facts
from daa_node.rounds.config import EndConfig
from daa_node.training.data_config import DataConfig
from daa_node.training.model_config import ModelConfig
from tests.daa_node.cli.conftest import Command

WRITES = Job(
    name="writes",
    model=ModelConfig(depth=1, width=16, heads=2, context=16),
    end=EndConfig(rounds=1),
)
TELLS_DIGITS = WRITES.model_copy(
    update={
        "model": ModelConfig(kind="mlp", depth=1, width=16),
        "data": DataConfig(kind="digits"),
    }
)


def node_of(directory: Path, job: Job) -> Path:
    """A node whose chain has its genesis vertex alone; no daemon runs."""
    identity.create_node(directory, settings(4001, []))
    record = identity.make_record(identity.open_node(directory))
    made = genesis.create(job, [("n", record)], bytes(genesis.NONCE_BYTES))
    (directory / "genesis.json").write_text(made.as_text())
    begin_chain(directory, made)
    return directory


def begin_chain(directory: Path, made: Genesis) -> None:
    """The genesis vertex, without the state of first weights that come from elsewhere."""
    facts = chain_facts(made)
    vertex = genesis_vertex(facts.states.first_state, made.committee.root)
    store = DiskBlobStore(directory / "chain")
    chain = ChainStore(store, DiskBlobStore(directory / "work"), facts.limits)
    trio.run(chain.open, vertex, genesis_block(made.chain_id, vertex.vertex_id))


def test_the_newest_checkpoint_writes_and_the_same_seed_writes_the_same(
    command: Command, tmp_path: Path
) -> None:
    node = node_of(tmp_path / "n", WRITES)
    words = ("sample", "--prompt", "To be", "--tokens", "12", "--dir", node)
    said = command(*words, "--seed", "5", "--json")
    assert said.code == 0, said.err
    answer = json.loads(said.out)
    assert (answer["height"], answer["prompt"], answer["seed"]) == (0, "To be", 5)
    again = command(*words, "--seed", "5")
    assert again.out == f"To be{answer['text']}\n"
    assert "height 0, 0 tokens trained; --seed 5" in again.err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--tokens", "0"), "--tokens 0: 1 to 100000"),
        (("--temperature", "-1"), "--temperature -1: 0 to 100"),
        (("--seed", str(2**63)), f"--seed {2**63}: 0 to {2**63 - 1}"),
        (("--seed", "-1"), "--seed -1: 0 to"),
        (("--prompt", ""), "--prompt is empty"),
        ((), "a model of kind mlp on data of kind digits writes no text"),
    ],
)
def test_what_cannot_be_written_is_told(
    command: Command, tmp_path: Path, words: tuple[str, ...], what: str
) -> None:
    node = node_of(tmp_path / "n", TELLS_DIGITS)
    said = command("sample", "--prompt", "x", *words, "--dir", node)
    assert (said.code, said.out) == (2, "")
    assert what in said.err


def test_a_node_without_a_chain_says_how_to_get_one(command: Command, tmp_path: Path) -> None:
    said = command("sample", "--prompt", "x", "--dir", tmp_path / "absent")
    assert (said.code, "there is no node in" in said.err) == (2, True)
