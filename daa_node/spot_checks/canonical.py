"""The genesis' model and inner optimiser, in the words of the canonical kernels."""

from daa_node.spot_checks.recompute import Inner, Model
from daa_node.training.config import InnerConfig
from daa_node.training.model_config import ModelConfig


def canonical_model(config: ModelConfig) -> Model:
    assert config.kind != "module", "no kernels are written for other people's code"
    assert config.kind != "hf_causal_lm", "nor for that of transformers"
    tensors = tuple((spec.name, spec.shape) for spec in config.tensors())
    return Model(config.kind, config.depth, config.heads, tensors)


def canonical_inner(config: InnerConfig) -> Inner:
    return Inner(
        lr=config.lr,
        lr_final_fraction=config.lr_final_fraction,
        warmup_steps=config.warmup_steps,
        total_steps=config.total_steps,
        weight_decay=config.weight_decay,
        beta1=config.beta1,
        beta2=config.beta2,
        grad_clip=config.grad_clip,
    )
