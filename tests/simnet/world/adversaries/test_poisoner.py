"""Poisoned updates against what is there to stop them: the codec's checks and the robust rule."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from daa_consensus.bft.messages import OfferBody
from daa_dag.ids import BlobRoot, NodeId, VertexId
from daa_node.errors import NotFinite, PeerFault
from daa_node.tensors import Float32Array, Int32Array, UInt8Array
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.compression.codec import codec_named, decode, encode
from daa_node.updates.grid import block_count_of
from simnet.world.adversaries.lying_trainer import (
    Sight,
    broken_blob,
    flipped_labels,
    little_z,
    poisoned,
    poisoned_blob,
    whisper,
)
from simnet.world.scenario import Poison

PARAMETERS, HONEST, POISONERS = 1000, 7, 3
CODEC = codec_named("int8")


def sight() -> Sight:
    """Honest updates agree on a direction, and differ by as much again."""
    chance = np.random.default_rng(7)
    direction_D = chance.normal(0, 0.01, PARAMETERS)
    honest_ND = (direction_D + chance.normal(0, 0.01, (HONEST, PARAMETERS))).astype(np.float32)
    own_D = (direction_D + chance.normal(0, 0.01, PARAMETERS)).astype(np.float32)
    return Sight(own_D, honest_ND, POISONERS, chance)


def decoded(blob: UInt8Array) -> Int32Array:
    return decode(CODEC, blob, 0, PARAMETERS, PARAMETERS)


def merged(rule: str, f_agg: int, seen: Sight, bad: UInt8Array) -> tuple[Int32Array, Int32Array]:
    """What the rule makes of honest blobs and as many bad ones as there are poisoners."""
    honest_ND = np.stack([decoded(encode(CODEC, row)) for row in seen.honest_ND])
    rows_ND = np.concatenate([honest_ND, np.stack([decoded(bad)] * POISONERS)])
    weights = [1] * len(rows_ND)
    return honest_ND, rule_named(rule).aggregate_chunk(rows_ND, weights, f_agg)


FINITE: list[Poison] = [kind for kind in get_args(Poison) if kind != "nan"]


@pytest.mark.parametrize("kind", FINITE)
def test_the_trimmed_mean_stays_within_what_honest_nodes_say(kind: Poison) -> None:
    seen = sight()
    honest_ND, merged_D = merged("trimmed_mean", POISONERS, seen, poisoned_blob(kind, seen, CODEC))
    assert (merged_D >= honest_ND.min(axis=0)).all()
    assert (merged_D <= honest_ND.max(axis=0)).all()
    against = float(np.dot(merged_D.astype(np.float64), seen.honest_ND.mean(axis=0)))
    assert against > 0, "the step goes where honest nodes want it to go, on the whole"


@pytest.mark.parametrize("kind", ["sign_flip", "noise", "huge"])
def test_a_plain_mean_does_not(kind: Poison) -> None:
    seen = sight()
    honest_ND, merged_D = merged("mean", 0, seen, poisoned_blob(kind, seen, CODEC))
    outside = (merged_D < honest_ND.min(axis=0)) | (merged_D > honest_ND.max(axis=0))
    assert outside.mean() > 0.1


def test_a_sign_flip_turns_a_plain_mean_around() -> None:
    seen = sight()
    _, merged_D = merged("mean", 0, seen, poisoned_blob("sign_flip", seen, CODEC))
    assert np.dot(merged_D.astype(np.float64), seen.honest_ND.mean(axis=0)) < 0


def test_little_hides_among_the_honest_and_still_pulls_every_parameter() -> None:
    seen = sight()
    poisoned_D = poisoned("little", seen)
    inside = (poisoned_D > seen.honest_ND.min(axis=0)) & (poisoned_D < seen.honest_ND.max(axis=0))
    assert inside.mean() > 0.95
    assert (poisoned_D < seen.honest_ND.mean(axis=0)).all()
    # Baruch et al., section 3.3: n = 50, f = 24 gives s = 2 and 24/26 of the honest nearer
    assert little_z(50, 24) == pytest.approx(1.4261, abs=1e-3)


def test_inner_product_points_away_from_everybody_and_is_short() -> None:
    seen = sight()
    poisoned_D, mean_D = poisoned("inner_product", seen), seen.honest_ND.mean(axis=0)
    assert np.dot(poisoned_D, mean_D) < 0
    assert np.linalg.norm(poisoned_D) < np.linalg.norm(mean_D)


def test_not_a_number_is_sealed_by_nobody_and_its_blob_is_refused() -> None:
    seen = sight()
    with pytest.raises(NotFinite):
        encode(CODEC, poisoned("nan", seen))
    with pytest.raises(PeerFault, match="exponent"):
        CODEC.check(poisoned_blob("nan", seen, CODEC), PARAMETERS, None)
    only_mantissas = broken_blob(CODEC, PARAMETERS)
    only_mantissas[-block_count_of(PARAMETERS) :] = 0
    with pytest.raises(PeerFault, match="mantissa"):
        CODEC.check(only_mantissas, PARAMETERS, None)


def test_huge_is_refused_by_the_cap_on_the_norm_which_honest_updates_pass() -> None:
    seen = sight()
    honest = encode(CODEC, seen.own_D)
    cap = 4 * CODEC.norm_squared(honest, PARAMETERS)
    CODEC.check(honest, PARAMETERS, cap)
    with pytest.raises(PeerFault, match="norm"):
        CODEC.check(poisoned_blob("huge", seen, CODEC), PARAMETERS, cap)


def test_labels_are_flipped_both_ways() -> None:
    labels_B = np.arange(10)
    assert flipped_labels(labels_B, 10).tolist() == list(range(9, -1, -1))
    assert (flipped_labels(flipped_labels(labels_B, 10), 10) == labels_B).all()


# Free riders


def test_doing_nothing_costs_the_others_next_to_nothing() -> None:
    seen = sight()
    honest_ND, merged_D = merged(
        "trimmed_mean", 2, seen, encode(CODEC, np.zeros(PARAMETERS, np.float32))
    )
    fair_D = rule_named("trimmed_mean").aggregate_chunk(honest_ND, [1] * HONEST, 2)
    assert _cosine(merged_D, fair_D) > 0.95


def test_a_whisper_looks_like_work_by_its_norm_alone() -> None:
    seen = sight()
    heard_D = whisper(seen.own_D, seen.chance)
    assert np.linalg.norm(heard_D) == pytest.approx(np.linalg.norm(seen.own_D), rel=0.1)
    assert abs(_cosine(heard_D, seen.own_D)) < 0.2


def test_a_copy_has_another_root_for_it_binds_the_author() -> None:
    root = BlobRoot(b"b" * 32)
    own = OfferBody(1, NodeId(b"a" * 32), VertexId(b"v" * 32), root, 9, "int8", 1, 1, 1, 1, 0, ())
    copy = replace(own, author=NodeId(b"z" * 32))
    assert copy.blob_root == own.blob_root
    assert copy.root != own.root


def _cosine(one_D: Int32Array | Float32Array, other_D: Int32Array | Float32Array) -> float:
    one, other = one_D.astype(np.float64), other_D.astype(np.float64)
    return float(np.dot(one, other) / (np.linalg.norm(one) * np.linalg.norm(other)))
