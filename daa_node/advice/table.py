"""The one table of what messages mean and what is to be done: what reads it asks here.

doctor              advice_of(cause)       of what it has found itself
run, join           row_of_message         below an error
doctor --explain    row_of_event, row_of_message
dashboard           row_of_event, over /v1/advice
the site            all rows
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from daa_node.advice.of_disks import DISKS, WIDE
from daa_node.advice.of_events import EVENTS
from daa_node.advice.of_findings import FINDINGS
from daa_node.advice.of_jobs import JOBS
from daa_node.advice.of_messages import FACTS, MESSAGES, REMARKS
from daa_node.advice.of_reasons import OF_OTHERS, REFUSALS, VOLUNTEERS
from daa_node.advice.row import Row

OTHERWISE = "Mend what the message names, and ask `daa-node doctor` again"
OF_EVENTS: Mapping[str, Row] = {row.key: row for row in EVENTS}
OF_REFUSALS: Mapping[str, Row] = {row.key: row for row in REFUSALS}
OF_VOLUNTEERS: Mapping[str, Row] = {row.key: row for row in VOLUNTEERS}
OF_COMMANDS: tuple[Row, ...] = (*MESSAGES, *JOBS, *DISKS, *WIDE)
# The first that fits counts.
ALL_MESSAGES: tuple[Row, ...] = (
    *FINDINGS,
    *MESSAGES,
    *JOBS,
    *DISKS,
    *FACTS,
    *REMARKS,
    *WIDE,
)

# Events, and the field of each whose words are this host's own: they say more than the name.
OWN_WORDS: Mapping[str, str] = {
    "config_reloaded": "error",
    "storage_failed": "detail",
    "descriptors_short": "detail",
    "history_failed": "detail",
    "gateway_failed": "error",
    "api_failed": "error",
    "trainer_lost": "why",
    "trainer_refused": "why",
    "first_weights_awaited": "why",
}

_VERBS = (
    "add|ask|begin|build|call|change|check|choose|compare|convert|copy|cut|do|drop|find|free|get|"
    "give|go|have|install|keep|leave|let|look|lower|make|mend|move|name|open|paste|pipe|point|put|"
    "raise|read|reinstall|remove|rename|repeat|restore|run|say|see|send|set|start|stop|switch|take|"
    "try|turn|type|update|upgrade|use|wait|write"
)
_LED_BY = r"(?:or |and |then |else |first |to [a-z ]+, )?"
# A clause that begins with what to do, or a command to type.
_REMEDY = re.compile(
    rf"(?:[:;.,(] ?{_LED_BY}|\bor )(?:{_VERBS})\b|`daa-node |\bpip install\b|: daa-node ",
    re.IGNORECASE,
)


def says_what_to_do(message: str) -> bool:
    """Whether the message has its own advice: a clause that begins with a verb, or a command."""
    return _REMEDY.search(message) is not None


def row_of_message(message: str, rows: Iterable[Row] = ALL_MESSAGES) -> Row | None:
    """The first of the rows that fits."""
    return next((row for row in rows if row.place_in(message) is not None), None)


def advice_of(message: str) -> str:
    """What to do about a message of this host's own; never empty."""
    row = row_of_message(message)
    return OTHERWISE if row is None else row.advice


def advice_on_refusal(reason: str) -> str:
    """What to do about a refusal that another node gave that reason for; never empty."""
    return OF_REFUSALS.get(reason, OF_OTHERS).advice


def row_of_event(event: Mapping[str, Any]) -> Row | None:
    """By the event's name, and by its reason where that is a word of this program.

    None for a name that this program does not have. Words of another node choose nothing.
    """
    name, reason = event.get("name"), event.get("reason")
    if not isinstance(name, str) or name not in OF_EVENTS:
        return None
    match name:
        case "peer_refused" if isinstance(reason, str):
            return OF_REFUSALS.get(reason, OF_OTHERS)
        case "volunteer_refused" if isinstance(reason, str) and reason in OF_VOLUNTEERS:
            return OF_VOLUNTEERS[reason]
    return OF_EVENTS[name]
