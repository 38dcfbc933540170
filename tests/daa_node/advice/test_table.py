"""Every message that a daemon has for its operator has a row, and no row is without a message."""

import ast
import re

import pytest

from daa_node.advice.of_events import EVENTS
from daa_node.advice.of_messages import FACTS, MESSAGES, REMARKS
from daa_node.advice.of_reasons import OF_OTHERS, REFUSALS, VOLUNTEERS
from daa_node.advice.row import NOTHING, Row
from daa_node.advice.table import (
    ALL_MESSAGES,
    OF_COMMANDS,
    OF_REFUSALS,
    OTHERWISE,
    OWN_WORDS,
    advice_of,
    advice_on_refusal,
    row_of_event,
    row_of_message,
    says_what_to_do,
)
from daa_node.observability import events
from tests.daa_node.advice.sources import (
    ENDINGS,
    OF_DAEMON,
    PACKAGE,
    REMARKED,
    all_texts,
    paths,
    reasons_in,
    text_of,
    texts_of,
    told_by,
    tree_of,
)

OF_SYSTEM = {"No space left on device", "No module named 'torch'"}  # not this program's words
OF_LOG = {"events_missed", "events_lost"}  # the log says them itself, and declares no name
TROUBLE = re.compile(
    r"_(failed|lost|refused|fault|banned|damaged|aborted|jumped|short|missing|over|near|skewed|"
    r"unknown|lack|unsaved|forked|elsewhere|wait)$|^quarantined$"
)
EVERY = (*EVENTS, *REFUSALS, *VOLUNTEERS, *ALL_MESSAGES, OF_OTHERS)


def declared() -> set[str]:
    return {str(value) for name, value in vars(events).items() if is_name(name, value)}


def is_name(name: str, value: object) -> bool:
    return name.isupper() and isinstance(value, str)


def test_each_event_has_one_row_and_each_row_an_event() -> None:
    keys = [row.key for row in EVENTS]
    assert sorted(keys) == sorted(declared() | OF_LOG)
    assert OWN_WORDS.keys() <= set(keys)


def test_an_events_own_words_stand_in_a_field_that_it_has() -> None:
    fields = set[tuple[str, str]]()
    for path in paths():
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="emit" | "_emit"), args=[first, *_], keywords=words
                ):
                    name = getattr(first, "attr", getattr(first, "id", ""))
                    fields |= {(str(getattr(events, name, "")), str(one.arg)) for one in words}
    assert {*OWN_WORDS.items()} - fields == set()


def test_of_each_trouble_it_is_said_what_to_do() -> None:
    troubles = [row for row in EVENTS if TROUBLE.search(row.key)]
    assert len(troubles) > 30
    assert [row.key for row in troubles if not row.do] == []


def test_each_message_that_ends_a_command_has_a_row_or_its_own_remedy() -> None:
    told = [one for path in paths() for one in told_by(ENDINGS, path)]
    assert len(told) > 450
    without = [(at, text) for at, text in told if not says_what_to_do(text)]
    assert [one for one in without if row_of_message(one[1], OF_COMMANDS) is None] == []
    assert len(without) > 150  # the rule takes a remedy for one, and not whatever stands there


def test_each_remark_of_a_daemon_has_a_row_or_its_own_remedy() -> None:
    told = [
        (at, text)
        for name in OF_DAEMON
        for at, text in told_by(REMARKED, PACKAGE / "cli" / f"{name}.py")
        if not text.endswith("...")  # it is under way, and nothing is wrong
    ]
    assert len(told) >= len(REMARKS)
    rows = [*REMARKS, *MESSAGES]
    lacks = [
        one for one in told if not says_what_to_do(one[1]) and not row_of_message(one[1], rows)
    ]
    assert lacks == []


def test_each_finding_has_its_advice_beside_it_or_a_row() -> None:
    lacks, count = [], 0
    for path in sorted((PACKAGE / "cli" / "doctor").glob("*.py")):
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Call(func=ast.Name(id="wrong" | "amiss"), args=[_, cause]):
                    told = text_of(cause, {})
                    count += 1
                    if re.search("[a-z]{4}", told) and row_of_message(told) is None:
                        lacks.append(told)
    assert count > 20
    assert lacks == []


