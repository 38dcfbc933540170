"""What passes over a chain find is told once each, tried while there is hope, shown in part."""

from collections.abc import Iterable
from typing import Any

import pytest
import trio

from daa_node.checkpoints import found_damage
from daa_node.checkpoints.found_damage import FAILED_MAX, FOUND_MAX, FoundDamage
from daa_node.checkpoints.repair import Repair
from daa_node.errors import StorageFailed
from daa_node.observability.events import EventLog

REPAIR: Any = object()  # whoever mends here needs none


class Damage:
    """Passes, and others that have some of it."""

    def __init__(self, held: Iterable[str] = ()) -> None:
        self.held = set(held)
        self.told: list[tuple[str, str]] = []
        self.tried: list[str] = []
        self.found = FoundDamage(
            EventLog(lambda: 0, lambda event: self.told.append((event["name"], event["detail"])))
        )

    def passes(self, *names: str, repair: Repair | None = REPAIR) -> list[str]:
        """Which of these are good after one more pass."""
        self.found.begin(repair)
        return self.finds(*names)

    def finds(self, *names: str) -> list[str]:
        return [name for name in names if trio.run(self._finds, name)]

    async def _finds(self, name: str) -> bool:
        async def mend(_: Repair) -> bool:
            self.tried.append(name)
            if name == "full":
                raise StorageFailed("no room")
            return name in self.held

        return await self.found.wrong(StorageFailed(name), mend)


def test_what_is_found_again_in_a_pass_is_told_of_and_tried_once() -> None:
    damage = Damage()
    assert damage.passes("a", "a") == []
    assert damage.told == [("record_damaged", "a"), ("record_lost", "a")]
    assert damage.tried == ["a"]


def test_a_disk_that_takes_nothing_more_is_told_of_and_the_pass_goes_on() -> None:
    damage = Damage(["a"])
    assert damage.passes("full", "a") == ["a"]
    assert damage.told == [
        ("record_damaged", "full"),
        ("storage_failed", "no room"),
        ("record_lost", "full"),
        ("record_damaged", "a"),
        ("record_repaired", "a"),
    ]
    assert (damage.found.damaged, damage.found.mended) == (["full"], ["a"])


def test_each_pass_lists_what_it_has_found_itself() -> None:
    damage = Damage(["a"])
    damage.passes("a", "b")
    assert damage.found.shown() == (("b",), ("a",))
    assert damage.passes() == []
    assert damage.found.shown() == ((), ())
    assert (damage.found.damaged, damage.found.mended) == ([], [])


def test_what_has_been_mended_is_told_of_as_lost_when_it_is_lost_again() -> None:
    damage = Damage()
    for held in (set[str](), {"a"}, set[str]()):
        damage.held = held
        damage.passes("a")
    assert [name for name, _ in damage.told if name != "record_damaged"] == [
        "record_lost",
        "record_repaired",
        "record_lost",
    ]


def test_all_is_named_and_of_much_the_first_is_shown() -> None:
    names = [f"{number}" for number in range(2 * FOUND_MAX + 2)]
    bad, good = names[::2], names[1::2]
    damage = Damage(good)
    assert damage.passes(*good, *bad) == good
    assert (damage.found.damaged, damage.found.mended) == (bad, good)
    assert damage.found.shown() == (tuple(bad[:FOUND_MAX]), tuple(good[:FOUND_MAX]))


def test_so_much_is_tried_in_vain_in_a_pass_and_the_next_one_begins_anew() -> None:
    names = [f"{number}" for number in range(FAILED_MAX + 1)]
    damage = Damage(["good"])
    damage.passes("good", *names[:-2])
    assert not damage.found.is_spent
    damage.finds(*names[-2:])
    assert damage.found.is_spent
    assert damage.tried == ["good", *names[:-1]]
    damage.tried.clear()
    assert damage.passes("good", names[-1]) == ["good"]
    assert damage.tried == ["good", names[-1]]


def test_where_nobody_is_asked_what_is_found_is_told_all_the_same() -> None:
    damage = Damage(["a", "b"])
    assert damage.passes("a", repair=None) == []
    damage.found.begin(REPAIR)
    damage.found.asks = False
    assert damage.finds("b") == []
    assert damage.tried == []
    assert damage.told == [("record_damaged", "a"), ("record_damaged", "b")]
    assert damage.passes("a") == ["a"]
    assert damage.passes("a", repair=None) == []


def test_of_what_was_given_up_the_newest_names_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(found_damage, "GIVEN_UP_MAX", 3)
    damage = Damage()

    def lost(*names: str) -> list[str]:
        damage.told.clear()
        damage.passes(*names)
        return [what for name, what in damage.told if name == "record_lost"]

    assert lost("a", "b", "c") == ["a", "b", "c"]
    assert lost("a", "b", "c") == []
    assert lost("d") == ["d"]
    assert lost("b", "c", "d") == []
    assert lost("a") == ["a"]
