"""How tests ask a server of ours over a real socket, in whatever words."""

import trio


async def connected(port: int, local: str = "127.0.0.1") -> trio.SocketStream:
    """`local`: the loopback address that asks."""
    return await trio.open_tcp_stream("127.0.0.1", port, local_address=local)


async def asked(port: int, request: bytes, local: str = "127.0.0.1") -> bytes:
    """All that it says until it hangs up; b"reset" at the end if it does so rudely."""
    async with await connected(port, local) as stream:
        said = b""
        try:
            await stream.send_all(request)
            while piece := await stream.receive_some(1 << 16):
                said += piece
        except trio.BrokenResourceError:
            said += b"reset"
        return said
