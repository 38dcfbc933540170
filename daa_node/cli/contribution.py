"""A line a minute for whoever watches a terminal: how the node stands, and what it contributes.

It follows the node's own events. A round counts once its set, certified, has this node's update.
Whoever has just joined sees how far that has come, too.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from daa_node.cli import report
from daa_node.cli.remarks import remark
from daa_node.observability import events as names
from daa_node.observability.config import LogConfig
from daa_node.observability.events import Event, EventLog
from daa_node.training.config import TrainerConfig

LINE_EACH_S = 60.0
ROUNDS_OPEN_MAX = 64  # sealed, and their set not heard of yet
PEERS_COUNTED_MAX = 4096
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


@dataclass(slots=True)
class Standing:
    """What `run` says of the node besides; as of the newest events."""

    height: int | None = None
    loss_nats: float | str | None = None  # text: it is no number any more
    rounds: int = 0  # certified since the last line
    aborted: int = 0
    lacking: str | None = None  # of the quorum
    _peers: set[str] = field(default_factory=set)

    def note(self, event: Event) -> None:
        match event["name"]:
            case names.ROUND_FINALIZED:
                self.height, self.loss_nats = event["height"], event["loss_nats"]
                self.rounds += 1
            case names.ROUND_ABORTED:
                self.aborted += 1
            case names.PEER_JOINED if len(self._peers) < PEERS_COUNTED_MAX:
                self._peers.add(event["peer_id"])
            case names.PEER_LEFT:
                self._peers.discard(event["peer_id"])
            case names.QUORUM_WAIT:
                reach = f"{event['reachable']} of {event['total']} within reach"
                told = f"no quorum: {reach}, it takes {event['quorum']}"
                self.lacking = told if event["waiting"] else None
            case _:
                pass

    def line(self) -> str:
        """And begin the next minute."""
        height = f"height {self.height} (+{self.rounds})"
        parts = ["no round since the start" if self.height is None else height]
        if isinstance(self.loss_nats, float):
            parts.append(f"loss {self.loss_nats:.4f} nats")
        if self.aborted:
            parts.append(f"{self.aborted} aborted")
        parts.append(f"{len(self._peers)} {'peer' if len(self._peers) == 1 else 'peers'}")
        if self.lacking is not None:
            parts.append(self.lacking)
        self.rounds = self.aborted = 0
        return ", ".join(parts)


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
    made, progress = Contribution(), Progress(_drawing(), remark)
    async with log.subscribe() as new, trio.open_nursery() as nursery:
        nursery.start_soon(_each_minute, made.line)
        async for event in new:
            made.note(event)
            progress.note(event, trio.current_time())


def is_told(config: LogConfig) -> bool:
    """Whether somebody watches, or has asked for the line."""
    return config.each_minute or report.is_watched()


async def tell_standing(
    log: EventLog, settings: TrainerConfig, write: Callable[[str], None] = remark
) -> None:
    """The line of `run`, until cancelled. Plain, so that a file can hold it as well."""
    made, standing = Contribution(), Standing()

    def line() -> str:
        return f"{standing.line()}; {made.line() if settings.contribute else 'never trains'}"

    async with log.subscribe() as new, trio.open_nursery() as nursery:
        nursery.start_soon(_each_minute, line, write)
        async for event in new:
            made.note(event)
            standing.note(event)


async def _each_minute(line: Callable[[], str], write: Callable[[str], None] = remark) -> None:
    while True:
        await trio.sleep(LINE_EACH_S)
        write(line())


def _drawing() -> Callable[[str], None] | None:
    return report.draw if report.is_watched() else None
