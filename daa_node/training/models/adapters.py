"""Low-rank matrices beside frozen layers, as the peft library builds and names them.

The genesis names them as peft's own files do, so that an export is those very tensors. The library
is an extra, which only a process that opens such a model imports.
"""

from collections.abc import Sequence

from torch import nn

from daa_node.errors import UserError
from daa_node.training.base_config import Lora
from daa_node.training.model_config import ModelConfig
from daa_node.training.models.causal_lm import CausalLm
from daa_node.training.models.module import Opened


def add_adapters(model: ModelConfig, module: nn.Module, lora: Lora) -> Opened:
    """The module with them in it, and nothing else of it trainable. Raises UserError."""
    try:
        from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
    except ImportError:
        raise UserError(
            "model.trainable.lora needs the peft library, which is not installed: "
            "pip install 'daa-compute[hf]'"
        ) from None
    inner = module.model if isinstance(module, CausalLm) else module
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=list(lora.targets),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM" if isinstance(module, CausalLm) else None,
    )
    try:
        adapted = get_peft_model(inner, config)
    except ValueError as fault:  # no layer of that name, or one that it has no matrices for
        raise UserError(
            f"the model {model.label}: no low-rank matrices beside "
            f"{', '.join(lora.targets)} (model.trainable.lora.targets): {fault}"
        ) from None
    if model.built is None:  # a network that was founded so trains what it has
        _check_each(model, lora, adapted.base_model.targeted_module_names)
    files = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    names = {tensor.data_ptr(): name for name, tensor in files.items()}
    parameters = {names[p.data_ptr()]: p for p in adapted.parameters() if p.requires_grad}
    whole: nn.Module = CausalLm(adapted) if isinstance(module, CausalLm) else adapted
    return Opened(model.label, whole, parameters)


def _check_each(model: ModelConfig, lora: Lora, layers: Sequence[str]) -> None:
    """The library asks that one of the targets names a layer. Raises UserError."""
    for target in lora.targets:
        if not any(f".{layer}".endswith(f".{target}") for layer in layers):
            raise UserError(
                f"the model {model.label}: no layer's name ends in {target} "
                f"(model.trainable.lora.targets); the others name {len(layers)} layers"
            )
