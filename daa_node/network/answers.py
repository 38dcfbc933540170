"""What a source answers over a bulk session, read whole.

A source is not dead while its answer is on the way, however slow the link, nor while it says that
the request waits for its turn: only silence is.
"""

from daa_node.errors import PeerFault, Unavailable
from daa_node.network.session_pool import Lease
from daa_node.wire.blob_messages import IN_TURN, PIECE_BYTES, missing_bytes

# Of one answer: at one in five seconds its turn comes within twenty minutes, as long as a round.
IN_TURN_MAX = 240


async def frame_of(lease: Lease) -> bytes:
    """The next frame. Raises Unavailable."""
    frame = await lease.stream.receive_frame(lease.answer_timeout_s)
    if frame is None:
        raise Unavailable("closed the session")
    await lease.came(len(frame))
    return frame


async def answer_of(lease: Lease) -> bytes:
    """The next answer, put together if it comes in pieces. Raises Unavailable and PeerFault."""
    answer = await frame_of(lease)
    for _ in range(IN_TURN_MAX):
        if answer != IN_TURN:
            break
        answer = await frame_of(lease)
    else:
        raise Unavailable("the request's turn does not come")
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
