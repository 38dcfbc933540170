"""The outer step against one parameter at a time in Python's integers, and against its replay."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from daa_node.errors import RuleUnbounded
from daa_node.tensors import Int32Array, UInt8Array, create_grid_vector, open_grid_vector
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.compression.codec import codec_named, decode
from daa_node.updates.compression.delta import DENSE
from daa_node.updates.compression.dense import INT8
from daa_node.updates.compression.union import UNION
from daa_node.updates.grid import CHUNK_PARAMETERS, GRID_MAX
from daa_node.updates.outer_step import (
    Contribution,
    OuterRates,
    OuterState,
    aggregate_and_step,
    apply_delta,
)

MakeBlob = Callable[[str, str, int, int], UInt8Array]
MakeGrid = Callable[[str, int, int], Int32Array]
RATES = OuterRates(lr=(7, 10), momentum=(6, 10))
D = 2 * CHUNK_PARAMETERS + 64 * 3 + 5  # three chunks, the last one short and with padding


def plain_step(w: int, v: int, g: int, rates: OuterRates) -> tuple[int, int]:
    """docs/protocol.md, section 5, word for word."""

    def r(rate: tuple[int, int], x: int) -> int:
        return (2 * rate[0] * x + rate[1]) // (2 * rate[1])

    def saturated(x: int) -> int:
        return max(-GRID_MAX, min(GRID_MAX, x))

    v = saturated(r(rates.momentum, v) + g)
    w = saturated(w - r(rates.lr, r(rates.momentum, v) + g))
    return w, v


def state_of(make_grid: MakeGrid, label: str, count: int, bits: int) -> OuterState:
    return OuterState(make_grid(label + " w", count, bits), make_grid(label + " v", count, bits))


def empty_state(count: int) -> OuterState:
    return OuterState(np.zeros(count, np.int32), np.zeros(count, np.int32))


def contributions_of(make_blob: MakeBlob, count: int, shift_max: int) -> list[Contribution]:
    codecs = ["int8", "int4", "int8", "int8"]
    return [
        Contribution(make_blob(f"member {i}", codec, count, shift_max), codec, 1000 + 37 * i)
        for i, codec in enumerate(codecs)
    ]


def same(left: OuterState, right: OuterState) -> bool:
    return np.array_equal(left.weights_D, right.weights_D) and np.array_equal(
        left.momentum_D, right.momentum_D
    )


@pytest.mark.parametrize(
    "rates",
    [
        RATES,
        OuterRates((4, 1), (4095, 4096)),
        OuterRates((1, 4096), (0, 1)),
        OuterRates((4093, 4091), (4090, 4091)),
    ],
)
@pytest.mark.parametrize("bits", [12, 31])
def test_the_step_equals_one_parameter_at_a_time(
    rates: OuterRates, bits: int, make_grid: MakeGrid, make_blob: MakeBlob
) -> None:
    count = 64 * 20 + 3
    base = state_of(make_grid, "plain", count, bits)
    ends = [GRID_MAX, -GRID_MAX, GRID_MAX - 1, 0]
    base.weights_D[:16] = np.repeat(ends, 4)  # every pair of extremes
    base.momentum_D[:16] = np.tile(ends, 4)
    for shift_max in (3, 24):
        delta = make_blob(f"delta {shift_max}", "int8", count, shift_max)
        out = empty_state(count)
        apply_delta(base, delta, rates, out, DENSE)
        delta_D = decode(codec_named("int8"), delta, 0, count, count)
        columns = zip(base.weights_D, base.momentum_D, delta_D, strict=True)
        expected = [plain_step(int(w), int(v), int(g), rates) for w, v, g in columns]
        assert out.weights_D.tolist() == [w for w, _ in expected]
        assert out.momentum_D.tolist() == [v for _, v in expected]


@pytest.mark.parametrize(
    "rates", [RATES, OuterRates((4, 1), (4095, 4096)), OuterRates((1, 1), (0, 1))]
)
def test_the_step_is_the_same_on_both_sides_of_where_int32_ends(rates: OuterRates) -> None:
    def ends(limit: int, numerator: int) -> list[int]:
        edge = limit // max(1, 2 * numerator)
        return [edge + d for d in (-2, -1, 0, 1)] + [2, edge // 2, edge // 3]

    delta = np.array([127, -127 + 256, 90] * 21 + [1, 0], np.uint8)  # 64 mantissas, one exponent
    momenta = ends(GRID_MAX, rates.momentum[0]) + ends(GRID_MAX, rates.lr[0])
    for peak in sorted({min(momentum, GRID_MAX) for momentum in momenta}):
        for weight in (0, GRID_MAX - peak, GRID_MAX - peak // 2, GRID_MAX):
            for shift in (0, 9, 20):
                delta[64] = shift
                signs_D = np.resize([1, -1, 1, 1, -1], 64)
                base = OuterState(
                    (weight * signs_D).astype(np.int32),
                    (peak * np.resize([1, -1], 64)).astype(np.int32),
                )
                out = empty_state(64)
                apply_delta(base, delta, rates, out, DENSE)
                delta_D = decode(codec_named("int8"), delta, 0, 64, 64)
                columns = zip(base.weights_D, base.momentum_D, delta_D, strict=True)
                expected = [plain_step(int(w), int(v), int(g), rates) for w, v, g in columns]
                assert out.weights_D.tolist() == [w for w, _ in expected]
                assert out.momentum_D.tolist() == [v for _, v in expected]


def test_weights_and_momentum_saturate_and_do_not_wrap() -> None:
    top = np.full(64, GRID_MAX, np.int32)
    delta = np.full(65, 127, np.uint8)
    delta[64] = 24
    out = empty_state(64)
    apply_delta(OuterState(-top, top), delta, RATES, out, DENSE)
    assert out.weights_D.tolist() == [-GRID_MAX] * 64
    assert out.momentum_D.tolist() == [GRID_MAX] * 64


def test_replaying_a_sparse_delta_gives_what_aggregating_gave(
    make_grid: MakeGrid, make_blob: MakeBlob
) -> None:
    base = state_of(make_grid, "base", D, 25)
    out, replayed = empty_state(D), empty_state(D)
    members = [Contribution(make_blob(f"{i}", "top_k", D, 9), "top_k", 9 + i) for i in range(5)]
    delta = aggregate_and_step(base, members, rule_named("mean"), 0, RATES, out, UNION)
    UNION.check(delta, D)
    apply_delta(base, delta, RATES, replayed, UNION)
    assert same(out, replayed)
    assert not same(out, base)
    assert delta.size < 0.2 * DENSE.size_bytes_max(D)


@pytest.mark.parametrize(("rule", "f_agg"), [("mean", 0), ("trimmed_mean", 0), ("trimmed_mean", 1)])
@pytest.mark.parametrize("shift_max", [6, 24])
def test_replaying_the_delta_gives_what_aggregating_gave(
    rule: str, f_agg: int, shift_max: int, make_grid: MakeGrid, make_blob: MakeBlob
) -> None:
    base = state_of(make_grid, "base", D, 25)
    out, replayed = empty_state(D), empty_state(D)
    members = contributions_of(make_blob, D, shift_max)
    delta = aggregate_and_step(base, members, rule_named(rule), f_agg, RATES, out, DENSE)
    DENSE.check(delta, D)
    apply_delta(base, delta, RATES, replayed, DENSE)
    assert same(out, replayed)
    assert not same(out, base)


def test_streaming_gives_what_the_whole_vector_gives(
    make_grid: MakeGrid, make_blob: MakeBlob
) -> None:
    base = state_of(make_grid, "base", D, 25)
    members = contributions_of(make_blob, D, 9)
    out = empty_state(D)
    rule = rule_named("trimmed_mean")
    delta = aggregate_and_step(base, members, rule, 1, RATES, out, DENSE)

    rows = [decode(codec_named(m.codec), m.blob, 0, D, D) for m in members]
    kept = np.sort(np.stack(rows).astype(np.int64), axis=0)[1:3].sum(axis=0)
    merged_D = np.floor_divide(2 * kept + 2, 4).astype(np.int32)
    whole = np.zeros_like(delta)
    padded_D = np.pad(merged_D, (0, -D % 64))
    delta_D = INT8.requantise_chunk(padded_D, 0, whole, D)[:D].astype(np.int64)
    assert np.array_equal(delta, whole)
    v = np.floor_divide(12 * base.momentum_D.astype(np.int64) + 10, 20) + delta_D
    w = base.weights_D - np.floor_divide(14 * (np.floor_divide(12 * v + 10, 20) + delta_D) + 10, 20)
    assert np.array_equal(out.momentum_D, v)
    assert np.array_equal(out.weights_D, w)


def test_a_state_may_be_stepped_in_place(make_grid: MakeGrid, make_blob: MakeBlob) -> None:
    base = state_of(make_grid, "base", D, 25)
    members = contributions_of(make_blob, D, 9)
    out = empty_state(D)
    delta = aggregate_and_step(base, members, rule_named("mean"), 0, RATES, out, DENSE)
    again = aggregate_and_step(base, members, rule_named("mean"), 0, RATES, base, DENSE)
    assert np.array_equal(again, delta)
    assert same(base, out)


def test_files_go_in_and_files_come_out(
    make_grid: MakeGrid, make_blob: MakeBlob, tmp_path: Path
) -> None:
    memory = state_of(make_grid, "base", D, 25)
    members = contributions_of(make_blob, D, 9)
    out = empty_state(D)
    delta = aggregate_and_step(memory, members, rule_named("mean"), 0, RATES, out, DENSE)

    for name, vector_D in (("w", memory.weights_D), ("v", memory.momentum_D)):
        (tmp_path / name).write_bytes(vector_D.tobytes())
    mapped_members = []
    for i, member in enumerate(members):
        np.asarray(member.blob).tofile(tmp_path / f"blob {i}")
        blob = np.memmap(tmp_path / f"blob {i}", np.uint8, "r")
        mapped_members.append(Contribution(blob, member.codec, member.weight))
    base = OuterState(*(open_grid_vector(tmp_path / name, D) for name in "wv"))
    mapped = OuterState(*(create_grid_vector(tmp_path / name, D) for name in ("w2", "v2")))
    mapped_delta = aggregate_and_step(
        base, mapped_members, rule_named("mean"), 0, RATES, mapped, DENSE
    )
    assert np.array_equal(mapped_delta, delta)
    del mapped, mapped_delta
    written = OuterState(*(open_grid_vector(tmp_path / name, D) for name in ("w2", "v2")))
    assert same(written, out)


def test_nothing_is_written_when_the_rule_does_not_hold(
    make_grid: MakeGrid, make_blob: MakeBlob
) -> None:
    base = state_of(make_grid, "base", 200, 20)
    out = empty_state(200)
    members = contributions_of(make_blob, 200, 9)
    with pytest.raises(RuleUnbounded, match="m=4 contributions with f_agg=2"):
        aggregate_and_step(base, members, rule_named("trimmed_mean"), 2, RATES, out, DENSE)
    with pytest.raises(RuleUnbounded, match="m=0"):
        aggregate_and_step(base, [], rule_named("mean"), 0, RATES, out, DENSE)
    assert same(out, empty_state(200))


def test_rounding_has_no_bias_that_many_rounds_would_add_up() -> None:
    zeros = np.zeros(DENSE.size_bytes_max(2001), np.uint8)
    state = OuterState(np.zeros(2001, np.int32), np.arange(-1000, 1001, dtype=np.int32))
    rounds = 200
    for _ in range(rounds):
        apply_delta(state, zeros, RATES, state, DENSE)
    assert np.abs(state.momentum_D).max() <= 1
    assert abs(state.weights_D.mean()) < 0.01 * rounds  # a plain floor drifts 4 a round
