"""What a check tolerates of whom: by canaries, by what checks find, and whatever f liars say."""

import random
from dataclasses import replace
from math import inf, nan

import pytest

from daa_consensus.committee import Committee, Validator
from daa_dag import canonical
from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.seams import CanaryStep
from daa_node.spot_checks.calibration import (
    CANARY_STEPS,
    FLOOR,
    FOUND_KEPT,
    FOUND_LEAST,
    MARGIN,
    Calibration,
    DeviceReport,
    decode_report,
    high,
)

CEILING = 5e-3
NODES = [NodeId(bytes([number]) * 32) for number in range(1, 8)]
LIARS_MAX = 2  # of seven equal ones
ME, *OTHERS = NODES
CPU, GPU = "cpu x86_64 AVX512, torch 2.9", "cuda H200, torch 2.9"


def calibrated(
    own: float = 1e-6, members: list[NodeId] = NODES, liars_max: int = LIARS_MAX
) -> Calibration:
    calibration = Calibration(ME, (1, 200), lambda: members, lambda: liars_max)
    for _ in range(CANARY_STEPS):
        calibration.note_own(CanaryStep(CPU, own, repeats=True))
    return calibration


def report(device: str, distance: float) -> DeviceReport:
    return DeviceReport(device, CANARY_STEPS, distance, distance)


def told(calibration: Calibration, device: str, *distances: float) -> Calibration:
    """One after another says that its device is so far from canonical kernels."""
    for node, distance in zip(OTHERS, distances, strict=False):
        calibration.note_report(node, report(device, distance))
    return calibration


def test_nothing_known_is_the_genesis_tolerance() -> None:
    assert calibrated().tolerance(OTHERS[0]) == CEILING  # it has said nothing yet
    unfinished = Calibration(ME, (1, 200), lambda: NODES, lambda: LIARS_MAX)
    unfinished.note_own(CanaryStep(CPU, 1e-6, repeats=True))
    assert told(unfinished, CPU, *[1e-6] * 6).tolerance(OTHERS[0]) == CEILING


@pytest.mark.parametrize(
    ("own", "theirs", "tolerance"),
    [
        (1e-6, 2e-6, FLOOR),
        (5e-5, 1e-4, MARGIN * 1.5e-4),
        (1e-4, 5e-5, MARGIN * 2e-4),  # of our own kind none may be nearer than we
        (1e-6, 1e-3, CEILING),
        (1e-6, inf, CEILING),
        (inf, 1e-6, CEILING),
        (nan, 1e-6, CEILING),
    ],
)
def test_the_canaries_of_a_pair_add_up(own: float, theirs: float, tolerance: float) -> None:
    calibration = told(calibrated(own), CPU, *[theirs] * 6)
    assert calibration.tolerance(OTHERS[0]) == pytest.approx(tolerance)


def test_the_worst_of_eight_steps_counts_for_nothing() -> None:
    calibration = Calibration(ME, (1, 200), lambda: NODES, lambda: LIARS_MAX)
    for distance in (3.4e-4, *[1e-6] * (CANARY_STEPS - 1)):
        calibration.note_own(CanaryStep(CPU, distance, repeats=True))
    assert calibration.own == DeviceReport(CPU, CANARY_STEPS, 1e-6, 1e-6)


def test_kinds_are_told_apart() -> None:
    calibration = calibrated()
    for node, device, distance in zip(
        OTHERS, [CPU, CPU, CPU, GPU, GPU, GPU], [1e-6] * 3 + [2e-4] * 3, strict=True
    ):
        calibration.note_report(node, report(device, distance))
    assert calibration.tolerance(OTHERS[0]) == FLOOR
    assert calibration.tolerance(OTHERS[3]) == pytest.approx(MARGIN * (2e-4 + 1e-6))


@pytest.mark.parametrize("lie", [0.0, 1e-3, 1.0, inf])
def test_f_liars_widen_nothing_beyond_what_the_honest_show(lie: float) -> None:
    """Whatever two of seven say or show, of whatever kind: twenty lives by chance."""
    for seed in range(20):
        chance = random.Random(seed)
        honest = [chance.uniform(1e-5, 1e-4) for _ in range(4)]
        calibration = told(calibrated(1e-5), CPU, *honest, lie, lie)
        for liar in OTHERS[4:]:
            for _ in range(FOUND_KEPT):
                calibration.note_found(liar, min(lie, CEILING))
        most = MARGIN * (max(1e-5, *honest) + max(1e-5, *honest))
        for author in OTHERS:
            assert FLOOR <= calibration.tolerance(author) <= max(FLOOR, most)


