"""`doctor --explain` knows a pasted line by this program's words; a stranger's choose no harm."""

import io
import json
import random

import pytest

from daa_node.advice.of_events import EVENTS
from daa_node.advice.of_reasons import OF_OTHERS
from daa_node.advice.table import ALL_MESSAGES, OF_REFUSALS, OTHERWISE, OWN_WORDS
from daa_node.cli.doctor.pasted import (
    CHARACTERS_MAX,
    ITSELF,
    LINES_MAX,
    LOOK_FIRST,
    Explained,
    explain,
    explained_line,
    explained_lines,
)
from daa_node.cli.remote import event_line
from daa_node.errors import UserError
from tests.daa_node.cli.conftest import Command

PORT = "error: cannot listen on /ip4/0.0.0.0/tcp/4001: Address already in use"
SKEW = {"ts": 1.5, "name": "peer_refused", "reason": "clock-skew", "detail": "x", "by": "us"}


def only(text: str) -> Explained:
    (found,) = explained_lines(text)
    return found


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "  {}  \r\n",
        "Nov 27 08:00:01 host daa-node[12]: {}",
        "2026-11-27T08:00:01.123456Z stdout F {}",
        "node-1  | {}",
        "\x1b[31m\x1b[1m{}\x1b[0m",
        "\x1b]0;title\x07{}",
        "\n\n{}\n{}\n",
        "> {}",
        "\x00\u200b{}",
    ],
)
def test_a_line_is_known_whatever_stands_around_it(around: str) -> None:
    lines = {
        PORT: "cannot listen on",
        json.dumps(SKEW): "peer_refused",
        event_line(SKEW): "peer_refused",
        event_line({"ts": 2.0, "name": "quarantined", "why": "a lost disk"}): "quarantined",
    }
    for line, known_by in lines.items():
        assert only(around.replace("{}", line)).known_by == known_by, around


def test_each_event_is_known_as_it_is_shown_and_as_it_is_written() -> None:
    for row in EVENTS:
        event = {"ts": 3.25, "name": row.key, "round": 7, "why": "it is so", "x": [1, "{"]}
        for line in (json.dumps(event), event_line(event)):
            found = explained_line(line)
            assert (found.known_by, found.means) == (row.key, row.means)
            assert found.advice == (LOOK_FIRST if row.is_drastic else row.advice)


def test_each_message_is_known_by_its_words() -> None:
    for row in ALL_MESSAGES:
        found = explained_line(f"error: {row.key.replace(' ... ', ' n ')}")
        assert (found.known_by, found.means) == (row.key, row.means)


def test_an_event_tells_what_this_host_says_of_it() -> None:
    for name, field in OWN_WORDS.items():
        event = {"ts": 1.0, "name": name, field: "cannot write x: No space left on device"}
        for line in (json.dumps(event), event_line(event)):
            assert explained_line(line).advice.startswith("Make room on that disk"), name


def test_no_words_of_a_stranger_choose_advice_that_harms() -> None:
    """Nor do they hide what the event itself is."""
    words = [row.key.replace(" ... ", " ") for row in ALL_MESSAGES]
    forged = [json.dumps({"name": row.key, "why": words[3]}) for row in EVENTS]
    for said in [*words, *forged, *map(event_line, map(json.loads, forged))]:
        for event in (
            {**SKEW, "detail": said},
            {"ts": 1.0, "name": "peer_fault", "reason": said, "detail": said},
            {"ts": 1.0, "name": "peer_refused", "reason": said, "detail": said},
        ):
            written = explained_line(json.dumps(event))
            assert written.known_by == event["name"]
            reason = str(event["reason"])
            if event["name"] == "peer_refused":
                assert written.means == OF_REFUSALS.get(reason, OF_OTHERS).means
        for line in (said, f"error: /ip4/x did not answer ({said})", f"x {said} y"):
            advice = explained_line(line).advice
            harms = [row for row in ALL_MESSAGES if row.is_drastic and row.do == advice]
            assert harms == [], line


def test_what_the_table_does_not_know_is_said_so() -> None:
    assert explained_line("a lamp is on").advice == OTHERWISE
    found = explained_line("the lamp is off: switch it on")
    assert (found.known_by, found.advice) == ("", ITSELF)
    assert explained_line('{"name": "lamp_on"}').known_by == ""
    assert explained_line('{"name": ["quarantined"]}').known_by == ""
    assert explained_line("{" * 20_000).known_by == ""
    assert explained_line("[" * 500 + "{" + '{"a":' * 20_000).known_by == ""


def test_many_lines_are_told_once_each_and_are_bounded() -> None:
    assert len(list(explained_lines(f"{PORT}\n{PORT}\n\n{json.dumps(SKEW)}"))) == 2
    many = "\n".join(f"line {number}" for number in range(LINES_MAX + 1))
    with pytest.raises(UserError, match="at most 64 lines"):
        list(explained_lines(many))
    with pytest.raises(UserError, match="at most 64000 characters"):
        list(explained_lines("x" * (CHARACTERS_MAX + 1)))
    for empty in ("", " \n\t", "\x1b[0m"):
        with pytest.raises(UserError, match="there is no text"):
            list(explained_lines(empty))
    assert len(only("cannot listen on " + "x" * 30_000).line) < 200


def test_nothing_that_is_pasted_breaks_it() -> None:
    seed = random.SystemRandom().getrandbits(32)
    chance = random.Random(seed)
    pieces = [
        "\x1b[",
        "{",
        '"',
        "}",
        '"name":',
        "12:00:00.000 ",
        "quarantined",
        "=",
        "\\",
        "\ud800",
    ]
    for _ in range(300):
        text = "".join(chance.choices(pieces, k=30)) + "x"
        found = explained_line(text)
        assert found.means, (seed, text)
        assert found.advice, (seed, text)


def test_it_reads_standard_input_and_says_whether_it_knows_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PORT}\nand more\n"))
    assert explain("-", as_json=False)
    told = capsys.readouterr().out
    assert f"{PORT}\n  What it means: Another program has that port" in told
    assert "  What to do: See who has the port" in told
    assert not explain("a lamp is on", as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["lines"][0]["line"]) == (False, "a lamp is on")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), "utf-8"))
    with pytest.raises(UserError, match="standard input is no text"):
        explain("-", as_json=False)
    monkeypatch.setattr("sys.stdin", None)  # as Python has it where it was closed (`<&-`)
    with pytest.raises(UserError, match="standard input is no text"):
        explain("-", as_json=False)


def test_the_command_looks_at_no_node(command: Command) -> None:
    done = command("doctor", "--explain", PORT, "--dir", "/nowhere")
    assert (done.code, "ss -ltnp" in done.out) == (0, True)
    assert command("doctor", "--explain", "a lamp is on").code == 1
    done = command("doctor", "--explain", PORT, "--bundle", "b.tar.gz")
    assert (done.code, "give one of the two" in done.err) == (2, True)
