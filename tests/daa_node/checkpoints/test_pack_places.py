"""Of very many packs it is known at once which holds a record, also one that several hold."""

from daa_node.checkpoints.pack_places import PackPlaces


def key(number: int) -> bytes:
    return number.to_bytes(33, "big")


def test_each_key_is_in_a_pack_that_holds_it() -> None:
    places = PackPlaces([iter([key(1), key(2)]), iter([]), iter([key(2), key(3)])])
    assert [places.get(key(number)) for number in (1, 3, 4)] == [0, 2, None]
    assert places.get(key(2)) in (0, 2)


def test_a_look_takes_as_long_among_many_as_among_few() -> None:
    steps = []
    for count in (10, 10_000):
        places, taken = PackPlaces([map(key, range(count))]), 0

        def step() -> int:
            nonlocal taken
            taken += 1
            return 0

        places._base.set_progress_handler(step, 1)  # at each instruction of sqlite's
        assert places.get(key(count - 1)) == 0
        steps.append(taken)
    assert steps[1] < 2 * steps[0]
