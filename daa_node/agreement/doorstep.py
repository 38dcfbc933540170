"""What those who are in nobody's mailbox ask of one node, and what this node tells members.

    asked by a peer -> lies with its connection, one each -> brought before the others, or forgotten

Who is no member and on no roll asks over the request protocol. So whatever strangers ask for takes
nobody's room, and needs no other room than a connection. A node that is a stranger itself tells
each member that it is connected with, in the same way.
"""

import math
from collections.abc import Callable, Collection, Set
from typing import Generic, TypeVar

import trio

from daa_node.errors import PeerFault, Unavailable, UserError
from daa_node.network.requests import Requests
from daa_node.seams import PeerId

ANSWER_BYTES_MAX = 64

Asked = TypeVar("Asked")


class Doorstep(Generic[Asked]):
    """One node's, of one kind."""

    def __init__(
        self,
        requests: Requests,
        members_connected: Callable[[], list[PeerId]],
        connected: Callable[[], Collection[PeerId]],
    ) -> None:
        self.requests = requests
        self.members_connected = members_connected
        self._connected = connected
        self._asked: dict[PeerId, Asked] = {}

    def put(self, peer_id: PeerId, asked: Asked) -> bool:
        """It lies here as long as the peer is connected; whether nothing of it has lain here."""
        here = {peer_id, *self._connected()}
        is_new = peer_id not in self._asked
        self._asked = {peer: each for peer, each in self._asked.items() if peer in here}
        self._asked[peer_id] = asked
        return is_new

    def here(self) -> list[tuple[PeerId, Asked]]:
        """What lies here of those who are connected."""
        here = {*self._connected()}
        return [(peer_id, asked) for peer_id, asked in self._asked.items() if peer_id in here]

    async def tell_members(
        self,
        name: str,
        payload: bytes,
        within_s: float = math.inf,
        are_enough: Callable[[Set[PeerId]], bool] = lambda _heard: False,
    ) -> None:
        """Who hears it passes it on. Raises UserError when no member takes the request `name`.

        Once those who have are enough, or it is time, whoever does not answer is not waited for.
        """
        heard, refusals = set[PeerId](), list[str]()

        async def tell(peer_id: PeerId) -> None:
            try:
                await self.requests.ask(peer_id, name, payload, ANSWER_BYTES_MAX)
            except (Unavailable, PeerFault) as failure:
                refusals.append(str(failure))
                return
            heard.add(peer_id)
            if are_enough(heard):
                nursery.cancel_scope.cancel()

        with trio.move_on_after(within_s):
            async with trio.open_nursery() as nursery:
                for peer_id in self.members_connected():
                    nursery.start_soon(tell, peer_id)
        if not heard:
            why = f": {refusals[0]}" if refusals else ""
            raise UserError(
                f"no member of the network has taken this{why}. `daa-node peers` lists who is "
                "connected; ask again when a member is",
                exit_code=1,
            )