def test_of_small_seats_more_may_lie_than_a_third_and_widen_nothing() -> None:
    """Three that weigh one each, beside four that weigh four."""
    seats = [Validator(node, 1 if node in OTHERS[3:] else 4) for node in NODES]
    liars_max = Committee(tuple(seats)).liars_max
    assert liars_max == 3 > LIARS_MAX
    calibration = told(calibrated(liars_max=liars_max), CPU, *[1e-6] * 3, *[inf] * 3)
    assert {calibration.tolerance(honest) for honest in OTHERS[:3]} == {FLOOR}


def test_who_is_alone_in_a_kind_is_tolerated_as_all_were() -> None:
    calibration = told(calibrated(), GPU, 0.0, 0.0)
    assert calibration.tolerance(OTHERS[0]) == CEILING  # both may lie, and doubt an honest third
    calibration.note_report(OTHERS[2], report(GPU, 2e-4))
    assert calibration.tolerance(OTHERS[0]) < CEILING


def test_who_lies_for_a_kind_of_its_own_widens_what_is_tolerated_of_itself_alone() -> None:
    for lie in (0.0, 1e-3, inf):
        calibration = told(calibrated(), CPU, *[1e-6] * 4)
        for liar in OTHERS[4:]:
            calibration.note_report(liar, report(f"quantum {lie}", lie))
            for _ in range(FOUND_KEPT):
                calibration.note_found(liar, CEILING)
            assert calibration.tolerance(liar) == CEILING
        assert {calibration.tolerance(honest) for honest in OTHERS[:4]} == {FLOOR}


def test_what_another_device_of_an_author_has_shown_says_nothing_of_its_new_one() -> None:
    def rough(members: int) -> Calibration:
        """All of them have shown steps that are further off than canaries."""
        calibration = told(calibrated(), GPU, *[1e-6] * 6)
        for author in OTHERS[:members]:
            for _ in range(FOUND_LEAST):
                calibration.note_found(author, 3e-4)
        assert calibration.pairs()[1]["checks"] == members * FOUND_LEAST
        return calibration

    moved = rough(6)
    for author in OTHERS:
        moved.note_report(author, report(CPU, 1e-6))
    assert {moved.tolerance(author) for author in OTHERS} == {FLOOR}
    for author in OTHERS:
        for _ in range(FOUND_LEAST):
            moved.note_found(author, 2e-4)
    assert {moved.tolerance(author) for author in OTHERS} == {MARGIN * 2e-4}
    before, again = rough(6), CanaryStep(CPU, 1e-6, repeats=True)
    for device, tolerance in ((GPU, MARGIN * 3e-4), (CPU, FLOOR)):
        after = Calibration(ME, (1, 200), lambda: NODES, lambda: LIARS_MAX)
        assert after.restore(before.encode(), again)
        told(after, device, *[1e-6] * 6)
        assert {after.tolerance(author) for author in OTHERS} == {tolerance}


def test_what_is_tolerated_is_told_with_its_reason() -> None:
    def why(calibration: Calibration, tolerance: float) -> str:
        said = calibration.of(OTHERS[0])
        assert said["tolerance"] == pytest.approx(tolerance)
        return str(said["why"])

    assert why(Calibration(ME, (1, 200), lambda: NODES, lambda: LIARS_MAX), CEILING) == (
        "it has not said yet what its device is"
    )
    unfinished = told(Calibration(ME, (1, 200), lambda: NODES, lambda: LIARS_MAX), CPU, *[1e-6] * 6)
    assert why(unfinished, CEILING) == "our own device is not measured yet"
    assert why(told(calibrated(), GPU, 1e-6), CEILING) == "too few say that they have such a device"
    near = told(calibrated(), CPU, *[1e-6] * 6)
    assert why(near, FLOOR) == "both devices are nearer than rare steps are"
    apart = told(calibrated(5e-5), CPU, *[1e-4] * 6)
    assert why(apart, MARGIN * 1.5e-4) == "by canary steps of both devices"
    for author in OTHERS[:3]:
        for _ in range(FOUND_LEAST):
            near.note_found(author, 3e-4)
    assert why(near, MARGIN * 3e-4) == "by what checks have found"
    assert near.pairs()[0]["why"] == "by what checks have found"
    far = told(calibrated(), CPU, *[inf] * 6)
    assert why(far, CEILING) == "these devices are further apart than the genesis tolerates"


