"""The models against slow plain twins in numpy, and their views of one flat vector."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from daa_node.tensors import Int64Array, slots_of
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.training.models.byte_gpt import gpt_loss
from daa_node.training.models.cnn import cnn_loss
from daa_node.training.models.mlp import mlp_loss
from daa_node.training.models.parameters import FlatParameters
from daa_node.updates.grid import to_float32

Matrix = NDArray[np.float64]


def parameters_of(model: ModelConfig, seed: int = 3) -> FlatParameters:
    parameters = FlatParameters(model.tensors(), torch.device("cpu"))
    parameters.load(torch.from_numpy(to_float32(genesis_weights(model, seed))))
    return parameters


def rms_norm(row: Matrix) -> Matrix:
    normed: Matrix = row / np.sqrt((row**2).mean() + np.finfo(np.float32).eps)
    return normed


def plain_gpt_loss(
    model: ModelConfig, views: dict[str, Matrix], inputs: Int64Array, targets: Int64Array
) -> float:
    """One window, one token and one head at a time."""
    size = model.width // model.heads
    stream = [views["embedding"][token] + views["position"][t] for t, token in enumerate(inputs)]
    for layer in range(model.depth):
        block = f"blocks.{layer}."
        qkv = [rms_norm(row) @ views[block + "attention.qkv"] for row in stream]
        for t in range(len(inputs)):
            heads = []
            for head in range(model.heads):
                at = [slice(p * model.width + head * size, p * model.width + (head + 1) * size)
                      for p in range(3)]  # fmt: skip
                scores = np.array([qkv[t][at[0]] @ qkv[s][at[1]] for s in range(t + 1)])
                shares = np.exp(scores / np.sqrt(size) - (scores / np.sqrt(size)).max())
                shares /= shares.sum()
                heads.append(sum(shares[s] * qkv[s][at[2]] for s in range(t + 1)))
            stream[t] = stream[t] + np.concatenate(heads) @ views[block + "attention.out"]
        for t in range(len(inputs)):
            up = np.maximum(rms_norm(stream[t]) @ views[block + "mlp.up"], 0) ** 2
            stream[t] = stream[t] + up @ views[block + "mlp.down"]
    losses = []
    for row, target in zip(stream, targets, strict=True):
        logits = rms_norm(row) @ views["embedding"].T
        losses.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[target])
    return float(np.mean(losses))


def test_the_gpt_is_its_slow_twin() -> None:
    model = ModelConfig(width=16, depth=2, heads=2, context=7)
    parameters = parameters_of(model)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 256, (3, 8))
    loss = gpt_loss(model)(
        parameters.views, torch.from_numpy(tokens[:, :-1]), torch.from_numpy(tokens[:, 1:])
    )
    views = {n: v.detach().numpy().astype(np.float64) for n, v in parameters.views.items()}
    twin = np.mean([plain_gpt_loss(model, views, row[:-1], row[1:]) for row in tokens])
    assert loss.item() == pytest.approx(twin, rel=1e-5)


def test_an_untrained_gpt_is_nearly_undecided_among_256_bytes() -> None:
    model = ModelConfig()
    tokens = torch.from_numpy(np.random.default_rng(1).integers(32, 127, (8, 65)))
    loss = gpt_loss(model)(parameters_of(model).views, tokens[:, :-1], tokens[:, 1:])
    assert np.log(256) - 0.05 < loss.item() < np.log(256) + 0.25


def test_a_window_shorter_than_the_context_is_fine() -> None:
    model = ModelConfig(width=16, depth=1, heads=2, context=32)
    tokens = torch.zeros((1, 5), dtype=torch.int64)
    assert gpt_loss(model)(parameters_of(model).views, tokens, tokens).item() > 0


def test_the_perceptron_is_its_slow_twin() -> None:
    model = ModelConfig(kind="mlp", depth=2, width=12)
    parameters = parameters_of(model)
    rng = np.random.default_rng(2)
    # Biases and head begin at zero, and zeros would hide a mistake.
    noise_D = rng.normal(scale=0.1, size=parameters.values_D.numel()).astype(np.float32)
    parameters.load(parameters.values_D + torch.from_numpy(noise_D))
    inputs, targets = rng.normal(size=(5, 64)).astype(np.float32), rng.integers(0, 10, 5)
    loss = mlp_loss(model)(
        parameters.views, torch.from_numpy(inputs), torch.from_numpy(targets)
    ).item()
    views = {n: v.detach().numpy().astype(np.float64) for n, v in parameters.views.items()}
    hidden = inputs.astype(np.float64)
    for layer in range(2):
        hidden = np.maximum(
            hidden @ views[f"layers.{layer}.weight"] + views[f"layers.{layer}.bias"], 0
        )
    logits = hidden @ views["head.weight"] + views["head.bias"]
    twin = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(5), targets])
    assert loss == pytest.approx(twin, rel=1e-5)


def plain_cnn_logits(model: ModelConfig, views: dict[str, Matrix], picture: Matrix) -> Matrix:
    """One place and one output at a time; `picture` (channels, side, side)."""
    for layer in range(model.depth):
        weight, bias = views[f"layers.{layer}.weight"], views[f"layers.{layer}.bias"]
        channels, side, _ = picture.shape
        small = -(-side // 2)
        after = np.zeros((len(bias), small, small))
        for out, row, column in np.ndindex(after.shape):
            total = bias[out]
            for channel, dy, dx in np.ndindex(channels, 3, 3):
                y, x = 2 * row + dy - 1, 2 * column + dx - 1
                if 0 <= y < side and 0 <= x < side:
                    total += (
                        picture[channel, y, x] * weight[(3 * dy + dx) * channels + channel, out]
                    )
            after[out, row, column] = max(total, 0)
        picture = after
    logits: Matrix = views["head.bias"].copy()
    channels, side, _ = picture.shape
    for channel, row, column in np.ndindex(picture.shape):
        at = (row * side + column) * channels + channel
        logits += picture[channel, row, column] * views["head.weight"][at]
    return logits


def test_the_cnn_is_its_slow_twin() -> None:
    model = ModelConfig(kind="cnn", depth=2, width=8, picture_side=7, picture_channels=3, classes=4)
    parameters, rng = parameters_of(model), np.random.default_rng(2)
    noise_D = rng.normal(scale=0.1, size=parameters.values_D.numel()).astype(np.float32)
    parameters.load(parameters.values_D + torch.from_numpy(noise_D))
    inputs, targets = rng.normal(size=(5, 147)).astype(np.float32), rng.integers(0, 4, 5)
    loss = cnn_loss(model)(
        parameters.views, torch.from_numpy(inputs), torch.from_numpy(targets)
    ).item()
    views = {n: v.detach().numpy().astype(np.float64) for n, v in parameters.views.items()}
    pictures = inputs.astype(np.float64).reshape(5, 3, 7, 7)
    logits = np.stack([plain_cnn_logits(model, views, picture) for picture in pictures])
    twin = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(5), targets])
    assert loss == pytest.approx(twin, rel=1e-5)


def test_views_share_the_flat_vectors_memory_and_gradients_gather_there() -> None:
    model = ModelConfig(kind="mlp", depth=1, width=8)
    parameters = parameters_of(model)
    slots = {slot.spec.name: slot for slot in slots_of(model.tensors())}
    parameters.load(torch.arange(parameters.values_D.numel(), dtype=torch.float32))
    head = slots["head.bias"]
    assert parameters.views["head.bias"].tolist() == list(range(head.start, head.stop))
    (parameters.views["head.bias"] * 3).sum().backward()  # type: ignore[no-untyped-call]
    expected = torch.zeros_like(parameters.gradient_D)
    expected[head.start : head.stop] = 3
    assert torch.equal(parameters.gradient_D, expected)
