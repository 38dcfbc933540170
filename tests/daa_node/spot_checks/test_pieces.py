"""What volunteers answer, against the daemon's own rules, codecs and kernels."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daa_dag import canonical
from daa_dag.ids import digest_of
from daa_node.spot_checks import pieces, recompute
from daa_node.spot_checks.canonical import canonical_inner, canonical_model
from daa_node.spot_checks.recompute import Batch, State
from daa_node.tensors import Int32Array
from daa_node.training.config import InnerConfig
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.updates import grid
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.compression.dense import INT8
from daa_node.updates.compression.union import UNION

GPT = ModelConfig(depth=1, width=16, heads=2, context=12)
MLP = ModelConfig(kind="mlp", depth=1, width=16)
INNER = InnerConfig(total_steps=40, warmup_steps=2)
ROWS, STEPS = 2, 3


def over_the_wire(words: Any) -> Any:
    return canonical.decode(canonical.encode(words), 1 << 20)


def answer(kind: str, parameters: list[Any], blobs: list[bytes]) -> list[int | bytes]:
    return pieces.result_of(kind, over_the_wire(parameters), blobs, digest_of)


def batch_of(config: ModelConfig, rows: int) -> Batch:
    rng = np.random.default_rng(1)
    if config.kind == "mlp":
        return Batch(
            rng.normal(size=(rows, 64)).astype(np.float32), rng.integers(0, 10, rows).astype("<i4")
        )
    windows = rng.integers(0, 256, (rows, config.context + 1)).astype("<i4")
    return Batch(windows[:, :-1], windows[:, 1:])


def batch_bytes(batch: Batch) -> list[bytes]:
    return [
        np.ascontiguousarray(batch.inputs).tobytes(),
        np.ascontiguousarray(batch.targets).tobytes(),
    ]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_merged_coordinate_is_what_the_rule_makes_of_it(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 9))
    values = st.integers(-(127 << 24), 127 << 24)
    rows = data.draw(
        st.lists(st.lists(values, min_size=5, max_size=5), min_size=count, max_size=count)
    )
    updates_NC = np.array(rows, np.int32)
    weights_N = data.draw(st.lists(st.integers(1, 2**40), min_size=count, max_size=count))
    for rule, f_agg in (("mean", 0), ("trimmed_mean", (count - 1) // 2)):
        expected = rule_named(rule).aggregate_chunk(updates_NC.copy(), weights_N, f_agg)
        assert pieces.merged(rule, f_agg, weights_N, updates_NC) == expected.tolist()


def sampled() -> tuple[list[Any], list[bytes], Int32Array]:
    rng = np.random.default_rng(2)
    updates_NC = rng.integers(-(2**22), 2**22, (5, 192)).astype("<i4")
    merged_C = rule_named("trimmed_mean").aggregate_chunk(updates_NC.copy(), [1] * 5, 1)
    blob = np.zeros(INT8.encoded_size_bytes(192), np.uint8)
    delta_C = INT8.requantise_chunk(merged_C.copy(), 0, blob, 192)
    shifts_C = np.repeat(INT8.shifts(blob, 0, 192, 192), 64).tolist()
    blobs = [row.tobytes() for row in updates_NC]
    return ["trimmed_mean", 1, [1] * 5, shifts_C], blobs, delta_C.astype("<i4")


def test_coordinates_of_an_honest_delta_hold_and_others_do_not() -> None:
    parameters, updates, delta_C = sampled()
    assert answer("slice", parameters, [*updates, delta_C.tobytes()]) == [1] * 192
    delta_C[7] += 1
    delta_C[100] = -delta_C[100]
    bits = answer("slice", parameters, [*updates, delta_C.tobytes()])
    assert [at for at, bit in enumerate(bits) if not bit] == [7, 100]


def test_coordinates_of_an_honest_sparse_delta_hold() -> None:
    rng = np.random.default_rng(3)
    updates_NC = rng.integers(-3, 4, (3, 4096)).astype("<i4") << rng.integers(4, 6, (3, 1))
    updates_NC *= rng.random((3, 4096)) < 1 / 64
    merged_C = rule_named("mean").aggregate_chunk(updates_NC, [5, 4, 4], 0)
    writer = UNION.writer(4096)
    delta_C = writer.add(merged_C).astype("<i4")
    shifts_C = np.repeat(UNION.shifts(writer.blob(), 0, 4096, 4096), 64).tolist()
    blobs = [*(row.astype("<i4").tobytes() for row in updates_NC), delta_C.tobytes()]
    assert delta_C.any()
    assert answer("slice", ["mean", 0, [5, 4, 4], shifts_C], blobs) == [1] * 4096


@pytest.mark.parametrize(
    "spoil",
    [
        lambda words: words.__setitem__(0, "median"),
        lambda words: words.__setitem__(2, [1] * 4),
        lambda words: words.__setitem__(3, [25] * 192),
        lambda words: words.__setitem__(3, [0]),
    ],
)
def test_a_slice_that_does_not_fit_has_no_answer(spoil: Any) -> None:
    parameters, updates, delta_C = sampled()
    spoil(parameters)
    assert answer("slice", parameters, [*updates, delta_C.tobytes()]) == []


@pytest.mark.parametrize("config", [GPT, MLP])
def test_loss_and_gradient_are_those_of_the_kernels(config: ModelConfig) -> None:
    grid_D = genesis_weights(config, 3).astype("<i4")
    weights_D, batch = grid.to_float32(grid_D), batch_of(config, ROWS)
    assert np.array_equal(pieces.to_float32(grid_D), weights_D)
    model = canonical_model(config)
    loss, gradient_D = recompute.loss_and_gradient(model, weights_D, batch.inputs, batch.targets)
    parameters = [pieces.model_words(model), ROWS]
    told = [pieces.FLOAT64.pack(loss)]
    assert answer("loss", parameters, [grid_D.tobytes(), *batch_bytes(batch)]) == told
    blobs = [weights_D.tobytes(), *batch_bytes(batch)]
    assert answer("gradient", parameters, blobs) == [digest_of(gradient_D.tobytes()), *told]


def segment(config: ModelConfig, claim: float = 1.0) -> tuple[list[Any], list[bytes], State]:
    """Some steps, of which the author claims so many times the way that they took."""
    model, inner = canonical_model(config), canonical_inner(INNER)
    weights_D = grid.to_float32(genesis_weights(config, 4))
    zeros_D = np.zeros_like(weights_D)
    start = end = State(weights_D, zeros_D, zeros_D, 0)
    batch = batch_of(config, ROWS * STEPS)
    for step in range(STEPS):
        at = slice(ROWS * step, ROWS * (step + 1))
        end = recompute.step(
            model, inner, end, Batch(batch.inputs[at], batch.targets[at]), 5 + step
        )
    claimed_D = (weights_D + np.float32(claim) * (end.weights_D - weights_D)).astype("<f4")
    claimed = end if claim == 1.0 else State(claimed_D, end.first_D, end.second_D, end.adam_steps)
    parameters = [pieces.model_words(model), pieces.inner_words(inner), 5, STEPS, ROWS]
    return parameters, [_bytes(start), _bytes(claimed), *batch_bytes(batch)], end


def _bytes(state: State) -> bytes:
    vectors = [v.astype("<f4").tobytes() for v in (state.weights_D, state.first_D, state.second_D)]
    return b"".join(vectors) + state.adam_steps.to_bytes(8, "little")


@pytest.mark.parametrize("config", [GPT, MLP])
def test_an_honest_segment_is_repeated_to_the_bit(config: ModelConfig) -> None:
    parameters, blobs, end = segment(config)
    assert answer("segment", parameters, blobs) == [digest_of(_bytes(end)), *[bytes(8)] * 3]


def test_a_scaled_segment_is_as_far_off_as_it_is() -> None:
    parameters, blobs, end = segment(GPT, claim=1.25)
    digest, weights, first, second = answer("segment", parameters, blobs)
    assert digest == digest_of(_bytes(end))
    assert isinstance(weights, bytes)
    assert pieces.FLOAT64.unpack(weights)[0] == pytest.approx(0.2, rel=1e-3)
    assert first == second == bytes(8)


def test_what_is_not_finite_or_does_not_fit_has_no_answer() -> None:
    parameters, (start, claimed, *batch), _ = segment(GPT)
    infinite = np.float32(np.inf).tobytes() + start[4:]
    assert answer("segment", parameters, [infinite, claimed, *batch]) == []
    assert answer("segment", parameters, [start, infinite, *batch]) == []
    assert answer("segment", parameters, [start[:-9], claimed, *batch]) == []
    assert answer("segment", parameters, [start, claimed, batch[0][:-4], batch[1]]) == []


@pytest.mark.parametrize("steps", [-1, -2, -(2**63), 2**63 - STEPS, 2**63 - 1])
def test_a_start_after_steps_that_nobody_took_has_no_answer_and_ends_soon(steps: int) -> None:
    parameters, (start, claimed, *batch), _ = segment(MLP)
    start = start[:-8] + steps.to_bytes(8, "little", signed=True)
    assert answer("segment", parameters, [start, claimed, *batch]) == []