def test_where_nobody_may_lie_a_word_is_enough() -> None:
    calibration = told(calibrated(members=NODES[:3], liars_max=0), GPU, 1e-4)
    assert calibration.tolerance(OTHERS[0]) == pytest.approx(MARGIN * (1e-4 + 1e-6))


def test_what_checks_find_widens_it_once_more_than_liars_show_it() -> None:
    calibration = told(calibrated(), CPU, *[1e-6] * 6)
    for shown, author in enumerate(OTHERS[:3]):
        assert calibration.tolerance(OTHERS[0]) == FLOOR, f"{shown} may be liars"
        for _ in range(FOUND_LEAST):
            calibration.note_found(author, 3e-4)
    assert calibration.tolerance(OTHERS[0]) == pytest.approx(MARGIN * 3e-4)


def test_what_is_beyond_the_genesis_tolerance_is_no_rounding() -> None:
    calibration = told(calibrated(), CPU, *[1e-6] * 6)
    for author in OTHERS:
        for _ in range(FOUND_KEPT):
            calibration.note_found(author, 1.01 * CEILING)
            calibration.note_found(author, inf)
            calibration.note_found(author, float("nan"))
    assert calibration.tolerance(OTHERS[0]) == FLOOR
    assert calibration.pairs()[0]["checks"] == 0


def test_who_is_no_member_counts_for_nothing_and_is_forgotten() -> None:
    members = list(NODES)
    calibration = told(calibrated(members=members), GPU, *[1e-4] * 6)
    assert calibration.tolerance(OTHERS[0]) < CEILING
    del members[2:]
    calibration.note_found(OTHERS[3], 1e-6)
    calibration.forget_others()
    assert calibration.report_of(OTHERS[3]) is None
    assert calibration.pairs()[1]["nodes"] == 1


def test_another_device_begins_anew() -> None:
    calibration = told(calibrated(), CPU, *[1e-6] * 6)
    calibration.note_own(CanaryStep(GPU, 1e-4, repeats=True))
    assert calibration.own is None
    assert calibration.steps_taken == 1
    assert calibration.tolerance(OTHERS[0]) == CEILING


def test_what_is_kept_is_taken_up_where_the_first_step_comes_out_again() -> None:
    before = told(calibrated(2e-5), CPU, *[1e-6] * 6)
    for author in OTHERS[:3]:
        for _ in range(2 * FOUND_KEPT):
            before.note_found(author, 3e-4)
    kept, again = before.encode(), CanaryStep(CPU, 2e-5, repeats=True)
    for step in (replace(again, device=GPU), replace(again, distance=3e-5)):
        assert not Calibration(ME, (1, 200), lambda: NODES, lambda: LIARS_MAX).restore(kept, step)
    after = Calibration(ME, (1, 200), lambda: NODES, lambda: LIARS_MAX)
    assert after.restore(kept, again)
    assert told(after, CPU, *[1e-6] * 6).pairs() == before.pairs()
    assert after.encode() == kept


def test_an_unsteady_device_is_known() -> None:
    calibration = calibrated()
    assert calibration.repeats
    calibration = Calibration(ME, (1, 200), lambda: NODES, lambda: LIARS_MAX)
    calibration.note_own(CanaryStep(GPU, 1e-6, repeats=False))
    assert not calibration.repeats


def test_a_report_survives_its_encoding_and_nothing_else_is_one() -> None:
    said = DeviceReport(CPU, CANARY_STEPS, 1.5e-6, 2.5e-5)
    assert decode_report(said.encode()) == said
    assert decode_report(DeviceReport(GPU, 1, inf, inf).encode()).high == 1.0
    nonsense: list[canonical.Value] = [
        [CPU, 8, 2, 1],  # the high one is less
        [CPU, 8, -1, 1],
        [CPU, 8, 0, 10**12 + 1],
        [CPU, 0, 0, 0],
        [CPU, CANARY_STEPS + 1, 0, 0],
        ["", 8, 0, 0],
        ["x" * 81, 8, 0, 0],
        ["two\nlines", 8, 0, 0],
        [CPU, 8, 0],
        7,
    ]
    for value in nonsense:
        with pytest.raises(PeerFault):
            decode_report(canonical.encode(value))
    with pytest.raises(PeerFault):
        decode_report(b"\xc1")


def test_high_is_what_seven_of_eight_are_at_most() -> None:
    assert high([5.0]) == 5.0
    assert high(range(1, 9)) == 7
    assert high(range(1, 33)) == 28
