"""A staller: says everything, as late as it may.

Each message leaves only once so many more are due to the same receiver. Met by timers (a view that
it leads is given up and led by the next), by quorums that need nobody in particular, and by a
round's window, which waits for no single contributor.
"""

from collections import deque
from collections.abc import Sequence

from daa_node.agreement.messages import Message
from simnet.world.adversaries.behaviour import Behaviour, Shelf, Voice

MESSAGES_LATE = 12  # to each receiver: about a view of statements, sent twice


class Staller(Behaviour):
    """One queue a receiver."""

    shelf = Shelf.SLOW

    def __init__(self) -> None:
        self._late: dict[int, deque[Message]] = {}

    def sends(self, voice: Voice, receiver: int, message: Message) -> Sequence[Message | bytes]:
        waiting = self._late.setdefault(receiver, deque())
        waiting.append(message)
        return (waiting.popleft(),) if len(waiting) > MESSAGES_LATE else ()
