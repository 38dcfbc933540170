"""What a source answers over a bulk session, read whole.

A source is not dead while its answer is on the way, however slow the link, nor while it says that
the request waits for its turn: only silence is.
"""

import trio

from daa_node.errors import PeerFault, Unavailable
from daa_node.network.session_pool import Lease
from daa_node.wire.blob_messages import IN_TURN, PIECE_BYTES, missing_bytes

# Of one answer: at one in five seconds its turn comes within twenty minutes, as long as a round.
IN_TURN_MAX = 240
IN_TURN_TIMEOUTS = 60  # as long for who says so only as often as it must


async def frame_of(lease: Lease) -> bytes:
    """The next frame. Raises Unavailable."""
    frame = await lease.stream.receive_frame(lease.answer_timeout_s)
    if frame is None:
        raise Unavailable("closed the session")
    await lease.came(frame)
    return frame


async def turn_of(lease: Lease) -> bytes:
    """The next frame that is more than the word that one will come. Raises Unavailable.

    That word may come before each frame of an answer: who has a cap waits for it every time.
    """
    until_s = trio.current_time() + IN_TURN_TIMEOUTS * lease.answer_timeout_s
    for _ in range(IN_TURN_MAX + 1):
        frame = await frame_of(lease)
        if frame != IN_TURN:
            return frame
        if trio.current_time() > until_s:
            break
    raise Unavailable("the request's turn does not come")


async def answer_of(lease: Lease) -> bytes:
    """The next answer, put together if it comes in pieces. Raises Unavailable and PeerFault."""
    answer = await turn_of(lease)
    missing = missing_bytes(answer)
    if not missing:
        return answer
    whole = bytearray(answer)
    while missing:
        piece = await frame_of(lease)
        if len(piece) != min(missing, PIECE_BYTES):
            raise PeerFault("malformed", f"a piece of {len(piece)} bytes, {missing} to come")
        whole += piece
        missing -= len(piece)
    return bytes(whole)
