"""Low-rank matrices, once they hold numbers: peft makes of an export what was trained."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from daa_node.checkpoints.model_folder import write_adapters
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.checkpoints.replay import ReplayedState
from daa_node.tensors import slots_of
from daa_node.training.models.opening import open_model
from daa_node.training.module_source import NO_MODULES
from daa_node.updates.grid import GRID_ONE, to_float32
from tests.daa_node.checkpoints.little_chain import CHAIN_ID, COMMITTEE, RULES
from tests.daa_node.training.hf_models import (
    GPT2,
    LLAMA,
    base_of,
    job_of,
    load_plain,
    probed,
    save_model,
)

INPUTS_BT = torch.arange(24).view(2, 12)


@pytest.mark.parametrize(
    ("config", "targets"),
    [(LLAMA, ["q_proj", "layers.1.mlp.up_proj", "embed_tokens", "lm_head"]), (GPT2, ["c_attn"])],
    ids=["llama", "gpt2"],
)
def test_plain_peft_computes_with_a_folder_what_was_trained(
    tmp_path: Path, config: dict[str, Any], targets: list[str]
) -> None:
    base, lora = save_model(tmp_path / "base", config), {"rank": 2, "alpha": 6, "targets": targets}
    model = probed(job_of(base=base_of(base), trainable={"lora": lora})).model
    rules = replace(RULES, tensors=model.tensors())
    state = ReplayedState(rules)
    chance = np.random.default_rng(5)
    state.weights_D[:] = chance.integers(-GRID_ONE, GRID_ONE, state.weights_D.size) // 4
    opened = open_model(model, 3, NO_MODULES)
    values_D = torch.from_numpy(to_float32(state.weights_D))
    for slot in slots_of(rules.tensors):
        part = values_D[slot.start : slot.stop].view(slot.spec.shape)
        opened.parameters[slot.spec.name].data.copy_(part)
    out = tmp_path / "adapter"
    out.mkdir()
    vertex = genesis_vertex(RULES.first_state, COMMITTEE.root)
    write_adapters(out, state, rules, CHAIN_ID, vertex, model)
    from peft import PeftModel

    adapted = PeftModel.from_pretrained(load_plain(base), out)
    with torch.no_grad():
        ours = opened.module.logits(INPUTS_BT)  # type: ignore[operator]
        assert torch.equal(ours, adapted.eval()(INPUTS_BT).logits)
        assert not torch.allclose(ours, load_plain(base)(INPUTS_BT).logits, atol=1e-2)
    said = json.loads((out / "adapter_config.json").read_text())
    assert said["base_model_name_or_path"] == str(base)
    assert (said["task_type"], said["inference_mode"]) == ("CAUSAL_LM", True)
    assert (said["lora_dropout"], said["target_modules"]) == (0.0, targets)
