"""Checks of what the last run has left: its logs, the journal of its votes, its worker's words."""

import os
from collections import Counter
from datetime import UTC, datetime

from daa_node.adapters.disk_journal import LOG_BYTES_MAX
from daa_node.adapters.journal_format import GUARD_BYTES_MAX, guarded, log_of, records_of
from daa_node.advice.table import OF_REFUSALS, advice_on_refusal
from daa_node.cli.doctor.findings import Finding, amiss, unmeasured, well, wrong
from daa_node.cli.doctor.scene import Scene, lines_at_end, tail_of
from daa_node.errors import StorageFailed, UserError
from daa_node.observability import events as names

LAST_WORDS_BYTES, LAST_WORDS_LINES = 2000, 8  # of the worker's log
REASONS_MAX = 8  # of refusals that are told one by one, beside those of the table
DEATHS_MAX = 3  # of workers in a run: more is no accident


async def look_at_event_log(scene: Scene) -> list[Finding]:
    """Whether its last line is whole."""
    path = scene.directory.events
    if not path.exists():
        return [well("event log", "there is none yet")]
    if scene.runs is None and tail_of(path, 1) not in (b"", b"\n"):
        return [
            amiss(
                "event log",
                f"{path} ends in the middle of a line: the daemon was killed, or the power went",
            )
        ]
    lost = [event for event in scene.log if event.get("name") == "events_lost"]
    if lost:
        count = sum(int(event.get("count", 0)) for event in lost)
        return [
            amiss(
                "event log",
                f"{path} lacks {count} events of this run: the disk did not take them",
            )
        ]
    return [well("event log", f"{path} is whole")]


async def look_at_journal(scene: Scene) -> list[Finding]:
    """Whether what this node has signed can be read, which it must not contradict."""
    path = scene.directory.agreement / "wal"
    if not path.exists():
        return [well("journal", "this node has signed nothing yet")]
    if scene.runs is not None:
        return [unmeasured("journal", "the daemon that runs here writes it")]
    try:
        size_bytes = path.stat().st_size
        if size_bytes > LOG_BYTES_MAX:
            raise StorageFailed(f"{path} has {size_bytes} bytes, at most {LOG_BYTES_MAX}")
        stored = path.read_bytes()
        records = records_of(str(path), stored)
    except OSError as fault:
        return [wrong("journal", f"cannot read {path}: {fault}")]
    except (StorageFailed, UserError) as fault:
        return [wrong("journal", str(fault))]
    found = []
    whole_bytes = len(log_of(records))
    if whole_bytes < size_bytes:
        found.append(
            amiss(
                "journal",
                f"{path}: after {len(records)} whole records, its last {size_bytes - whole_bytes} "
                "bytes are half a one: the daemon was killed, or the power went",
            )
        )
    found += _look_at_guard(scene)
    return found or [well("journal", f"{len(records)} records, all whole")]


def _look_at_guard(scene: Scene) -> list[Finding]:
    path = scene.directory.agreement / "guard"
    try:
        with path.open("rb") as file:
            payload = guarded(str(path), file.read(GUARD_BYTES_MAX + 1))
    except FileNotFoundError:
        return []
    except OSError as fault:
        return [wrong("journal", f"cannot read {path}: {fault}")]
    except UserError as fault:
        return [wrong("journal", str(fault))]
    if payload:
        return []
    return [
        amiss(
            "journal",
            f"{path} is damaged: this node cannot know how far it has voted",
        )
    ]


async def look_at_worker(scene: Scene) -> list[Finding]:
    """Whether the training process lives, and what the last one said that did not."""
    log = [e for e in scene.log if e.get("name") in (names.TRAINER_STARTED, names.TRAINER_LOST)]
    lost = [event for event in log if event["name"] == str(names.TRAINER_LOST)]
    if not log:
        return [unmeasured("worker", "the newest events tell of none")]
    if not lost:
        return [well("worker", f"the last run lost none; pid {log[-1].get('pid')}")]
    words = _last_words(scene)
    cause = f"{_moment(lost[-1])} {lost[-1].get('why')}{words}"
    advice = (
        f"Read {scene.directory.trainer / 'worker.log'}. For want of memory, take trainer.threads "
        "or the batch lower, or see who else takes it; `dmesg` shows what the kernel has killed"
    )
    if log[-1] is lost[-1]:
        return [wrong("worker", f"no worker lives: {cause}", advice)]
    many = len(lost) > DEATHS_MAX
    told = f"{len(lost)} of the last run died, and the next one went on; the last: {cause}"
    return [wrong("worker", told, advice) if many else amiss("worker", told, advice)]


def _last_words(scene: Scene) -> str:
    """Of the newest worker: what is there of it when it has just ended."""
    tail = lines_at_end(scene.directory.trainer / "worker.log", LAST_WORDS_BYTES)
    lines = tail.strip().splitlines()[-LAST_WORDS_LINES:]
    return f"\nthe end of worker.log:\n{os.linesep.join(lines)}" if lines else ""


def _moment(event: object) -> str:
    stamp = event.get("ts") if isinstance(event, dict) else None
    if not isinstance(stamp, int | float):
        return "at some time:"
    return f"{datetime.fromtimestamp(stamp, UTC):%Y-%m-%d %H:%M:%S} UTC:"


async def look_at_refusals(scene: Scene) -> list[Finding]:
    """Why others and the daemon of the last run would not talk with each other."""
    refused = [event for event in scene.log if event.get("name") == str(names.PEER_REFUSED)]
    if not scene.log:
        return [unmeasured("refusals", "there are no events of a run")]
    counts = Counter(str(event.get("reason")) for event in refused)
    newest = {str(event.get("reason")): event for event in refused}
    # Another node may give as many reasons as it likes, as often: none that we have advice for may
    # be hidden by it.
    unknown = sorted(counts.keys() - OF_REFUSALS, key=lambda reason: (-counts[reason], reason))
    told = (counts.keys() & OF_REFUSALS) | frozenset(unknown[:REASONS_MAX])
    found = [
        amiss(
            "refusals",
            f"{count} times {reason}, the last by {newest[reason].get('by')}, of peer "
            f"{newest[reason].get('peer_id')}: {newest[reason].get('detail')}",
            advice_on_refusal(reason),
        )
        for reason, count in sorted(counts.items())
        if reason in told
    ]
    if len(counts) > len(told):
        left = len(counts) - len(told)
        found.append(
            amiss("refusals", f"{left} reasons more, of other nodes", advice_on_refusal(""))
        )
    return found or [well("refusals", "nobody was refused, and nobody refused this node")]
