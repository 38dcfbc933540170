"""A staller: says everything, as late as it may.

Each letter leaves only once so many more are due to the same receiver. Met by timers (a view that
it leads is given up and led by the next), by quorums that need nobody in particular, and by a
round's window, which waits for no single contributor.
"""

from collections import deque
from collections.abc import Sequence

from daa_node.agreement.letters import Letter
from simnet.adversaries.conduct import Conduct, Shelf, Voice

LETTERS_LATE = 12  # to each receiver: about a view of words, sent twice


class Staller(Conduct):
    """One queue a receiver."""

    shelf = Shelf.SLOW

    def __init__(self) -> None:
        self._late: dict[int, deque[Letter]] = {}

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter | bytes]:
        waiting = self._late.setdefault(receiver, deque())
        waiting.append(letter)
        return (waiting.popleft(),) if len(waiting) > LETTERS_LATE else ()
