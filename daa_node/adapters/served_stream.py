"""Serve a stream that a peer opened: what breaks in it ends that stream, and nothing else."""

from typing import Protocol

import trio

from daa_node.errors import NodeError
from daa_node.seams import ByteStream, StreamHandler


class ServedStream(ByteStream, Protocol):
    """As a transport hands it to a handler."""

    async def abort(self) -> None:
        """Reset it: who reads it learns that this was not the end."""


async def serve(stream: ServedStream, handler: StreamHandler) -> None:
    """Until the handler is done; reset the stream if that was for want of something.

    Raises what is no fault of this peer or this stream.
    """
    served = False
    try:
        await handler(stream)
        served = True
    except (NodeError, trio.BrokenResourceError, trio.TooSlowError):
        return  # of this peer, of this stream
    finally:
        await (stream.aclose() if served else stream.abort())
