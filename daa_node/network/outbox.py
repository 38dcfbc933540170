"""Messages that wait for one member to read them: bounded in number and in bytes, of two kinds.

A statement of ours is sent again anyway, so the oldest make room for the newest. What the member
asked for it asks for again, so an answer that finds no room is not taken. A member that never reads
costs no more than that, and whoever reads on is told, once it has read what there is, of a gap.
"""

from collections import deque

OUTBOX_MESSAGES_MAX = 256  # more than two views of votes, offers and acks of a hundred members
# largest messages in bytes: the Proposal of this view and that of the last one
STATEMENT_MESSAGES_MAX = 2


class Outbox:
    """One member's, oldest message first."""

    def __init__(self) -> None:
        self._messages: deque[tuple[bytes, bool]] = deque()  # and whether each is an answer
        self._statements = 0
        self._statement_bytes = 0
        self.answer_bytes = 0
        self._is_begun = False  # the first of them is under way, or was when the stream broke
        self.has_gap = False  # something was dropped since this was last looked at

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def size_bytes(self) -> int:
        return self._statement_bytes + self.answer_bytes

    def put(self, message: bytes, message_bytes_max: int) -> None:
        """A statement of ours: older ones go until it fits."""
        self._messages.append((message, False))
        self._statements += 1
        self._statement_bytes += len(message)
        while (
            self._statements > OUTBOX_MESSAGES_MAX
            or self._statement_bytes > STATEMENT_MESSAGES_MAX * message_bytes_max
        ):
            self._drop_oldest_statement()
            self.has_gap = True

    def put_answer(self, message: bytes, message_bytes_max: int) -> bool:
        """What the member asked for; False if so much waits already that it must ask again."""
        crowded = len(self._messages) - self._statements >= OUTBOX_MESSAGES_MAX
        if crowded or self.answer_bytes + len(message) > message_bytes_max:
            return False
        self._messages.append((message, True))
        self.answer_bytes += len(message)
        return True

    def first(self) -> bytes:
        """The one to be sent now."""
        self._is_begun = True
        return self._messages[0][0]

    def sent(self, message: bytes) -> None:
        """The message has left; it may have been dropped meanwhile."""
        if self._messages and self._messages[0][0] is message:
            self._is_begun = False
            self._count_out(*self._messages.popleft())

    def clear(self) -> None:
        """Forget all but the one that was begun, which the member may lack only the end of."""
        while len(self._messages) > self._is_begun:
            self._count_out(*self._messages.pop())

    def _drop_oldest_statement(self) -> None:
        at = next(i for i, (_, is_answer) in enumerate(self._messages) if not is_answer)
        message, _ = self._messages[at]
        del self._messages[at]
        self._is_begun &= at > 0
        self._count_out(message, False)

    def _count_out(self, message: bytes, is_answer: bool) -> None:
        if is_answer:
            self.answer_bytes -= len(message)
        else:
            self._statements -= 1
            self._statement_bytes -= len(message)
