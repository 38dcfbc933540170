"""What changed between two states, against slow whole numbers; and who did it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daa_node.checkpoints import difference
from daa_node.checkpoints.certified import certified_chain
from daa_node.checkpoints.difference import relative_ppb, rules, shares, tensor_changes
from daa_node.checkpoints.export import replayed_state
from daa_node.checkpoints.files import ChainFiles
from daa_node.tensors import Int32Array, TensorSpec
from tests.daa_node.checkpoints.little_chain import FACTS, KEYS, RULES, TENSORS, make_chain

EDGES = (-(2**31), 2**31 - 1, -1, 0, 1, 65_535, 65_536, -65_536)


def slowly(base: Int32Array, later: Int32Array) -> tuple[int, int, int]:
    """(squared change, squared base, the largest change) in Python's own integers."""
    moved = [int(b) - int(a) for a, b in zip(base, later, strict=True)]
    return sum(m * m for m in moved), sum(int(a) ** 2 for a in base), max(moved, key=abs)


def test_sums_are_exact_where_squares_do_not_fit_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "PIECE", 7)  # several pieces
    base = np.array([a for a in EDGES for _ in EDGES], np.int32)
    later = np.array([b for _ in EDGES for b in EDGES], np.int32)
    (change,) = tensor_changes([TensorSpec("all", (base.size,))], base, later)
    assert (change.squared_change, change.squared_base, change.largest) == slowly(base, later)
    assert int(later[change.at]) - int(base[change.at]) == change.largest
    assert change.squared_change > 2**64


def test_the_largest_change_is_found_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "PIECE", 7)
    later = np.zeros(20, np.int32)
    later[[3, 16]] = 4, -5
    (change,) = tensor_changes([TensorSpec("all", (20,))], np.zeros(20, np.int32), later)
    assert (change.largest, change.at) == (-5, 16)


def test_a_whole_piece_of_the_largest_values_overflows_nothing() -> None:
    base = np.full(difference.PIECE, -(2**31), np.int32)
    later = np.full(difference.PIECE, 2**31 - 1, np.int32)
    (change,) = tensor_changes([TensorSpec("all", (base.size,))], base, later)
    assert change.squared_change == difference.PIECE * (2**32 - 1) ** 2
    assert change.squared_base == difference.PIECE * 2**62


def test_a_ratio_is_rounded_down_and_of_zeros_there_is_none() -> None:
    assert relative_ppb(1, 4) == 500_000_000
    assert relative_ppb(2, 1) == 1_414_213_562
    assert relative_ppb(0, 9) == 0
    assert relative_ppb(9, 0) is None


def test_each_tensor_of_a_chain_is_compared_by_itself(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 3)
    certified = certified_chain(ChainFiles(maker.chain_directory), FACTS)
    base_D, later_D = (
        replayed_state(certified, certified.find(which), RULES).weights_D for which in ("1", "tip")
    )
    changes = tensor_changes(TENSORS, base_D, later_D)
    at = 0
    for spec, change in zip(TENSORS, changes, strict=True):
        expected = slowly(base_D[at : at + spec.size], later_D[at : at + spec.size])
        assert (change.squared_change, change.squared_base, change.largest) == expected
        assert (change.name, change.parameters) == (spec.name, spec.size)
        at += spec.size
    assert all(change.squared_change for change in changes)
    same = tensor_changes(TENSORS, base_D, base_D)
    assert {(change.relative_ppb, change.largest) for change in same} <= {(0, 0), (None, 0)}

    steps = certified.chain[2:]
    assert [(share.author, share.rounds, share.tokens, share.steps) for share in shares(steps)] == [
        (keys.node_id, 2, 2000, 20) for keys in KEYS[:3]
    ]
    assert [(rule.name, rule.f_agg, rule.rounds) for rule in rules(steps)] == [
        ("trimmed_mean", 1, 2)
    ]


def test_what_counts_for_nothing_is_nobodys_share(tmp_path: Path) -> None:
    maker = make_chain(tmp_path, 1)
    first, *others = maker.newest.contributors
    copied = replace(maker.newest, contributors=(replace(first, weight=0), *others))
    assert [share.author for share in shares([copied])] == [one.author for one in others]
