"""What a source answers over a bulk session, read whole."""

import trio

from daa_node.errors import PeerFault, Unavailable
from daa_node.network.session_pool import Lease
from daa_node.wire.blob_messages import PIECE_BYTES, missing_bytes


async def frame_of(lease: Lease) -> bytes:
    """The next frame. Raises Unavailable."""
    with trio.move_on_after(lease.answer_timeout_s):
        return await _received(lease)
    raise Unavailable(f"no answer in {lease.answer_timeout_s} s")


async def answer_of(lease: Lease) -> bytes:
    """The next answer, put together if it comes in pieces. Raises Unavailable and PeerFault."""
    with trio.move_on_after(lease.answer_timeout_s):
        answer = await _received(lease)
        missing = missing_bytes(answer)
        if not missing:
            return answer
        whole = bytearray(answer)
        while missing:
            piece = await _received(lease)
            if len(piece) != min(missing, PIECE_BYTES):
                raise PeerFault("malformed", f"a piece of {len(piece)} bytes, {missing} to come")
            whole += piece
            missing -= len(piece)
        return bytes(whole)
    raise Unavailable(f"no answer in {lease.answer_timeout_s} s")


async def _received(lease: Lease) -> bytes:
    frame = await lease.stream.receive_frame()
    if frame is None:
        raise Unavailable("closed the session")
    return frame
