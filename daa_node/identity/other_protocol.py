"""Which protocol version a chain uses, and what if this program does not speak it."""

from dataclasses import dataclass
from typing import Protocol

from daa_consensus.membership import Membership
from daa_node.errors import UserError


class OtherProtocol(UserError):
    """`round` is the last one of the versions that it speaks, `version` that of all above.

    It ends the process before anything is signed in that epoch: who follows other rules than the
    others might sign what they hold against it.
    """

    def __init__(self, version: int, last_round: int, speaks: range) -> None:
        self.wanted = "a newer release" if version > speaks[-1] else "an older release"
        self.why = (
            f"from round {last_round + 1} on this network uses protocol {version}, and this "
            f"release speaks {_told(speaks)}"
        )
        super().__init__(
            f"{self.why}: install {self.wanted} of daa-compute, and start the node again in the "
            "same directory. This release has signed nothing of these rounds, and nothing is lost"
        )
        self.version = version
        self.last_round = last_round


def check_spoken(now: Membership, speaks: range, epoch_rounds: int) -> None:
    """Return when this program may take part in the epoch. Raises OtherProtocol."""
    version = now.committee.version
    if version not in speaks:
        raise OtherProtocol(version, now.epoch * epoch_rounds, speaks)


@dataclass(frozen=True, slots=True)
class ProtocolStanding:
    """`next_from` is the first round of the next version, once that is announced."""

    in_use: int
    next_from: int | None
    speaks_next: bool  # whether this program does

    def as_value(self) -> dict[str, int | bool | None]:
        return {
            "in_use": self.in_use,
            "next_from_round": self.next_from,
            "speaks_next": self.speaks_next,
        }


class History(Protocol):
    """Of validators, led on by a program that speaks these versions."""

    @property
    def now(self) -> Membership: ...

    @property
    def speaks(self) -> range: ...

    @property
    def epoch_rounds(self) -> int: ...


def standing_of(history: History) -> ProtocolStanding:
    """Which version of the protocol is used now, and which is next."""
    now, in_use = history.now, history.now.committee.version
    next_from = (now.epoch + 1) * history.epoch_rounds + 1 if now.words.announced else None
    return ProtocolStanding(in_use, next_from, in_use + 1 in history.speaks)


def _told(speaks: range) -> str:
    return f"{speaks[0]}" if len(speaks) == 1 else f"{speaks[0]} to {speaks[-1]}"
