"""Four daemons adapt a language model of transformers, and plain peft loads what came of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from blake3 import blake3
from torch.nn import functional as F

from daa_node import genesis
from daa_node.checkpoints.certified import certified_chain
from daa_node.checkpoints.export import replayed_state
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.model_folder import write_adapters
from daa_node.genesis import Job, chain_facts
from daa_node.training.config import EvaluationConfig, TrainingJob
from daa_node.training.data_config import DataConfig
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.datasets.examples import Examples
from daa_node.training.evaluation import mean_loss
from daa_node.training.model_config import ModelConfig
from daa_node.updates.compression.codec import sizes_of
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.job import Founding
from simnet.nodes.virtual.world import run_script
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario
from tests.daa_node.training.hf_models import LLAMA, base_of, load_plain, probed, save_model

ROOT = Path(__file__).parents[4]
ROUNDS, STEPS = 8, 20
CONTEXT = 32
SIZES = {"hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": CONTEXT}
LORA = {"rank": 4, "alpha": 16, "targets": ["q_proj", "v_proj", "up_proj", "down_proj"]}
EVALUATION = EvaluationConfig(windows=64)


@dataclass(frozen=True)
class OfItsOwn:
    """A stage on which everybody hears everybody, and trains another job than the scenario's."""

    change: Callable[[Job], Job]

    def founded(self, founding: Founding) -> Founding:
        body = founding.genesis.body
        records = [(f"node {n}", record) for n, record in enumerate(founding.genesis.records)]
        made = genesis.create(self.change(body.job), records, bytes.fromhex(body.nonce))
        return replace(founding, genesis=made)

    def passes(self, *_: object) -> bool:
        return True

    def meets(self, *_: object) -> bool:
        return True


def loss_of(model: Any, inputs_BT: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=inputs_BT).logits
    return F.cross_entropy(logits.flatten(0, 1), targets_BT.flatten())


def heldout_loss(model: Any, examples: Examples) -> float:
    """By plain torch, of whatever model that is."""

    def batch_loss(indices: Any) -> float:
        batch = examples.heldout(indices)
        inputs, targets = torch.from_numpy(batch.inputs), torch.from_numpy(batch.targets)
        with torch.no_grad():
            return float(loss_of(model.eval(), inputs, targets))

    return mean_loss(EVALUATION, examples.heldout_count, batch_loss)


def pretrained(folder: Path, room: Path) -> Path:
    """A small model that has seen a little Shakespeare."""
    save_model(folder, LLAMA | SIZES)
    model = load_plain(folder)
    plays = open_examples(DataConfig(), ModelConfig(context=CONTEXT), room)
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
    chance = np.random.default_rng(0)
    for _ in range(150):
        batch = plays.train(chance.integers(plays.train_count, size=16))
        inputs, targets = torch.from_numpy(batch.inputs), torch.from_numpy(batch.targets)
        optimiser.zero_grad()
        loss_of(model.train(), inputs, targets).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    model.save_pretrained(folder)
    return folder


def another_text(path: Path) -> DataConfig:
    """The pages of this project: English, and no play."""
    text = "\n".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))
    path.write_text(text)
    return DataConfig(kind="text", path=path, digest=blake3(text.encode()).hexdigest())


def export_adapters(cluster: Cluster, room: Path) -> None:
    """What `checkpoint export --format hf` does, from the files of one node."""
    for path, payload in cluster.machines[0].disk.files.items():
        (room / "node" / path).parent.mkdir(parents=True, exist_ok=True)
        (room / "node" / path).write_bytes(payload)
    facts, model = chain_facts(cluster.genesis), cluster.genesis.job.model
    certified = certified_chain(ChainFiles(room / "node" / "chain"), facts)
    tip = certified.find("tip")
    assert tip.height == ROUNDS
    state = replayed_state(certified, tip, facts.states)
    (room / "adapter").mkdir()
    write_adapters(room / "adapter", state, facts.states, facts.chain_id, tip, model)


SCENARIO = Scenario.model_validate(
    {
        "name": "friends",
        "fidelity": "light",
        "duration_s": 1000,
        "nodes": [{"count": 4}],
        "topology": {"preset": "regional"},
        "work": {
            "kind": "training",
            "rounds": ROUNDS,
            "inner_steps_max": STEPS,
            "window_s": 30,
            "spot_checks": {"share": [1, 1]},
        },
    }
)


@pytest.mark.long
def test_four_friends_adapt_a_model_and_peft_loads_what_came_of_it(tmp_path: Path) -> None:
    torch.set_num_threads(1)  # as the run does: a small model only waits for others
    base, data = pretrained(tmp_path / "base", tmp_path), another_text(tmp_path / "pages.txt")
    model = ModelConfig.model_validate(
        {
            "kind": "hf_causal_lm",
            "base": base_of(base),
            "trainable": {"lora": LORA},
            "context": CONTEXT,
        }
    )
    job = probed(TrainingJob(model=model, data=data))
    inner = {"lr": 0.01, "batch_size": 8, "warmup_steps": 5}

    def change(plain: Job) -> Job:
        update = {
            "model": job.model,
            "data": data,
            "evaluation": EVALUATION,
            "inner": plain.inner.model_copy(update=inner),
        }
        return plain.model_copy(update=update)

    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_done(timeout_s=900)
        chains = [cluster.chain(node) for node in range(4)]
        assert all(chain == chains[0] for chain in chains)
        # while the run lasts: afterwards nobody believes its light signatures
        export_adapters(cluster, tmp_path)

    outcome = run_script(SCENARIO, Trace(), script, OfItsOwn(change))
    assert [(each.name, each.detail) for each in outcome.invariants if not each.ok] == []
    losses = outcome.facts["losses"]
    examples = open_examples(data, job.model, tmp_path / "cache")
    before = heldout_loss(load_plain(base), examples)
    print(f"held-out loss {before:.3f} of the base, then {losses}")
    assert losses[-1] < before - 0.15
    from peft import PeftModel

    adapted = PeftModel.from_pretrained(load_plain(base), tmp_path / "adapter")
    assert heldout_loss(adapted, examples) == pytest.approx(losses[-1], abs=1e-4)
    _say_what_a_round_takes(job.model, outcome.facts)


def _say_what_a_round_takes(model: ModelConfig, facts: dict[str, Any]) -> None:
    """Bytes of one author's update, of the adapters and of all of the model."""
    assert model.built is not None
    assert model.built.frozen is not None
    trained = model.parameter_count()
    thin, whole = (
        sizes_of(["int8"], count)["int8"] for count in (trained, trained + model.built.frozen)
    )
    sent = facts["classes"]["node"]["sent_bytes"] / 4 / ROUNDS
    print(
        f"an update has {thin} bytes of {trained} numbers; full training would send {whole}, "
        f"{whole / thin:.1f} times as many; a node sent {sent:.0f} bytes a round in all"
    )
    assert whole > 5 * thin
