"""multistream-select (specs/connections) in one round trip, and in few words.

Whoever opens names its protocol together with its greeting: the library waits for the other side's
greeting first, which costs every stream and every connection a round trip, though both lines are
written by each side anyway, in the same order. Whoever answers hears NAMES_MAX names and no more.
"""

from collections.abc import Sequence

import trio
from libp2p.abc import IMultiselectCommunicator
from libp2p.custom_types import StreamHandlerFn, TProtocol
from libp2p.protocol_muxer.exceptions import (
    MultiselectClientError,
    MultiselectCommunicatorError,
    MultiselectError,
)
from libp2p.protocol_muxer.multiselect import (
    DEFAULT_NEGOTIATE_TIMEOUT,
    PROTOCOL_NOT_FOUND_MSG,
    Multiselect,
)
from libp2p.protocol_muxer.multiselect_client import (
    MULTISELECT_PROTOCOL_ID,
    MultiselectClient,
)

# The versions of one protocol that a peer may try, newest first; a name costs us 0.1 ms.
NAMES_MAX = 8


class PromptClient(MultiselectClient):
    """Opens what has one protocol to offer, as all of ours has, in one round trip."""

    async def select_one_of(
        self,
        protocols: Sequence[TProtocol],
        communicator: IMultiselectCommunicator,
        negotiate_timeout: int = DEFAULT_NEGOTIATE_TIMEOUT,
    ) -> TProtocol:
        """Raises MultiselectClientError when the peer does not speak it, or does not answer."""
        (protocol,) = protocols
        try:
            with trio.fail_after(negotiate_timeout):
                await communicator.write(MULTISELECT_PROTOCOL_ID)
                await communicator.write(protocol)
                greeting, answer = await communicator.read(), await communicator.read()
        except (MultiselectCommunicatorError, trio.TooSlowError) as error:
            raise MultiselectClientError(f"{protocol}: {str(error) or 'no answer'}") from None
        if (greeting, answer) != (MULTISELECT_PROTOCOL_ID, protocol):
            raise MultiselectClientError(f"{protocol}: the peer says {greeting!r}, {answer!r}")
        return protocol


class BriefServer(Multiselect):
    """Answers what is opened towards us. The library goes on hearing names until its time is up."""

    async def negotiate(
        self,
        communicator: IMultiselectCommunicator,
        negotiate_timeout: int = DEFAULT_NEGOTIATE_TIMEOUT,
    ) -> tuple[TProtocol | None, StreamHandlerFn | None]:
        """The first name that we know, and its handler.

        Raises MultiselectError when NAMES_MAX names are none of ours, and when the peer is slow,
        leaves, or breaks the format.
        """
        try:
            with trio.fail_after(negotiate_timeout):
                await self.handshake(communicator)
                for _ in range(NAMES_MAX):
                    name = TProtocol(await communicator.read())
                    if name in self.handlers:
                        await communicator.write(name)
                        return name, self.handlers[name]
                    await communicator.write(PROTOCOL_NOT_FOUND_MSG)
        except (MultiselectCommunicatorError, trio.TooSlowError) as error:
            raise MultiselectError(str(error) or "too slow") from None
        raise MultiselectError(f"none of {NAMES_MAX} names is known")
