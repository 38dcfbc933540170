"""One row of the table of advice: by what a message is known, what it means, and what to do.

A row says each in two sentences at most, without the last full stop. An empty `do` says that
nothing is to be done.
"""

import re
from dataclasses import dataclass

NOTHING = "Nothing: the node goes on by itself"
# Of advice that takes something away, which nobody should follow for a stranger's words alone.
_DRASTIC = re.compile(
    r"\b(remove|delete|restore|move|aside|chmod|chown|kill(?! -CONT)|end|overwrite|give up|copy|"
    r"sudo|make a new|rotate)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Row:
    """`key`: an event's name, a reason, or a message's words; " ... " in these is anything."""

    key: str
    means: str
    do: str = ""

    @property
    def advice(self) -> str:
        """Never empty."""
        return self.do or NOTHING

    @property
    def is_drastic(self) -> bool:
        """Whether it would hurt somebody who follows it without cause."""
        return _DRASTIC.search(self.do) is not None

    def place_in(self, message: str) -> int | None:
        """Where its words begin in that message; None if they are not all there, in order."""
        first, *more = self.key.split(" ... ")
        begin = message.find(first)
        if begin < 0:
            return None
        at = begin + len(first)
        for piece in more:
            found = message.find(piece, at)
            if found < 0:
                return None
            at = found + len(piece)
        return begin
