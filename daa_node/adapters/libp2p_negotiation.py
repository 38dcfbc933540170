"""multistream-select (specs/connections) that names its protocol together with its greeting.

The library waits for the other side's greeting first, which costs every stream and every connection
a round trip. Both lines are written by each side anyway, in the same order.
"""

from collections.abc import Sequence

import trio
from libp2p.abc import IMultiselectCommunicator
from libp2p.custom_types import TProtocol
from libp2p.protocol_muxer.exceptions import MultiselectClientError, MultiselectCommunicatorError
from libp2p.protocol_muxer.multiselect_client import (
    DEFAULT_NEGOTIATE_TIMEOUT,
    MULTISELECT_PROTOCOL_ID,
    MultiselectClient,
)


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
