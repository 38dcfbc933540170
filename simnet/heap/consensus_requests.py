"""Requests between nodes, members or not: stands in for daa_node/network/requests.py.

A question and its answer are frames on the wire like letters. Nobody waits for an answer here: what
is to be done with it comes along with the question, and a crash or a cut link takes either.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from daa_node.errors import PeerFault, Unavailable
from daa_node.network.requests import Answer
from daa_node.seams import PeerId
from simnet.heap.consensus_life import at_once

if TYPE_CHECKING:
    from simnet.heap.consensus_contact import World
    from simnet.heap.consensus_host import Host

Handler = Callable[[PeerId, bytes], Coroutine[Any, Any, bytes | Answer]]
Then = Callable[[bytes], None]


class Requests:
    """One life's: what it answers, and how it asks."""

    def __init__(
        self, world: "World", host: "Host", blame: Callable[[int, PeerFault], None]
    ) -> None:
        self._world = world
        self._host = host
        self._blame = blame
        self._handlers: dict[str, Handler] = {}

    def register(self, word: str, handler: Handler) -> None:
        self._handlers[word] = handler

    async def ask(self, peer_id: PeerId, word: str, body: bytes, _response_bytes_max: int) -> bytes:
        """As the daemon's, for who needs no answer."""
        self.put(self._world.network.number_at(peer_id), word, body, lambda _: None)
        return b""

    def put(self, receiver: int, word: str, body: bytes, then: Then) -> None:
        """`then` takes the answer, if one ever comes and this life still lasts."""
        world, host, life = self._world, self._host, self._host.lives

        def answered(answer: bytes, at: "Host") -> None:
            if at is host and host.lives == life:
                host.does(lambda: then(answer))

        def asked(other: "Host") -> None:
            office = other.office
            answer = None
            if office is not None and not other.is_paused:
                answer = office.requests.answer(host.keys.peer_id, word, body)
            if answer is not None:
                world.carrier.frame(other, host.node, answer, partial(answered, answer))

        world.carrier.frame(host, receiver, word.encode() + body, asked)

    def answer(self, peer_id: PeerId, word: str, body: bytes) -> bytes | None:
        """None for what is refused."""
        try:
            answer = at_once(self._handlers[word](peer_id, body))
            return answer.body if isinstance(answer, Answer) else answer
        except PeerFault as fault:
            self._blame(self._world.network.number_at(peer_id), fault)
        except Unavailable:
            pass
        return None
