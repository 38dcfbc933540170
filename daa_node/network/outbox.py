"""Letters that wait for one member to read them: bounded in number and in bytes, of two kinds.

A word of ours is said again anyway, so the oldest make room for the newest. What the member asked
for it asks for again, so an answer that finds no room is not taken. A member that never reads
costs no more than that, and whoever reads on is told, once it has read what there is, of a gap.
"""

from collections import deque

OUTBOX_LETTERS_MAX = 256  # more than two views of votes, offers and acks of a hundred members
WORD_LETTERS_MAX = 2  # largest letters in bytes: the Proposal of this view and that of the last one


class Outbox:
    """One member's, oldest letter first."""

    def __init__(self) -> None:
        self._letters: deque[tuple[bytes, bool]] = deque()  # and whether each is an answer
        self._words = 0
        self._word_bytes = 0
        self.answer_bytes = 0
        self.has_gap = False  # something was dropped since this was last looked at

    def __len__(self) -> int:
        return len(self._letters)

    @property
    def size_bytes(self) -> int:
        return self._word_bytes + self.answer_bytes

    def put(self, letter: bytes, letter_bytes_max: int) -> None:
        """A word of ours: older ones go until it fits."""
        self._letters.append((letter, False))
        self._words += 1
        self._word_bytes += len(letter)
        while (
            self._words > OUTBOX_LETTERS_MAX
            or self._word_bytes > WORD_LETTERS_MAX * letter_bytes_max
        ):
            self._drop_oldest_word()
            self.has_gap = True

    def put_answer(self, letter: bytes, letter_bytes_max: int) -> bool:
        """What the member asked for; False if so much waits already that it must ask again."""
        crowded = len(self._letters) - self._words >= OUTBOX_LETTERS_MAX
        if crowded or self.answer_bytes + len(letter) > letter_bytes_max:
            return False
        self._letters.append((letter, True))
        self.answer_bytes += len(letter)
        return True

    def first(self) -> bytes:
        return self._letters[0][0]

    def sent(self, letter: bytes) -> None:
        """The letter has left; it may have been dropped meanwhile."""
        if self._letters and self._letters[0][0] is letter:
            _, is_answer = self._letters.popleft()
            self._count_out(letter, is_answer)

    def _drop_oldest_word(self) -> None:
        at = next(i for i, (_, is_answer) in enumerate(self._letters) if not is_answer)
        letter, _ = self._letters[at]
        del self._letters[at]
        self._count_out(letter, False)

    def _count_out(self, letter: bytes, is_answer: bool) -> None:
        if is_answer:
            self.answer_bytes -= len(letter)
        else:
            self._words -= 1
            self._word_bytes -= len(letter)
