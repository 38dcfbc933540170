"""What retention deletes is never needed to restore a vertex that it promises."""

from hypothesis import given
from hypothesis import strategies as st

from daa_dag.retention import Prunable, Retention, prunable


def test_nothing_goes_by_default() -> None:
    assert prunable(Retention(), 100, range(1, 101), [50, 100]) == Prunable((), ())


def test_deltas_up_to_the_floor_and_snapshots_below_it_go() -> None:
    going = prunable(Retention(vertices_restorable=3), 20, range(1, 21), [8, 16])
    assert going == Prunable(tuple(range(1, 17)), (8,))


def test_without_an_old_enough_snapshot_nothing_goes() -> None:
    assert prunable(Retention(vertices_restorable=5), 20, range(1, 21), [18]) == Prunable((), ())
    assert prunable(Retention(vertices_restorable=5), 20, range(1, 21), [0]) == Prunable((), ())


@given(
    st.integers(1, 60),
    st.integers(1, 70),
    st.sets(st.integers(1, 60)),
    st.integers(0, 30),
)
def test_every_promised_vertex_stays_restorable_and_pruning_again_finds_nothing(
    tip: int, restorable: int, snapshots: set[int], floor_before: int
) -> None:
    held = {height for height in snapshots if height <= tip}
    if floor_before in held:  # a chain that was pruned before
        deltas = set(range(floor_before + 1, tip + 1))
        held = {height for height in held if height >= floor_before}
    else:
        floor_before, deltas = 0, set(range(1, tip + 1))
    policy = Retention(vertices_restorable=restorable)
    going = prunable(policy, tip, deltas, held)
    deltas_left = deltas - set(going.delta_heights)
    starts = (held - set(going.snapshot_heights)) | ({0} if 1 in deltas_left or tip == 0 else set())
    for wanted in range(max(floor_before, tip - restorable + 1), tip + 1):
        nearest = max((s for s in starts if s <= wanted), default=None)
        assert nearest is not None or wanted == 0
        if nearest is not None:
            assert set(range(nearest + 1, wanted + 1)) <= deltas_left
    if held:
        assert max(held) not in going.snapshot_heights, "the newest snapshot never goes"
    again = prunable(policy, tip, deltas_left, held - set(going.snapshot_heights))
    assert again == Prunable((), ())
