"""What a machine that joined has contributed, a line a minute; and how far its joining has come.

It follows the node's own events. A round counts once its set, certified, has this node's update.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from daa_node.cli import report
from daa_node.observability import events as names
from daa_node.observability.events import Event, EventLog

LINE_EACH_S = 60.0
ROUNDS_OPEN_MAX = 64  # sealed, and their set not heard of yet
BAR_CHARACTERS = 24
LINES_EACH_S = 5.0  # of progress, where there is no terminal


@dataclass(slots=True)
class Contribution:
    """Counted since the node was started."""

    rounds: int = 0  # certified while this node was here
    counted: int = 0  # of those, with its update
    tokens: int = 0  # of those
    share_sum: float = 0.0  # of each round's contributions
    loss_nats: float | None = None
    _sealed: dict[int, int] = field(default_factory=dict)  # tokens of the rounds that are open
    _decided: dict[int, tuple[bool, int]] = field(default_factory=dict)

    def note(self, event: Event) -> None:
        match event["name"]:
            case names.UPDATE_SEALED:
                self._sealed[event["round"]] = event["tokens"]
                self.loss_nats = event["loss_nats"]
                _cut(self._sealed)
            case names.SET_DECIDED:
                self._decided[event["round"]] = (event["ours"], event["contributors"])
                _cut(self._decided)
            case names.ROUND_FINALIZED:
                self._certified(event["round"])
            case _:
                pass

    def _certified(self, round_number: int) -> None:
        is_in, count = self._decided.pop(round_number, (False, 0))
        tokens = self._sealed.pop(round_number, 0)
        self.rounds += 1
        if is_in:
            self.counted += 1
            self.tokens += tokens
            self.share_sum += 1 / count

    def line(self) -> str:
        loss = "not measured yet" if self.loss_nats is None else f"{self.loss_nats:.4f} nats"
        share = 100 * self.share_sum / max(1, self.rounds)
        return (
            f"contributed: {self.counted} of {self.rounds} rounds, {self.tokens} tokens, "
            f"{share:.0f} % of all contributions; last loss {loss}"
        )


def _cut(kept: dict[int, int] | dict[int, tuple[bool, int]]) -> None:
    while len(kept) > ROUNDS_OPEN_MAX:
        del kept[min(kept)]


class Progress:
    """Proofs and the whole state on their way: a bar on a terminal, else a line now and then."""

    def __init__(self, draw: Callable[[str], None] | None, write: Callable[[str], None]) -> None:
        """`draw` where there is a terminal; `write` takes whole lines."""
        self._draw = draw
        self._write = write
        self._told_s = -LINES_EACH_S

    def note(self, event: Event, now_s: float) -> None:
        match event["name"]:
            case names.STATE_COMING:
                here, due = event["bytes"], event["bytes_due"]
                words, is_whole = _words(event["height"], here, due), due and here == due
                if self._draw is not None and not is_whole:
                    self._draw(words)
                elif is_whole or now_s - self._told_s >= LINES_EACH_S:
                    self._told_s = now_s
                    self._write(words)
            case names.GAP_CROSSED:
                self._write(
                    f"height {event['height']} is proved and whole, from {event['from_height']}"
                )
            case _:
                pass


def _words(height: int, here: int, due: int) -> str:
    if not due:
        return f"proofs       up to height {height}"
    full = BAR_CHARACTERS * here // due
    bar = "#" * full + "." * (BAR_CHARACTERS - full)
    return f"state {height:>6} [{bar}] {report.size(here)} of {report.size(due)}"


async def tell(log: EventLog) -> None:
    """Until cancelled."""
    made, progress = Contribution(), Progress(_drawing(), report.note)
    async with log.subscribe() as new, trio.open_nursery() as nursery:
        nursery.start_soon(_each_minute, made)
        async for event in new:
            made.note(event)
            progress.note(event, trio.current_time())


async def _each_minute(made: Contribution) -> None:
    while True:
        await trio.sleep(LINE_EACH_S)
        report.note(made.line())


def _drawing() -> Callable[[str], None] | None:
    return report.draw if sys.stderr.isatty() else None
