"""Where sockets for bulk come in: on the port that peers dial, told apart by their first byte.

    who dials us                    our listener, see libp2p_sockets
    first byte, token, proof    -->     to the channel, which answers or closes it

So an operator opens one port, a router forwards one, and whoever reaches us with words does so with
bulk. A socket waits for its token among all that have just arrived: their places, and their pace.
"""

from collections.abc import Awaitable, Callable

import trio

FIRST_BYTE = b"B"  # multistream begins with 0x13, HTTP with "G", TLS with 0x16, a doorbell with "R"

# A socket with its first byte, and what to call once a token has shown that it is expected.
OnSocket = Callable[[trio.SocketStream, Callable[[], None]], Awaitable[None]]


async def _nobody_listens(_stream: trio.SocketStream, _prove: Callable[[], None]) -> None:
    """Its listener closes it."""


class BulkDoor:
    """The listeners and the channel know it; a channel without one cannot be dialled."""

    def __init__(self, is_dialable: Callable[[], bool] = lambda: True) -> None:
        """`is_dialable`: else peers are told none of our endpoints."""
        self.is_dialable = is_dialable
        self.on_socket: OnSocket = _nobody_listens