def test_each_fact_below_an_error_has_a_row() -> None:
    told = [
        text
        for text in texts_of(tree_of(PACKAGE / "cli" / "doctor" / "explained.py"))
        if " {}" in text or "{} " in text or "just now" in text
    ]
    assert len(told) >= len(FACTS)
    facts = {text for text in told if row_of_message(text, FACTS) is None}
    assert facts == {"where {} lies", "found: {}", "what to do: {}"}  # parts of them


def test_each_reason_to_refuse_a_node_or_a_browser_has_a_row() -> None:
    assert set(OF_REFUSALS) == reasons_in("network/hello", "network/places", "identity/record")
    assert {row.key for row in VOLUNTEERS} == reasons_in("gateway/", "identity/volunteer")


def test_each_row_has_a_message_of_the_program() -> None:
    texts = [text for text in all_texts() if len(text) > 5]
    for row in ALL_MESSAGES:
        fits = any(row.place_in(text) is not None for text in texts)
        assert fits or row.key in OF_SYSTEM, row.key


def test_no_row_hides_behind_an_earlier_one() -> None:
    for row in ALL_MESSAGES:
        assert row_of_message(row.key.replace(" ... ", " x ")) is row


def test_a_row_speaks_two_sentences_at_most_and_leaves_the_last_stop_out() -> None:
    for row in EVERY:
        for words in (row.means, row.do):
            bare = re.sub(r"`[^`]*`", "it", words)
            assert len(re.findall(r"[.!?](?= )", bare)) <= 1, words
            assert not words.endswith("."), words
            assert words[:1] in ("", "`") or words[0].isupper(), words
        assert row.means


def test_advice_is_never_empty() -> None:
    assert advice_of("something new") == OTHERWISE
    assert advice_on_refusal("something new") == OF_OTHERS.advice
    assert Row("key", "It means this").advice == NOTHING


@pytest.mark.parametrize(
    "message",
    [
        "holds half a node",
        "a daemon is already running in /x (pid 1)",
        "n/agreement/wal: record 3 at byte 9 is damaged, and a whole one follows at byte 30",
        "no keys at /x",
    ],
)
def test_what_takes_something_away_is_known_as_such(message: str) -> None:
    row = row_of_message(message)
    assert row is not None
    assert row.is_drastic


def test_most_rows_take_nothing_away() -> None:
    assert sum(row.is_drastic for row in EVERY) < len(EVERY) / 6


def test_an_event_is_known_by_our_own_words_alone() -> None:
    for row in ALL_MESSAGES:
        words = row.key
        told = {"name": "peer_refused", "reason": words, "detail": words}
        assert row_of_event(told) is OF_OTHERS or words in OF_REFUSALS
        assert row_of_event({"name": "peer_fault", "reason": words, "detail": words}) in EVENTS
        assert row_of_event({"name": words}) is None
    assert row_of_event({"name": ["x"], "reason": {}}) is None
    full = row_of_event({"name": "volunteer_refused", "reason": "full"})
    assert full is not None
    assert "sessions_max" in full.do


@pytest.mark.parametrize(
    ("message", "is_told"),
    [
        ("there is no node in D: make one with it", True),
        ("x is in use: stop that first", True),
        ("give another one, or choose a shorter --dir", True),
        ("cannot read x: Permission denied", False),
        ("the settings are wrong", False),
        ("x: its setter has no use", False),
    ],
)
def test_which_message_says_itself_what_to_do(message: str, is_told: bool) -> None:
    assert says_what_to_do(message) is is_told


def test_the_reader_of_sources_sees_a_message_that_nobody_knows() -> None:
    """Else the tests above would pass for whatever is raised."""
    (raised,) = ast.parse('raise UserError(f"{x}: {WHAT} all day")').body
    assert isinstance(raised, ast.Raise)
    assert isinstance(raised.exc, ast.Call)
    told = text_of(raised.exc.args[0], {"WHAT": "frobs"})
    assert told == "{}: frobs all day"
    assert row_of_message(told) is None
    assert not says_what_to_do(told)
