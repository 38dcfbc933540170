"""Mistakes in whom members shun: each is found by what it must be held to, in a court of four.

Each would let somebody go who shows nothing, or cost somebody honest its place. The test that finds
one is named beside it; without the mistake it passes, as it does wherever it stands.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from daa_dag.ids import NodeId
from daa_node.disputes.decided_sets import DecidedSets
from daa_node.disputes.second_looks import SecondLooks
from daa_node.disputes.shunning import SHUNNED_ROUNDS, KeptShunning, Shunned, Shunning
from daa_node.errors import PeerFault
from daa_node.rounds.collect import Collection
from daa_node.spot_checks.findings import Part
from daa_node.training.boundaries import BOUNDARIES
from tests.daa_node.disputes import test_second_looks as looking
from tests.daa_node.rounds import test_acking as acking

pytestmark = pytest.mark.long
Failed = pytest.fail.Exception  # what was to be raised was not
Plant = Callable[[pytest.MonkeyPatch], None]
Test = Callable[..., Awaitable[None]]

# Shunned, and for how long


def nobody_is_shunned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SecondLooks, "_shun", lambda *_: None)


def it_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shunned, "until_round", property(lambda _: 10**9))


def each_time_is_the_first(patch: pytest.MonkeyPatch) -> None:
    def shun(self: Shunning, author: NodeId, newest_round: int) -> Shunned:
        self._last[author] = Shunned(newest_round, SHUNNED_ROUNDS)
        return self._last[author]

    patch.setattr(Shunning, "shun", shun)


def one_lost_disk_counts_again_and_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shunning, "is_counted", lambda *_: False)


def restarts_forget(patch: pytest.MonkeyPatch) -> None:
    async def load(_self: KeptShunning) -> None:
        """Nothing."""

    patch.setattr(KeptShunning, "load", load)


def shunned_work_is_acknowledged(patch: pytest.MonkeyPatch) -> None:
    make = Collection.__init__

    def made(self: Collection, *parts: Any) -> None:
        make(self, *parts[:3])

    patch.setattr(Collection, "__init__", made)


def no_round_relents(patch: pytest.MonkeyPatch) -> None:
    """Where too few are left to merge, there is no round."""
    patch.setattr(Collection, "relent", lambda _self: None)


# Of whom


def one_slow_answer_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SecondLooks, "_has_had_time", lambda *_: True)


def who_is_away_had_time(patch: pytest.MonkeyPatch) -> None:
    """Rounds are counted whether it contributed to them or not."""

    def since(self: DecidedSets, _author: NodeId, round_number: int) -> int:
        return self.newest_round - round_number

    patch.setattr(DecidedSets, "contributed_since", since)


def complaints_are_believed(patch: pytest.MonkeyPatch) -> None:
    async def found(*_: Any) -> tuple[list[Part], list[Any]]:
        return [Part.WEIGHTS], []

    patch.setattr(SecondLooks, "_found", found)


def anybody_complains(patch: pytest.MonkeyPatch) -> None:
    hear = SecondLooks.hear

    async def heard(self: SecondLooks, *what: Any) -> bytes:
        try:
            return await hear(self, *what)
        except PeerFault:
            return b""

    patch.setattr(SecondLooks, "hear", heard)


# What complaints are worth


def complaints_in_vain_cost_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SecondLooks, "_vain_of", lambda *_: {})


def one_author_mutes_its_checkers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SecondLooks, "_liars_max", property(lambda _: 0))


def what_is_shown_late_is_not_doubted(patch: pytest.MonkeyPatch) -> None:
    def deaf(self: SecondLooks, name: str, value: Any) -> None:
        object.__setattr__(self, name, (lambda *_: None) if name == "on_doubt" else value)

    patch.setattr(SecondLooks, "__setattr__", deaf)


def only_its_author_is_asked(patch: pytest.MonkeyPatch) -> None:
    def sources(_self: SecondLooks, author: NodeId, is_first: bool) -> list[tuple[NodeId, str]]:
        return [(author, BOUNDARIES)]

    patch.setattr(SecondLooks, "_sources", sources)


SHOWS_NOTHING = looking.test_who_shows_nothing_is_shunned_by_all_and_for_longer_each_time
WORK_FOLLOWS = looking.test_whose_work_follows_is_not_shunned_whoever_complains
COUNTS_ONCE = looking.test_one_lost_disk_counts_once_however_many_complain
WAS_CUT_OFF = looking.test_who_was_cut_off_has_contributed_nothing_and_is_not_shunned
SHOWS_LATE = partial(looking.test_who_shows_late_is_accused_of_what_is_wrong, hides_all=True)
SHUNNED = acking.test_whom_we_shun_we_acknowledge_only_where_too_few_are_left_to_merge
MISTAKES: dict[str, tuple[Plant, Test]] = {
    "nobody is shunned": (nobody_is_shunned, SHOWS_NOTHING),
    "shunning never ends": (it_never_ends, SHOWS_NOTHING),
    "each time is the first": (each_time_is_the_first, SHOWS_NOTHING),
    "one lost disk counts again and again": (*(one_lost_disk_counts_again_and_again, COUNTS_ONCE),),
    "a restart forgets": (
        *(restarts_forget, looking.test_a_restart_forgets_neither_whom_it_shuns_nor_for_how_long),
    ),
    "shunned work is given weight": (
        *(shunned_work_is_acknowledged, partial(SHUNNED, others_come=True)),
    ),
    "no round relents": (no_round_relents, partial(SHUNNED, others_come=False)),
    "one slow answer is enough": (one_slow_answer_is_enough, WAS_CUT_OFF),
    "who is away had time": (who_is_away_had_time, WAS_CUT_OFF),
    "a complaint is believed": (complaints_are_believed, WORK_FOLLOWS),
    "anybody complains": (
        *(anybody_complains, looking.test_only_who_was_drawn_is_heard_and_only_in_time),
    ),
    "complaints in vain cost nothing": (complaints_in_vain_cost_nothing, WORK_FOLLOWS),
    "one author mutes its checkers": (
        one_author_mutes_its_checkers,
        looking.test_who_has_its_checkers_complain_in_vain_first_is_shunned_all_the_same,
    ),
    "what is shown late is not doubted": (what_is_shown_late_is_not_doubted, SHOWS_LATE),
    "only its author is asked": (
        only_its_author_is_asked,
        looking.test_what_is_kept_from_its_checker_alone_it_gets_from_the_others,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, test = MISTAKES[name]
    plant(monkeypatch)
    clock, found = MockClock(autojump_threshold=0), list[BaseException]()
    try:
        trio.run(partial(test, autojump_clock=clock), clock=clock)
    # what a test says that fails: ValueError where there is not the one that it unpacks
    except* (AssertionError, ValueError, Failed) as failed:
        found.append(failed)
    assert found
